/* Room for one more? The engine is asked at most every ASK_US, whoever asks. A sandbox made on a disk
 * that is full could write nothing, and would take from those that run what little they have. */
#include <errno.h>
#include <inttypes.h>

#include "base/clock.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_room.h"

#define FREE_SPACE "delete sandboxes, snapshots or volumes, or free space on that disk"

enum { ASK_US = 250000 };

/* False when the engine does not say. */
bool space_of(struct sandboxes *all, struct engine_space *out)
{
    int64_t now = clock_mono_us();
    struct error ignored;
    bool ask;

    (void)pthread_mutex_lock(&all->space.lock);
    ask = all->space.asked_us == 0 || now - all->space.asked_us > ASK_US;
    if (ask)
        all->space.asked_us = now;
    *out = all->space.last;
    (void)pthread_mutex_unlock(&all->space.lock);
    if (!ask)
        return out->pool_bytes > 0;
    if (all->engine->ops->space(all->engine, out, &ignored) < 0)
        *out = (struct engine_space){0};
    (void)pthread_mutex_lock(&all->space.lock);
    all->space.last = *out;
    (void)pthread_mutex_unlock(&all->space.lock);
    return out->pool_bytes > 0;
}

bool space_last(struct sandboxes *all, struct engine_space *out)
{
    (void)pthread_mutex_lock(&all->space.lock);
    *out = all->space.last;
    (void)pthread_mutex_unlock(&all->space.lock);
    return out->pool_bytes > 0;
}

int space_check(struct sandboxes *all, struct error *err)
{
    struct engine_space space;

    if (!space_of(all, &space) || !space.full)
        return 0;
    return error_set(err, ERROR_NO_SPACE,
                     "the disk is full: %" PRIu64 " MiB are left for sandboxes, %" PRIu64
                     " MiB on the data directory's file system; " FREE_SPACE,
                     space.pool_free >> 20, space.host_free >> 20);
}

/* The disk can fill up after space_check(): the engine then reports a bare ENOSPC. EDQUOT comes from the sandbox's
 * own limit, which has nothing to do with the other sandboxes. */
int space_explain(struct error *err)
{
    struct error cause = *err;

    if (cause.code != ERROR_NO_SPACE || cause.errnum == EDQUOT)
        return -1;
    (void)error_set(err, ERROR_NO_SPACE, "the disk is full: %.160s; " FREE_SPACE, cause.message);
    err->errnum = cause.errnum;
    return -1;
}

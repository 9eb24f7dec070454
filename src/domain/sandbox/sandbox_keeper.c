/* What has no hurry, on a thread of its own: layers that nobody uses any more and volumes that could not
 * be deleted before are deleted, old history is forgotten, boxes that served volumes are ended, the
 * store is copied. */
#include "base/clock.h"
#include "base/log.h"
#include "domain/sandbox/sandbox_envd.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_layers.h"

enum {
    PRUNE_ROWS = 1000,
    EVENTS_KEPT = 1000 * 1000,
    AGAIN_US = 1000 * 1000,
    AGAIN_MAX_US = 60 * 1000 * 1000,
    REAP_US = 15 * 1000 * 1000
};
#define HOUR_US ((int64_t)3600 * 1000000)

/* A store that is restored from a copy knows at least what was there an hour ago. */
static void back_up(struct sandboxes *all)
{
    struct error err = {0};

    if (store_backup(all->store, HOUR_US - 60 * (int64_t)AGAIN_US, &err) < 0)
        log_error("sandbox", "%s; trying again in an hour", err.message);
}

/* Few rows at a time: the store is locked meanwhile. Returns when to come again. */
static int64_t prune(struct sandboxes *all)
{
    int64_t before = clock_wall_us() - (int64_t)STORE_HISTORY_DAYS * 24 * HOUR_US;
    struct error err = {0};
    size_t count = 0, events = 0, audit = 0;

    if (store_sandbox_prune(all->store, before, PRUNE_ROWS, &count, &err) < 0 ||
        store_event_prune(all->store, before, EVENTS_KEPT, PRUNE_ROWS, &events, &err) < 0 ||
        store_audit_prune(all->store, before - 23 * 24 * HOUR_US, EVENTS_KEPT, PRUNE_ROWS, &audit,
                          &err) < 0 ||
        store_idempotency_prune(all->store, clock_wall_us() - 24 * HOUR_US, &err) < 0)
        log_warn("sandbox", "forget old history: %s, ignoring", err.message);
    return clock_mono_us() + (count < PRUNE_ROWS && events < PRUNE_ROWS ? HOUR_US : AGAIN_US);
}

/* Returns when to come again; *pause grows with every failure. */
static int64_t collect(struct sandboxes *all, int64_t *pause)
{
    bool layers = layers_collect(all), volumes = volumes_collect(all);

    if (layers && volumes) {
        *pause = AGAIN_US;
        return clock_mono_us() + HOUR_US;
    }
    *pause = *pause * 2 < AGAIN_MAX_US ? *pause * 2 : AGAIN_MAX_US;
    return clock_mono_us() + *pause / 2;
}

static int64_t min_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

struct dates { /* when what is due */
    int64_t prune, collect, reap, copy;
    int64_t lease; /* 0: nothing to be told again */
    int64_t pause; /* before the next try to collect */
};

static int64_t next_of(const struct dates *at)
{
    int64_t next = min_of(min_of(at->reap, at->copy), min_of(at->prune, at->collect));

    return at->lease ? min_of(next, at->lease) : next;
}

/* Returns whether somebody is still to be told. */
static bool work(struct sandboxes *all, struct dates *at, bool collect_now)
{
    int64_t now = clock_mono_us();
    bool again = false;

    if (collect_now || now >= at->collect)
        at->collect = collect(all, &at->pause);
    if (now >= at->reap) {
        content_reap(all);
        at->reap = clock_mono_us() + REAP_US;
    }
    if (now >= at->prune)
        at->prune = prune(all);
    if (now >= at->copy) {
        back_up(all);
        at->copy = clock_mono_us() + HOUR_US;
    }
    if (at->lease && now >= at->lease) {
        again = lease_retry(all);
        at->lease = 0;
    }
    return again;
}

static void *keeper_run(void *arg)
{
    struct sandboxes *all = arg;
    struct keeper *keeper = &all->keeper;
    int64_t now = clock_mono_us();
    struct dates at = {.prune = now + HOUR_US,
                       .collect = now + HOUR_US,
                       .reap = now + REAP_US,
                       .copy = now + HOUR_US,
                       .pause = AGAIN_US};
    bool collect_now, again;

    back_up(all);
    (void)pthread_mutex_lock(&keeper->lock);
    while (!keeper->stopping) {
        now = clock_mono_us();
        if (keeper->lease && at.lease == 0)
            at.lease = now + AGAIN_US;
        if (!keeper->collect && now < next_of(&at)) {
            (void)cond_wait_us(&keeper->wanted, &keeper->lock, next_of(&at) - now);
            continue;
        }
        collect_now = keeper->collect;
        keeper->collect = false;
        if (at.lease && now >= at.lease)
            keeper->lease = false; /* who fails meanwhile sets it again */
        (void)pthread_mutex_unlock(&keeper->lock);
        again = work(all, &at, collect_now);
        (void)pthread_mutex_lock(&keeper->lock);
        keeper->lease |= again;
    }
    (void)pthread_mutex_unlock(&keeper->lock);
    return NULL;
}

void layers_collect_soon(struct sandboxes *all)
{
    (void)pthread_mutex_lock(&all->keeper.lock);
    all->keeper.collect = true;
    (void)pthread_cond_signal(&all->keeper.wanted);
    (void)pthread_mutex_unlock(&all->keeper.lock);
}

int keeper_start(struct sandboxes *all, struct error *err)
{
    int errnum = pthread_create(&all->keeper.thread, NULL, keeper_run, all);

    if (errnum)
        return error_set_errno(err, errnum, "start the keeper thread");
    all->keeper.has_thread = true;
    return 0;
}

void keeper_stop(struct sandboxes *all)
{
    (void)pthread_mutex_lock(&all->keeper.lock);
    all->keeper.stopping = true;
    (void)pthread_cond_signal(&all->keeper.wanted);
    (void)pthread_mutex_unlock(&all->keeper.lock);
    if (all->keeper.has_thread)
        (void)pthread_join(all->keeper.thread, NULL);
}

/* A condition for each kind of call, so that a channel given back wakes one of each and not all: whichever of them
 * may go on does, and no kind starves another. */
#include "host/engine/engine_channels.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/fd.h"
#include "host/engine/engine_wire.h"

enum {
    KEPT_FOR_OTHERS = 2, /* channels that all but quick calls leave free */
    LONG_CALLS = 2,
    LOOK_MS = 50, /* how often late replies are looked for */
};

struct slot {
    int fd;
    bool taken;
    uint64_t owed; /* serial of a reply that was given up on; 0 = none */
};

struct engine_channels {
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t wake[ENGINE_CALL_KINDS];
    size_t waiting[ENGINE_CALL_KINDS];
    size_t under_way[ENGINE_CALL_KINDS];
    size_t slow_max; /* of those that are not quick */
    uint64_t last_serial;
    size_t count;
    struct slot slots[ENGINE_CHANNELS_MAX];
};

struct engine_channels *engine_channels_new(const int *fds, size_t count)
{
    struct engine_channels *channels = xcalloc(1, sizeof(*channels));

    if (count == 0 || count > ENGINE_CHANNELS_MAX)
        abort();
    channels->count = count;
    channels->slow_max = count > KEPT_FOR_OTHERS ? count - KEPT_FOR_OTHERS : 1;
    for (size_t i = 0; i < count; i++)
        channels->slots[i].fd = fds[i];
    (void)pthread_mutex_init(&channels->lock, NULL);
    for (size_t i = 0; i < ENGINE_CALL_KINDS; i++)
        cond_init(&channels->wake[i]);
    return channels;
}

void engine_channels_free(struct engine_channels *channels)
{
    for (size_t i = 0; i < channels->count; i++)
        (void)close(channels->slots[i].fd);
    for (size_t i = 0; i < ENGINE_CALL_KINDS; i++)
        (void)pthread_cond_destroy(&channels->wake[i]);
    (void)pthread_mutex_destroy(&channels->lock);
    free(channels);
}

/* With the lock held. Has the late reply come? */
static bool settle(struct slot *slot)
{
    struct engine_reply reply;
    ssize_t n;

    while (slot->owed) {
        n = fd_recv(slot->fd, &reply, sizeof(reply), NULL, NULL, MSG_DONTWAIT);
        if (n == -EAGAIN || n == -EINTR)
            return false;
        /* A broken channel is told by whoever uses it next. */
        if (n != (ssize_t)sizeof(reply) || reply.serial == slot->owed)
            slot->owed = 0;
    }
    return true;
}

/* With the lock held. Are there as many of them as there may be? */
static bool crowded(const struct engine_channels *channels, enum engine_call kind)
{
    const size_t *under_way = channels->under_way;

    if (kind == ENGINE_CALL_LONG && under_way[ENGINE_CALL_LONG] >= LONG_CALLS)
        return true;
    return kind != ENGINE_CALL_QUICK &&
           under_way[ENGINE_CALL_LINGERING] + under_way[ENGINE_CALL_LONG] >= channels->slow_max;
}

/* With the lock held. */
static struct slot *find_free(struct engine_channels *channels, enum engine_call kind,
                              bool *out_owed)
{
    struct slot *found = NULL;

    *out_owed = false;
    for (size_t i = 0; i < channels->count && !found; i++) {
        struct slot *slot = &channels->slots[i];

        if (slot->taken)
            continue;
        if (settle(slot))
            found = slot;
        else
            *out_owed = true;
    }
    return crowded(channels, kind) ? NULL : found;
}

/* With the lock held. */
static void wait_ms(struct engine_channels *channels, enum engine_call kind, int64_t ms)
{
    channels->waiting[kind]++;
    (void)cond_wait_ms(&channels->wake[kind], &channels->lock, ms);
    channels->waiting[kind]--;
}

int engine_channel_take(struct engine_channels *channels, enum engine_call kind, int limit_ms,
                        struct engine_channel *out, struct error *err)
{
    int64_t end = clock_mono_ms() + limit_ms, left = limit_ms;
    struct slot *slot;
    bool owed;

    (void)pthread_mutex_lock(&channels->lock);
    while (!(slot = find_free(channels, kind, &owed)) && left > 0) {
        wait_ms(channels, kind, owed && left > LOOK_MS ? LOOK_MS : left);
        left = end - clock_mono_ms();
    }
    if (slot) {
        slot->taken = true;
        channels->under_way[kind]++;
        *out = (struct engine_channel){
            .fd = slot->fd, .serial = ++channels->last_serial, .kind = kind};
    }
    (void)pthread_mutex_unlock(&channels->lock);
    if (slot)
        return 0;
    (void)error_set(err, ERROR_UNAVAILABLE,
                    "the engine is busy: no way to it was free within %d ms; try again", limit_ms);
    err->errnum = EBUSY;
    return -1;
}

void engine_channel_give(struct engine_channels *channels, const struct engine_channel *channel,
                         bool answered)
{
    (void)pthread_mutex_lock(&channels->lock);
    for (size_t i = 0; i < channels->count; i++) {
        struct slot *slot = &channels->slots[i];

        if (slot->fd != channel->fd)
            continue;
        slot->taken = false;
        slot->owed = answered ? 0 : channel->serial;
    }
    channels->under_way[channel->kind]--;
    for (size_t i = 0; i < ENGINE_CALL_KINDS; i++)
        if (channels->waiting[i])
            (void)pthread_cond_signal(&channels->wake[i]);
    (void)pthread_mutex_unlock(&channels->lock);
}

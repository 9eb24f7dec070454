/* Counters for monitoring. */
#include "domain/sandbox/sandbox_internal.h"

/* A create takes about a millisecond. */
const int64_t sandbox_bucket_us[SANDBOX_BUCKETS] = {250,   500,   1000,   2000,   5000,   10000,
                                                    25000, 50000, 100000, 250000, 1000000};

void stats_add(struct sandboxes *all, enum stat stat)
{
    atomic_fetch_add(&all->stats.counters[stat], 1);
    webhooks_kick(all);
    (void)pthread_rwlock_rdlock(&all->watcher.lock);
    if (all->watcher.fn)
        all->watcher.fn(all->watcher.arg);
    (void)pthread_rwlock_unlock(&all->watcher.lock);
}

void sandboxes_watch(struct sandboxes *all, sandboxes_watch_fn *fn, void *arg)
{
    (void)pthread_rwlock_wrlock(&all->watcher.lock);
    all->watcher.fn = fn;
    all->watcher.arg = arg;
    (void)pthread_rwlock_unlock(&all->watcher.lock);
}

void stats_create(struct sandboxes *all, int64_t us)
{
    size_t bucket = 0;

    while (bucket < SANDBOX_BUCKETS && us > sandbox_bucket_us[bucket])
        bucket++;
    atomic_fetch_add(&all->stats.create_us[bucket], 1);
    atomic_fetch_add(&all->stats.create_sum_us, (uint64_t)us);
    stats_add(all, STAT_CREATED);
}

static size_t count_warm(struct sandboxes *all)
{
    size_t count = 0;

    (void)pthread_mutex_lock(&all->warm.lock);
    for (size_t i = 0; i < all->warm.pool_count; i++)
        count += all->warm.pools[i].count;
    (void)pthread_mutex_unlock(&all->warm.lock);
    return count;
}

void sandboxes_stats(struct sandboxes *all, struct sandboxes_stats *out)
{
    atomic_uint_fast64_t *counters = all->stats.counters;
    struct engine_space space;
    struct map_entry *entry;

    *out = (struct sandboxes_stats){
        .warm = count_warm(all),
        .created = atomic_load(&counters[STAT_CREATED]),
        .create_failed = atomic_load(&counters[STAT_CREATE_FAILED]),
        .paused = atomic_load(&counters[STAT_PAUSED]),
        .resumed_memory = atomic_load(&counters[STAT_RESUMED_MEMORY]),
        .resumed_disk = atomic_load(&counters[STAT_RESUMED_DISK]),
        .snapshots = atomic_load(&counters[STAT_SNAPSHOTS]),
        .ended = atomic_load(&counters[STAT_ENDED]),
        .create_sum_us = atomic_load(&all->stats.create_sum_us),
    };
    for (size_t i = 0; i <= SANDBOX_BUCKETS; i++)
        out->create_us[i] = atomic_load(&all->stats.create_us[i]);
    if (space_last(all, &space))
        out->space = (struct sandboxes_space){.pool_bytes = space.pool_bytes,
                                              .pool_free = space.pool_free,
                                              .host_bytes = space.host_bytes,
                                              .host_free = space.host_free,
                                              .held = space.held};
    (void)pthread_mutex_lock(&all->lock);
    map_for_each (&all->table, entry)
        out->states[((const struct sandbox *)entry->value)->state]++;
    (void)pthread_mutex_unlock(&all->lock);
}

/* Counters for monitoring. */
#include "domain/sandbox/sandbox_stats.h"
#include "domain/network/egress_link.h"
#include "domain/sandbox/sandbox_hooks.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_metrics.h"
#include "domain/sandbox/sandbox_room.h"

enum { NAMES_MAX = 1000 /* of teams or templates; the rest are one */ };

/* A create takes about a millisecond. */
const int64_t sandbox_bucket_us[SANDBOX_BUCKETS] = {250,   500,   1000,   2000,   5000,   10000,
                                                    25000, 50000, 100000, 250000, 1000000};

void stats_add(struct sandboxes *all, enum stats_counter stat)
{
    atomic_fetch_add(&all->stats.counters[stat], 1);
    watchers_call(all);
}

void stats_init(struct sandboxes *all)
{
    (void)pthread_mutex_init(&all->stats.lock, NULL);
    map_init(&all->stats.teams);
    map_init(&all->stats.templates);
}

void stats_done(struct sandboxes *all)
{
    map_done(&all->stats.teams);
    map_done(&all->stats.templates);
    (void)pthread_mutex_destroy(&all->stats.lock);
}

/* With the lock. */
static void count_name(struct map *names, struct str name)
{
    uintptr_t count = (uintptr_t)map_get(names, name);

    if (!count && names->count >= NAMES_MAX) {
        name = STR("other");
        count = (uintptr_t)map_get(names, name);
    }
    (void)map_put(names, name, (void *)(count + 1));
}

void stats_create(struct sandboxes *all, const struct store_sandbox *row, int64_t us)
{
    size_t bucket = 0;

    (void)pthread_mutex_lock(&all->stats.lock);
    count_name(&all->stats.teams, row->team_id);
    count_name(&all->stats.templates, row->alias.len ? row->alias : row->template_id);
    (void)pthread_mutex_unlock(&all->stats.lock);

    while (bucket < SANDBOX_BUCKETS && us > sandbox_bucket_us[bucket])
        bucket++;
    atomic_fetch_add(&all->stats.create_us[bucket], 1);
    atomic_fetch_add(&all->stats.create_sum_us, (uint64_t)us);
    stats_add(all, STAT_CREATED);
}

void sandboxes_creates_each(struct sandboxes *all, bool templates, sandboxes_count_fn *fn,
                            void *arg)
{
    const struct map *names = templates ? &all->stats.templates : &all->stats.teams;
    struct map_entry *at;

    (void)pthread_mutex_lock(&all->stats.lock);
    map_for_each (names, at)
        fn(arg, str_n(at->key, at->key_len), (uintptr_t)at->value);
    (void)pthread_mutex_unlock(&all->stats.lock);
}

void sandboxes_teams_each(struct sandboxes *all, bool paused, sandboxes_count_fn *fn, void *arg)
{
    struct map teams;
    struct map_entry *at;

    map_init(&teams);
    (void)pthread_mutex_lock(&all->lock);
    map_for_each (&all->table, at) {
        const struct sandbox *sandbox = at->value;

        if (sandbox->team_id[0] && sandbox->state == (paused ? SANDBOX_PAUSED : SANDBOX_RUNNING))
            count_name(&teams, str_of(sandbox->team_id));
    }
    (void)pthread_mutex_unlock(&all->lock);
    map_for_each (&teams, at)
        fn(arg, str_n(at->key, at->key_len), (uintptr_t)at->value);
    map_done(&teams);
}

void sandboxes_set_limits(struct sandboxes *all, const struct sandboxes_limits *limits)
{
    (void)pthread_mutex_lock(&all->lock);
    all->max_running = limits->max_running;
    (void)pthread_mutex_unlock(&all->lock);
    atomic_store(&all->max_timeout_s, limits->max_timeout_s);
    atomic_store(&all->ready_s, limits->ready_s);
    atomic_store(&all->volume_bytes, (uint64_t)limits->volume_mb << 20);
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

static void read_egress(struct sandboxes *all, struct sandboxes_egress *out)
{
    struct egress_usage usage;

    if (!all->egress)
        return;
    out->sandboxes = egress_link_total(all->egress, &usage);
    out->up = egress_link_up(all->egress);
    out->connections = (uint64_t)usage.connections;
    out->denied = (uint64_t)usage.denied;
    out->questions = (uint64_t)usage.questions;
    out->sent = (uint64_t)usage.sent;
    out->received = (uint64_t)usage.received;
    out->open = (uint64_t)usage.open;
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
                                              .host_used = space.host_used,
                                              .host_free = space.host_free,
                                              .held = space.held};
    read_egress(all, &out->egress);
    metrics_network_total(all, &out->network);
    (void)pthread_mutex_lock(&all->lock);
    map_for_each (&all->table, entry)
        out->states[((const struct sandbox *)entry->value)->state]++;
    (void)pthread_mutex_unlock(&all->lock);
}

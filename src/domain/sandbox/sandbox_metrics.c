/* A periodic job asks the engine about every running sandbox and keeps the answers in rings that grow up
 * to a bound, so that a sandbox of a few seconds costs a few samples. Rings of sandboxes that are gone
 * are swept at the next turn. */
#include "domain/sandbox/sandbox_metrics.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_room.h"
#include "domain/sandbox/sandbox_stats.h"
#include "domain/sandbox/sandbox_table.h"

enum { RING_MAX = 720, RING_FIRST = 8 };

struct ring {
    struct sandbox_sample *samples;
    size_t cap, first, count;
    uint64_t cpu_us; /* of the last sample */
    struct box_traffic network,
        before; /* of the box now, and of those that the sandbox had before it */
};

struct team_ring {
    struct team_sample *samples;
    size_t cap, first, count;
    uint64_t started;
};

/* Index of a new last element; the oldest goes when the ring is full. */
static size_t ring_next(size_t cap, size_t *first, size_t *count)
{
    if (*count < cap)
        return (*first + (*count)++) % cap;
    *first = (*first + 1) % cap;
    return (*first + cap - 1) % cap;
}

/* Grows only before it wraps, so a copy keeps the order. */
static void *ring_grow(void *old, size_t *cap, size_t count, size_t size)
{
    if (count < *cap || *cap == RING_MAX)
        return old;
    *cap = *cap ? *cap * 2 : RING_FIRST;
    if (*cap > RING_MAX)
        *cap = RING_MAX;
    return xrealloc(old, *cap * size);
}

static void ring_free(struct ring *ring)
{
    if (!ring)
        return;
    free(ring->samples);
    free(ring);
}

void metrics_init(struct sandboxes *all)
{
    struct metrics *metrics = &all->metrics;

    (void)pthread_mutex_init(&metrics->lock, NULL);
    map_init(&metrics->rings);
    map_init(&metrics->teams);
}

void metrics_done(struct sandboxes *all)
{
    struct metrics *metrics = &all->metrics;
    struct map_entry *entry;

    map_for_each (&metrics->rings, entry)
        ring_free(entry->value);
    map_for_each (&metrics->teams, entry) {
        struct team_ring *ring = entry->value;

        free(ring->samples);
        free(ring);
    }
    map_done(&metrics->rings);
    map_done(&metrics->teams);
    (void)pthread_mutex_destroy(&metrics->lock);
}

static const struct sandbox_sample *ring_last(const struct ring *ring)
{
    return ring->count ? &ring->samples[(ring->first + ring->count - 1) % ring->cap] : NULL;
}

static double cpu_pct(const struct ring *ring, const struct box_usage *usage, int64_t now,
                      uint32_t cpu_count)
{
    const struct sandbox_sample *last = ring_last(ring);

    /* A box that was booted again counts from the start. */
    if (!last || now <= last->at_us || usage->cpu_us < ring->cpu_us || cpu_count == 0)
        return 0;
    return (double)(usage->cpu_us - ring->cpu_us) * 100 / (double)(now - last->at_us) / cpu_count;
}

static void add_traffic(struct box_traffic *to, const struct box_traffic *more)
{
    to->sent_bytes += more->sent_bytes;
    to->received_bytes += more->received_bytes;
    to->sent_packets += more->sent_packets;
    to->received_packets += more->received_packets;
    to->connections += more->connections;
    to->refused += more->refused;
}

/* A new box counts from nothing. */
static struct box_traffic sum_traffic(struct ring *ring, const struct box_traffic *now)
{
    struct box_traffic sum;

    if (now->sent_packets < ring->network.sent_packets ||
        now->received_packets < ring->network.received_packets)
        add_traffic(&ring->before, &ring->network);
    ring->network = *now;
    sum = ring->before;
    add_traffic(&sum, now);
    return sum;
}

static void add_sample(struct metrics *metrics, const char *id, const struct box_usage *usage,
                       uint32_t cpu_count)
{
    struct ring *ring = map_get(&metrics->rings, str_of(id));
    int64_t now = clock_wall_us();
    struct sandbox_sample sample;

    if (!ring) {
        ring = xcalloc(1, sizeof(*ring));
        (void)map_put(&metrics->rings, str_of(id), ring);
    }
    sample = (struct sandbox_sample){.at_us = now,
                                     .cpu_pct = cpu_pct(ring, usage, now, cpu_count),
                                     .mem_used = usage->mem_bytes,
                                     .mem_cache = usage->mem_cache_bytes,
                                     .disk_used = usage->disk_bytes,
                                     .network = sum_traffic(ring, &usage->network)};
    ring->samples = ring_grow(ring->samples, &ring->cap, ring->count, sizeof(*ring->samples));
    ring->samples[ring_next(ring->cap, &ring->first, &ring->count)] = sample;
    ring->cpu_us = usage->cpu_us;
}

static void sample_one(struct sandboxes *all, const char *id, uint32_t cpu_count)
{
    struct box_usage usage = {0};
    struct error ignored = {0};

    /* It may have ended, or been paused, since. */
    if (all->engine->ops->usage(all->engine, id, &usage, &ignored) < 0)
        return;
    (void)pthread_mutex_lock(&all->metrics.lock);
    add_sample(&all->metrics, id, &usage, cpu_count);
    (void)pthread_mutex_unlock(&all->metrics.lock);
}

static void ring_leave(struct metrics *metrics, struct ring *ring)
{
    const struct sandbox_sample *last = ring ? ring_last(ring) : NULL;

    if (last)
        add_traffic(&metrics->network_past, &last->network);
    ring_free(ring);
}

static void sweep(struct sandboxes *all)
{
    struct metrics *metrics = &all->metrics;
    struct map_entry *entry;
    char(*gone)[ID_SIZE];
    size_t count = 0;

    (void)pthread_mutex_lock(&metrics->lock);
    gone = xcalloc(metrics->rings.count + 1, sizeof(*gone));
    map_for_each (&metrics->rings, entry)
        (void)str_copy(str_n(entry->key, entry->key_len), gone[count++], ID_SIZE);
    (void)pthread_mutex_unlock(&metrics->lock);
    for (size_t i = 0; i < count; i++) {
        if (table_has(all, gone[i]))
            continue;
        (void)pthread_mutex_lock(&metrics->lock);
        ring_leave(metrics, map_remove(&metrics->rings, str_of(gone[i])));
        (void)pthread_mutex_unlock(&metrics->lock);
    }
    free(gone);
}

static void sample_team(struct sandboxes *all, const char *team_id, size_t running,
                        uint64_t started)
{
    struct metrics *metrics = &all->metrics;
    struct team_ring *ring = map_get(&metrics->teams, str_of(team_id));
    struct team_sample sample = {.at_us = clock_wall_us(), .running = running};
    const struct team_sample *last;

    if (!ring) {
        ring = xcalloc(1, sizeof(*ring));
        (void)map_put(&metrics->teams, str_of(team_id), ring);
    }
    last = ring->count ? &ring->samples[(ring->first + ring->count - 1) % ring->cap] : NULL;
    if (last && sample.at_us > last->at_us)
        sample.start_rate =
            (double)(started - ring->started) * 1000000 / (double)(sample.at_us - last->at_us);
    ring->started = started;
    ring->samples = ring_grow(ring->samples, &ring->cap, ring->count, sizeof(*ring->samples));
    ring->samples[ring_next(ring->cap, &ring->first, &ring->count)] = sample;
}

static void sample_all(void *arg)
{
    struct sandboxes *all = arg;
    struct table_target *targets;
    struct table_team *teams;
    size_t count = table_targets(all, &targets), team_count;
    struct engine_space space;

    (void)space_of(all, &space); /* for whoever looks at the last one */

    for (size_t i = 0; i < count && !atomic_load(&all->metrics.stopping); i++)
        sample_one(all, targets[i].id, targets[i].cpu_count);
    free(targets);
    team_count = table_teams(all, &teams);
    (void)pthread_mutex_lock(&all->metrics.lock);
    for (size_t i = 0; i < team_count; i++)
        sample_team(all, teams[i].id, teams[i].running, teams[i].started);
    (void)pthread_mutex_unlock(&all->metrics.lock);
    free(teams);
    sweep(all);
}

int metrics_start(struct sandboxes *all, struct error *err)
{
    all->metrics.sample = (struct periodic){.name = "sample-sandboxes",
                                            .period_us = all->sample_us,
                                            .may_block = true,
                                            .run = sample_all,
                                            .arg = all};
    return periodic_add(&all->metrics.sample, all->sample_us, err);
}

void metrics_stop(struct sandboxes *all)
{
    atomic_store(&all->metrics.stopping, true);
    periodic_remove(&all->metrics.sample);
}

static bool within(int64_t at_us, int64_t from_us, int64_t until_us)
{
    return at_us >= from_us && (!until_us || at_us <= until_us);
}

static void copy_samples(struct sandboxes *all, struct str id, int64_t from_us, int64_t until_us,
                         struct arena *arena, struct sandbox_metrics *out, bool *out_empty)
{
    const struct ring *ring;

    (void)pthread_mutex_lock(&all->metrics.lock);
    ring = map_get(&all->metrics.rings, id);
    *out_empty = !ring;
    out->samples = arena_alloc(arena, (ring ? ring->count : 0) * sizeof(*out->samples) + 1);
    out->count = 0;
    for (size_t i = 0; ring && i < ring->count; i++) {
        const struct sandbox_sample *sample = &ring->samples[(ring->first + i) % ring->cap];

        if (within(sample->at_us, from_us, until_us))
            out->samples[out->count++] = *sample;
    }
    (void)pthread_mutex_unlock(&all->metrics.lock);
}

int sandbox_metrics(struct sandboxes *all, struct str team_id, struct str id, int64_t from_us,
                    int64_t until_us, struct arena *arena, struct sandbox_metrics *out,
                    struct error *err)
{
    struct sandbox_view view;
    char text[ID_SIZE];
    bool empty;

    *out = (struct sandbox_metrics){0};
    if (sandbox_get(all, team_id, id, arena, &view, err) < 0)
        return -1;
    out->cpu_count = view.cpu_count;
    out->mem_total = (uint64_t)view.mem_mb << 20;
    out->disk_total = (uint64_t)view.disk_mb << 20;
    copy_samples(all, id, from_us, until_us, arena, out, &empty);
    if (!empty || !str_copy(id, text, sizeof(text)))
        return 0;
    sample_one(all, text, (uint32_t)view.cpu_count);
    copy_samples(all, id, from_us, until_us, arena, out, &empty);
    return 0;
}

int sandbox_ports(struct sandboxes *all, struct str team_id, struct str id, struct box_ports *out,
                  struct error *err)
{
    auto_arena struct arena arena = {0};
    struct sandbox_view view;
    char text[ID_SIZE];

    if (sandbox_get(all, team_id, id, &arena, &view, err) < 0)
        return -1;
    if (view.state != SANDBOX_RUNNING || !str_copy(id, text, sizeof(text)))
        return error_set(err, ERROR_CONFLICT, "sandbox '%.*s' is not running", STR_ARG(id));
    return all->engine->ops->ports(all->engine, text, out, err);
}

size_t team_metrics(struct sandboxes *all, struct str team_id, int64_t from_us, int64_t until_us,
                    struct arena *arena, struct team_sample **out)
{
    const struct team_ring *ring;
    size_t count = 0;

    (void)pthread_mutex_lock(&all->metrics.lock);
    ring = map_get(&all->metrics.teams, team_id);
    *out = arena_alloc(arena, (ring ? ring->count : 0) * sizeof(**out) + 1);
    for (size_t i = 0; ring && i < ring->count; i++) {
        const struct team_sample *sample = &ring->samples[(ring->first + i) % ring->cap];

        if (within(sample->at_us, from_us, until_us))
            (*out)[count++] = *sample;
    }
    (void)pthread_mutex_unlock(&all->metrics.lock);
    return count;
}

void metrics_network_total(struct sandboxes *all, struct box_traffic *out)
{
    struct metrics *metrics = &all->metrics;
    struct map_entry *entry;

    (void)pthread_mutex_lock(&metrics->lock);
    *out = metrics->network_past;
    map_for_each (&metrics->rings, entry) {
        const struct sandbox_sample *last = ring_last(entry->value);

        if (last)
            add_traffic(out, &last->network);
    }
    (void)pthread_mutex_unlock(&metrics->lock);
}

size_t metrics_network_each(struct sandboxes *all, struct sandbox_network_use **out)
{
    struct metrics *metrics = &all->metrics;
    struct map_entry *entry;
    size_t count = 0;

    (void)pthread_mutex_lock(&metrics->lock);
    *out = xcalloc(metrics->rings.count + 1, sizeof(**out));
    map_for_each (&metrics->rings, entry) {
        const struct sandbox_sample *last = ring_last(entry->value);

        if (!last)
            continue;
        (void)str_copy(str_n(entry->key, entry->key_len), (*out)[count].id, ID_SIZE);
        (*out)[count++].traffic = last->network;
    }
    (void)pthread_mutex_unlock(&metrics->lock);
    return count;
}

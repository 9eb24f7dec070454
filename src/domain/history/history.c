#include "domain/history/history.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/periodic.h"
#include "domain/history/history_internal.h"
#include "store/platform/store_history.h"

enum { SAMPLE_S = 10, PROC_MAX = 256 * 1024 };

/* What is gathered for the row that is being made. */
struct gathered {
    int64_t began_us; /* 0 = nothing yet */
    int64_t samples;
    struct store_history sum;      /* gauges, added up */
    struct sandboxes_stats before; /* when it began */
    struct history_host host;
};

struct history {
    struct sandboxes *sandboxes;
    struct store *store;
    struct periodic sample;
    pthread_mutex_t lock; /* guards recent */
    struct history_recent recent;
    bool warned;
    struct gathered gathered[HISTORY_RANGES]; /* the job's own */
};

static void read_host(struct history_host *out)
{
    auto_buf struct buf stat = {0}, meminfo = {0};

    buf_init(&stat, PROC_MAX);
    buf_init(&meminfo, PROC_MAX);
    (void)fd_read_file_at(AT_FDCWD, "/proc/stat", &stat);
    (void)fd_read_file_at(AT_FDCWD, "/proc/meminfo", &meminfo);
    history_host_parse(buf_str(&stat), buf_str(&meminfo), out);
}

static void begin(struct gathered *gathered, int64_t began_us, const struct sandboxes_stats *stats,
                  const struct history_host *host)
{
    *gathered = (struct gathered){.began_us = began_us, .before = *stats, .host = *host};
}

static void add(struct gathered *gathered, const struct sandboxes_stats *stats,
                const struct history_host *host)
{
    const struct sandboxes_space *space = &stats->space;
    struct store_history *sum = &gathered->sum;

    gathered->samples++;
    sum->running += (int64_t)stats->states[SANDBOX_RUNNING];
    sum->paused += (int64_t)stats->states[SANDBOX_PAUSED];
    sum->warm += (int64_t)stats->warm;
    sum->mem_used += host->mem_used;
    sum->mem_total = host->mem_total;
    sum->pool_used += (int64_t)(space->pool_bytes - space->pool_free);
    sum->pool_total = (int64_t)space->pool_bytes;
    sum->disk_used += (int64_t)space->host_used;
    sum->disk_total = (int64_t)space->host_bytes;
}

static void write_row(struct history *history, const struct history_range *range,
                      const struct gathered *gathered, const struct sandboxes_stats *stats,
                      const struct history_host *host)
{
    struct store_history row = gathered->sum;
    int64_t n = gathered->samples;
    struct error err = {0};

    row.step_s = range->step_s;
    row.at_us = gathered->began_us;
    row.slot = row.at_us / 1000000 / range->step_s % range->count;
    row.running = (row.running + n / 2) / n;
    row.paused = (row.paused + n / 2) / n;
    row.warm = (row.warm + n / 2) / n;
    row.mem_used /= n;
    row.pool_used /= n;
    row.disk_used /= n;
    row.creates = (int64_t)(stats->created - gathered->before.created);
    row.failures = (int64_t)(stats->create_failed - gathered->before.create_failed);
    row.p50_us = history_percentile(&gathered->before, stats, 50);
    row.p99_us = history_percentile(&gathered->before, stats, 99);
    row.cpu_permille = history_permille(&gathered->host, host);
    if (store_history_put(history->store, &row, &err) < 0 && !history->warned)
        log_warn("history", "a sample is not kept: %s", err.message);
    history->warned = err.code != 0;
}

static struct history_tick tick_now(const struct history *history, struct sandboxes_stats *stats,
                                    struct history_host *host)
{
    sandboxes_stats(history->sandboxes, stats);
    read_host(host);
    return (struct history_tick){.at_us = clock_mono_us(),
                                 .created = stats->created,
                                 .failed = stats->create_failed,
                                 .host = *host};
}

static void sample(void *arg)
{
    struct history *history = arg;
    int64_t now_us = clock_wall_us();
    struct sandboxes_stats stats;
    struct history_host host;
    struct history_tick tick = tick_now(history, &stats, &host);

    (void)pthread_mutex_lock(&history->lock);
    history_recent_add(&history->recent, &tick);
    (void)pthread_mutex_unlock(&history->lock);
    for (size_t i = 0; i < HISTORY_RANGES; i++) {
        const struct history_range *range = &history_ranges[i];
        struct gathered *gathered = &history->gathered[i];
        int64_t began_us = now_us - now_us % (range->step_s * 1000000);

        if (gathered->began_us != began_us) {
            if (gathered->samples)
                write_row(history, range, gathered, &stats, &host);
            begin(gathered, began_us, &stats, &host);
        }
        add(gathered, &stats, &host);
    }
}

int history_open(struct sandboxes *sandboxes, struct store *store, struct history **out,
                 struct error *err)
{
    struct history *history = xcalloc(1, sizeof(*history));

    history->sandboxes = sandboxes;
    history->store = store;
    (void)pthread_mutex_init(&history->lock, NULL);
    history->sample = (struct periodic){.name = "history",
                                        .period_us = SAMPLE_S * INT64_C(1000000),
                                        .may_block = true,
                                        .run = sample,
                                        .arg = history};
    if (periodic_add(&history->sample, 0, err) < 0) {
        free(history);
        return -1;
    }
    *out = history;
    return 0;
}

void history_close(struct history *history)
{
    if (!history)
        return;
    periodic_remove(&history->sample);
    (void)pthread_mutex_destroy(&history->lock);
    free(history);
}

void history_now(struct history *history, struct history_now *out)
{
    struct sandboxes_stats stats;
    struct history_host host;
    struct history_tick tick = tick_now(history, &stats, &host);

    *out = (struct history_now){
        .at_us = clock_wall_us(),
        .running = (int64_t)stats.states[SANDBOX_RUNNING],
        .paused = (int64_t)stats.states[SANDBOX_PAUSED],
        .warm = (int64_t)stats.warm,
        .mem_used = host.mem_used,
        .mem_total = host.mem_total,
        .pool_used = (int64_t)(stats.space.pool_bytes - stats.space.pool_free),
        .pool_total = (int64_t)stats.space.pool_bytes,
        .disk_used = (int64_t)stats.space.host_used,
        .disk_free = (int64_t)stats.space.host_free,
        .disk_total = (int64_t)stats.space.host_bytes,
        .disk_held = stats.space.held,
        .egress_up = stats.egress.up,
    };
    (void)pthread_mutex_lock(&history->lock);
    history_recent_rates(&history->recent, &tick, out);
    (void)pthread_mutex_unlock(&history->lock);
}

/* What sandboxes use, sampled every few seconds and kept in memory for about an hour. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"

struct sandboxes;

struct sandbox_sample {
    int64_t at_us;
    double cpu_pct; /* 100 = all cpus of the sandbox */
    uint64_t mem_used, mem_cache, disk_used;
};

struct sandbox_metrics {
    struct sandbox_sample *samples; /* oldest first */
    size_t count;
    int64_t cpu_count;
    uint64_t mem_total, disk_total;
};

struct team_sample {
    int64_t at_us;
    size_t running;
    double start_rate; /* sandboxes per second */
};

/* Samples of the time from..until (0 = any). A running sandbox that was not sampled yet is, now. */
int sandbox_metrics(struct sandboxes *all, struct str team_id, struct str id, int64_t from_us,
                    int64_t until_us, struct arena *arena, struct sandbox_metrics *out,
                    struct error *err);
/* Oldest first. */
size_t team_metrics(struct sandboxes *all, struct str team_id, int64_t from_us, int64_t until_us,
                    struct arena *arena, struct team_sample **out);

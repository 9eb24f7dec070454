/* What the server does over time, for charts: a sample every ten seconds, kept as rows of three lengths of time
 * (15 minutes, 6 hours, 7 days). Each length is a circle of rows, so the space is bounded. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct history;
struct sandboxes;
struct store;

enum { HISTORY_RANGES = 3 };
/* How much a row of each stands for, and how many there are. */
extern const struct history_range {
    const char *name;
    int64_t step_s, count;
} history_ranges[HISTORY_RANGES];

/* Borrows both; samples in a thread of its own. */
int history_open(struct sandboxes *sandboxes, struct store *store, struct history **out,
                 struct error *err);
void history_close(struct history *history); /* NULL is fine */

/* The figures of this moment, in the units of the rows. */
struct history_now {
    int64_t at_us;
    int64_t running, paused, warm;
    int64_t creates, failures; /* in the last minute, as far as this process has run */
    int64_t cpu_permille;      /* over the last seconds */
    int64_t mem_used, mem_total, pool_used, pool_total;
    int64_t disk_used, disk_free,
        disk_total; /* of the data directory's file system, as df has them */
    bool disk_held; /* it is full, and the pool cannot grow */
    bool egress_up;
};
/* Any thread. */
void history_now(struct history *history, struct history_now *out);

/* Counters since the process began, and the start and stop of what takes samples (sandbox_metrics.c). */
#pragma once

#include "base/error.h"
#include "base/map.h"
#include "domain/sandbox/sandbox.h"
#include "store/platform/store_sandbox.h"

struct store_sandbox;

/* Counters since the process began. */
enum stats_counter {
    STAT_CREATED,
    STAT_CREATE_FAILED,
    STAT_PAUSED,
    STAT_RESUMED_MEMORY,
    STAT_RESUMED_DISK,
    STAT_SNAPSHOTS,
    STAT_ENDED,
    STAT_COUNT,
};
/* Counts, and calls the watchers. */
void stats_add(struct sandboxes *all, enum stats_counter stat);
void stats_init(struct sandboxes *all);
void stats_done(struct sandboxes *all);
void stats_create(struct sandboxes *all, const struct store_sandbox *row, int64_t us);

/* ---- sandbox_metrics.c ---- */

void metrics_init(struct sandboxes *all);
void metrics_done(struct sandboxes *all);
int metrics_start(struct sandboxes *all, struct error *err);
void metrics_stop(struct sandboxes *all);

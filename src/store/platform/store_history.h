/* Figures of the server, step by step. */
#pragma once

#include "store/core/store.h"

/* What the server did within a step of time, see domain/history/history.h. */
struct store_history {
    int64_t step_s, slot, at_us;
    int64_t running, paused, warm, creates, failures, p50_us, p99_us, cpu_permille;
    int64_t mem_used, mem_total, pool_used, pool_total, disk_used, disk_total;
};

/* In the place of what was in that slot. */
int store_history_put(struct store *store, const struct store_history *entry, struct error *err);
/* Oldest first. */
int store_history_list(struct store *store, int64_t step_s, int64_t from_us, struct arena *arena,
                       struct store_history **out, size_t *out_count, struct error *err);

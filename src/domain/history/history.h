/* What the server does over time, for charts: a sample every ten seconds, kept as rows of three lengths of time
 * (15 minutes, 6 hours, 7 days). Each length is a circle of rows, so the space is bounded. */
#pragma once

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

/* Shared by the files of this folder. */
#pragma once

#include "domain/history/history.h"
#include "domain/sandbox/sandbox.h"

/* Of the host, as Linux tells it. */
struct history_host {
    uint64_t busy, ticks; /* of all processors, since it started */
    int64_t mem_used, mem_total;
};

/* From the texts of /proc/stat and /proc/meminfo; what is not there is 0. */
void history_host_parse(struct str stat, struct str meminfo, struct history_host *out);
/* The duration below which so many percent of the creates between both were, as the end of its bucket; 0 = there
 * were none. */
int64_t history_percentile(const struct sandboxes_stats *before, const struct sandboxes_stats *now,
                           unsigned percent);

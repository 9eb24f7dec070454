/* Shared by the files of this folder. */
#pragma once

#include "domain/history/history.h"
#include "domain/sandbox/sandbox.h"

/* Of the host, as Linux tells it. */
struct history_host {
    uint64_t busy, ticks; /* of all processors, since it started */
    int64_t mem_used, mem_total;
};

/* The last samples, newest last: what was counted before a minute ago is known to within the time between two. */
enum { HISTORY_RECENT = 7 };
struct history_recent {
    size_t count;
    struct history_tick {
        int64_t at_us; /* monotonic */
        uint64_t created, failed;
        struct history_host host;
    } items[HISTORY_RECENT];
};
void history_recent_add(struct history_recent *recent, const struct history_tick *tick);
/* Creates and failures since the youngest sample that is a minute old, or else the oldest; processors since the
 * youngest one that is a few seconds old, because a shorter time says little. */
void history_recent_rates(const struct history_recent *recent, const struct history_tick *now,
                          struct history_now *out);

int64_t history_permille(const struct history_host *before, const struct history_host *now);
/* From the texts of /proc/stat and /proc/meminfo; what is not there is 0. */
void history_host_parse(struct str stat, struct str meminfo, struct history_host *out);
/* The duration below which so many percent of the creates between both were, as the end of its bucket; 0 = there
 * were none. */
int64_t history_percentile(const struct sandboxes_stats *before, const struct sandboxes_stats *now,
                           unsigned percent);

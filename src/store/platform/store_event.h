/* Events of sandboxes. */
#pragma once

#include "store/core/store.h"

enum { STORE_LEVEL_DEBUG, STORE_LEVEL_INFO, STORE_LEVEL_WARN, STORE_LEVEL_ERROR };

struct store_event {
    /* What a writer says. */
    struct str type, message, detail;
    int64_t level, at_us;
    /* What a reader finds besides: what the sandbox was. */
    int64_t seq;
    struct str id, team_id, sandbox_id, template_id, metadata;
    int64_t since_us, cpu_count, mem_mb;
};

struct store_event_query {
    struct str team_id;    /* STR_NONE = all teams, ascending */
    struct str sandbox_id; /* STR_NONE = all of the team */
    bool ascending;
    int64_t after_seq; /* 0 = from the start (or end) */
    size_t limit;
};

/* About a sandbox that has a row, else nothing is written. */
int store_event_add(struct store *store, struct str sandbox_id, const struct store_event *event,
                    struct error *err);
int store_event_page(struct store *store, const struct store_event_query *wanted,
                     struct arena *arena, struct store_event **out, size_t *out_count,
                     struct error *err);
/* Forgets, among the oldest max, those from before and those above the number to keep. */
int store_event_prune(struct store *store, int64_t before_us, int64_t keep, size_t max,
                      size_t *out_count, struct error *err);

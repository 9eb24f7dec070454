/* Commands whose output is kept (store_execution.c). */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"

struct store;

struct store_execution {
    struct str id, team_id, sandbox_id, agent_id, task_id, actor, command;
    struct str error; /* STR_NONE = it ran to an end, and has an exit code */
    int64_t exit_code, duration_ms, started_at_us, ended_at_us;
    bool timed_out, truncated;
    struct str out, err; /* not in lists */
};

struct store_execution_bounds {
    int64_t of_sandbox, of_team; /* rows */
};

/* The ones that ended first go when there are more than the bounds allow. */
int store_execution_add(struct store *store, const struct store_execution *row,
                        const struct store_execution_bounds *bounds, struct error *err);
int store_execution_get(struct store *store, struct str team_id, struct str id, struct arena *arena,
                        struct store_execution *out, struct error *err);
struct store_execution_page {
    int64_t before_us; /* ended before; 0 = any */
    size_t limit;
};
/* The last to end first. */
int store_execution_list(struct store *store, struct str team_id, struct str sandbox_id,
                         const struct store_execution_page *page, struct arena *arena,
                         struct store_execution **out, size_t *out_count, struct error *err);
/* Those that ended before, at most max of them. */
int store_execution_prune(struct store *store, int64_t before_us, size_t max, size_t *out_count,
                          struct error *err);

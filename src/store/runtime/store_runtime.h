/* What the agent runtime keeps besides its sandboxes: profiles, events and runners. As in store.h
 * each function is one transaction, and strings live in the caller's arena. */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"

struct store;

/* ---- profiles (store_runtime_profile.c) ---- */

struct store_profile {
    struct str team_id, name;
    struct str record; /* JSON text; may hold secrets */
    int64_t created_at_us, updated_at_us;
};

/* Inserts, or replaces the record. On disk when it returns. */
/* ERROR_QUOTA when it is a new one and its team has max already. */
int store_profile_put(struct store *store, const struct store_profile *profile, int64_t max,
                      struct error *err);
int store_profile_get(struct store *store, struct str team_id, struct str name, struct arena *arena,
                      struct store_profile *out, struct error *err);
/* By name, at most limit. */
int store_profile_list(struct store *store, struct str team_id, size_t limit, struct arena *arena,
                       struct store_profile **out, size_t *out_count, struct error *err);
int store_profile_delete(struct store *store, struct str team_id, struct str name,
                         struct error *err);

/* ---- runners (store_runtime_profile.c) ---- */

struct store_runner {
    struct str team_id, name, base_url, token;
    int64_t max_sessions, active_sessions, heartbeat_at_us, created_at_us;
};

/* Inserts, or replaces all but created_at_us. */
int store_runner_put(struct store *store, const struct store_runner *runner, struct error *err);
/* Of all teams. */
int store_runner_list(struct store *store, size_t limit, struct arena *arena,
                      struct store_runner **out, size_t *out_count, struct error *err);
/* ERROR_NOT_FOUND. */
int store_runner_heartbeat(struct store *store, struct str team_id, struct str name,
                           int64_t active_sessions, int64_t at_us, struct error *err);
int store_runner_delete(struct store *store, struct str team_id, struct str name,
                        struct error *err);

/* ---- events (store_runtime_event.c) ---- */

struct store_runtime_event {
    int64_t id;
    struct str team_id, type;
    struct str sandbox_id, session_id, process_id, agent_id; /* STR_NONE = none */
    struct str json;
};

struct store_runtime_query {
    struct str team_id;
    struct str sandbox_id, session_id, process_id, agent_id; /* STR_NONE = any */
    struct str type;           /* exact, or a prefix that ends in '.'; STR_NONE = any */
    int64_t after_id, upto_id; /* after_id < id <= upto_id */
    bool newest;               /* the newest first, else the oldest */
    size_t limit;
};

/* ERROR_EXISTS when the id is taken. */
int store_runtime_event_insert(struct store *store, const struct store_runtime_event *events,
                               size_t count, struct error *err);
/* Fills id, type and json only. */
int store_runtime_event_list(struct store *store, const struct store_runtime_query *wanted,
                             struct arena *arena, struct store_runtime_event **out,
                             size_t *out_count, struct error *err);
/* 0 when there is none. */
/* Those of type "usage", the newest first. team_id: STR_NONE = all teams. */
int store_runtime_event_usage(struct store *store, struct str team_id, size_t limit,
                              struct arena *arena, struct store_runtime_event **out,
                              size_t *out_count, struct error *err);
int store_runtime_event_last(struct store *store, int64_t *out_id, int64_t *out_count,
                             struct error *err);
/* Forgets at most max of the oldest: those before before_id, and `surplus` besides of the team that has
 * most, so that nobody's history goes because of another's noise. */
int store_runtime_event_prune(struct store *store, int64_t before_id, int64_t surplus, size_t max,
                              size_t *out_count, struct error *err);

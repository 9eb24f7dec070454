/* Rows of runtime_sandboxes, for the files that read them. Private to this folder. */
#pragma once

#include "store/core/row.h"
#include "store/runtime/store_runtime_sandbox.h"

/* clang-format off */
#define RUNTIME_SANDBOX_ROW(F, T, AND)                                                          \
    F(T, id, id) AND() F(T, team_id, team_id) AND() F(T, sandbox_key, key) AND()                \
    F(T, spec_hash, spec_hash) AND() F(T, provider, provider) AND()                             \
    F(T, external_id, external_id) AND() F(T, token, token) AND() F(T, address, address) AND()  \
    F(T, cdp_url, cdp_url) AND() F(T, image, image) AND() F(T, profile, profile) AND()          \
    F(T, settings, settings) AND() F(T, metadata, metadata) AND() F(T, state, state) AND()      \
    F(T, error, error) AND() F(T, agent_id, agent_id) AND() F(T, task_id, task_id) AND()        \
    F(T, snapshot_id, snapshot_id) AND() F(T, idle_s, idle_s) AND()                             \
    F(T, max_lifetime_s, max_lifetime_s) AND() F(T, persistent, persistent) AND()               \
    F(T, cpu, cpu) AND() F(T, created_at_us, created_at_us) AND()                               \
    F(T, last_used_at_us, last_used_at_us) AND() F(T, running_since_us, running_since_us) AND() \
    F(T, destroyed_at_us, destroyed_at_us) AND() F(T, ran_us, ran_us) AND()                     \
    F(T, commands, commands) AND() F(T, jobs, jobs) AND() F(T, create_ms, create_ms) AND()      \
    F(T, adopted, adopted) AND() F(T, state_at_us, state_at_us)
/* clang-format on */
#define RUNTIME_SANDBOX_COLUMNS ROW_COLUMNS(RUNTIME_SANDBOX_ROW)
extern const struct row runtime_sandbox_row;

/* STR_NONE is "". */
void runtime_bind(struct query *query, struct str text);
/* sql: a DELETE that has the id as ?1. */
int runtime_delete(struct conn *conn, const char *sql, struct str id, struct error *err);

struct store_runtime_event;
int runtime_events_add(struct conn *conn, const struct store_runtime_event *events, size_t count,
                       struct error *err);

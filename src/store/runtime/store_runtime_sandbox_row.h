/* Columns of runtime_sandboxes, in the order they are read. Private to this folder. */
#pragma once

#include "store/driver/query.h"
#include "store/runtime/store_runtime_sandbox.h"

#define RUNTIME_SANDBOX_COLUMNS                                                                   \
    "id, team_id, sandbox_key, spec_hash, provider, external_id, token, address, cdp_url, image," \
    " profile, settings, metadata, state, error, agent_id, task_id, snapshot_id, idle_s,"         \
    " max_lifetime_s, persistent, cpu, created_at_us, last_used_at_us, running_since_us,"         \
    " destroyed_at_us, ran_us, commands, jobs, create_ms, adopted, state_at_us"

/* row: a struct store_runtime_sandbox. */
void runtime_sandbox_read(const struct query *query, struct arena *arena, void *row);
/* "" is STR_NONE. */
struct str runtime_text(const struct query *query, int column, struct arena *arena);
void runtime_bind(struct query *query, struct str text);

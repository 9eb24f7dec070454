/* Rows of the runtime's sessions. */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "store/runtime/runtime_state.h"

struct store;

struct store_session {
    struct str id, team_id, reason, sandbox_id;
    enum session_state state;
    bool owns_sandbox;
    struct str agent, repo, branch, profile, provider, mode;
    enum permission permission;
    struct str snapshot_id, checkpoint, agent_id, task_id;
    struct str acp_server, acp_session, sandbox_agent_token, workdir;
    int64_t port, last_acp_id, created_at_us, updated_at_us;
};

/* Inserts or replaces; on disk when it returns. STR_NONE is written as "". */
int store_session_put(struct store *store, const struct store_session *row, struct error *err);
/* ERROR_NOT_FOUND. */
int store_session_get(struct store *store, struct str team_id, struct str id, struct arena *arena,
                      struct store_session *out, struct error *err);
/* Newest first, at most 1000. */
int store_session_list(struct store *store, struct str team_id, struct arena *arena,
                       struct store_session **out, size_t *out_count, struct error *err);
/* Of all teams: those in the state. */
int store_session_in_state(struct store *store, enum session_state state, struct arena *arena,
                           struct store_session **out, size_t *out_count, struct error *err);
/* The server in a sandbox is shared by its sessions: token and port of the first one. *out_token is
 * STR_NONE when there is none. */
int store_session_server(struct store *store, struct str sandbox_id, struct arena *arena,
                         struct str *out_token, int64_t *out_port, struct error *err);
/* Events of the agent up to acp_id were passed on. May be lost with the host. */
int store_session_seen(struct store *store, struct str id, int64_t acp_id, struct error *err);

/* Messages that wait, in order. On disk when it returns. ERROR_QUOTA above max. */
int store_message_add(struct store *store, struct str session_id, struct str text, int64_t max,
                      struct error *err);
/* *out_seq = 0: none waits. */
int store_message_next(struct store *store, struct str session_id, struct arena *arena,
                       int64_t *out_seq, struct str *out_text, struct error *err);
int store_message_remove(struct store *store, struct str session_id, int64_t seq,
                         struct error *err);

#include "store/runtime/store_session.h"

#include "base/clock.h"
#include "store/core/row.h"

/* clang-format off */
#define SESSION_ROW(F, T, AND)                                                                          \
    F(T, id, id) AND() F(T, team_id, team_id) AND() F(T, state, state) AND() F(T, reason, reason) AND() \
    F(T, sandbox_id, sandbox_id) AND() F(T, owns_sandbox, owns_sandbox) AND()                           \
    F(T, agent, agent) AND() F(T, repo, repo) AND() F(T, branch, branch) AND()                          \
    F(T, profile, profile) AND() F(T, provider, provider) AND() F(T, permission, permission) AND()      \
    F(T, mode, mode) AND() F(T, snapshot_id, snapshot_id) AND() F(T, checkpoint, checkpoint) AND()      \
    F(T, agent_id, agent_id) AND() F(T, task_id, task_id) AND() F(T, acp_server, acp_server) AND()      \
    F(T, acp_session, acp_session) AND() F(T, agent_token, sandbox_agent_token) AND()                   \
    F(T, workdir, workdir) AND() F(T, port, port) AND() F(T, last_acp_id, last_acp_id) AND()            \
    F(T, created_at_us, created_at_us) AND() F(T, updated_at_us, updated_at_us)
/* clang-format on */
static const struct names *const names[] = {&session_state_names, &permission_names};
ROW(session_row, struct store_session, SESSION_ROW, .names = names);
#define COLUMNS ROW_COLUMNS(SESSION_ROW)

enum { LIST_MAX = 1000 };

/* clang-format off */
static const char upsert_session[] =
    ROW_INSERT("runtime_sessions", SESSION_ROW)
    " ON CONFLICT (id) DO UPDATE SET state = excluded.state, reason = excluded.reason,"
    " sandbox_id = excluded.sandbox_id, branch = excluded.branch, profile ="
    " excluded.profile, provider = excluded.provider, permission = excluded.permission,"
    " snapshot_id = excluded.snapshot_id, checkpoint = excluded.checkpoint, acp_server ="
    " excluded.acp_server, acp_session = excluded.acp_session, workdir ="
    " excluded.workdir, port = excluded.port, last_acp_id = excluded.last_acp_id,"
    " updated_at_us = excluded.updated_at_us";
/* clang-format on */

int store_session_put(struct store *store, const struct store_session *row, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};
    struct store_session written = *row;

    if (query_open(&query, conn, upsert_session, err) < 0)
        return -1;
    written.updated_at_us = clock_wall_us();
    row_bind(&session_row, &query, &written);
    return query_run_durable(&query, conn, err);
}

int store_session_get(struct store *store, struct str team_id, struct str id, struct arena *arena,
                      struct store_session *out, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " COLUMNS " FROM runtime_sessions WHERE id = ?1 AND team_id = ?2",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, team_id);
    return row_one(&session_row, &query, "session", id, arena, out, err);
}

int store_session_list(struct store *store, struct str team_id, struct arena *arena,
                       struct store_session **out, size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " COLUMNS " FROM runtime_sessions WHERE team_id = ?1"
                   " ORDER BY created_at_us DESC, id LIMIT ?2",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    bind_int(&query, LIST_MAX);
    return row_all(&session_row, &query, arena, out, out_count, err);
}

int store_session_in_state(struct store *store, enum session_state state, struct arena *arena,
                           struct store_session **out, size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " COLUMNS
                   " FROM runtime_sessions WHERE state = ?1 ORDER BY created_at_us",
                   err) < 0)
        return -1;
    bind_text(&query, str_of(name_of(&session_state_names, state)));
    return row_all(&session_row, &query, arena, out, out_count, err);
}

int store_session_server(struct store *store, struct str sandbox_id, struct arena *arena,
                         struct str *out_token, int64_t *out_port, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};
    int found;

    *out_token = STR_NONE;
    if (query_open(&query, conn,
                   "SELECT agent_token, port FROM runtime_sessions WHERE sandbox_id = ?1"
                   " ORDER BY created_at_us LIMIT 1",
                   err) < 0)
        return -1;
    bind_text(&query, sandbox_id);
    found = query_step(&query, err);
    if (found > 0) {
        *out_token = query_text(&query, 0, arena);
        *out_port = query_int(&query, 1);
    }
    return found < 0 ? -1 : 0;
}

int store_session_seen(struct store *store, struct str id, int64_t acp_id, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(
            &query, conn,
            "UPDATE runtime_sessions SET last_acp_id = ?1 WHERE id = ?2 AND last_acp_id < ?1",
            err) < 0)
        return -1;
    bind_int(&query, acp_id);
    bind_text(&query, id);
    return query_run(&query, err);
}

static int check_room(struct conn *conn, struct str session_id, int64_t max, struct error *err)
{
    auto_query struct query query = {0};
    int64_t count = 0;

    if (query_open(&query, conn, "SELECT count(*) FROM runtime_messages WHERE session_id = ?1",
                   err) < 0)
        return -1;
    bind_text(&query, session_id);
    if (query_number(&query, &count, err) < 0)
        return -1;
    if (count < max)
        return 0;
    return error_set(err, ERROR_QUOTA, "%lld messages wait for session '%.*s' already",
                     (long long)count, STR_ARG(session_id));
}

static int next_message(struct conn *conn, struct str session_id, int64_t *out, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE runtime_sessions SET last_message = last_message + 1 WHERE id = ?1"
                   " RETURNING last_message",
                   err) < 0)
        return -1;
    bind_text(&query, session_id);
    if (query_one(&query, "session", session_id, err) < 0)
        return -1;
    *out = query_int(&query, 0);
    return 0;
}

static int insert_message(struct conn *conn, struct str session_id, struct str text,
                          struct error *err)
{
    auto_query struct query query = {0};
    int64_t seq = 0;

    if (next_message(conn, session_id, &seq, err) < 0 ||
        query_open(&query, conn,
                   "INSERT INTO runtime_messages (session_id, seq, text) VALUES (?1, ?2, ?3)",
                   err) < 0)
        return -1;
    bind_text(&query, session_id);
    bind_int(&query, seq);
    bind_text(&query, text);
    return query_run(&query, err);
}

int store_message_add(struct store *store, struct str session_id, struct str text, int64_t max,
                      struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    return store_end(conn,
                     check_room(conn, session_id, max, err) < 0 ||
                             insert_message(conn, session_id, text, err) < 0
                         ? -1
                         : 0,
                     err);
}

int store_message_next(struct store *store, struct str session_id, struct arena *arena,
                       int64_t *out_seq, struct str *out_text, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};
    int found;

    *out_seq = 0;
    if (query_open(&query, conn,
                   "SELECT seq, text FROM runtime_messages WHERE session_id = ?1"
                   " ORDER BY seq LIMIT 1",
                   err) < 0)
        return -1;
    bind_text(&query, session_id);
    found = query_step(&query, err);
    if (found > 0) {
        *out_seq = query_int(&query, 0);
        *out_text = query_text(&query, 1, arena);
    }
    return found < 0 ? -1 : 0;
}

int store_message_remove(struct store *store, struct str session_id, int64_t seq, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, "DELETE FROM runtime_messages WHERE session_id = ?1 AND seq = ?2",
                   err) < 0)
        return -1;
    bind_text(&query, session_id);
    bind_int(&query, seq);
    return query_run_durable(&query, conn, err);
}

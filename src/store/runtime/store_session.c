#include "store/runtime/store_session.h"

#include "base/clock.h"
#include "store/driver/query.h"

#define COLUMNS                                                                            \
    "id, team_id, state, reason, sandbox_id, owns_sandbox, agent, repo, branch, profile, " \
    "provider, permission, mode, snapshot_id, checkpoint, agent_id, task_id, acp_server, " \
    "acp_session, agent_token, workdir, port, last_acp_id, created_at_us, updated_at_us"

enum { LIST_MAX = 1000 };

static void bind_string(struct query *query, struct str text)
{
    bind_text(query, text.p ? text : STR(""));
}

static void bind_row(struct query *query, const struct store_session *row)
{
    bind_string(query, row->id);
    bind_string(query, row->team_id);
    bind_string(query, row->state);
    bind_string(query, row->reason);
    bind_string(query, row->sandbox_id);
    bind_int(query, row->owns_sandbox);
    bind_string(query, row->agent);
    bind_string(query, row->repo);
    bind_string(query, row->branch);
    bind_string(query, row->profile);
    bind_string(query, row->provider);
    bind_string(query, row->permission);
    bind_string(query, row->mode);
    bind_string(query, row->snapshot_id);
    bind_string(query, row->checkpoint);
    bind_string(query, row->agent_id);
    bind_string(query, row->task_id);
    bind_string(query, row->acp_server);
    bind_string(query, row->acp_session);
    bind_string(query, row->agent_token);
    bind_string(query, row->workdir);
    bind_int(query, row->port);
    bind_int(query, row->last_acp_id);
    bind_int(query, row->created_at_us);
    bind_int(query, clock_wall_us());
}

static void read_row(const struct query *query, struct arena *arena, void *row)
{
    struct store_session *out = row;

    struct str *const texts[] = {
        &out->id,       &out->team_id,    &out->state,      &out->reason,      &out->sandbox_id,
        NULL,           &out->agent,      &out->repo,       &out->branch,      &out->profile,
        &out->provider, &out->permission, &out->mode,       &out->snapshot_id, &out->checkpoint,
        &out->agent_id, &out->task_id,    &out->acp_server, &out->acp_session, &out->agent_token,
        &out->workdir,
    };
    const int count = sizeof(texts) / sizeof(texts[0]);

    for (int i = 0; i < count; i++)
        if (texts[i])
            *texts[i] = query_text(query, i, arena);
    out->owns_sandbox = query_int(query, 5) != 0;
    out->port = query_int(query, count);
    out->last_acp_id = query_int(query, count + 1);
    out->created_at_us = query_int(query, count + 2);
    out->updated_at_us = query_int(query, count + 3);
}

static const struct query_kind row_kind = {sizeof(struct store_session), read_row};

int store_session_put(struct store *store, const struct store_session *row, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "INSERT INTO runtime_sessions (" COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7,"
                   " ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23,"
                   " ?24, ?25) ON CONFLICT (id) DO UPDATE SET state = excluded.state,"
                   " reason = excluded.reason, sandbox_id = excluded.sandbox_id,"
                   " branch = excluded.branch, profile = excluded.profile,"
                   " provider = excluded.provider, permission = excluded.permission,"
                   " snapshot_id = excluded.snapshot_id, checkpoint = excluded.checkpoint,"
                   " acp_server = excluded.acp_server, acp_session = excluded.acp_session,"
                   " workdir = excluded.workdir, port = excluded.port,"
                   " last_acp_id = excluded.last_acp_id, updated_at_us = excluded.updated_at_us",
                   err) < 0)
        return -1;
    bind_row(&query, row);
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
    if (query_one(&query, "session", id, err) < 0)
        return -1;
    read_row(&query, arena, out);
    return 0;
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
    return query_rows(&query, &row_kind, arena, out, out_count, err);
}

int store_session_in_state(struct store *store, struct str state, struct arena *arena,
                           struct store_session **out, size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " COLUMNS
                   " FROM runtime_sessions WHERE state = ?1 ORDER BY created_at_us",
                   err) < 0)
        return -1;
    bind_text(&query, state);
    return query_rows(&query, &row_kind, arena, out, out_count, err);
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

static int count_messages(struct conn *conn, struct str session_id, int64_t *out_count,
                          int64_t *out_last, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT count(*), coalesce(max(seq), 0) FROM runtime_messages"
                   " WHERE session_id = ?1",
                   err) < 0)
        return -1;
    bind_text(&query, session_id);
    if (query_step(&query, err) < 0)
        return -1;
    *out_count = query_int(&query, 0);
    *out_last = query_int(&query, 1);
    return 0;
}

int store_message_add(struct store *store, struct str session_id, struct str text, int64_t max,
                      struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};
    int64_t count, last;

    if (count_messages(conn, session_id, &count, &last, err) < 0)
        return -1;
    if (count >= max)
        return error_set(err, ERROR_QUOTA, "%lld messages wait for session '%.*s' already",
                         (long long)count, STR_ARG(session_id));
    if (query_open(&query, conn,
                   "INSERT INTO runtime_messages (session_id, seq, text) VALUES (?1, ?2, ?3)",
                   err) < 0)
        return -1;
    bind_text(&query, session_id);
    bind_int(&query, last + 1);
    bind_text(&query, text);
    return query_run_durable(&query, conn, err);
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

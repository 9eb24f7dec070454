/* Background jobs and their callbacks. A job's row is on disk before the job is launched; its end and
 * what has to be told about it are one transaction, so that a callback is neither lost nor made twice
 * by a crash (it may be sent twice: the receiver's 200 may get lost). */
#include <inttypes.h>

#include "store/driver/query.h"
#include "store/runtime/store_runtime_sandbox.h"
#include "store/runtime/store_runtime_sandbox_row.h"

#define COLUMNS                                                                                   \
    "runtime_jobs.id, team_id, sandbox_id, agent_id, actor, command, run_as, runtime_jobs.state," \
    " error, has_input, stopping, has_exit_code, exit_code, started_at_us, ended_at_us,"          \
    " runtime_job_callbacks.state"
#define TABLES " FROM runtime_jobs LEFT JOIN runtime_job_callbacks ON job_id = runtime_jobs.id "

static void read_row(const struct query *query, struct arena *arena, void *row)
{
    struct store_runtime_job *out = row;

    *out = (struct store_runtime_job){
        .id = runtime_text(query, 0, arena),
        .team_id = runtime_text(query, 1, arena),
        .sandbox_id = runtime_text(query, 2, arena),
        .agent_id = runtime_text(query, 3, arena),
        .actor = runtime_text(query, 4, arena),
        .command = runtime_text(query, 5, arena),
        .run_as = runtime_text(query, 6, arena),
        .state = runtime_text(query, 7, arena),
        .error = runtime_text(query, 8, arena),
        .has_input = query_int(query, 9) != 0,
        .stopping = query_int(query, 10) != 0,
        .has_exit_code = query_int(query, 11) != 0,
        .exit_code = query_int(query, 12),
        .started_at_us = query_int(query, 13),
        .ended_at_us = query_int(query, 14),
        .callback_state = runtime_text(query, 15, arena),
    };
}

static const struct query_kind row_kind = {sizeof(struct store_runtime_job), read_row};

static int check_count(struct conn *conn, struct str sandbox_id, int64_t max, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT count(*) FROM runtime_jobs WHERE sandbox_id = ?1 AND state = 'running'",
                   err) < 0)
        return -1;
    bind_text(&query, sandbox_id);
    if (query_step(&query, err) < 0)
        return -1;
    if (max > 0 && query_int(&query, 0) >= max)
        return error_set(err, ERROR_QUOTA,
                         "sandbox '%.*s' has %" PRId64
                         " running jobs, as many as it may: stop one or wait for its end",
                         STR_ARG(sandbox_id), max);
    return 0;
}

static int insert_job(struct conn *conn, const struct store_runtime_job *row, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "INSERT INTO runtime_jobs (id, team_id, sandbox_id, agent_id, actor, command,"
                   " run_as, has_input, state, stopping, has_exit_code, exit_code, error,"
                   " started_at_us, ended_at_us)"
                   " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'running', 0, 0, 0, '', ?9, 0)",
                   err) < 0)
        return -1;
    bind_text(&query, row->id);
    bind_text(&query, row->team_id);
    bind_text(&query, row->sandbox_id);
    runtime_bind(&query, row->agent_id);
    runtime_bind(&query, row->actor);
    runtime_bind(&query, row->command);
    runtime_bind(&query, row->run_as);
    bind_int(&query, row->has_input);
    bind_int(&query, row->started_at_us);
    return query_run(&query, err);
}

static int insert_callback(struct conn *conn, const struct store_runtime_job *row,
                           struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "INSERT INTO runtime_job_callbacks (job_id, url, token, body, state, attempts,"
                   " next_at_us) VALUES (?1, ?2, ?3, '', 'waiting', 0, 0)",
                   err) < 0)
        return -1;
    bind_text(&query, row->id);
    bind_text(&query, row->callback_url);
    runtime_bind(&query, row->callback_token);
    return query_run(&query, err);
}

int store_runtime_job_insert(struct store *store, const struct store_runtime_job *row, int64_t max,
                             struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    return store_end(conn,
                     check_count(conn, row->sandbox_id, max, err) < 0 ||
                             insert_job(conn, row, err) < 0 ||
                             (row->callback_url.p && insert_callback(conn, row, err) < 0)
                         ? -1
                         : 0,
                     err);
}

int store_runtime_job_get(struct store *store, struct str team_id, struct str id,
                          struct arena *arena, struct store_runtime_job *out, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " COLUMNS TABLES "WHERE runtime_jobs.id = ?1 AND team_id = ?2", err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, team_id);
    if (query_one(&query, "job", id, err) < 0)
        return -1;
    read_row(&query, arena, out);
    return 0;
}

int store_runtime_job_list(struct store *store, struct str team_id, struct str sandbox_id,
                           size_t limit, struct arena *arena, struct store_runtime_job **out,
                           size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " COLUMNS TABLES "WHERE team_id = ?1 AND (?2 = '' OR sandbox_id = ?2)"
                   " ORDER BY started_at_us DESC, runtime_jobs.id LIMIT ?3",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    runtime_bind(&query, sandbox_id);
    bind_int(&query, (int64_t)limit);
    return query_rows(&query, &row_kind, arena, out, out_count, err);
}

int store_runtime_job_running(struct store *store, struct str sandbox_id, struct arena *arena,
                              struct store_runtime_job **out, size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " COLUMNS TABLES "WHERE runtime_jobs.state = 'running'"
                   " AND (?1 = '' OR sandbox_id = ?1) ORDER BY started_at_us",
                   err) < 0)
        return -1;
    runtime_bind(&query, sandbox_id);
    return query_rows(&query, &row_kind, arena, out, out_count, err);
}

int store_runtime_job_stopping(struct store *store, struct str id, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE runtime_jobs SET stopping = 1 WHERE id = ?1 AND state = 'running'",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    return query_run(&query, err);
}

/* 1 = this call ended it. */
static int end_job(struct conn *conn, struct str id, const struct store_runtime_job_end *end,
                   struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE runtime_jobs SET state = ?2, error = ?3, has_exit_code = ?4,"
                   " exit_code = ?5, ended_at_us = ?6 WHERE id = ?1 AND state = 'running'"
                   " RETURNING id",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, end->state);
    runtime_bind(&query, end->error);
    bind_int(&query, end->has_exit_code);
    bind_int(&query, end->exit_code);
    bind_int(&query, end->at_us);
    return query_step(&query, err);
}

/* 1 = there is one. */
static int callback_pending(struct conn *conn, struct str id,
                            const struct store_runtime_job_end *end, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE runtime_job_callbacks SET state = 'pending', body = ?2, next_at_us = ?3"
                   " WHERE job_id = ?1 AND state = 'waiting' RETURNING job_id",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    runtime_bind(&query, end->body);
    bind_int(&query, end->at_us);
    return query_step(&query, err);
}

int store_runtime_job_ended(struct store *store, struct str id,
                            const struct store_runtime_job_end *end, bool *out_ended,
                            bool *out_callback, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    int ended, callback = 0;

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    ended = end_job(conn, id, end, err);
    if (ended > 0)
        callback = callback_pending(conn, id, end, err);
    *out_ended = ended > 0;
    *out_callback = callback > 0;
    return store_end(conn, ended < 0 ? ended : callback, err);
}

/* The id is taken first, in the same transaction: RETURNING knows only one table. */
static int take_due(struct conn *conn, const struct store_callback_turn *turn, struct arena *arena,
                    struct str *out_id, struct error *err)
{
    auto_query struct query query = {0};
    int found;

    if (query_open(&query, conn,
                   "UPDATE runtime_job_callbacks SET next_at_us = ?2, attempts = attempts + 1"
                   " WHERE job_id = (SELECT job_id FROM runtime_job_callbacks"
                   " JOIN runtime_jobs ON runtime_jobs.id = job_id"
                   " WHERE runtime_job_callbacks.state = 'pending' AND next_at_us <= ?1"
                   " AND team_id NOT IN (?3, ?4, ?5, ?6) ORDER BY next_at_us LIMIT 1)"
                   " AND state = 'pending' RETURNING job_id",
                   err) < 0)
        return -1;
    bind_int(&query, turn->now_us);
    bind_int(&query, turn->later_us);
    for (size_t i = 0; i < STORE_CALLBACK_BUSY; i++)
        bind_text(&query, turn->busy[i].p ? turn->busy[i] : STR(""));
    found = query_step(&query, err);
    if (found < 0)
        return -1;
    if (!found)
        return error_set(err, ERROR_NOT_FOUND, "no callback is due");
    *out_id = query_text(&query, 0, arena);
    return 0;
}

static int read_callback(struct conn *conn, struct str id, struct arena *arena,
                         struct store_runtime_callback *out, struct error *err)
{
    auto_query struct query query = {0};
    int found;

    if (query_open(&query, conn,
                   "SELECT job_id, team_id, sandbox_id, agent_id, actor, url, token, body,"
                   " attempts, ended_at_us FROM runtime_job_callbacks"
                   " JOIN runtime_jobs ON runtime_jobs.id = job_id WHERE job_id = ?1",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    found = query_step(&query, err);
    if (found <= 0)
        return found < 0 ? -1 : error_set(err, ERROR_NOT_FOUND, "no callback is due");
    *out = (struct store_runtime_callback){
        .job_id = runtime_text(&query, 0, arena),
        .team_id = runtime_text(&query, 1, arena),
        .sandbox_id = runtime_text(&query, 2, arena),
        .agent_id = runtime_text(&query, 3, arena),
        .actor = runtime_text(&query, 4, arena),
        .url = runtime_text(&query, 5, arena),
        .token = runtime_text(&query, 6, arena),
        .body = runtime_text(&query, 7, arena),
        .attempts = query_int(&query, 8),
        .ended_at_us = query_int(&query, 9),
    };
    return 0;
}

int store_runtime_callback_take(struct store *store, const struct store_callback_turn *turn,
                                struct arena *arena, struct store_runtime_callback *out,
                                struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    struct str id = STR_NONE;

    if (store_begin(conn, STORE_EPHEMERAL, err) < 0)
        return -1;
    return store_end(conn,
                     take_due(conn, turn, arena, &id, err) < 0 ||
                             read_callback(conn, id, arena, out, err) < 0
                         ? -1
                         : 0,
                     err);
}

int store_runtime_callback_next(struct store *store, int64_t *out_next_at_us, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT coalesce(min(next_at_us), 0) FROM runtime_job_callbacks"
                   " WHERE state = 'pending'",
                   err) < 0 ||
        query_step(&query, err) < 0)
        return -1;
    *out_next_at_us = query_int(&query, 0);
    return 0;
}

int store_runtime_callback_set(struct store *store, struct str job_id, const char *state,
                               int64_t next_at_us, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE runtime_job_callbacks SET state = ?2, next_at_us = ?3 WHERE job_id = ?1",
                   err) < 0)
        return -1;
    bind_text(&query, job_id);
    bind_text(&query, str_of(state));
    bind_int(&query, next_at_us);
    return query_run_durable(&query, conn, err);
}

/* Background jobs and their callbacks. A job's row is on disk before the job is launched; its end and
 * what has to be told about it are one transaction, so that a callback is neither lost nor made twice
 * by a crash (it may be sent twice: the receiver's 200 may get lost). */
#include <inttypes.h>

#include "store/runtime/store_runtime_sandbox.h"
#include "store/runtime/store_runtime_sandbox_row.h"

/* clang-format off */
#define JOB_ROW(F, T, AND)                                                               \
    F(T, id, id) AND() F(T, team_id, team_id) AND() F(T, sandbox_id, sandbox_id) AND()   \
    F(T, agent_id, agent_id) AND() F(T, actor, actor) AND() F(T, command, command) AND() \
    F(T, run_as, run_as) AND() F(T, state, state) AND() F(T, error, error) AND()         \
    F(T, has_input, has_input) AND() F(T, stopping, stopping) AND()                      \
    F(T, has_exit_code, has_exit_code) AND() F(T, exit_code, exit_code) AND()            \
    F(T, started_at_us, started_at_us) AND() F(T, ended_at_us, ended_at_us)
/* clang-format on */
static const struct names *const job_names[] = {&job_state_names, &callback_state_names};
ROW(job_row, struct store_runtime_job, JOB_ROW, .names = job_names);

/* With the state of its callback. */
#define OF_JOB(T, column, member) "runtime_jobs." #column
#define COLUMNS                                    \
    JOB_ROW(OF_JOB, , ROW_COMMA)                   \
    ", coalesce(runtime_job_callbacks.state, '')," \
    " coalesce(attempts, 0), coalesce(next_at_us, 0)"
#define TABLES " FROM runtime_jobs LEFT JOIN runtime_job_callbacks ON job_id = runtime_jobs.id "
static const struct row_field found_fields[] = {
    JOB_ROW(ROW_FIELD, struct store_runtime_job, ROW_NEXT),
    ROW_FIELD(struct store_runtime_job, state, callback_state),
    ROW_FIELD(struct store_runtime_job, attempts, callback_attempts),
    ROW_FIELD(struct store_runtime_job, next_at_us, callback_next_at_us),
};
static const struct row found_row =
    ROW_OF(found_fields, struct store_runtime_job, .flags = ROW_NONE, .names = job_names);

/* clang-format off */
#define CALLBACK_ROW(F, T, AND)                                                                \
    F(T, job_id, job_id) AND() F(T, team_id, team_id) AND() F(T, sandbox_id, sandbox_id) AND() \
    F(T, agent_id, agent_id) AND() F(T, actor, actor) AND() F(T, url, url) AND()               \
    F(T, token, token) AND() F(T, body, body) AND() F(T, attempts, attempts) AND()             \
    F(T, ended_at_us, ended_at_us) AND() F(T, next_at_us, next_at_us)
/* clang-format on */
ROW(callback_row, struct store_runtime_callback, CALLBACK_ROW, .flags = ROW_NONE);

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

static int insert_job(struct conn *conn, const struct store_runtime_job *given, struct error *err)
{
    auto_query struct query query = {0};
    struct store_runtime_job row = *given;

    if (query_open(&query, conn, ROW_INSERT("runtime_jobs", JOB_ROW), err) < 0)
        return -1;
    row.state = JOB_RUNNING;
    row.error = STR_NONE;
    row.stopping = row.has_exit_code = false;
    row.exit_code = row.ended_at_us = 0;
    row_bind(&job_row, &query, &row);
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

int store_runtime_job_delete(struct store *store, struct str id, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    return store_end(
        conn,
        runtime_delete(conn, "DELETE FROM runtime_job_callbacks WHERE job_id = ?1", id, err) < 0 ||
                runtime_delete(conn, "DELETE FROM runtime_jobs WHERE id = ?1", id, err) < 0
            ? -1
            : 0,
        err);
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
    return row_one(&found_row, &query, "job", id, arena, out, err);
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
    return row_all(&found_row, &query, arena, out, out_count, err);
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
    return row_all(&found_row, &query, arena, out, out_count, err);
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
    bind_text(&query, str_of(name_of(&job_state_names, end->state)));
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

int store_runtime_callback_next(struct store *store, struct str busy, struct arena *arena,
                                struct store_runtime_callback *out, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(
            &query, conn,
            "SELECT " ROW_COLUMNS(CALLBACK_ROW) " FROM runtime_job_callbacks"
                                                " JOIN runtime_jobs ON runtime_jobs.id = job_id"
                                                " WHERE runtime_job_callbacks.state = 'pending'"
                                                " AND ?1 NOT LIKE '%,' || team_id || ',%'"
                                                " ORDER BY next_at_us LIMIT 1",
            err) < 0)
        return -1;
    bind_text(&query, busy);
    return row_one(&callback_row, &query, "callback", STR_NONE, arena, out, err);
}

int store_runtime_callback_take(struct store *store, struct store_runtime_callback *callback,
                                int64_t later_us, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};
    int taken;

    if (query_open(&query, conn,
                   "UPDATE runtime_job_callbacks SET next_at_us = ?3, attempts = attempts + 1"
                   " WHERE job_id = ?1 AND state = 'pending' AND next_at_us = ?2 RETURNING job_id",
                   err) < 0)
        return -1;
    bind_text(&query, callback->job_id);
    bind_int(&query, callback->next_at_us);
    bind_int(&query, later_us);
    taken = query_step(&query, err);
    if (taken <= 0)
        return taken;
    callback->attempts++;
    callback->next_at_us = later_us;
    return query_run(&query, err) < 0 ? -1 : 1;
}

int store_runtime_callback_set(struct store *store, struct str job_id, enum callback_state state,
                               int64_t next_at_us, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE runtime_job_callbacks SET state = ?2, next_at_us = ?3 WHERE job_id = ?1",
                   err) < 0)
        return -1;
    bind_text(&query, job_id);
    bind_text(&query, str_of(name_of(&callback_state_names, state)));
    bind_int(&query, next_at_us);
    return query_run_durable(&query, conn, err);
}

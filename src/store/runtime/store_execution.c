/* Commands whose output is kept. A row is written when its command has ended, and makes room for itself in
 * the same transaction. */
#include "store/runtime/store_execution.h"

#include "store/core/row.h"

/* clang-format off */
#define EXECUTION_HEAD(F, T, AND)                                                          \
    F(T, id, id) AND() F(T, team_id, team_id) AND() F(T, sandbox_id, sandbox_id) AND()     \
    F(T, agent_id, agent_id) AND() F(T, task_id, task_id) AND() F(T, actor, actor) AND()   \
    F(T, command, command) AND() F(T, error, error) AND() F(T, exit_code, exit_code) AND() \
    F(T, timed_out, timed_out) AND() F(T, truncated, truncated) AND()                      \
    F(T, duration_ms, duration_ms) AND() F(T, started_at_us, started_at_us) AND()          \
    F(T, ended_at_us, ended_at_us)
/* clang-format on */
/* With what it printed, which lists leave out. */
#define EXECUTION_ROW(F, T, AND) \
    EXECUTION_HEAD(F, T, AND) AND() F(T, out_text, out) AND() F(T, err_text, err)
ROW(head_row, struct store_execution, EXECUTION_HEAD, .flags = ROW_NONE);
ROW(execution_row, struct store_execution, EXECUTION_ROW, .flags = ROW_NONE);

static int insert(struct conn *conn, const struct store_execution *row, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn, ROW_INSERT("runtime_executions", EXECUTION_ROW), err) < 0)
        return -1;
    row_bind(&execution_row, &query, row);
    return query_run(&query, err);
}

/* All but the newest. Each row makes room for one: a few at a time are enough to come down to bounds that
 * have become narrower. */
#define MAKE_ROOM(column)                                                                         \
    "DELETE FROM runtime_executions WHERE id IN (SELECT id FROM runtime_executions WHERE " column \
    " = ?1 ORDER BY ended_at_us DESC, id DESC LIMIT 16 OFFSET ?2)"

static int make_room(struct conn *conn, const char *sql, struct str of, int64_t keep,
                     struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn, sql, err) < 0)
        return -1;
    bind_text(&query, of);
    bind_int(&query, keep);
    return query_run(&query, err);
}

int store_execution_add(struct store *store, const struct store_execution *row,
                        const struct store_execution_bounds *bounds, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, STORE_EPHEMERAL, err) < 0)
        return -1;
    return store_end(
        conn,
        insert(conn, row, err) < 0 ||
                make_room(conn, MAKE_ROOM("sandbox_id"), row->sandbox_id, bounds->of_sandbox, err) <
                    0 ||
                make_room(conn, MAKE_ROOM("team_id"), row->team_id, bounds->of_team, err) < 0
            ? -1
            : 0,
        err);
}

int store_execution_get(struct store *store, struct str team_id, struct str id, struct arena *arena,
                        struct store_execution *out, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " ROW_COLUMNS(EXECUTION_ROW) " FROM runtime_executions"
                                                        " WHERE id = ?1 AND team_id = ?2",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, team_id);
    if (row_one(&execution_row, &query, "kept execution", id, arena, out, err) < 0)
        return -1;
    /* Nothing printed is a text too. */
    out->out = out->out.p ? out->out : STR("");
    out->err = out->err.p ? out->err : STR("");
    return 0;
}

int store_execution_list(struct store *store, struct str team_id, struct str sandbox_id,
                         const struct store_execution_page *page, struct arena *arena,
                         struct store_execution **out, size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(
            &query, conn,
            "SELECT " ROW_COLUMNS(
                EXECUTION_HEAD) " FROM runtime_executions WHERE sandbox_id = ?1 AND team_id = ?2"
                                " AND (?3 = 0 OR ended_at_us < ?3) ORDER BY ended_at_us DESC, id "
                                "DESC LIMIT ?4",
            err) < 0)
        return -1;
    bind_text(&query, sandbox_id);
    bind_text(&query, team_id);
    bind_int(&query, page->before_us);
    bind_int(&query, (int64_t)page->limit);
    return row_all(&head_row, &query, arena, out, out_count, err);
}

int store_execution_prune(struct store *store, int64_t before_us, size_t max, size_t *out_count,
                          struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "DELETE FROM runtime_executions WHERE id IN (SELECT id FROM runtime_executions"
                   " WHERE ended_at_us < ?1 ORDER BY ended_at_us LIMIT ?2) RETURNING id",
                   err) < 0)
        return -1;
    bind_int(&query, before_us);
    bind_int(&query, (int64_t)max);
    return query_count(&query, out_count, err);
}

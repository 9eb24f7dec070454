/* Commands whose output is kept. A row is written when its command has ended, and makes room for itself in
 * the same transaction. */
#include "store/runtime/store_execution.h"

#include "store/driver/query.h"
#include "store/runtime/store_runtime_sandbox_row.h"

#define COLUMNS                                                                                \
    "id, team_id, sandbox_id, agent_id, task_id, actor, command, error, exit_code, timed_out," \
    " truncated, duration_ms, started_at_us, ended_at_us"

enum { OUT_COLUMN = 14, ERR_COLUMN = 15 };

static void read_row(const struct query *query, struct arena *arena, void *row)
{
    struct store_execution *out = row;

    *out = (struct store_execution){
        .id = runtime_text(query, 0, arena),
        .team_id = runtime_text(query, 1, arena),
        .sandbox_id = runtime_text(query, 2, arena),
        .agent_id = runtime_text(query, 3, arena),
        .task_id = runtime_text(query, 4, arena),
        .actor = runtime_text(query, 5, arena),
        .command = runtime_text(query, 6, arena),
        .error = runtime_text(query, 7, arena),
        .exit_code = query_int(query, 8),
        .timed_out = query_int(query, 9) != 0,
        .truncated = query_int(query, 10) != 0,
        .duration_ms = query_int(query, 11),
        .started_at_us = query_int(query, 12),
        .ended_at_us = query_int(query, 13),
    };
}

static const struct query_kind row_kind = {sizeof(struct store_execution), read_row};

static int insert(struct conn *conn, const struct store_execution *row, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "INSERT INTO runtime_executions (" COLUMNS ", out_text, err_text) VALUES"
                   " (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
                   err) < 0)
        return -1;
    bind_text(&query, row->id);
    bind_text(&query, row->team_id);
    bind_text(&query, row->sandbox_id);
    runtime_bind(&query, row->agent_id);
    runtime_bind(&query, row->task_id);
    runtime_bind(&query, row->actor);
    runtime_bind(&query, row->command);
    runtime_bind(&query, row->error);
    bind_int(&query, row->exit_code);
    bind_int(&query, row->timed_out);
    bind_int(&query, row->truncated);
    bind_int(&query, row->duration_ms);
    bind_int(&query, row->started_at_us);
    bind_int(&query, row->ended_at_us);
    runtime_bind(&query, row->out);
    runtime_bind(&query, row->err);
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
                   "SELECT " COLUMNS ", out_text, err_text FROM runtime_executions"
                   " WHERE id = ?1 AND team_id = ?2",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, team_id);
    if (query_one(&query, "kept execution", id, err) < 0)
        return -1;
    read_row(&query, arena, out);
    out->out = query_text(&query, OUT_COLUMN, arena);
    out->err = query_text(&query, ERR_COLUMN, arena);
    return 0;
}

int store_execution_list(struct store *store, struct str team_id, struct str sandbox_id,
                         const struct store_execution_page *page, struct arena *arena,
                         struct store_execution **out, size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " COLUMNS
                   " FROM runtime_executions WHERE sandbox_id = ?1 AND team_id = ?2"
                   " AND (?3 = 0 OR ended_at_us < ?3) ORDER BY ended_at_us DESC, id DESC LIMIT ?4",
                   err) < 0)
        return -1;
    bind_text(&query, sandbox_id);
    bind_text(&query, team_id);
    bind_int(&query, page->before_us);
    bind_int(&query, (int64_t)page->limit);
    return query_rows(&query, &row_kind, arena, out, out_count, err);
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

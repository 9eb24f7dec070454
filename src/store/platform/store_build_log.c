/* What builds say. Lines come in batches; the number of the next one is kept with the build. */
#include "store/core/row.h"
#include "store/platform/store_build.h"

/* clang-format off */
#define LOG_ROW(F, T, AND)                                                           \
    F(T, seq, seq) AND() F(T, at_us, at_us) AND() F(T, level, level) AND()           \
    F(T, step, step) AND() F(T, message, message)
/* clang-format on */
ROW(log_row, struct store_build_log, LOG_ROW);

/* The number of the first of them; -1 in *out_first when the build is gone. */
static int take_numbers(struct conn *conn, struct str id, size_t count, int64_t *out_first,
                        struct error *err)
{
    auto_query struct query query = {0};
    int found;

    if (query_open(&query, conn,
                   "UPDATE builds SET log_count = log_count + ?2 WHERE id = ?1 RETURNING log_count",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_int(&query, (int64_t)count);
    found = query_step(&query, err);
    if (found < 0)
        return -1;
    *out_first = found ? query_int(&query, 0) - (int64_t)count : -1;
    return query_run(&query, err);
}

static int add_line(struct conn *conn, struct str id, int64_t seq,
                    const struct store_build_log *line, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "INSERT INTO build_logs (build_id, seq, at_us, level, step, message)"
                   " VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_int(&query, seq);
    bind_int(&query, line->at_us);
    bind_int(&query, line->level);
    bind_text(&query, line->step);
    bind_text(&query, line->message);
    return query_run(&query, err);
}

static int add_lines(struct conn *conn, struct str id, const struct store_build_log *lines,
                     size_t count, struct error *err)
{
    int64_t first = -1;

    if (take_numbers(conn, id, count, &first, err) < 0)
        return -1;
    for (size_t i = 0; i < count && first >= 0; i++)
        if (add_line(conn, id, first + (int64_t)i, &lines[i], err) < 0)
            return -1;
    return 0;
}

int store_build_log_add(struct store *store, struct str id, const struct store_build_log *lines,
                        size_t count, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, STORE_EPHEMERAL, err) < 0)
        return -1;
    return store_end(conn, add_lines(conn, id, lines, count, err), err);
}

#define PAGE(order)                                                                              \
    "SELECT " ROW_COLUMNS(LOG_ROW) " FROM build_logs WHERE build_id = ?1 AND at_us >= ?2"        \
                                   " AND at_us <= ?3 AND level >= ?4 AND (?5 = '' OR step = ?5)" \
                                   " ORDER BY seq " order " LIMIT ?6 OFFSET ?7"

int store_build_log_page(struct store *store, const struct store_build_log_query *wanted,
                         struct arena *arena, struct store_build_log **out, size_t *out_count,
                         struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, wanted->backward ? PAGE("DESC") : PAGE("ASC"), err) < 0)
        return -1;
    bind_text(&query, wanted->build_id);
    bind_int(&query, wanted->from_us);
    bind_int(&query, wanted->to_us ? wanted->to_us : INT64_MAX);
    bind_int(&query, wanted->level);
    bind_text(&query, wanted->step.p ? wanted->step : STR(""));
    bind_int(&query, (int64_t)wanted->limit);
    bind_int(&query, wanted->offset);
    return row_all(&log_row, &query, arena, out, out_count, err);
}

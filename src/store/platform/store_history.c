/* What the server did over time, in circles of rows. Not durable: a host that dies loses a minute of a chart. */
#include "store/platform/store_history.h"
#include "store/core/row.h"

/* clang-format off */
#define HISTORY_ROW(F, T, AND)                                                                        \
    F(T, step_s, step_s) AND() F(T, slot, slot) AND() F(T, at_us, at_us) AND()                        \
    F(T, running, running) AND() F(T, paused, paused) AND() F(T, warm, warm) AND()                    \
    F(T, creates, creates) AND() F(T, failures, failures) AND()                                       \
    F(T, p50_us, p50_us) AND() F(T, p99_us, p99_us) AND() F(T, cpu_permille, cpu_permille) AND()      \
    F(T, mem_used, mem_used) AND() F(T, mem_total, mem_total) AND()                                   \
    F(T, pool_used, pool_used) AND() F(T, pool_total, pool_total) AND()                               \
    F(T, disk_used, disk_used) AND() F(T, disk_total, disk_total)
/* clang-format on */
ROW(history_row, struct store_history, HISTORY_ROW);

static int replace(struct conn *conn, const struct store_history *entry, struct error *err)
{
    auto_query struct query old = {0}, new = {0};

    if (query_open(&old, conn, "DELETE FROM history WHERE step_s = ?1 AND slot = ?2", err) < 0)
        return -1;
    bind_int(&old, entry->step_s);
    bind_int(&old, entry->slot);
    if (query_run(&old, err) < 0 ||
        query_open(&new, conn, ROW_INSERT("history", HISTORY_ROW), err) < 0)
        return -1;
    row_bind(&history_row, &new, entry);
    return query_run(&new, err);
}

int store_history_put(struct store *store, const struct store_history *entry, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, STORE_EPHEMERAL, err) < 0)
        return -1;
    return store_end(conn, replace(conn, entry, err), err);
}

int store_history_list(struct store *store, int64_t step_s, int64_t from_us, struct arena *arena,
                       struct store_history **out, size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " ROW_COLUMNS(HISTORY_ROW) " FROM history WHERE step_s = ?1"
                                                      " AND at_us >= ?2 ORDER BY at_us",
                   err) < 0)
        return -1;
    bind_int(&query, step_s);
    bind_int(&query, from_us);
    return row_all(&history_row, &query, arena, out, out_count, err);
}

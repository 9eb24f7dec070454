/* Files that clients uploaded for COPY. A team knows them by the client's hash of the content; the body is stored once,
 * whoever sent it. */
#include "store/core/row.h"
#include "store/platform/store_build.h"

/* clang-format off */
#define FILE_ROW(F, T, AND)                                                              \
    F(T, team_id, team_id) AND() F(T, hash, hash) AND() F(T, body, body) AND()           \
    F(T, bytes, bytes) AND() F(T, made_at_us, made_at_us) AND() F(T, used_at_us, used_at_us)
/* clang-format on */
ROW(file_row, struct store_build_file, FILE_ROW);

int store_build_file_find(struct store *store, struct str team_id, struct str hash, int64_t at_us,
                          struct arena *arena, struct store_build_file *out, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE build_files SET used_at_us = ?3 WHERE team_id = ?1 AND hash = ?2"
                   " RETURNING " ROW_COLUMNS(FILE_ROW),
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    bind_text(&query, hash);
    bind_int(&query, at_us);
    if (row_one(&file_row, &query, "uploaded file", hash, arena, out, err) < 0)
        return -1;
    return query_run(&query, err);
}

int store_build_file_put(struct store *store, const struct store_build_file *file,
                         struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(
            &query, conn,
            ROW_INSERT(
                "build_files",
                FILE_ROW) " ON CONFLICT (team_id, hash) DO UPDATE SET body = excluded.body, bytes ="
                          " excluded.bytes, made_at_us = excluded.made_at_us, used_at_us ="
                          " excluded.used_at_us",
            err) < 0)
        return -1;
    row_bind(&file_row, &query, file);
    return query_run_durable(&query, conn, err);
}

int store_build_file_prune(struct store *store, int64_t before_us, size_t max, struct arena *arena,
                           struct str **out, size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "DELETE FROM build_files WHERE (team_id, hash) IN (SELECT team_id, hash FROM"
                   " build_files WHERE used_at_us < ?1 LIMIT ?2) RETURNING body",
                   err) < 0)
        return -1;
    bind_int(&query, before_us);
    bind_int(&query, (int64_t)max);
    return row_all(&row_strings, &query, arena, out, out_count, err);
}

int store_build_file_has_body(struct store *store, struct str body, bool *out, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};
    int found;

    if (query_open(&query, conn, "SELECT 1 FROM build_files WHERE body = ?1 LIMIT 1", err) < 0)
        return -1;
    bind_text(&query, body);
    found = query_step(&query, err);
    *out = found > 0;
    return found < 0 ? -1 : 0;
}

/* What steps gave the last time, by a key that says all it came from. A row uses its layers (layer_uses, 'cache'), so
 * that they stay for as long as it does. */
#include "store/core/row.h"
#include "store/platform/platform_internal.h"
#include "store/platform/store_build.h"

/* clang-format off */
#define CACHE_ROW(F, T, AND)                                                          \
    F(T, key, key) AND() F(T, team_id, team_id) AND() F(T, layers, layers) AND()      \
    F(T, note, note) AND() F(T, bytes, bytes) AND() F(T, made_at_us, made_at_us) AND() \
    F(T, used_at_us, used_at_us)
/* clang-format on */
ROW(cache_row, struct store_cached, CACHE_ROW);

int store_cache_find(struct store *store, struct str key, int64_t at_us, struct arena *arena,
                     struct store_cached *out, bool *out_found, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};
    int found;

    *out_found = false;
    if (query_open(&query, conn,
                   "UPDATE build_cache SET used_at_us = ?2 WHERE key = ?1"
                   " RETURNING " ROW_COLUMNS(CACHE_ROW),
                   err) < 0)
        return -1;
    bind_text(&query, key);
    bind_int(&query, at_us);
    found = query_step(&query, err);
    if (found < 0 || (found > 0 && row_read(&cache_row, &query, arena, out, err) < 0))
        return -1;
    *out_found = found > 0;
    return query_run(&query, err);
}

static int put(struct conn *conn, const struct store_cached *cached, struct error *err)
{
    auto_query struct query query = {0};
    bool freed;

    if (layer_uses_remove(conn, "cache", cached->key, &freed, err) < 0 ||
        layer_uses_add(conn, cached->layers, "cache", cached->key, err) < 0 ||
        query_open(
            &query, conn,
            ROW_INSERT(
                "build_cache",
                CACHE_ROW) " ON CONFLICT (key) DO UPDATE SET layers = excluded.layers, note ="
                           " excluded.note, bytes = excluded.bytes, made_at_us = "
                           "excluded.made_at_us,"
                           " used_at_us = excluded.used_at_us",
            err) < 0)
        return -1;
    row_bind(&cache_row, &query, cached);
    return query_run(&query, err);
}

int store_cache_put(struct store *store, const struct store_cached *cached, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    return store_end(conn, put(conn, cached, err), err);
}

static int delete_key(struct conn *conn, struct str key, bool *out_freed, struct error *err)
{
    auto_query struct query query = {0};

    if (layer_uses_remove(conn, "cache", key, out_freed, err) < 0 ||
        query_open(&query, conn, "DELETE FROM build_cache WHERE key = ?1", err) < 0)
        return -1;
    bind_text(&query, key);
    return query_run(&query, err);
}

int store_cache_delete(struct store *store, struct str key, bool *out_freed, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    *out_freed = false;
    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    return store_end(conn, delete_key(conn, key, out_freed, err), err);
}

int store_cache_old(struct store *store, int64_t before_us, int64_t bytes_max, size_t max,
                    struct arena *arena, struct str **out, size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT key FROM (SELECT key, used_at_us, sum(bytes) OVER"
                   " (ORDER BY used_at_us DESC, key) AS total FROM build_cache) AS c"
                   " WHERE used_at_us < ?1 OR total > ?2 ORDER BY used_at_us LIMIT ?3",
                   err) < 0)
        return -1;
    bind_int(&query, before_us);
    bind_int(&query, bytes_max);
    bind_int(&query, (int64_t)max);
    return row_all(&row_strings, &query, arena, out, out_count, err);
}

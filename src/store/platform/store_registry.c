/* Passwords of teams for registries of images, as they were encrypted by whoever stores them. */
#include "store/platform/store_registry.h"
#include "store/core/row.h"

/* clang-format off */
#define REGISTRY_ROW(F, T, AND)                                                      \
    F(T, team_id, team_id) AND() F(T, host, host) AND() F(T, username, username) AND() \
    F(T, secret, secret) AND() F(T, made_at_us, made_at_us)
/* clang-format on */
ROW(registry_row, struct store_registry, REGISTRY_ROW);

static int count_others(struct conn *conn, const struct store_registry *registry,
                        int64_t *out_count, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT count(*) FROM registry_credentials WHERE team_id = ?1 AND host <> ?2",
                   err) < 0)
        return -1;
    bind_text(&query, registry->team_id);
    bind_text(&query, registry->host);
    if (query_step(&query, err) < 0)
        return -1;
    *out_count = query_int(&query, 0);
    return 0;
}

/* clang-format off */
static const char upsert_registry[] =
    ROW_INSERT("registry_credentials", REGISTRY_ROW)
    " ON CONFLICT (team_id, host) DO UPDATE SET username = excluded.username, secret ="
    " excluded.secret, made_at_us = excluded.made_at_us";
/* clang-format on */

static int put_registry(struct conn *conn, const struct store_registry *registry, int64_t max,
                        struct error *err)
{
    auto_query struct query query = {0};
    int64_t others = 0;

    if (count_others(conn, registry, &others, err) < 0)
        return -1;
    if (others >= max)
        return error_set(err, ERROR_QUOTA, "the team has passwords for %lld registries already",
                         (long long)others);
    if (query_open(&query, conn, upsert_registry, err) < 0)
        return -1;
    row_bind(&registry_row, &query, registry);
    return query_run(&query, err);
}

int store_registry_put(struct store *store, const struct store_registry *registry, int64_t max,
                       struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    return store_end(conn, put_registry(conn, registry, max, err), err);
}

int store_registry_find(struct store *store, struct str team_id, struct str host,
                        struct arena *arena, struct store_registry *out, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " ROW_COLUMNS(
                       REGISTRY_ROW) " FROM registry_credentials WHERE team_id = ?1 AND host = ?2",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    bind_text(&query, host);
    return row_one(&registry_row, &query, "password for registry", host, arena, out, err);
}

int store_registry_list(struct store *store, struct str team_id, struct arena *arena,
                        struct store_registry **out, size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " ROW_COLUMNS(
                       REGISTRY_ROW) " FROM registry_credentials WHERE team_id = ?1 ORDER BY host",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    return row_all(&registry_row, &query, arena, out, out_count, err);
}

int store_registry_delete(struct store *store, struct str team_id, struct str host,
                          struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "DELETE FROM registry_credentials WHERE team_id = ?1 AND host = ?2"
                   " RETURNING host",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    bind_text(&query, host);
    if (query_one(&query, "password for registry", host, err) < 0)
        return -1;
    return query_run(&query, err);
}

/* Secrets of teams, as they were encrypted by whoever stores them. Durable: who was told that a secret is another one
 * relies on it. */
#include "store/platform/store_secret.h"
#include "store/core/row.h"

/* clang-format off */
#define SECRET_ROW(F, T, AND)                                                                       \
    F(T, id, id) AND() F(T, team_id, team_id) AND() F(T, name, name) AND() F(T, value, value) AND() \
    F(T, hosts, hosts) AND() F(T, metadata, metadata) AND() F(T, version, version) AND()            \
    F(T, created_at_us, created_at_us) AND() F(T, updated_at_us, updated_at_us)
/* clang-format on */
ROW(secret_row, struct store_secret, SECRET_ROW);

static int count_all(struct conn *conn, struct str team_id, int64_t *out, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn, "SELECT count(*) FROM secrets WHERE team_id = ?1", err) < 0)
        return -1;
    bind_text(&query, team_id);
    if (query_step(&query, err) < 0)
        return -1;
    *out = query_int(&query, 0);
    return 0;
}

static int insert(struct conn *conn, const struct store_secret *secret, int64_t max,
                  struct error *err)
{
    auto_query struct query query = {0};
    int64_t count = 0;

    if (count_all(conn, secret->team_id, &count, err) < 0)
        return -1;
    if (count >= max)
        return error_set(err, ERROR_QUOTA, "the team has %lld secrets already", (long long)count);
    if (query_open(&query, conn, ROW_INSERT("secrets", SECRET_ROW), err) < 0)
        return -1;
    row_bind(&secret_row, &query, secret);
    return query_run(&query, err);
}

int store_secret_insert(struct store *store, const struct store_secret *secret, int64_t max,
                        struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    return store_end(conn, insert(conn, secret, max, err), err);
}

int store_secret_find(struct store *store, struct str team_id, struct str name, struct arena *arena,
                      struct store_secret *out, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " ROW_COLUMNS(
                       SECRET_ROW) " FROM secrets WHERE team_id = ?1 AND (id = ?2 OR name = ?2)",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    bind_text(&query, name);
    return row_one(&secret_row, &query, "secret", name, arena, out, err);
}

int store_secret_list(struct store *store, struct str team_id, struct str after, int64_t limit,
                      struct arena *arena, struct store_secret **out, size_t *out_count,
                      struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " ROW_COLUMNS(
                       SECRET_ROW) " FROM secrets WHERE team_id = ?1 AND name > ?2 ORDER BY name"
                                   " LIMIT ?3",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    bind_text(&query, after);
    bind_int(&query, limit);
    return row_all(&secret_row, &query, arena, out, out_count, err);
}

static int update(struct conn *conn, struct store_secret *secret, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE secrets SET value = ?1, hosts = ?2, metadata = ?3, updated_at_us = ?4,"
                   " version = version + 1 WHERE team_id = ?5 AND id = ?6 RETURNING version",
                   err) < 0)
        return -1;
    bind_text(&query, secret->value);
    bind_text(&query, secret->hosts);
    bind_text(&query, secret->metadata);
    bind_int(&query, secret->updated_at_us);
    bind_text(&query, secret->team_id);
    bind_text(&query, secret->id);
    if (query_one(&query, "secret", secret->id, err) < 0)
        return -1;
    secret->version = query_int(&query, 0);
    return query_run(&query, err);
}

int store_secret_update(struct store *store, struct store_secret *secret, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    return store_end(conn, update(conn, secret, err), err);
}

static int remove_row(struct conn *conn, struct str team_id, struct str id, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn, "DELETE FROM secrets WHERE team_id = ?1 AND id = ?2 RETURNING id",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    bind_text(&query, id);
    if (query_one(&query, "secret", id, err) < 0)
        return -1;
    return query_run(&query, err);
}

int store_secret_delete(struct store *store, struct str team_id, struct str id, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    return store_end(conn, remove_row(conn, team_id, id, err), err);
}

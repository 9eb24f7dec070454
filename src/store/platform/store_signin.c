/* Browsers that are signed in, and links that sign one in. Rows are removed when somebody signs in after their end. */
#include "store/platform/store_signin.h"
#include "store/core/row.h"

/* clang-format off */
#define SIGNIN_ROW(F, T, AND)                                                                    \
    F(T, token_hash, token_hash) AND() F(T, kind, kind) AND() F(T, key_hash, key_hash) AND()     \
    F(T, expires_at_us, expires_at_us)
/* clang-format on */
ROW(signin_row, struct store_signin, SIGNIN_ROW);

/* What has ended, and of one API key all but the newest. */
static int make_room(struct conn *conn, const struct store_signin *signin, int64_t now_us,
                     int64_t max, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "DELETE FROM signins WHERE expires_at_us <= ?1 OR (key_hash = ?2 AND"
                   " token_hash IN (SELECT token_hash FROM signins WHERE key_hash = ?2"
                   " ORDER BY expires_at_us DESC LIMIT 1000000 OFFSET ?3))",
                   err) < 0)
        return -1;
    bind_int(&query, now_us);
    bind_text(&query, signin->key_hash);
    bind_int(&query, max - 1);
    return query_run(&query, err);
}

static int insert(struct conn *conn, const struct store_signin *signin, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn, ROW_INSERT("signins", SIGNIN_ROW), err) < 0)
        return -1;
    row_bind(&signin_row, &query, signin);
    return query_run(&query, err);
}

int store_signin_insert(struct store *store, const struct store_signin *signin, int64_t now_us,
                        int64_t max, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    return store_end(
        conn,
        make_room(conn, signin, now_us, max, err) < 0 || insert(conn, signin, err) < 0 ? -1 : 0,
        err);
}

int store_signin_find(struct store *store, struct str token_hash, int64_t now_us,
                      struct arena *arena, struct store_signin *out, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " ROW_COLUMNS(
                       SIGNIN_ROW) " FROM signins WHERE token_hash = ?1 AND expires_at_us > ?2",
                   err) < 0)
        return -1;
    bind_text(&query, token_hash);
    bind_int(&query, now_us);
    return row_one(&signin_row, &query, "sign-in", STR_NONE, arena, out, err);
}

static int take(struct conn *conn, struct str token_hash, bool *out_found, struct error *err)
{
    auto_query struct query query = {0};
    int found;

    if (query_open(&query, conn, "DELETE FROM signins WHERE token_hash = ?1 RETURNING token_hash",
                   err) < 0)
        return -1;
    bind_text(&query, token_hash);
    found = query_step(&query, err);
    if (found < 0 || (found > 0 && query_run(&query, err) < 0))
        return -1;
    *out_found = found > 0;
    return 0;
}

int store_signin_delete(struct store *store, struct str token_hash, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    bool found = false;

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    if (store_end(conn, take(conn, token_hash, &found, err), err) < 0)
        return -1;
    return found ? 0 : error_set(err, ERROR_NOT_FOUND, "sign-in not found");
}

/* Keys are durable: what was answered is on disk. Only the time of last use is not. */
#include <inttypes.h>

#include "store/core/row.h"
#include "store/platform/store_team.h"

/* Keys of a sandbox end with it. Those of a sandbox with a key of its own live as long as its row, which can
 * get another machine; others end with their machine, also before the row has followed. */
#define SANDBOX_LIVES                                                              \
    "(sandbox_id = '' OR EXISTS (SELECT 1 FROM runtime_sandboxes AS made"          \
    " WHERE made.id = api_keys.sandbox_id AND made.destroyed_at_us = 0"            \
    " AND (made.sandbox_key <> '' OR NOT EXISTS (SELECT 1 FROM sandboxes AS gone"  \
    " WHERE gone.id = made.external_id AND gone.listed IN ('killing', 'ended'))))" \
    " OR EXISTS (SELECT 1 FROM sandboxes AS box"                                   \
    " WHERE box.id = api_keys.sandbox_id AND box.listed NOT IN ('killing', 'ended')))"

/* clang-format off */
#define KEY_ROW(F, T, AND)                                                                            \
    F(T, id, id) AND() F(T, team_id, team_id) AND() F(T, name, name) AND() F(T, key_hash, hash) AND() \
    F(T, mask, mask) AND() F(T, created_at_us, created_at_us) AND()                                   \
    F(T, last_used_at_us, last_used_at_us) AND() F(T, agent_id, agent_id) AND()                       \
    F(T, sandbox_id, sandbox_id) AND() F(T, role, role)
/* clang-format on */
ROW(key_row, struct store_key, KEY_ROW);

/* Of two tables, some of whose columns have the same names. */
#define OF_KEY(T, column, member) "api_keys." #column
static const struct row_field found_fields[] = {
    KEY_ROW(ROW_FIELD, struct store_key, ROW_NEXT),
    ROW_FIELD(struct store_key, banned, team_banned),
};
static const struct row found_row = ROW_OF(found_fields, struct store_key, );

static int insert_key(struct conn *conn, const struct store_key *key, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn, ROW_INSERT("api_keys", KEY_ROW), err) < 0)
        return -1;
    row_bind(&key_row, &query, key);
    return query_run(&query, err);
}

static int remove_dead_keys(struct conn *conn, struct str team_id, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn, "DELETE FROM api_keys WHERE team_id = ?1 AND NOT " SANDBOX_LIVES,
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    return query_run(&query, err);
}

static int check_room(struct conn *conn, const struct store_key *key, int64_t max,
                      struct error *err)
{
    auto_query struct query query = {0};
    int64_t count = 0;

    if (query_open(&query, conn,
                   "SELECT count(*) FROM api_keys WHERE team_id = ?1 AND sandbox_id = ?2", err) < 0)
        return -1;
    bind_text(&query, key->team_id);
    bind_text(&query, key->sandbox_id);
    if (query_number(&query, &count, err) < 0)
        return -1;
    if (count < max)
        return 0;
    return error_set(err, ERROR_QUOTA,
                     "sandbox '%.*s' has %" PRId64 " keys already: remove one first",
                     STR_ARG(key->sandbox_id), max);
}

int store_key_insert(struct store *store, const struct store_key *key, int64_t max,
                     struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    return store_end(conn,
                     (key->sandbox_id.len && (remove_dead_keys(conn, key->team_id, err) < 0 ||
                                              check_room(conn, key, max, err) < 0)) ||
                             insert_key(conn, key, err) < 0
                         ? -1
                         : 0,
                     err);
}

int store_key_find(struct store *store, struct str hash, struct arena *arena, struct store_key *out,
                   struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(
            &query, conn,
            "SELECT " KEY_ROW(OF_KEY, , ROW_COMMA) ", banned"
                                                   " FROM api_keys JOIN teams ON teams.id = team_id"
                                                   " WHERE key_hash = ?1 AND " SANDBOX_LIVES,
            err) < 0)
        return -1;
    bind_text(&query, hash);
    return row_one(&found_row, &query, "key", STR_NONE, arena, out, err);
}

int store_key_list(struct store *store, struct str team_id, struct arena *arena,
                   struct store_key **out, size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(
            &query, conn,
            "SELECT " ROW_COLUMNS(KEY_ROW) " FROM api_keys WHERE team_id = ?1 AND " SANDBOX_LIVES
                                           " ORDER BY created_at_us, id",
            err) < 0)
        return -1;
    bind_text(&query, team_id);
    return row_all(&key_row, &query, arena, out, out_count, err);
}

int store_key_count(struct store *store, size_t *out, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};
    int64_t count = 0;

    if (query_open(&query, conn, "SELECT count(*) FROM api_keys", err) < 0 ||
        query_number(&query, &count, err) < 0)
        return -1;
    *out = (size_t)count;
    return 0;
}

int store_key_sandbox(struct store *store, struct str team_id, struct str sandbox_id,
                      struct arena *arena, struct str *out_engine_id, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT coalesce((SELECT box.id FROM sandboxes AS box"
                   " WHERE box.id = made.external_id AND box.team_id = ?1), '')"
                   " FROM runtime_sandboxes AS made"
                   " WHERE made.id = ?2 AND made.team_id = ?1 AND made.destroyed_at_us = 0"
                   " UNION ALL SELECT id FROM sandboxes WHERE id = ?2 AND team_id = ?1"
                   " AND listed NOT IN ('killing', 'ended')",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    bind_text(&query, sandbox_id);
    if (query_one(&query, "sandbox", sandbox_id, err) < 0)
        return -1;
    *out_engine_id = query_text(&query, 0, arena);
    return 0;
}

static int delete_key(struct conn *conn, struct str team_id, struct str id, bool *out_found,
                      struct error *err)
{
    auto_query struct query query = {0};
    int found;

    if (query_open(&query, conn, "DELETE FROM api_keys WHERE id = ?1 AND team_id = ?2 RETURNING id",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, team_id);
    found = query_step(&query, err);
    if (found < 0 || (found > 0 && query_run(&query, err) < 0))
        return -1;
    *out_found = found > 0;
    return 0;
}

int store_key_delete(struct store *store, struct str team_id, struct str id, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    bool found = false;

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    if (store_end(conn, delete_key(conn, team_id, id, &found, err), err) < 0)
        return -1;
    return found ? 0 : error_set(err, ERROR_NOT_FOUND, "key '%.*s' not found", STR_ARG(id));
}

static int rename_key(struct conn *conn, struct str team_id, struct str id, struct str name,
                      bool *out_found, struct error *err)
{
    auto_query struct query query = {0};
    int found;

    if (query_open(&query, conn,
                   "UPDATE api_keys SET name = ?3 WHERE id = ?1 AND team_id = ?2 RETURNING id",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, team_id);
    bind_text(&query, name);
    found = query_step(&query, err);
    if (found < 0 || (found > 0 && query_run(&query, err) < 0))
        return -1;
    *out_found = found > 0;
    return 0;
}

int store_key_rename(struct store *store, struct str team_id, struct str id, struct str name,
                     struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    bool found = false;

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    if (store_end(conn, rename_key(conn, team_id, id, name, &found, err), err) < 0)
        return -1;
    return found ? 0 : error_set(err, ERROR_NOT_FOUND, "key '%.*s' not found", STR_ARG(id));
}

int store_key_used(struct store *store, struct str id, int64_t at_us, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE api_keys SET last_used_at_us = ?2"
                   " WHERE id = ?1 AND last_used_at_us < ?2",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_int(&query, at_us);
    return query_run(&query, err);
}

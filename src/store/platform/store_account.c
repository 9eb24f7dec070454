/* Keys are durable: what was answered is on disk. Only the time of last use is not. */
#include "store/core/store.h"
#include "store/driver/query.h"

/* Keys of a sandbox end with it. Those of a sandbox with a key of its own live as long as its row, which can
 * get another machine; others end with their machine, also before the row has followed. */
#define SANDBOX_LIVES                                                             \
    "(sandbox_id = '' OR EXISTS (SELECT 1 FROM runtime_sandboxes AS made"         \
    " WHERE made.id = api_keys.sandbox_id AND made.destroyed_at_us = 0"           \
    " AND (made.sandbox_key <> '' OR NOT EXISTS (SELECT 1 FROM sandboxes AS gone" \
    " WHERE gone.id = made.external_id AND gone.state IN ('killing', 'ended'))))" \
    " OR EXISTS (SELECT 1 FROM sandboxes AS box"                                  \
    " WHERE box.id = api_keys.sandbox_id AND box.state NOT IN ('killing', 'ended')))"

int store_key_insert(struct store *store, const struct store_key *key, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "INSERT INTO api_keys"
                   " (id, team_id, name, key_hash, mask, created_at_us, agent_id, sandbox_id,"
                   " last_used_at_us) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0)",
                   err) < 0)
        return -1;
    bind_text(&query, key->id);
    bind_text(&query, key->team_id);
    bind_text(&query, key->name);
    bind_text(&query, key->hash);
    bind_text(&query, key->mask);
    bind_int(&query, key->created_at_us);
    bind_text(&query, key->agent_id.p ? key->agent_id : STR(""));
    bind_text(&query, key->sandbox_id.p ? key->sandbox_id : STR(""));
    return query_run_durable(&query, conn, err);
}

static void read_key(const struct query *query, struct arena *arena, void *to)
{
    struct store_key *out = to;

    *out = (struct store_key){
        .id = query_text(query, 0, arena),
        .team_id = query_text(query, 1, arena),
        .name = query_text(query, 2, arena),
        .hash = query_text(query, 3, arena),
        .mask = query_text(query, 4, arena),
        .created_at_us = query_int(query, 5),
        .last_used_at_us = query_int(query, 6),
        .team_banned = query_int(query, 7) != 0,
        .agent_id = query_text(query, 8, arena),
        .sandbox_id = query_text(query, 9, arena),
    };
}

static const struct query_kind key_kind = {sizeof(struct store_key), read_key};

int store_key_find(struct store *store, struct str hash, struct arena *arena, struct store_key *out,
                   struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT api_keys.id, team_id, api_keys.name, key_hash, mask,"
                   " api_keys.created_at_us, last_used_at_us, banned, agent_id, sandbox_id"
                   " FROM api_keys JOIN teams ON teams.id = team_id"
                   " WHERE key_hash = ?1 AND " SANDBOX_LIVES,
                   err) < 0)
        return -1;
    bind_text(&query, hash);
    if (query_one(&query, "key", STR_NONE, err) < 0)
        return -1;
    read_key(&query, arena, out);
    return 0;
}

int store_key_list(struct store *store, struct str team_id, struct arena *arena,
                   struct store_key **out, size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT id, team_id, name, key_hash, mask, created_at_us, last_used_at_us, 0,"
                   " agent_id, sandbox_id FROM api_keys WHERE team_id = ?1 AND " SANDBOX_LIVES
                   " ORDER BY created_at_us, id",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    return query_rows(&query, &key_kind, arena, out, out_count, err);
}

int store_key_count(struct store *store, size_t *out, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, "SELECT count(*) FROM api_keys", err) < 0 ||
        query_step(&query, err) < 0)
        return -1;
    *out = (size_t)query_int(&query, 0);
    return 0;
}

int store_key_count_sandbox(struct store *store, struct str team_id, struct str sandbox_id,
                            size_t *out, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query dead = {0}, query = {0};

    if (query_open(&dead, conn, "DELETE FROM api_keys WHERE team_id = ?1 AND NOT " SANDBOX_LIVES,
                   err) < 0)
        return -1;
    bind_text(&dead, team_id);
    if (query_run(&dead, err) < 0 ||
        query_open(&query, conn,
                   "SELECT count(*) FROM api_keys WHERE team_id = ?1 AND sandbox_id = ?2", err) < 0)
        return -1;
    bind_text(&query, team_id);
    bind_text(&query, sandbox_id);
    if (query_step(&query, err) < 0)
        return -1;
    *out = (size_t)query_int(&query, 0);
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
                   " AND state NOT IN ('killing', 'ended')",
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

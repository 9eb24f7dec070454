/* Snapshots the agent runtime has made. The row is there before the snapshot, so that none is
 * forgotten; an alias changes hands only when the new one is ready. */
#include "store/runtime/store_runtime_sandbox.h"
#include "store/runtime/store_runtime_sandbox_row.h"

/* clang-format off */
#define SNAPSHOT_ROW(F, T, AND)                                                                     \
    F(T, id, id) AND() F(T, team_id, team_id) AND() F(T, alias, alias) AND() F(T, kind, kind) AND() \
    F(T, provider, provider) AND() F(T, external_id, external_id) AND()                             \
    F(T, sandbox_id, sandbox_id) AND() F(T, image, image) AND() F(T, state, state) AND()            \
    F(T, created_at_us, created_at_us) AND() F(T, expires_at_us, expires_at_us)
/* clang-format on */
static const struct names *const names[] = {&snapshot_state_names};
ROW(snapshot_row, struct store_runtime_snapshot, SNAPSHOT_ROW, .flags = ROW_NONE, .names = names);
#define COLUMNS ROW_COLUMNS(SNAPSHOT_ROW)

int store_runtime_snapshot_insert(struct store *store, const struct store_runtime_snapshot *row,
                                  struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};
    struct store_runtime_snapshot written = *row;

    if (query_open(&query, conn, ROW_INSERT("runtime_snapshots", SNAPSHOT_ROW), err) < 0)
        return -1;
    written.alias = STR_NONE;
    written.state = SNAPSHOT_CREATING;
    row_bind(&snapshot_row, &query, &written);
    return query_run_durable(&query, conn, err);
}

static int free_alias(struct conn *conn, const struct store_runtime_snapshot *row, int64_t now_us,
                      struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE runtime_snapshots SET alias = '', state = 'expired', expires_at_us = ?3"
                   " WHERE team_id = ?1 AND alias = ?2 AND id <> ?4",
                   err) < 0)
        return -1;
    bind_text(&query, row->team_id);
    bind_text(&query, row->alias);
    bind_int(&query, now_us);
    bind_text(&query, row->id);
    return query_run(&query, err);
}

static int set_ready(struct conn *conn, const struct store_runtime_snapshot *row, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE runtime_snapshots SET alias = ?2, external_id = ?3, state = 'ready',"
                   " expires_at_us = ?4 WHERE id = ?1",
                   err) < 0)
        return -1;
    bind_text(&query, row->id);
    runtime_bind(&query, row->alias);
    runtime_bind(&query, row->external_id);
    bind_int(&query, row->expires_at_us);
    return query_run(&query, err);
}

int store_runtime_snapshot_ready(struct store *store, const struct store_runtime_snapshot *row,
                                 int64_t now_us, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    return store_end(conn,
                     (row->alias.len && free_alias(conn, row, now_us, err) < 0) ||
                             set_ready(conn, row, err) < 0
                         ? -1
                         : 0,
                     err);
}

int store_runtime_snapshot_state(struct store *store, struct str id, enum snapshot_state state,
                                 struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, "UPDATE runtime_snapshots SET state = ?2 WHERE id = ?1", err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, str_of(name_of(&snapshot_state_names, state)));
    return query_run(&query, err);
}

int store_runtime_snapshot_get(struct store *store, struct str team_id, struct str name,
                               struct arena *arena, struct store_runtime_snapshot *out,
                               struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " COLUMNS " FROM runtime_snapshots WHERE team_id = ?1"
                   " AND (id = ?2 OR (alias = ?2 AND alias <> ''))",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    runtime_bind(&query, name);
    return row_one(&snapshot_row, &query, "snapshot", name, arena, out, err);
}

int store_runtime_snapshot_list(struct store *store, struct str team_id, struct str sandbox_id,
                                const enum snapshot_state *state, struct arena *arena,
                                struct store_runtime_snapshot **out, size_t *out_count,
                                struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " COLUMNS " FROM runtime_snapshots WHERE team_id = ?1"
                   " AND (?2 = '' OR sandbox_id = ?2) AND (?3 = '' OR state = ?3)"
                   " ORDER BY created_at_us DESC, id LIMIT 1000",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    runtime_bind(&query, sandbox_id);
    bind_text(&query, state ? str_of(name_of(&snapshot_state_names, *state)) : STR(""));
    return row_all(&snapshot_row, &query, arena, out, out_count, err);
}

int store_runtime_snapshot_expired(struct store *store, struct str team_id, int64_t now_us,
                                   size_t limit, struct arena *arena,
                                   struct store_runtime_snapshot **out, size_t *out_count,
                                   struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " COLUMNS " FROM runtime_snapshots WHERE expires_at_us > 0"
                   " AND expires_at_us <= ?2 AND (?1 = '' OR team_id = ?1)"
                   " ORDER BY expires_at_us LIMIT ?3",
                   err) < 0)
        return -1;
    runtime_bind(&query, team_id);
    bind_int(&query, now_us);
    bind_int(&query, (int64_t)limit);
    return row_all(&snapshot_row, &query, arena, out, out_count, err);
}

int store_runtime_snapshot_delete(struct store *store, struct str id, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, "DELETE FROM runtime_snapshots WHERE id = ?1", err) < 0)
        return -1;
    bind_text(&query, id);
    return query_run_durable(&query, conn, err);
}

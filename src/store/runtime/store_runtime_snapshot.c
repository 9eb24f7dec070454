/* Snapshots the agent runtime has made. The row is there before the snapshot, so that none is
 * forgotten; an alias changes hands only when the new one is ready. */
#include "store/driver/query.h"
#include "store/runtime/store_runtime_sandbox.h"
#include "store/runtime/store_runtime_sandbox_row.h"

#define COLUMNS                                                                  \
    "id, team_id, alias, kind, provider, external_id, sandbox_id, image, state," \
    " created_at_us, expires_at_us"

static void read_row(const struct query *query, struct arena *arena, void *row)
{
    struct store_runtime_snapshot *out = row;

    *out = (struct store_runtime_snapshot){
        .id = runtime_text(query, 0, arena),
        .team_id = runtime_text(query, 1, arena),
        .alias = runtime_text(query, 2, arena),
        .kind = runtime_text(query, 3, arena),
        .provider = runtime_text(query, 4, arena),
        .external_id = runtime_text(query, 5, arena),
        .sandbox_id = runtime_text(query, 6, arena),
        .image = runtime_text(query, 7, arena),
        .state = runtime_text(query, 8, arena),
        .created_at_us = query_int(query, 9),
        .expires_at_us = query_int(query, 10),
    };
}

static const struct query_kind row_kind = {sizeof(struct store_runtime_snapshot), read_row};

int store_runtime_snapshot_insert(struct store *store, const struct store_runtime_snapshot *row,
                                  struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "INSERT INTO runtime_snapshots (" COLUMNS
                   ") VALUES (?1, ?2, '', ?3, ?4, ?5, ?6, ?7, 'creating', ?8, ?9)",
                   err) < 0)
        return -1;
    bind_text(&query, row->id);
    bind_text(&query, row->team_id);
    runtime_bind(&query, row->kind);
    runtime_bind(&query, row->provider);
    runtime_bind(&query, row->external_id);
    runtime_bind(&query, row->sandbox_id);
    runtime_bind(&query, row->image);
    bind_int(&query, row->created_at_us);
    bind_int(&query, row->expires_at_us);
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

int store_runtime_snapshot_state(struct store *store, struct str id, const char *state,
                                 struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, "UPDATE runtime_snapshots SET state = ?2 WHERE id = ?1", err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, str_of(state));
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
    if (query_one(&query, "snapshot", name, err) < 0)
        return -1;
    read_row(&query, arena, out);
    return 0;
}

int store_runtime_snapshot_list(struct store *store, struct str team_id, struct str sandbox_id,
                                struct str state, struct arena *arena,
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
    runtime_bind(&query, state);
    return query_rows(&query, &row_kind, arena, out, out_count, err);
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
    return query_rows(&query, &row_kind, arena, out, out_count, err);
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

/* Which creates may be repeated: the key that came with one, and the sandbox it made. */
#include "store/platform/store_idempotency.h"
#include "store/core/query.h"
#include "store/platform/platform_internal.h"

int idempotency_add(struct conn *conn, const struct store_sandbox *row, struct error *err)
{
    auto_query struct query query = {0};

    if (!row->idempotency_key.len)
        return 0;
    if (query_open(&query, conn,
                   "INSERT INTO idempotency (team_id, idem_key, request_hash, sandbox_id,"
                   " created_at_us) VALUES (?1, ?2, ?3, ?4, ?5)",
                   err) < 0)
        return -1;
    bind_text(&query, row->team_id);
    bind_text(&query, row->idempotency_key);
    bind_text(&query, row->idempotency_hash);
    bind_text(&query, row->id);
    bind_int(&query, row->started_at_us);
    return query_run(&query, err);
}

int store_idempotency_find(struct store *store, struct str team_id, struct str key,
                           struct arena *arena, struct str *out_sandbox_id, struct str *out_hash,
                           struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};
    int found;

    *out_sandbox_id = STR_NONE;
    if (query_open(&query, conn,
                   "SELECT sandbox_id, request_hash FROM idempotency"
                   " WHERE team_id = ?1 AND idem_key = ?2",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    bind_text(&query, key);
    found = query_step(&query, err);
    if (found > 0) {
        *out_sandbox_id = query_text(&query, 0, arena);
        *out_hash = query_text(&query, 1, arena);
    }
    return found < 0 ? -1 : 0;
}

int store_idempotency_prune(struct store *store, int64_t before_us, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, "DELETE FROM idempotency WHERE created_at_us < ?1", err) < 0)
        return -1;
    bind_int(&query, before_us);
    return query_run(&query, err);
}

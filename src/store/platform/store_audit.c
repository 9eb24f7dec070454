/* Who changed what, and which creates may be repeated. */
#include <stdio.h>

#include "store/core/store.h"
#include "store/driver/query.h"

/* A path may be as long as a request's head, and a million of them are kept. */
enum { PATH_KEPT = 256 };

int store_audit_add(struct store *store, const struct store_audit *entry, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};
    char path[PATH_KEPT + sizeof("...")];
    int kept = entry->path.len > PATH_KEPT ? PATH_KEPT : (int)entry->path.len;

    if (query_open(&query, conn,
                   "INSERT INTO audit (seq, at_us, team_id, key_id, method, path, status,"
                   " request_id, key_name, agent_id) VALUES ((SELECT coalesce(max(seq), 0) + 1"
                   " FROM audit), ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                   err) < 0)
        return -1;
    bind_int(&query, entry->at_us);
    bind_text(&query, entry->team_id);
    bind_text(&query, entry->key_id);
    bind_text(&query, entry->method);
    (void)snprintf(path, sizeof(path), "%.*s%s", kept, entry->path.p ? entry->path.p : "",
                   entry->path.len > PATH_KEPT ? "..." : "");
    bind_text(&query, str_of(path));
    bind_int(&query, entry->status);
    bind_text(&query, entry->request_id);
    bind_text(&query, entry->key_name.p ? entry->key_name : STR(""));
    bind_text(&query, entry->agent_id.p ? entry->agent_id : STR(""));
    return query_run(&query, err);
}

#define COLUMNS                                                                                 \
    "SELECT seq, at_us, team_id, key_id, method, path, status, request_id, key_name, agent_id," \
    " coalesce((SELECT name FROM teams WHERE teams.id = team_id), '') FROM audit"

int store_audit_page(struct store *store, struct str team_id, int64_t before_seq, size_t limit,
                     struct arena *arena, struct store_audit **out, size_t *out_count,
                     struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};
    int more;

    if (query_open(&query, conn,
                   team_id.p ? COLUMNS " WHERE team_id = ?1 AND seq < ?2 ORDER BY seq DESC LIMIT ?3"
                             : COLUMNS " WHERE ?1 IS NULL AND seq < ?2 ORDER BY seq DESC LIMIT ?3",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    bind_int(&query, before_seq ? before_seq : INT64_MAX);
    bind_int(&query, (int64_t)limit);
    *out = arena_alloc(arena, (limit + 1) * sizeof(**out));
    *out_count = 0;
    while ((more = query_step(&query, err)) > 0 && *out_count < limit)
        (*out)[(*out_count)++] = (struct store_audit){
            .seq = query_int(&query, 0),
            .at_us = query_int(&query, 1),
            .team_id = query_text(&query, 2, arena),
            .key_id = query_text(&query, 3, arena),
            .method = query_text(&query, 4, arena),
            .path = query_text(&query, 5, arena),
            .status = query_int(&query, 6),
            .request_id = query_text(&query, 7, arena),
            .key_name = query_text(&query, 8, arena),
            .agent_id = query_text(&query, 9, arena),
            .team_name = query_text(&query, 10, arena),
        };
    return more < 0 ? -1 : 0;
}

int store_audit_prune(struct store *store, int64_t before_us, int64_t keep, size_t max,
                      size_t *out_count, struct error *err)
{
    return store_prune(store, STORE_PRUNE("audit"), before_us, keep, max, out_count, err);
}

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

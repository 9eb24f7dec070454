/* Layers that snapshots made, and who uses them. A use is written in the same transaction as its
 * user, so what the tables say is true after any crash: a layer without uses is garbage. */
#include "store/platform/store_layer.h"
#include "store/core/row.h"
#include "store/platform/platform_internal.h"

int store_layer_add(struct store *store, struct str name, struct str team_id, int64_t at_us,
                    struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "INSERT INTO layers (name, team_id, created_at_us) VALUES (?1, ?2, ?3)",
                   err) < 0)
        return -1;
    bind_text(&query, name);
    bind_text(&query, team_id);
    bind_int(&query, at_us);
    return query_run(&query, err);
}

int store_layer_size(struct store *store, struct str name, struct str base, int64_t bytes,
                     int64_t *out_bytes, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE layers SET bytes = ?2 +"
                   " coalesce((SELECT b.bytes FROM layers b WHERE b.name = ?3), 0)"
                   " WHERE name = ?1 RETURNING bytes",
                   err) < 0)
        return -1;
    bind_text(&query, name);
    bind_int(&query, bytes);
    bind_text(&query, base);
    if (query_one(&query, "layer", name, err) < 0)
        return -1;
    *out_bytes = query_int(&query, 0);
    return 0;
}

int store_layers_bytes(struct store *store, struct str layers, int64_t *out_bytes,
                       struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);

    *out_bytes = 0;
    while (layers.len) {
        auto_query struct query query = {0};
        int found;

        if (query_open(&query, conn, "SELECT bytes FROM layers WHERE name = ?1", err) < 0)
            return -1;
        bind_text(&query, str_split(&layers, ','));
        found = query_step(&query, err);
        if (found < 0)
            return -1;
        *out_bytes += found ? query_int(&query, 0) : 0;
    }
    return 0;
}

int store_layers_shared(struct store *store, struct str layers, struct store_shared *out,
                        struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);

    *out = (struct store_shared){0};
    while (layers.len) {
        auto_query struct query query = {0};
        int64_t bytes, others;
        int found;

        if (query_open(&query, conn,
                       "SELECT bytes, (SELECT count(*) FROM layer_uses WHERE layer = name)"
                       " FROM layers WHERE name = ?1",
                       err) < 0)
            return -1;
        bind_text(&query, str_split(&layers, ','));
        found = query_step(&query, err);
        if (found < 0)
            return -1;
        bytes = found ? query_int(&query, 0) : 0;
        others = found ? query_int(&query, 1) - 1 : 0;
        out->bytes += bytes;
        out->shared += others > 0 ? bytes : 0;
        out->users = others > out->users ? others : out->users;
    }
    return 0;
}

int store_team_kept(struct store *store, struct str team_id, struct store_kept *out,
                    struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT (SELECT count(*) FROM volumes WHERE team_id = ?1),"
                   " (SELECT coalesce(sum(bytes), 0) FROM layers WHERE team_id = ?1"
                   " AND EXISTS (SELECT 1 FROM layer_uses WHERE layer = name)),"
                   " (SELECT coalesce(sum(bytes), 0) FROM build_files WHERE team_id = ?1),"
                   " (SELECT coalesce(sum(bytes), 0) FROM browser_files WHERE team_id = ?1)",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    if (query_one(&query, "team", team_id, err) < 0)
        return -1;
    *out = (struct store_kept){.volumes = query_int(&query, 0),
                               .layer_bytes = query_int(&query, 1),
                               .file_bytes = query_int(&query, 2) + query_int(&query, 3)};
    return 0;
}

static int add_use(struct conn *conn, struct str layer, const char *kind, struct str user_id,
                   struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "INSERT INTO layer_uses (layer, user_kind, user_id)"
                   " SELECT name, ?2, ?3 FROM layers WHERE name = ?1",
                   err) < 0)
        return -1;
    bind_text(&query, layer);
    bind_text(&query, str_of(kind));
    bind_text(&query, user_id);
    return query_run(&query, err);
}

int layer_uses_add(struct conn *conn, struct str layers, const char *kind, struct str user_id,
                   struct error *err)
{
    while (layers.len) {
        struct str layer = str_split(&layers, ',');

        if (add_use(conn, layer, kind, user_id, err) < 0)
            return -1;
    }
    return 0;
}

int layer_uses_remove(struct conn *conn, const char *kind, struct str user_id, bool *out_freed,
                      struct error *err)
{
    auto_query struct query query = {0};
    int more;

    *out_freed = false;
    if (query_open(&query, conn,
                   "DELETE FROM layer_uses WHERE user_kind = ?1 AND user_id = ?2 RETURNING layer",
                   err) < 0)
        return -1;
    bind_text(&query, str_of(kind));
    bind_text(&query, user_id);
    while ((more = query_step(&query, err)) > 0)
        *out_freed = true;
    return more;
}

int store_layer_unused(struct store *store, size_t max, struct arena *arena, struct str **out,
                       size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT name FROM layers WHERE NOT EXISTS"
                   " (SELECT 1 FROM layer_uses WHERE layer = name) ORDER BY created_at_us LIMIT ?1",
                   err) < 0)
        return -1;
    bind_int(&query, (int64_t)max);
    return row_all(&row_strings, &query, arena, out, out_count, err);
}

int store_layer_state(struct store *store, struct str name, bool *out_known, bool *out_used,
                      struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};
    int found;

    if (query_open(&query, conn,
                   "SELECT EXISTS (SELECT 1 FROM layer_uses WHERE layer = name) FROM layers"
                   " WHERE name = ?1",
                   err) < 0)
        return -1;
    bind_text(&query, name);
    found = query_step(&query, err);
    if (found < 0)
        return -1;
    *out_known = found > 0;
    *out_used = found > 0 && query_int(&query, 0) != 0;
    return 0;
}

int store_layer_forget(struct store *store, struct str name, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, "DELETE FROM layers WHERE name = ?1", err) < 0)
        return -1;
    bind_text(&query, name);
    return query_run(&query, err);
}

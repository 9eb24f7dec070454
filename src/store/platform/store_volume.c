/* Volumes. Durable; a volume that a live sandbox uses cannot be deleted, which one transaction
 * decides. Its row stays until its files are gone. */
#include "store/platform/store_volume.h"
#include "store/core/row.h"
#include "store/platform/platform_internal.h"

/* clang-format off */
#define VOLUME_ROW(F, T, AND)                                                                       \
    F(T, id, id) AND() F(T, team_id, team_id) AND() F(T, name, name) AND() F(T, token, token) AND() \
    F(T, deleting, deleting) AND() F(T, created_at_us, created_at_us)
/* clang-format on */
ROW(volume_row, struct store_volume, VOLUME_ROW);

int store_volume_insert(struct store *store, const struct store_volume *volume, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, ROW_INSERT("volumes", VOLUME_ROW), err) < 0)
        return -1;
    row_bind(&volume_row, &query, volume);
    return query_run_durable(&query, conn, err);
}

int store_volume_find(struct store *store, struct str team_id, struct str name, struct arena *arena,
                      struct store_volume *out, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " ROW_COLUMNS(
                       VOLUME_ROW) " FROM volumes WHERE team_id = ?1 AND (id = ?2 OR name = ?2)"
                                   " AND deleting = 0 ORDER BY CASE WHEN id = ?2 THEN 0 ELSE 1 END "
                                   "LIMIT 1",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    bind_text(&query, name);
    return row_one(&volume_row, &query, "volume", name, arena, out, err);
}

int store_volume_by_token(struct store *store, struct str token, struct arena *arena,
                          struct store_volume *out, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};
    int found;

    if (query_open(
            &query, conn,
            "SELECT " ROW_COLUMNS(VOLUME_ROW) " FROM volumes WHERE token = ?1 AND deleting = 0",
            err) < 0)
        return -1;
    bind_text(&query, token);
    found = query_step(&query, err);
    if (found <= 0)
        return found < 0 ? -1 : error_set(err, ERROR_UNAUTHORIZED, "no volume has this token");
    return row_read(&volume_row, &query, arena, out, err);
}

int store_volume_list(struct store *store, struct str team_id, struct arena *arena,
                      struct store_volume **out, size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   team_id.p ? "SELECT " ROW_COLUMNS(
                                   VOLUME_ROW) " FROM volumes WHERE team_id = ?1 AND deleting = 0"
                                               " ORDER BY created_at_us, id"
                             : "SELECT " ROW_COLUMNS(VOLUME_ROW) " FROM volumes WHERE ?1 = ''",
                   err) < 0)
        return -1;
    bind_text(&query, team_id.p ? team_id : STR(""));
    return row_all(&volume_row, &query, arena, out, out_count, err);
}

static int mark_deleting(struct conn *conn, struct str id, bool *out_marked, struct error *err)
{
    auto_query struct query query = {0};
    int found;

    if (query_open(&query, conn,
                   "UPDATE volumes SET deleting = 1 WHERE id = ?1 AND NOT EXISTS"
                   " (SELECT 1 FROM volume_uses WHERE volume_id = ?1) RETURNING id",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    found = query_step(&query, err);
    if (found < 0 || (found > 0 && query_run(&query, err) < 0))
        return -1;
    *out_marked = found > 0;
    return 0;
}

int store_volume_deleting(struct store *store, struct str id, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    bool marked = false;

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    if (store_end(conn, mark_deleting(conn, id, &marked, err), err) < 0)
        return -1;
    return marked ? 0 : error_set(err, ERROR_CONFLICT, "the volume is used by a sandbox");
}

int store_volume_deleted(struct store *store, struct str id, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, "DELETE FROM volumes WHERE id = ?1", err) < 0)
        return -1;
    bind_text(&query, id);
    return query_run_durable(&query, conn, err);
}

/* 0 rows: it is being deleted. */
static int add_use(struct conn *conn, struct str volume_id, struct str sandbox_id,
                   struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "INSERT INTO volume_uses (volume_id, sandbox_id) SELECT id, ?2 FROM volumes"
                   " WHERE id = ?1 AND deleting = 0 RETURNING volume_id",
                   err) < 0)
        return -1;
    bind_text(&query, volume_id);
    bind_text(&query, sandbox_id);
    if (query_one(&query, "volume", volume_id, err) < 0)
        return -1;
    return query_run(&query, err);
}

int volume_uses_add(struct conn *conn, const struct store_sandbox *row, struct error *err)
{
    struct str rest = row->volumes;

    while (rest.len) {
        struct str line = str_split(&rest, '\n');

        if (add_use(conn, str_split(&line, ' '), row->id, err) < 0)
            return -1;
    }
    return 0;
}

int volume_uses_remove(struct conn *conn, struct str sandbox_id, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn, "DELETE FROM volume_uses WHERE sandbox_id = ?1", err) < 0)
        return -1;
    bind_text(&query, sandbox_id);
    return query_run(&query, err);
}

/* Teams are durable: what was answered is on disk. */
#include "store/platform/store_team.h"
#include "store/core/row.h"
#include "store/core/store_name.h"

/* clang-format off */
#define TEAM_ROW(F, T, AND)                                                            \
    F(T, id, id) AND() F(T, name, name) AND() F(T, created_at_us, created_at_us) AND() \
    F(T, banned, banned) AND() F(T, max_sandboxes, limits.sandboxes) AND()             \
    F(T, max_cpu, limits.cpu) AND() F(T, max_mem_mb, limits.mem_mb) AND()              \
    F(T, max_disk_mb, limits.disk_mb) AND() F(T, max_creates, limits.creates_per_minute)
/* clang-format on */
ROW(team_row, struct store_team, TEAM_ROW);

int store_team_insert(struct store *store, const struct store_team *team, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, ROW_INSERT("teams", TEAM_ROW), err) < 0)
        return -1;
    row_bind(&team_row, &query, team);
    return query_run_durable(&query, conn, err);
}

int store_team_update(struct store *store, const struct store_team *team, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE teams SET name = ?2, created_at_us = ?3, banned = ?4,"
                   " max_sandboxes = ?5, max_cpu = ?6, max_mem_mb = ?7, max_disk_mb = ?8,"
                   " max_creates = ?9 WHERE id = ?1",
                   err) < 0)
        return -1;
    row_bind(&team_row, &query, team);
    return query_run_durable(&query, conn, err);
}

int store_team_get(struct store *store, struct str id, struct arena *arena, struct store_team *out,
                   struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, "SELECT " ROW_COLUMNS(TEAM_ROW) " FROM teams WHERE id = ?1", err) <
        0)
        return -1;
    bind_text(&query, id);
    return row_one(&team_row, &query, "team", id, arena, out, err);
}

int store_team_list(struct store *store, struct arena *arena, struct store_team **out,
                    size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " ROW_COLUMNS(TEAM_ROW) " FROM teams ORDER BY created_at_us, id",
                   err) < 0)
        return -1;
    return row_all(&team_row, &query, arena, out, out_count, err);
}

int store_team_slug(struct store *store, struct str team_id, struct arena *arena, struct str *out,
                    struct error *err)
{
    struct store_team team = {0};

    if (store_team_get(store, team_id, arena, &team, err) < 0)
        return -1;
    *out = store_name_valid(team.name) ? team.name : team.id;
    return 0;
}

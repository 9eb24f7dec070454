/* Teams are durable: what was answered is on disk. */
#include "store/core/store.h"
#include "store/core/store_name.h"
#include "store/driver/query.h"

#define COLUMNS                                                                         \
    "id, name, created_at_us, banned, max_sandboxes, max_cpu, max_mem_mb, max_disk_mb," \
    " max_creates"

static void read_team(const struct query *query, struct arena *arena, void *to)
{
    struct store_team *out = to;

    *out = (struct store_team){
        .id = query_text(query, 0, arena),
        .name = query_text(query, 1, arena),
        .created_at_us = query_int(query, 2),
        .banned = query_int(query, 3) != 0,
        .limits = {.sandboxes = query_int(query, 4),
                   .cpu = query_int(query, 5),
                   .mem_mb = query_int(query, 6),
                   .disk_mb = query_int(query, 7),
                   .creates_per_minute = query_int(query, 8)},
    };
}

static const struct query_kind team_kind = {sizeof(struct store_team), read_team};

static void bind_team(struct query *query, const struct store_team *team)
{
    bind_text(query, team->id);
    bind_text(query, team->name);
    bind_int(query, team->created_at_us);
    bind_int(query, team->banned);
    bind_int(query, team->limits.sandboxes);
    bind_int(query, team->limits.cpu);
    bind_int(query, team->limits.mem_mb);
    bind_int(query, team->limits.disk_mb);
    bind_int(query, team->limits.creates_per_minute);
}

int store_team_insert(struct store *store, const struct store_team *team, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "INSERT INTO teams (" COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                   err) < 0)
        return -1;
    bind_team(&query, team);
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
    bind_team(&query, team);
    return query_run_durable(&query, conn, err);
}

int store_team_get(struct store *store, struct str id, struct arena *arena, struct store_team *out,
                   struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, "SELECT " COLUMNS " FROM teams WHERE id = ?1", err) < 0)
        return -1;
    bind_text(&query, id);
    if (query_one(&query, "team", id, err) < 0)
        return -1;
    read_team(&query, arena, out);
    return 0;
}

int store_team_list(struct store *store, struct arena *arena, struct store_team **out,
                    size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, "SELECT " COLUMNS " FROM teams ORDER BY created_at_us, id", err) <
        0)
        return -1;
    return query_rows(&query, &team_kind, arena, out, out_count, err);
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

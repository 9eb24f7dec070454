/* Templates. Those of kind 'snapshot' have their content under tags, in store_snapshot.c. */
#include "store/core/store.h"
#include "store/core/store_name.h"
#include "store/driver/query.h"

#define COLUMNS                                                                      \
    "id, team_id, alias, layers, cpu_count, mem_mb, disk_mb, public, created_at_us," \
    " updated_at_us, kind, name"

static void read_template(const struct query *query, struct arena *arena, void *to)
{
    struct store_template *out = to;

    *out = (struct store_template){
        .id = query_text(query, 0, arena),
        .team_id = query_text(query, 1, arena),
        .alias = query_text(query, 2, arena),
        .layers = query_text(query, 3, arena),
        .cpu_count = query_int(query, 4),
        .mem_mb = query_int(query, 5),
        .disk_mb = query_int(query, 6),
        .is_public = query_int(query, 7) != 0,
        .created_at_us = query_int(query, 8),
        .updated_at_us = query_int(query, 9),
        .is_snapshot = str_is(query_peek(query, 10), "snapshot"),
        .name = query_text(query, 11, arena),
        .tag = STR("default"),
    };
}

static const struct query_kind template_kind = {sizeof(struct store_template), read_template};

static int not_found(struct str name, struct error *err)
{
    return error_set(err, ERROR_NOT_FOUND, "template '%.*s' not found",
                     (int)(name.len < 128 ? name.len : 128), name.p ? name.p : "");
}

/* "team/" before a name: 1 when it is this team, 0 when not. */
static int is_team(struct conn *conn, struct str team_id, struct str slug, struct error *err)
{
    auto_query struct query query = {0};

    if (str_eq(slug, team_id))
        return 1;
    if (query_open(&query, conn, "SELECT 1 FROM teams WHERE id = ?1 AND name = ?2", err) < 0)
        return -1;
    bind_text(&query, team_id);
    bind_text(&query, slug);
    return query_step(&query, err);
}

static int find_row(struct conn *conn, struct str team_id, const struct store_name *name,
                    struct arena *arena, struct store_template *out, struct error *err)
{
    auto_query struct query query = {0};
    int found;

    if (query_open(&query, conn,
                   "SELECT " COLUMNS " FROM templates WHERE (id = ?1 OR alias = ?1"
                   " OR (name = ?1 AND team_id = ?2)) AND (public = 1 OR team_id = ?2)"
                   " AND (?3 = 0 OR team_id = ?2)"
                   " ORDER BY CASE WHEN id = ?1 THEN 0 WHEN team_id = ?2 THEN 1 ELSE 2 END LIMIT 1",
                   err) < 0)
        return -1;
    bind_text(&query, name->name);
    bind_text(&query, team_id);
    bind_int(&query, name->team.p != NULL);
    found = query_step(&query, err);
    if (found > 0)
        read_template(&query, arena, out);
    return found;
}

/* 1 = found, 0 = not there, -1 = failed. */
static int find_template(struct conn *conn, struct str team_id, const struct store_name *name,
                         struct arena *arena, struct store_template *out, struct error *err)
{
    struct store_snapshot snapshot = {0};
    int found = name->team.p ? is_team(conn, team_id, name->team, err) : 1;

    if (found > 0)
        found = find_row(conn, team_id, name, arena, out, err);
    if (found <= 0)
        return found;
    if (!out->is_snapshot)
        return str_is(name->tag, "default");
    found = snapshot_find(conn, out->id, name->tag, arena, &snapshot, err);
    if (found <= 0)
        return found;
    out->tag = snapshot.tag;
    out->layers = snapshot.layers;
    out->cpu_count = snapshot.cpu_count;
    out->mem_mb = snapshot.mem_mb;
    out->disk_mb = snapshot.disk_mb;
    return 1;
}

int store_template_find(struct store *store, struct str team_id, struct str text,
                        struct arena *arena, struct store_template *out, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    struct store_name name;
    int found;

    if (!store_name_parse(text, arena, &name))
        return not_found(text, err);
    found = find_template(conn, team_id, &name, arena, out, err);
    if (found <= 0)
        return found < 0 ? -1 : not_found(text, err);
    return 0;
}

int store_template_get(struct store *store, struct str team_id, struct str text,
                       struct arena *arena, struct store_template *out, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    struct store_name name;
    int found;

    if (!store_name_parse(text, arena, &name))
        return not_found(text, err);
    found = name.team.p ? is_team(conn, team_id, name.team, err) : 1;
    if (found > 0)
        found = find_row(conn, team_id, &name, arena, out, err);
    if (found <= 0)
        return found < 0 ? -1 : not_found(text, err);
    out->tag = name.tag_given ? name.tag : STR_NONE;
    return 0;
}

int store_template_list(struct store *store, struct str team_id, struct arena *arena,
                        struct store_template **out, size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " COLUMNS " FROM templates WHERE (public = 1 OR team_id = ?1)"
                   " AND kind = 'template' ORDER BY created_at_us, id",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    return query_rows(&query, &template_kind, arena, out, out_count, err);
}

static int put_template(struct conn *conn, const struct store_template *template,
                        struct arena *arena, struct str *out_id, struct error *err)
{
    auto_query struct query query = {0};
    int found;

    if (query_open(&query, conn,
                   "INSERT INTO templates (id, team_id, alias, layers, cpu_count, mem_mb, disk_mb,"
                   " public, created_at_us, updated_at_us)"
                   " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"
                   " ON CONFLICT (alias) DO UPDATE SET layers = excluded.layers,"
                   " cpu_count = excluded.cpu_count, mem_mb = excluded.mem_mb,"
                   " disk_mb = excluded.disk_mb, public = excluded.public,"
                   " updated_at_us = excluded.updated_at_us"
                   " WHERE templates.team_id = excluded.team_id RETURNING id",
                   err) < 0)
        return -1;
    bind_text(&query, template->id);
    bind_text(&query, template->team_id);
    bind_text(&query, template->alias);
    bind_text(&query, template->layers);
    bind_int(&query, template->cpu_count);
    bind_int(&query, template->mem_mb);
    bind_int(&query, template->disk_mb);
    bind_int(&query, template->is_public);
    bind_int(&query, template->created_at_us);
    bind_int(&query, template->updated_at_us);
    found = query_step(&query, err);
    if (found < 0)
        return -1;
    if (found == 0)
        return error_set(err, ERROR_EXISTS, "template name '%.*s' belongs to somebody else",
                         STR_ARG(template->alias));
    *out_id = query_text(&query, 0, arena);
    return query_run(&query, err);
}

int store_template_put(struct store *store, const struct store_template *template,
                       struct arena *arena, struct str *out_id, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    return store_end(conn, put_template(conn, template, arena, out_id, err), err);
}

/* Templates. Those of kind 'snapshot' have their content under tags, in store_snapshot.c. */
#include "store/core/store.h"
#include "store/core/store_name.h"
#include "store/driver/row.h"

/* clang-format off */
#define TEMPLATE_ROW(F, T, AND)                                                                         \
    F(T, id, id) AND() F(T, team_id, team_id) AND() F(T, alias, alias) AND() F(T, layers, layers) AND() \
    F(T, cpu_count, cpu_count) AND() F(T, mem_mb, mem_mb) AND() F(T, disk_mb, disk_mb) AND()            \
    F(T, public, is_public) AND() F(T, created_at_us, created_at_us) AND()                              \
    F(T, updated_at_us, updated_at_us)
/* clang-format on */
ROW(template_row, struct store_template, TEMPLATE_ROW, .flags = ROW_NULLS);

/* Besides: the two columns that say whether it is a snapshot. */
#define COLUMNS ROW_COLUMNS(TEMPLATE_ROW) ", name, CASE WHEN kind = 'snapshot' THEN 1 ELSE 0 END"
static const struct row_field found_fields[] = {
    TEMPLATE_ROW(ROW_FIELD, struct store_template, ROW_NEXT),
    ROW_FIELD(struct store_template, name, name),
    ROW_FIELD(struct store_template, kind, is_snapshot),
};
static const struct row found_row = ROW_OF(found_fields, struct store_template, );

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
    if (found > 0) {
        row_read(&found_row, &query, arena, out);
        out->tag = STR("default");
    }
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
    if (row_all(&found_row, &query, arena, out, out_count, err) < 0)
        return -1;
    for (size_t i = 0; i < *out_count; i++)
        (*out)[i].tag = STR("default");
    return 0;
}

/* clang-format off */
static const char upsert_template[] =
    ROW_INSERT("templates", TEMPLATE_ROW)
    " ON CONFLICT (alias) DO UPDATE SET layers = excluded.layers, cpu_count ="
    " excluded.cpu_count, mem_mb = excluded.mem_mb, disk_mb = excluded.disk_mb, public ="
    " excluded.public, updated_at_us = excluded.updated_at_us WHERE templates.team_id ="
    " excluded.team_id RETURNING id";
/* clang-format on */

static int put_template(struct conn *conn, const struct store_template *template,
                        struct arena *arena, struct str *out_id, struct error *err)
{
    auto_query struct query query = {0};
    int found;

    if (query_open(&query, conn, upsert_template, err) < 0)
        return -1;
    row_bind(&template_row, &query, template);
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

/* Templates. Those of kind 'snapshot' have their content under tags, in store_snapshot.c; of a built one it is the
 * build that a tag names, and the platform's base has it in its row. */
#include "store/platform/store_template.h"
#include "store/core/row.h"
#include "store/core/store_name.h"
#include "store/platform/platform_internal.h"

/* clang-format off */
#define TEMPLATE_ROW(F, T, AND)                                                                         \
    F(T, id, id) AND() F(T, team_id, team_id) AND() F(T, alias, alias) AND() F(T, layers, layers) AND() \
    F(T, cpu_count, cpu_count) AND() F(T, mem_mb, mem_mb) AND() F(T, disk_mb, disk_mb) AND()            \
    F(T, public, is_public) AND() F(T, created_at_us, created_at_us) AND()                              \
    F(T, updated_at_us, updated_at_us)
/* clang-format on */
ROW(template_row, struct store_template, TEMPLATE_ROW, .flags = ROW_NULLS);

/* With what the build of a tag has, where there is a ready one. */
/* clang-format off */
#define FOUND_ROW(F, T, AND)                                                                            \
    TEMPLATE_ROW(F, T, AND) AND() F(T, name, name) AND() F(T, kind, is_snapshot) AND()                  \
    F(T, build_id, build_id) AND() F(T, env, env) AND() F(T, default_user, default_user) AND()          \
    F(T, workdir, workdir) AND() F(T, start_cmd, start_cmd) AND() F(T, ready_cmd, ready_cmd) AND()      \
    F(T, spawn_count, spawn_count) AND() F(T, last_spawned_at_us, last_spawned_at_us)
/* clang-format on */
ROW(found_row, struct store_template, FOUND_ROW);

/* ?1 is the tag. */
#define FOUND                                                                                    \
    "SELECT t.id, t.team_id, t.alias, coalesce(b.layers, t.layers),"                             \
    " coalesce(b.cpu_count, t.cpu_count), coalesce(b.mem_mb, t.mem_mb),"                         \
    " coalesce(b.disk_mb, t.disk_mb), t.public, t.created_at_us, t.updated_at_us, t.name,"       \
    " CASE WHEN t.kind = 'snapshot' THEN 1 ELSE 0 END, coalesce(b.id, ''), coalesce(b.env, '')," \
    " coalesce(b.default_user, ''), coalesce(b.workdir, ''), coalesce(b.start_cmd, ''),"         \
    " coalesce(b.ready_cmd, ''), t.spawn_count, t.last_spawned_at_us FROM templates t"           \
    " LEFT JOIN template_tags g ON g.template_id = t.id AND g.tag = ?1"                          \
    " LEFT JOIN builds b ON b.id = g.build_id AND b.state = 'ready' "

static int not_found(struct str name, struct error *err)
{
    return error_set(err, ERROR_NOT_FOUND, "template '%.*s' not found",
                     (int)(name.len < 128 ? name.len : 128), name.p ? name.p : "");
}

/* The team whose templates "team/" before a name means: the one that asks, or another, whose public ones
 * it may see. 1 = there is one. */
static int find_owner(struct conn *conn, struct str team_id, struct str slug, struct arena *arena,
                      struct str *out, struct error *err)
{
    auto_query struct query query = {0};
    int found;

    *out = team_id;
    if (!slug.p || str_eq(slug, team_id))
        return 1;
    if (query_open(&query, conn,
                   "SELECT id FROM teams WHERE id = ?2 OR name = ?2"
                   " ORDER BY CASE WHEN id = ?1 THEN 0 WHEN id = ?2 THEN 1 ELSE 2 END,"
                   " created_at_us, id LIMIT 1",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    bind_text(&query, slug);
    found = query_step(&query, err);
    if (found > 0)
        *out = query_text(&query, 0, arena);
    return found;
}

/* 1 = found, 0 = not there, -1 = failed. */
static int find_row(struct conn *conn, struct str team_id, const struct store_name *name,
                    struct arena *arena, struct store_template *out, struct error *err)
{
    auto_query struct query query = {0};
    struct str owner;
    int found = find_owner(conn, team_id, name->team, arena, &owner, err);

    if (found <= 0)
        return found;
    if (query_open(&query, conn,
                   FOUND
                   "WHERE (t.id = ?2 OR t.alias = ?2 OR (t.name = ?2 AND t.team_id = ?4))"
                   " AND (t.public = 1 OR t.team_id = ?3) AND (?5 = 0 OR t.team_id = ?4)"
                   " ORDER BY CASE WHEN t.id = ?2 THEN 0 WHEN t.team_id = ?4 THEN 1 ELSE 2 END"
                   " LIMIT 1",
                   err) < 0)
        return -1;
    bind_text(&query, name->tag);
    bind_text(&query, name->name);
    bind_text(&query, team_id);
    bind_text(&query, owner);
    bind_int(&query, name->team.p != NULL);
    found = query_step(&query, err);
    if (found <= 0)
        return found;
    if (row_read(&found_row, &query, arena, out, err) < 0)
        return -1;
    out->tag = name->tag;
    return 1;
}

static int find_snapshot(struct conn *conn, struct arena *arena, struct store_template *out,
                         struct error *err)
{
    struct store_snapshot snapshot = {0};
    int found = snapshot_find(conn, out->id, out->tag, arena, &snapshot, err);

    if (found <= 0)
        return found;
    out->layers = snapshot.layers;
    out->cpu_count = snapshot.cpu_count;
    out->mem_mb = snapshot.mem_mb;
    out->disk_mb = snapshot.disk_mb;
    out->setup = snapshot.setup;
    return 1;
}

static int find_content(struct conn *conn, const struct store_name *name, struct arena *arena,
                        struct store_template *out, struct error *err)
{
    bool is_default = str_is(name->tag, "default");

    if (out->is_snapshot)
        return find_snapshot(conn, arena, out, err);
    if (out->build_id.len)
        return 1;
    if (is_default && !out->layers.len)
        return error_set(err, ERROR_NOT_FOUND,
                         "template '%.*s' has no ready build yet: build it, or wait until its "
                         "build is ready",
                         STR_ARG(name->name));
    return is_default;
}

static int look_up(struct store *store, struct str team_id, struct str text, bool with_content,
                   struct arena *arena, struct store_template *out, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    struct store_name name;
    int found;

    if (!store_name_parse(text, arena, &name))
        return not_found(text, err);
    found = find_row(conn, team_id, &name, arena, out, err);
    if (found > 0 && with_content)
        found = find_content(conn, &name, arena, out, err);
    if (found <= 0)
        return found < 0 ? -1 : not_found(text, err);
    if (!with_content)
        out->tag = name.tag_given ? name.tag : STR_NONE;
    return 0;
}

int store_template_find(struct store *store, struct str team_id, struct str text,
                        struct arena *arena, struct store_template *out, struct error *err)
{
    return look_up(store, team_id, text, true, arena, out, err);
}

int store_template_get(struct store *store, struct str team_id, struct str text,
                       struct arena *arena, struct store_template *out, struct error *err)
{
    return look_up(store, team_id, text, false, arena, out, err);
}

int store_template_list(struct store *store, struct str team_id, struct arena *arena,
                        struct store_template **out, size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   FOUND "WHERE (t.public = 1 OR t.team_id = ?2) AND t.kind = 'template'"
                         " ORDER BY t.created_at_us, t.id",
                   err) < 0)
        return -1;
    bind_text(&query, STR("default"));
    bind_text(&query, team_id);
    if (row_all(&found_row, &query, arena, out, out_count, err) < 0)
        return -1;
    for (size_t i = 0; i < *out_count; i++)
        (*out)[i].tag = STR("default");
    return 0;
}

int template_spawned(struct conn *conn, struct str id, int64_t at_us, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE templates SET spawn_count = spawn_count + 1, last_spawned_at_us = ?2"
                   " WHERE id = ?1",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_int(&query, at_us);
    return query_run(&query, err);
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

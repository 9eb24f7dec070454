/* Snapshots are templates of kind 'snapshot'. What a sandbox starts from is under a tag of such a
 * template, so that a name can be snapshotted again: the same tag is replaced, another is added. */
#include <inttypes.h>

#include "base/id.h"
#include "base/list.h"
#include "store/core/row.h"
#include "store/platform/platform_internal.h"

/* clang-format off */
#define SNAPSHOT_ROW(F, T, AND)                                                              \
    F(T, template_id, template_id) AND() F(T, tag, tag) AND() F(T, team_id, team_id) AND()   \
    F(T, name, name) AND() F(T, source_id, source_id) AND() F(T, layers, layers) AND()       \
    F(T, cpu_count, cpu_count) AND() F(T, mem_mb, mem_mb) AND() F(T, disk_mb, disk_mb) AND() \
    F(T, created_at_us, created_at_us) AND() F(T, setup, setup)
/* clang-format on */
ROW(snapshot_row, struct store_snapshot, SNAPSHOT_ROW);

/* The template that has the name already, or a new one. */
static int put_template(struct conn *conn, const struct store_snapshot *snapshot,
                        struct arena *arena, struct str *out_id, struct error *err)
{
    auto_query struct query query = {0};
    char id[ID_SIZE];
    int found;

    if (query_open(&query, conn,
                   "INSERT INTO templates (id, team_id, alias, layers, cpu_count, mem_mb, disk_mb,"
                   " public, created_at_us, updated_at_us, kind, name)"
                   " VALUES (?1, ?2, NULL, '', ?3, ?4, ?5, 0, ?6, ?6, 'snapshot', ?7)"
                   " ON CONFLICT (team_id, name) WHERE name <> ''"
                   " DO UPDATE SET updated_at_us = excluded.updated_at_us"
                   " WHERE templates.kind = 'snapshot' RETURNING id",
                   err) < 0)
        return -1;
    id_make(id);
    bind_text(&query, str_of(id));
    bind_text(&query, snapshot->team_id);
    bind_int(&query, snapshot->cpu_count);
    bind_int(&query, snapshot->mem_mb);
    bind_int(&query, snapshot->disk_mb);
    bind_int(&query, snapshot->created_at_us);
    bind_text(&query, snapshot->name);
    found = query_step(&query, err);
    if (found < 0)
        return -1;
    if (found == 0)
        return error_set(err, ERROR_CONFLICT, "'%.*s' is the name of a template",
                         STR_ARG(snapshot->name));
    *out_id = query_text(&query, 0, arena);
    return query_run(&query, err);
}

/* clang-format off */
static const char upsert_snapshot[] =
    ROW_INSERT("snapshots", SNAPSHOT_ROW)
    " ON CONFLICT (template_id, tag) DO UPDATE SET source_id = excluded.source_id, layers"
    " = excluded.layers, cpu_count = excluded.cpu_count, mem_mb = excluded.mem_mb,"
    " disk_mb = excluded.disk_mb, created_at_us = excluded.created_at_us, setup = excluded.setup";
/* clang-format on */

static int put_tag(struct conn *conn, const struct store_snapshot *snapshot, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn, upsert_snapshot, err) < 0)
        return -1;
    row_bind(&snapshot_row, &query, snapshot);
    return query_run(&query, err);
}

static struct str use_id(struct str template_id, struct str tag, struct arena *arena)
{
    return str_of(arena_printf(arena, "%.*s:%.*s", STR_ARG(template_id), STR_ARG(tag)));
}

static int put(struct conn *conn, struct store_snapshot *snapshot, struct arena *arena,
               bool *out_freed, struct error *err)
{
    struct str user;

    if (put_template(conn, snapshot, arena, &snapshot->template_id, err) < 0)
        return -1;
    user = use_id(snapshot->template_id, snapshot->tag, arena);
    if (layer_uses_remove(conn, "snapshot", user, out_freed, err) < 0 ||
        put_tag(conn, snapshot, err) < 0)
        return -1;
    return layer_uses_add(conn, snapshot->layers, "snapshot", user, err);
}

int store_snapshot_put(struct store *store, struct store_snapshot *snapshot, struct arena *arena,
                       bool *out_freed, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    return store_end(conn, put(conn, snapshot, arena, out_freed, err), err);
}

int snapshot_find(struct conn *conn, struct str template_id, struct str tag, struct arena *arena,
                  struct store_snapshot *out, struct error *err)
{
    auto_query struct query query = {0};
    int found;

    if (query_open(&query, conn,
                   "SELECT " ROW_COLUMNS(
                       SNAPSHOT_ROW) " FROM snapshots WHERE template_id = ?1 AND tag = ?2",
                   err) < 0)
        return -1;
    bind_text(&query, template_id);
    bind_text(&query, tag);
    found = query_step(&query, err);
    if (found > 0 && row_read(&snapshot_row, &query, arena, out, err) < 0)
        return -1;
    return found;
}

/* Newest first. */
#define PAGE(index_column)                                                                        \
    "SELECT " ROW_COLUMNS(                                                                        \
        SNAPSHOT_ROW) " FROM snapshots WHERE team_id = ?1 AND " index_column                      \
                      " AND (?3 = '' OR name = ?3 OR template_id = ?3) AND (?4 = '' OR tag = ?4)" \
                      " AND (created_at_us, template_id, tag) < (?5, ?6, ?7)"                     \
                      " ORDER BY created_at_us DESC, template_id DESC, tag DESC LIMIT ?8"

int store_snapshot_page(struct store *store, const struct store_snapshot_query *wanted,
                        struct arena *arena, struct store_snapshot **out, size_t *out_count,
                        struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, wanted->source_id.p ? PAGE("source_id = ?2") : PAGE("?2 = ''"),
                   err) < 0)
        return -1;
    bind_text(&query, wanted->team_id);
    bind_text(&query, wanted->source_id.p ? wanted->source_id : STR(""));
    bind_text(&query, wanted->name.p ? wanted->name : STR(""));
    bind_text(&query, wanted->tag.p ? wanted->tag : STR(""));
    bind_int(&query, wanted->after_template.p ? wanted->after_us : INT64_MAX);
    bind_text(&query, wanted->after_template.p ? wanted->after_template : STR(""));
    bind_text(&query, wanted->after_tag.p ? wanted->after_tag : STR(""));
    bind_int(&query, (int64_t)wanted->limit);
    return row_all(&snapshot_row, &query, arena, out, out_count, err);
}

/* One tag, or (tag = STR_NONE) the next of all of them. 1 = deleted, 0 = there is none. */
static int delete_tag(struct conn *conn, struct str template_id, struct str tag,
                      struct arena *arena, bool *freed, struct error *err)
{
    auto_query struct query query = {0};
    bool more_freed = false;
    struct str gone;
    int found;

    if (query_open(&query, conn,
                   "DELETE FROM snapshots WHERE template_id = ?1 AND tag ="
                   " coalesce(?2, (SELECT min(tag) FROM snapshots WHERE template_id = ?1))"
                   " RETURNING tag",
                   err) < 0)
        return -1;
    bind_text(&query, template_id);
    bind_text(&query, tag);
    found = query_step(&query, err);
    if (found <= 0)
        return found;
    gone = query_text(&query, 0, arena);
    if (query_run(&query, err) < 0 ||
        layer_uses_remove(conn, "snapshot", use_id(template_id, gone, arena), &more_freed, err) < 0)
        return -1;
    *freed |= more_freed;
    return 1;
}

static int delete_template(struct conn *conn, struct str template_id, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "DELETE FROM templates WHERE id = ?1 AND kind = 'snapshot' AND NOT EXISTS"
                   " (SELECT 1 FROM snapshots WHERE template_id = ?1)",
                   err) < 0)
        return -1;
    bind_text(&query, template_id);
    return query_run(&query, err);
}

static int delete_tags(struct conn *conn, struct str template_id, struct str tag,
                       struct arena *arena, bool *out_found, bool *out_freed, struct error *err)
{
    int found;

    do {
        found = delete_tag(conn, template_id, tag, arena, out_freed, err);
        *out_found |= found > 0;
    } while (found > 0 && !tag.p);
    return found < 0 ? -1 : delete_template(conn, template_id, err);
}

int store_snapshot_delete(struct store *store, struct str template_id, struct str tag,
                          bool *out_freed, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_arena struct arena arena = {0};
    bool found = false;

    *out_freed = false;
    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    if (store_end(conn, delete_tags(conn, template_id, tag, &arena, &found, out_freed, err), err) <
        0)
        return -1;
    return found ? 0 : error_set(err, ERROR_NOT_FOUND, "snapshot not found");
}

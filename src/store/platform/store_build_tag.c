/* Tags name builds of a template. A build that no tag names any more uses no layers: sandboxes made of it have uses of
 * their own. */
#include "store/core/row.h"
#include "store/platform/platform_internal.h"
#include "store/platform/store_build.h"
#include "store/platform/store_build_row.h"

/* clang-format off */
#define TAG_ROW(F, T, AND) \
    F(T, tag, tag) AND() F(T, build_id, build_id) AND() F(T, created_at_us, created_at_us)
/* clang-format on */
ROW(tag_row, struct store_tag, TAG_ROW);

int store_tag_list(struct store *store, struct str template_id, struct arena *arena,
                   struct store_tag **out, size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " ROW_COLUMNS(TAG_ROW) " FROM template_tags WHERE template_id = ?1"
                                                  " ORDER BY created_at_us, tag",
                   err) < 0)
        return -1;
    bind_text(&query, template_id);
    return row_all(&tag_row, &query, arena, out, out_count, err);
}

/* The build that has the tag: 1 = found, 0 = none has. */
static int build_of(struct conn *conn, struct str template_id, struct str tag, struct arena *arena,
                    struct str *out, struct error *err)
{
    auto_query struct query query = {0};
    int found;

    if (query_open(&query, conn,
                   "SELECT build_id FROM template_tags WHERE template_id = ?1 AND tag = ?2",
                   err) < 0)
        return -1;
    bind_text(&query, template_id);
    bind_text(&query, tag);
    found = query_step(&query, err);
    if (found > 0)
        *out = query_text(&query, 0, arena);
    return found;
}

/* Its layers, unless a tag names it (still). */
static int let_go(struct conn *conn, struct str build_id, bool *freed, struct error *err)
{
    auto_query struct query query = {0};
    bool more = false;
    int found;

    if (query_open(&query, conn, "SELECT 1 FROM template_tags WHERE build_id = ?1 LIMIT 1", err) <
        0)
        return -1;
    bind_text(&query, build_id);
    found = query_step(&query, err);
    if (found != 0)
        return found < 0 ? -1 : 0;
    if (layer_uses_remove(conn, "build", build_id, &more, err) < 0)
        return -1;
    *freed |= more;
    return 0;
}

static int put_tag(struct conn *conn, struct str template_id, struct str build_id, struct str tag,
                   int64_t at_us, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "INSERT INTO template_tags (template_id, tag, build_id, created_at_us)"
                   " VALUES (?1, ?2, ?3, ?4) ON CONFLICT (template_id, tag) DO UPDATE SET"
                   " build_id = excluded.build_id, created_at_us = excluded.created_at_us",
                   err) < 0)
        return -1;
    bind_text(&query, template_id);
    bind_text(&query, tag);
    bind_text(&query, build_id);
    bind_int(&query, at_us);
    return query_run(&query, err);
}

int build_tags_give(struct conn *conn, struct str template_id, struct str build_id, struct str tags,
                    int64_t at_us, bool *out_freed, struct error *err)
{
    auto_arena struct arena arena = {0};

    while (tags.len) {
        struct str tag = str_split(&tags, ','), before = STR_NONE;
        int found = build_of(conn, template_id, tag, &arena, &before, err);

        if (found < 0 || put_tag(conn, template_id, build_id, tag, at_us, err) < 0)
            return -1;
        if (found && !str_eq(before, build_id) && let_go(conn, before, out_freed, err) < 0)
            return -1;
    }
    return 0;
}

static int assign(struct conn *conn, const struct store_tag_move *move, struct arena *arena,
                  struct str *out_build_id, bool *out_freed, struct error *err)
{
    int found = build_of(conn, move->template_id, move->from, arena, out_build_id, err);

    if (found < 0)
        return -1;
    if (found == 0)
        return error_set(err, ERROR_NOT_FOUND, "tag '%.*s' not found", STR_ARG(move->from));
    return build_tags_give(conn, move->template_id, *out_build_id, move->tags, move->at_us,
                           out_freed, err);
}

int store_tag_assign(struct store *store, const struct store_tag_move *move, struct arena *arena,
                     struct str *out_build_id, bool *out_freed, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    *out_freed = false;
    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    return store_end(conn, assign(conn, move, arena, out_build_id, out_freed, err), err);
}

/* 1 = it was there. */
static int delete_tag(struct conn *conn, struct str template_id, struct str tag, bool *freed,
                      struct error *err)
{
    auto_query struct query query = {0};
    auto_arena struct arena arena = {0};
    struct str build_id;
    int found;

    if (query_open(&query, conn,
                   "DELETE FROM template_tags WHERE template_id = ?1 AND tag = ?2"
                   " RETURNING build_id",
                   err) < 0)
        return -1;
    bind_text(&query, template_id);
    bind_text(&query, tag);
    found = query_step(&query, err);
    if (found <= 0)
        return found;
    build_id = query_text(&query, 0, &arena);
    if (query_run(&query, err) < 0 || let_go(conn, build_id, freed, err) < 0)
        return -1;
    return 1;
}

static int delete_tags(struct conn *conn, struct str template_id, struct str tags, bool *freed,
                       struct error *err)
{
    bool any = false;

    while (tags.len) {
        int found = delete_tag(conn, template_id, str_split(&tags, ','), freed, err);

        if (found < 0)
            return -1;
        any |= found > 0;
    }
    return any ? 0 : error_set(err, ERROR_NOT_FOUND, "the template has no such tag");
}

int store_tag_delete(struct store *store, struct str template_id, struct str tags, bool *out_freed,
                     struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    *out_freed = false;
    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    return store_end(conn, delete_tags(conn, template_id, tags, out_freed, err), err);
}

/* ---- templates ---- */

int store_template_set_public(struct store *store, struct str team_id, struct str id,
                              bool is_public, int64_t at_us, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE templates SET public = ?3, updated_at_us = ?4 WHERE id = ?1"
                   " AND team_id = ?2 AND kind = 'template' RETURNING id",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, team_id);
    bind_int(&query, is_public);
    bind_int(&query, at_us);
    if (query_one(&query, "template", id, err) < 0)
        return -1;
    return query_run(&query, err);
}

static int run_for(struct conn *conn, const char *sql, struct str id, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn, sql, err) < 0)
        return -1;
    bind_text(&query, id);
    return query_run(&query, err);
}

static int release_builds(struct conn *conn, struct str template_id, bool *freed, struct error *err)
{
    auto_query struct query query = {0};
    int more;

    if (query_open(&query, conn,
                   "DELETE FROM layer_uses WHERE user_kind = 'build' AND user_id IN"
                   " (SELECT id FROM builds WHERE template_id = ?1) RETURNING layer",
                   err) < 0)
        return -1;
    bind_text(&query, template_id);
    while ((more = query_step(&query, err)) > 0)
        *freed = true;
    return more;
}

static int delete_template(struct conn *conn, struct str team_id, struct str id, bool *freed,
                           struct error *err)
{
    auto_query struct query query = {0};

    if (release_builds(conn, id, freed, err) < 0 ||
        run_for(conn, "DELETE FROM template_tags WHERE template_id = ?1", id, err) < 0 ||
        run_for(conn,
                "DELETE FROM build_logs WHERE build_id IN"
                " (SELECT id FROM builds WHERE template_id = ?1)",
                id, err) < 0 ||
        run_for(conn, "DELETE FROM builds WHERE template_id = ?1", id, err) < 0 ||
        query_open(&query, conn,
                   "DELETE FROM templates WHERE id = ?1 AND team_id = ?2 AND kind = 'template'"
                   " RETURNING id",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, team_id);
    if (query_one(&query, "template", id, err) < 0)
        return -1;
    return query_run(&query, err);
}

int store_template_delete(struct store *store, struct str team_id, struct str id, bool *out_freed,
                          struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    *out_freed = false;
    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    return store_end(conn, delete_template(conn, team_id, id, out_freed, err), err);
}

int store_template_builds(struct store *store, struct str template_id, struct arena *arena,
                          struct store_template_builds *out, struct error *err)
{
    const struct store_build_query wanted = {.template_id = template_id, .limit = 1};
    struct store_build *newest;
    size_t count = 0;

    *out = (struct store_template_builds){.newest = STORE_BUILD_READY};
    if (store_build_page(store, &wanted, arena, &newest, &count, err) < 0)
        return -1;
    if (count) {
        auto_conn struct conn *conn = store_read(store);
        auto_query struct query query = {0};

        out->newest_id = newest[0].id;
        out->layers = newest[0].layers;
        out->newest = newest[0].state;
        out->cpu_count = newest[0].cpu_count;
        out->mem_mb = newest[0].mem_mb;
        out->disk_mb = newest[0].disk_mb;
        if (query_open(&query, conn, "SELECT count(*) FROM builds WHERE template_id = ?1", err) < 0)
            return -1;
        bind_text(&query, template_id);
        return query_number(&query, &out->count, err);
    }
    return 0;
}

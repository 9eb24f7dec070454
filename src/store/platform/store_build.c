/* Builds' rows. A build is 'waiting' from the moment in which it is asked for until its recipe comes, 'building'
 * while a thread works at it, then 'ready' or 'error' for good. What a build made is used by it (layer_uses,
 * 'build') as long as a tag names it; without one the row is history. */
#include "store/platform/store_build.h"

#include "base/id.h"
#include "store/core/row.h"
#include "store/platform/platform_internal.h"
#include "store/platform/store_build_row.h"

static const char *const state_names[] = {
    [STORE_BUILD_WAITING] = "waiting",
    [STORE_BUILD_BUILDING] = "building",
    [STORE_BUILD_READY] = "ready",
    [STORE_BUILD_ERROR] = "error",
};
static const struct names states = NAMES("state of a build", state_names);
static const struct names *const names[] = {&states};
static const struct row_field fields[] = {BUILD_ROW(ROW_FIELD, struct store_build, ROW_NEXT)};
const struct row build_row = ROW_OF(fields, struct store_build, .names = names);

const char *store_build_state_name(enum store_build_state state)
{
    return name_of(&states, state);
}

/* ---- a new one ---- */

/* 1 = found, 0 = not there, -1 = failed. */
static int find_template(struct conn *conn, struct str team_id, struct str name,
                         struct arena *arena, struct store_template *out, struct error *err)
{
    auto_query struct query query = {0};
    int found;

    if (query_open(&query, conn,
                   "SELECT id, name, cpu_count, mem_mb, disk_mb, public, kind FROM templates"
                   " WHERE team_id = ?1 AND (name = ?2 OR id = ?2)"
                   " ORDER BY CASE WHEN name = ?2 THEN 0 ELSE 1 END LIMIT 1",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    bind_text(&query, name);
    found = query_step(&query, err);
    if (found <= 0)
        return found;
    *out = (struct store_template){
        .id = query_text(&query, 0, arena),
        .team_id = team_id,
        .name = query_text(&query, 1, arena),
        .cpu_count = query_int(&query, 2),
        .mem_mb = query_int(&query, 3),
        .disk_mb = query_int(&query, 4),
        .is_public = query_int(&query, 5) != 0,
        .is_snapshot = !str_is(query_peek(&query, 6), "template"),
    };
    return 1;
}

static int add_template(struct conn *conn, const struct store_build *build, struct str name,
                        struct arena *arena, struct store_template *out, struct error *err)
{
    auto_query struct query query = {0};
    char id[ID_SIZE];

    id_make(id);
    *out = (struct store_template){.id = arena_str(arena, str_of(id)),
                                   .team_id = build->team_id,
                                   .name = arena_str(arena, name),
                                   .cpu_count = build->cpu_count,
                                   .mem_mb = build->mem_mb,
                                   .disk_mb = build->disk_mb};
    if (query_open(&query, conn,
                   "INSERT INTO templates (id, team_id, alias, layers, cpu_count, mem_mb, disk_mb,"
                   " public, created_at_us, updated_at_us, kind, name)"
                   " VALUES (?1, ?2, NULL, '', ?3, ?4, ?5, 0, ?6, ?6, 'template', ?7)",
                   err) < 0)
        return -1;
    bind_text(&query, out->id);
    bind_text(&query, out->team_id);
    bind_int(&query, out->cpu_count);
    bind_int(&query, out->mem_mb);
    bind_int(&query, out->disk_mb);
    bind_int(&query, build->created_at_us);
    bind_text(&query, out->name);
    return query_run(&query, err);
}

static int insert_build(struct conn *conn, const struct store_build *build, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn, ROW_INSERT("builds", BUILD_ROW), err) < 0)
        return -1;
    row_bind(&build_row, &query, build);
    return query_run(&query, err);
}

static int add(struct conn *conn, struct store_build *build, struct str name, struct arena *arena,
               struct store_template *out, struct error *err)
{
    int found = find_template(conn, build->team_id, name, arena, out, err);

    if (found < 0 || (found == 0 && add_template(conn, build, name, arena, out, err) < 0))
        return -1;
    if (out->is_snapshot)
        return error_set(err, ERROR_CONFLICT, "'%.*s' is the name of a snapshot", STR_ARG(name));
    build->template_id = out->id;
    if (!build->cpu_count)
        build->cpu_count = out->cpu_count;
    if (!build->mem_mb)
        build->mem_mb = out->mem_mb;
    if (!build->disk_mb)
        build->disk_mb = out->disk_mb;
    return insert_build(conn, build, err);
}

int store_build_add(struct store *store, struct store_build *build, struct str name,
                    struct arena *arena, struct store_template *out, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    return store_end(conn, add(conn, build, name, arena, out, err), err);
}

/* ---- looking ---- */

int store_build_get(struct store *store, struct str team_id, struct str id, struct arena *arena,
                    struct store_build *out, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " ROW_COLUMNS(BUILD_ROW) " FROM builds WHERE id = ?1 AND team_id = ?2",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, team_id);
    return row_one(&build_row, &query, "build", id, arena, out, err);
}

int store_build_count(struct store *store, struct str team_id, int64_t after_us,
                      struct store_build_counts *out, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT (SELECT count(*) FROM templates WHERE team_id = ?1 AND kind ="
                   " 'template'), (SELECT count(*) FROM builds WHERE state = 'waiting' AND"
                   " team_id = ?1 AND created_at_us > ?2)",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    bind_int(&query, after_us);
    if (query_one(&query, "team", team_id, err) < 0)
        return -1;
    *out = (struct store_build_counts){.templates = query_int(&query, 0),
                                       .waiting = query_int(&query, 1)};
    return 0;
}

int store_build_page(struct store *store, const struct store_build_query *wanted,
                     struct arena *arena, struct store_build **out, size_t *out_count,
                     struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(
            &query, conn,
            "SELECT " ROW_COLUMNS(BUILD_ROW) " FROM builds WHERE template_id = ?1"
                                             " AND (created_at_us, id) < (?2, ?3)"
                                             " ORDER BY created_at_us DESC, id DESC LIMIT ?4",
            err) < 0)
        return -1;
    bind_text(&query, wanted->template_id);
    bind_int(&query, wanted->before_us ? wanted->before_us : INT64_MAX);
    bind_text(&query, wanted->before_us ? wanted->before_id : STR(""));
    bind_int(&query, (int64_t)wanted->limit);
    return row_all(&build_row, &query, arena, out, out_count, err);
}

/* ---- its states ---- */

int store_build_start(struct store *store, struct str id, struct str recipe, int64_t at_us,
                      struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};
    int found;

    if (query_open(&query, conn,
                   "UPDATE builds SET state = 'building', recipe = ?2, started_at_us = ?3"
                   " WHERE id = ?1 AND state = 'waiting' RETURNING id",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, recipe);
    bind_int(&query, at_us);
    found = query_step(&query, err);
    if (found < 0)
        return -1;
    if (found == 0)
        return error_set(err, ERROR_CONFLICT, "the build was started before");
    return query_run(&query, err);
}

int store_build_fail(struct store *store, struct str id, struct str reason, struct str step,
                     int64_t at_us, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE builds SET state = 'error', reason = ?2, reason_step = ?3,"
                   " finished_at_us = ?4 WHERE id = ?1 AND state IN ('waiting', 'building')",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, reason);
    bind_text(&query, step);
    bind_int(&query, at_us);
    return query_run_durable(&query, conn, err);
}

static void bind_given(struct query *query, struct str text)
{
    bind_text(query, text.p ? text : STR(""));
}

static int set_ready(struct conn *conn, const struct store_build *build, struct error *err)
{
    auto_query struct query query = {0};
    int found;

    if (query_open(&query, conn,
                   "UPDATE builds SET state = 'ready', layers = ?2, env = ?3, default_user = ?4,"
                   " workdir = ?5, start_cmd = ?6, ready_cmd = ?7, finished_at_us = ?8"
                   " WHERE id = ?1 AND state = 'building' RETURNING id",
                   err) < 0)
        return -1;
    bind_text(&query, build->id);
    bind_given(&query, build->layers);
    bind_given(&query, build->env);
    bind_given(&query, build->default_user);
    bind_given(&query, build->workdir);
    bind_given(&query, build->start_cmd);
    bind_given(&query, build->ready_cmd);
    bind_int(&query, build->finished_at_us);
    found = query_step(&query, err);
    if (found < 0)
        return -1;
    if (found == 0)
        return error_set(err, ERROR_CONFLICT, "the build has ended");
    return query_run(&query, err);
}

static int set_template(struct conn *conn, const struct store_build *build, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE templates SET cpu_count = ?2, mem_mb = ?3, disk_mb = ?4,"
                   " updated_at_us = ?5 WHERE id = ?1",
                   err) < 0)
        return -1;
    bind_text(&query, build->template_id);
    bind_int(&query, build->cpu_count);
    bind_int(&query, build->mem_mb);
    bind_int(&query, build->disk_mb);
    bind_int(&query, build->finished_at_us);
    return query_run(&query, err);
}

int store_build_ready(struct store *store, const struct store_build *build, bool *out_freed,
                      struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    bool failed;

    *out_freed = false;
    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    failed = set_ready(conn, build, err) < 0 || set_template(conn, build, err) < 0 ||
             layer_uses_add(conn, build->layers, "build", build->id, err) < 0 ||
             build_tags_give(conn, build->template_id, build->id, build->tags,
                             build->finished_at_us, out_freed, err) < 0;
    return store_end(conn, failed ? -1 : 0, err);
}

/* ---- what nobody works at ---- */

int store_build_recover(struct store *store, struct str reason, int64_t before_us, int64_t at_us,
                        size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE builds SET state = 'error', reason = ?1, finished_at_us = ?2"
                   " WHERE state IN ('waiting', 'building')"
                   " AND (state = 'building' OR created_at_us < ?3) RETURNING id",
                   err) < 0)
        return -1;
    bind_text(&query, reason);
    bind_int(&query, at_us);
    bind_int(&query, before_us);
    return query_count(&query, out_count, err);
}

int store_build_prune(struct store *store, int64_t before_us, size_t max, size_t *out_count,
                      struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "DELETE FROM builds WHERE id IN (SELECT id FROM builds b WHERE"
                   " state IN ('ready', 'error') AND finished_at_us < ?1 AND NOT EXISTS"
                   " (SELECT 1 FROM template_tags t WHERE t.build_id = b.id) LIMIT ?2)"
                   " RETURNING id",
                   err) < 0)
        return -1;
    bind_int(&query, before_us);
    bind_int(&query, (int64_t)max);
    return query_count(&query, out_count, err);
}

/* The template resource. */
#include "base/clock.h"
#include "base/encode.h"
#include "domain/build/build.h"
#include "domain/sandbox/sandbox.h"
#include "domain/sandbox/sandbox_check.h"
#include "domain/sandbox/sandbox_setup.h"
#include "domain/template/template.h"
#include "edge/api_e2b/api_builds.h"
#include "edge/api_e2b/api_query.h"
#include "edge/api_e2b/api_types.h"
#include "protocol/json/json_shape.h"

enum { PAGE_MAX = 100, CURSOR_SIZE = 128 };

struct template_body {
    struct str template_id, build_id, build_status, created_at, updated_at, last_spawned_at;
    struct str envd_version;
    int64_t cpu_count, mem_mb, disk_mb, spawn_count, build_count, layer_count, layer_bytes;
    bool is_public;
    json_t *aliases, *names, *created_by, *builds;
};

#define COMMON_FIELDS                                                          \
    JSON_FIELD(struct template_body, template_id, "templateID", 0),            \
        JSON_FIELD(struct template_body, is_public, "public", 0),              \
        JSON_FIELD(struct template_body, aliases, "aliases", 0),               \
        JSON_FIELD(struct template_body, names, "names", 0),                   \
        JSON_FIELD(struct template_body, created_at, "createdAt", 0),          \
        JSON_FIELD(struct template_body, updated_at, "updatedAt", 0),          \
        JSON_FIELD(struct template_body, last_spawned_at, "lastSpawnedAt", 0), \
        JSON_FIELD(struct template_body, spawn_count, "spawnCount", 0)

static const struct json_field template_fields[] = {
    COMMON_FIELDS,
    JSON_FIELD(struct template_body, build_id, "buildID", 0),
    JSON_FIELD(struct template_body, build_status, "buildStatus", 0),
    JSON_FIELD(struct template_body, cpu_count, "cpuCount", 0),
    JSON_FIELD(struct template_body, mem_mb, "memoryMB", 0),
    JSON_FIELD(struct template_body, disk_mb, "diskSizeMB", 0),
    JSON_FIELD(struct template_body, created_by, "createdBy", 0),
    JSON_FIELD(struct template_body, build_count, "buildCount", 0),
    JSON_FIELD(struct template_body, layer_count, "layerCount", 0),
    JSON_FIELD(struct template_body, layer_bytes, "layerBytes", 0),
    JSON_FIELD(struct template_body, envd_version, "envdVersion", 0),
    JSON_END,
};

static const struct json_field detail_fields[] = {
    COMMON_FIELDS,
    JSON_FIELD(struct template_body, builds, "builds", 0),
    JSON_END,
};

static struct str time_text(int64_t at_us, struct arena *arena)
{
    char text[CLOCK_TEXT_SIZE];

    if (!at_us)
        return STR_NONE;
    clock_format(at_us, text);
    return arena_str(arena, str_of(text));
}

static struct str alias_of(const struct store_template *row)
{
    return row->alias.len ? row->alias : row->name;
}

/* "team/name"; the platform's own have no team. */
static json_t *names_json(const struct template_view *view)
{
    struct str name = view->full_name.len ? view->full_name : alias_of(&view->row);

    return api_builds_strings(&name, name.len ? 1 : 0);
}

static json_t *write_view(const struct template_view *view, const struct json_field *fields,
                          json_t *builds, struct arena *arena)
{
    const struct store_template *row = &view->row;
    struct str alias = alias_of(row);
    auto_json json_t *names = names_json(view);
    auto_json json_t *aliases = api_builds_strings(&alias, alias.len ? 1 : 0);
    struct template_body body = {
        .template_id = row->id,
        .build_id = row->build_id.len ? row->build_id : STR(API_NO_BUILD),
        .build_status = view->build_status,
        .created_at = time_text(row->created_at_us, arena),
        .updated_at = time_text(row->updated_at_us, arena),
        .last_spawned_at = time_text(row->last_spawned_at_us, arena),
        .envd_version = STR(SANDBOX_ENVD_VERSION),
        .cpu_count = row->cpu_count,
        .mem_mb = row->mem_mb,
        .disk_mb = row->disk_mb,
        .spawn_count = row->spawn_count,
        .build_count = view->build_count,
        .layer_count = view->layer_count,
        .layer_bytes = view->layer_bytes,
        .is_public = row->is_public,
        .aliases = aliases,
        .names = names,
        .builds = builds,
    };

    return json_write(fields, &body);
}

static bool is_listed(const struct template_view *view, struct str team_id)
{
    return view->row.team_id.len == 0 || str_eq(view->row.team_id, team_id);
}

static int check_team(struct api_call *call, struct error *err)
{
    struct str team_id;

    if (api_query_get(call->query, "teamID", &call->arena, &team_id, err) < 0)
        return -1;
    if (team_id.p && !str_eq(team_id, call->team_id))
        return error_set(err, ERROR_INVALID, "Team ID param mismatch with the API key");
    return 0;
}

/* The platform's and the team's own: others' public ones are used, not listed. */
int api_templates_list(struct api_call *call, struct error *err)
{
    struct template_view *views = NULL;
    size_t count = 0;
    json_t *array;

    if (check_team(call, err) < 0 || template_views(call->api->config.store, call->team_id,
                                                    &call->arena, &views, &count, err) < 0)
        return -1;
    array = json_array();
    for (size_t i = 0; i < count; i++)
        if (is_listed(&views[i], call->team_id))
            (void)json_array_append_new(array,
                                        write_view(&views[i], template_fields, NULL, &call->arena));
    call_answer(&call->call, 200, array);
    return 0;
}

/* ---- pages ---- */

/* Where a page ended: the time and the id of its last entry. */
struct cursor {
    int64_t at_us;
    struct str id;
};

static struct str cursor_text(int64_t at_us, struct str id, struct arena *arena)
{
    char plain[CURSOR_SIZE], *text = arena_alloc(arena, BASE64_LEN(CURSOR_SIZE) + 1);
    int len = snprintf(plain, sizeof(plain), "%lld %.*s", (long long)at_us, STR_ARG(id));
    size_t coded = BASE64_LEN((size_t)len);

    base64_encode(text, plain, (size_t)len);
    for (size_t i = 0; i < coded; i++)
        text[i] = text[i] == '+' ? '-' : text[i] == '/' ? '_' : text[i];
    while (coded && text[coded - 1] == '=')
        coded--;
    return str_n(text, coded);
}

static int read_page(struct api_call *call, struct cursor *out_after, size_t *out_limit,
                     struct error *err)
{
    auto_buf struct buf plain = {0};
    struct str token, rest;
    uint64_t limit;

    *out_after = (struct cursor){0};
    buf_init(&plain, CURSOR_SIZE);
    if (api_query_number(call->query, "limit", &call->arena, PAGE_MAX, INT32_MAX, &limit, err) <
            0 ||
        api_query_get(call->query, "nextToken", &call->arena, &token, err) < 0)
        return -1;
    if (limit < 1)
        return error_set(err, ERROR_INVALID, "query parameter 'limit' must be at least 1");
    *out_limit = limit < PAGE_MAX ? (size_t)limit : PAGE_MAX;
    if (!token.p)
        return 0;
    if (token.len <= CURSOR_SIZE && base64_decode(token, &plain)) {
        rest = arena_str(&call->arena, buf_str(&plain));
        if (str_to_i64(str_split(&rest, ' '), &out_after->at_us) && out_after->at_us > 0 &&
            rest.len && str_valid_utf8(rest)) {
            out_after->id = rest;
            return 0;
        }
    }
    return error_set(err, ERROR_INVALID, "Invalid next token");
}

static void next_page(struct api_call *call, int64_t at_us, struct str id)
{
    call_header(&call->call, "x-next-token", cursor_text(at_us, id, &call->arena));
}

/* Newer ones first. */
static bool is_after(const struct store_template *row, const struct cursor *cursor)
{
    if (!cursor->at_us || row->created_at_us < cursor->at_us)
        return true;
    return row->created_at_us == cursor->at_us && str_cmp(row->id, cursor->id) < 0;
}

static int newest_first(const void *a, const void *b)
{
    const struct store_template *one = &((const struct template_view *)a)->row;
    const struct store_template *two = &((const struct template_view *)b)->row;

    if (one->created_at_us != two->created_at_us)
        return one->created_at_us < two->created_at_us ? 1 : -1;
    return -str_cmp(one->id, two->id);
}

int api_templates_list_v2(struct api_call *call, struct error *err)
{
    const struct store_template *last = NULL;
    struct template_view *views = NULL;
    size_t count = 0, limit;
    struct cursor after;
    json_t *array;

    if (check_team(call, err) < 0 || read_page(call, &after, &limit, err) < 0 ||
        template_views(call->api->config.store, call->team_id, &call->arena, &views, &count, err) <
            0)
        return -1;
    if (count)
        qsort(views, count, sizeof(*views), newest_first);
    array = json_array();
    for (size_t i = 0; i < count; i++) {
        if (!is_listed(&views[i], call->team_id) || !is_after(&views[i].row, &after))
            continue;
        if (last && json_array_size(array) == limit) {
            next_page(call, last->created_at_us, last->id);
            break;
        }
        last = &views[i].row;
        (void)json_array_append_new(array,
                                    write_view(&views[i], template_fields, NULL, &call->arena));
    }
    call_answer(&call->call, 200, array);
    call_header(&call->call, "Access-Control-Expose-Headers", STR("x-next-token"));
    return 0;
}

/* ---- one ---- */

static int check_name(struct api_call *call, struct error *err)
{
    return call->params[0].len > SANDBOX_NAME_MAX
               ? error_set(err, ERROR_NOT_FOUND, "there is no template of that name")
               : 0;
}

static json_t *build_json(const struct store_build *build, struct arena *arena)
{
    int64_t updated_us = build->finished_at_us  ? build->finished_at_us
                         : build->started_at_us ? build->started_at_us
                                                : build->created_at_us;
    json_t *json =
        json_pack("{s:o,s:s,s:o,s:o,s:I,s:I,s:I}", "buildID", json_str(build->id), "status",
                  store_build_state_name(build->state), "createdAt",
                  json_str(time_text(build->created_at_us, arena)), "updatedAt",
                  json_str(time_text(updated_us, arena)), "cpuCount", (json_int_t)build->cpu_count,
                  "memoryMB", (json_int_t)build->mem_mb, "diskSizeMB", (json_int_t)build->disk_mb);

    if (build->finished_at_us)
        (void)json_object_set_new(json, "finishedAt",
                                  json_str(time_text(build->finished_at_us, arena)));
    if (build->state == STORE_BUILD_READY)
        (void)json_object_set_new(json, "envdVersion", json_string(SANDBOX_ENVD_VERSION));
    return json;
}

int api_templates_get(struct api_call *call, struct error *err)
{
    auto_json json_t *builds = json_array();
    struct store_build *rows = NULL;
    struct template_view view = {0};
    struct store_build_query wanted;
    struct cursor after;
    size_t count = 0, limit;

    if (check_name(call, err) < 0 || read_page(call, &after, &limit, err) < 0)
        return -1;
    if (template_look(call->api->config.store, call->team_id, call->params[0], &call->arena, &view,
                      err) < 0)
        return -1;
    /* One more than is told: is there another page? How others came to their public template is theirs. */
    wanted = (struct store_build_query){view.row.id, after.at_us, after.id, limit + 1};
    if (str_eq(view.row.team_id, call->team_id) &&
        template_builds(call->api->config.store, &wanted, &call->arena, &rows, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count && i < limit; i++)
        (void)json_array_append_new(builds, build_json(&rows[i], &call->arena));
    call_answer(&call->call, 200, write_view(&view, detail_fields, builds, &call->arena));
    if (count > limit)
        next_page(call, rows[limit - 1].created_at_us, rows[limit - 1].id);
    call_header(&call->call, "Access-Control-Expose-Headers", STR("x-next-token"));
    return 0;
}

/* A name alone is there from the first build that was asked for; with a tag, once a build has it. */
int api_templates_alias(struct api_call *call, struct error *err)
{
    struct store_template row = {0};
    bool tagged = str_find(call->params[0], ':') >= 0;

    if (check_name(call, err) < 0 ||
        (tagged ? template_find : store_template_get)(call->api->config.store, call->team_id,
                                                      call->params[0], &call->arena, &row, err) < 0)
        return -1;
    call_answer(&call->call, 200,
                json_pack("{s:o,s:b}", "templateID", json_str(row.id), "public", row.is_public));
    return 0;
}

struct change_body {
    bool is_public, is_public_given;
};

static const struct json_field change_fields[] = {
    JSON_FIELD_SEEN(struct change_body, is_public, "public", 0, is_public_given),
    JSON_END,
};

static int change(struct api_call *call, struct error *err)
{
    struct template_view view = {0};
    struct change_body body = {0};
    auto_json json_t *tree = NULL;

    if (check_name(call, err) < 0 ||
        json_parse_as(change_fields, call->body, &body, &tree, err) < 0)
        return -1;
    /* What changes nothing still needs a template of the team. */
    if (!body.is_public_given)
        return template_view(call->api->config.store, call->team_id, call->params[0], &call->arena,
                             &view, err);
    if (template_set_public(call->api->config.store, call->team_id, call->params[0], body.is_public,
                            err) < 0)
        return -1;
    return 0;
}

/* The first generation answers with nothing, the second with the names. */
int api_templates_change(struct api_call *call, struct error *err)
{
    if (change(call, err) < 0)
        return -1;
    call_answer(&call->call, 200, json_object());
    return 0;
}

int api_templates_change_v2(struct api_call *call, struct error *err)
{
    struct template_view view = {0};

    if (change(call, err) < 0)
        return -1;
    if (template_view(call->api->config.store, call->team_id, call->params[0], &call->arena, &view,
                      err) < 0)
        return -1;
    call_answer(&call->call, 200, json_pack("{s:o}", "names", names_json(&view)));
    return 0;
}

/* Snapshots are templates to E2B's clients. */
static int delete_snapshot(struct api_call *call, struct error *err)
{
    if (snapshot_delete(call->api->config.sandboxes, call->team_id, call->params[0], err) < 0)
        return -1;
    call_answer(&call->call, 204, NULL);
    return 0;
}

int api_templates_delete(struct api_call *call, struct error *err)
{
    struct sandboxes *sandboxes = call->api->config.sandboxes;
    struct error other = {0};

    if (check_name(call, err) < 0)
        return -1;
    if (template_delete(sandboxes, call->team_id, call->params[0], &other) < 0) {
        if (other.code == ERROR_NOT_FOUND)
            return delete_snapshot(call, err);
        *err = other;
        return -1;
    }
    call_answer(&call->call, 204, NULL);
    return 0;
}

/* ---- ours: what another server needs to have the same ---- */

static struct str text_or_empty(struct str text)
{
    return text.p ? text : STR("");
}

int api_templates_settings(struct api_call *call, struct error *err)
{
    auto_json json_t *env = NULL;
    struct store_template row;
    struct setup setup = {0};
    json_t *answer;

    if (check_name(call, err) < 0 || template_find(call->api->config.store, call->team_id,
                                                   call->params[0], &call->arena, &row, err) < 0)
        return -1;
    setup_of_template(&row, &call->arena, &setup);
    if (json_parse(setup.env.len ? setup.env : STR("{}"), &env, err) < 0)
        return -1;
    answer = json_object();
    (void)json_object_set(answer, "env", env);
    (void)json_object_set_new(answer, "user", json_str(text_or_empty(setup.user)));
    (void)json_object_set_new(answer, "workdir", json_str(text_or_empty(setup.workdir)));
    (void)json_object_set_new(answer, "startCmd", json_str(text_or_empty(setup.start)));
    (void)json_object_set_new(answer, "readyCmd", json_str(text_or_empty(setup.ready)));
    (void)json_object_set_new(answer, "cpuCount", json_integer(row.cpu_count));
    (void)json_object_set_new(answer, "memoryMB", json_integer(row.mem_mb));
    (void)json_object_set_new(answer, "diskSizeMB", json_integer(row.disk_mb));
    call_answer(&call->call, 200, answer);
    return 0;
}

int api_templates_layer(struct api_call *call, struct error *err)
{
    int64_t bytes = 0;
    int fd = -1;

    if (check_name(call, err) < 0)
        return -1;
    if (build_export(call->api->config.builds, call->team_id, call->params[0],
                     &(struct cancel){call_unwanted, &call->call}, &fd, &bytes, &call->reply_charge,
                     err) < 0)
        return call_unwanted(&call->call) ? call_set_unwanted(&call->call, err) : -1;
    call_answer_file(&call->call, 200, "application/vnd.oci.image.layer.v1.tar+gzip", fd, bytes);
    return 0;
}

/* Builds of templates: asked for, started with a recipe, looked at, cancelled. */
#include "edge/api_e2b/api_builds.h"

#include "base/clock.h"
#include "domain/build/build.h"
#include "domain/sandbox/sandbox_check.h"
#include "domain/template/template.h"
#include "edge/api_e2b/api_query.h"
#include "protocol/json/json_shape.h"

struct new_build {
    struct str name, alias; /* the second is how older clients say it */
    json_t *tags;
    int64_t cpu_count, mem_mb, disk_mb;
    int64_t free_mb; /* asked for by E2B's clients: what the steps leave of the disk */
    bool cpu_given, mem_given;
};

static const struct json_field new_build_fields[] = {
    JSON_FIELD(struct new_build, name, "name", 0),
    JSON_FIELD(struct new_build, alias, "alias", 0),
    JSON_FIELD(struct new_build, tags, "tags", 0),
    JSON_FIELD_SEEN(struct new_build, cpu_count, "cpuCount", 0, cpu_given),
    JSON_FIELD_SEEN(struct new_build, mem_mb, "memoryMB", 0, mem_given),
    JSON_FIELD(struct new_build, disk_mb, "diskSizeMB", 0),
    JSON_FIELD(struct new_build, free_mb, "minFreeDiskMb", 0),
    JSON_END,
};

int api_builds_tags(const json_t *array, struct arena *arena, struct str **out, size_t *out_count,
                    struct error *err)
{
    const json_t *tag;
    size_t i;

    *out_count = 0;
    if (array && !json_is_null(array) && !json_is_array(array))
        return error_set(err, ERROR_INVALID, "'tags' must be an array of strings");
    if (json_array_size(array) > API_TAGS_MAX)
        return error_set(err, ERROR_INVALID, "'tags' has more than %d entries", API_TAGS_MAX);
    *out = arena_alloc(arena, (json_array_size(array) + 1) * sizeof(**out));
    json_array_foreach (array, i, tag) {
        if (!json_is_string(tag))
            return error_set(err, ERROR_INVALID, "'tags' must be an array of strings");
        (*out)[i] = arena_str(arena, str_n(json_string_value(tag), json_string_length(tag)));
    }
    *out_count = json_array_size(array);
    return 0;
}

json_t *api_builds_strings(const struct str *items, size_t count)
{
    json_t *array = json_array();

    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(array, json_str(items[i]));
    return array;
}

static json_t *one_string(struct str text)
{
    return api_builds_strings(&text, text.len ? 1 : 0);
}

static json_t *made_json(const struct build_made *made)
{
    return json_pack("{s:o,s:o,s:b,s:o,s:o,s:o}", "templateID", json_str(made->template_id),
                     "buildID", json_str(made->build_id), "public", made->is_public, "names",
                     one_string(made->full_name), "aliases", one_string(made->alias), "tags",
                     api_builds_strings(made->tags, made->tag_count));
}

/* What is left out is the template's; what is given is meant. */
static int check_sizes(const struct new_build *body, struct error *err)
{
    if (body->cpu_given && body->cpu_count < 1)
        return error_set(err, ERROR_INVALID, "CPU count must be at least 1");
    if (body->mem_given && body->mem_mb < BUILD_MEM_MIN_MB)
        return error_set(err, ERROR_INVALID, "Memory must be at least %d MiB", BUILD_MEM_MIN_MB);
    if (body->disk_mb < 0 || body->free_mb < 0)
        return error_set(err, ERROR_INVALID,
                         "'diskSizeMB' and 'minFreeDiskMb' must not be negative");
    return 0;
}

/* A sandbox's disk is what it may write: all of it is free at the start, whatever the template has. */
static int64_t disk_of(const struct new_build *body)
{
    int64_t usual = body->disk_mb ? body->disk_mb : TEMPLATE_BASE_DISK_MB;

    return body->free_mb > usual ? body->free_mb : body->disk_mb;
}

int api_builds_create(struct api_call *call, struct error *err)
{
    struct new_build body = {.name = STR_NONE};
    auto_json json_t *tree = NULL;
    struct build_wanted wanted = {.team_id = call->team_id};
    struct build_made made = {0};
    struct str *tags;

    if (json_parse_as(new_build_fields, call->body, &body, &tree, err) < 0 ||
        api_builds_tags(body.tags, &call->arena, &tags, &wanted.tag_count, err) < 0 ||
        check_sizes(&body, err) < 0)
        return -1;
    wanted.name = str_trim(body.name.len ? body.name : body.alias);
    if (!wanted.name.len)
        return error_set(err, ERROR_INVALID, "Name is required");
    wanted.tags = tags;
    wanted.cpu_count = body.cpu_count;
    wanted.mem_mb = body.mem_mb;
    wanted.disk_mb = disk_of(&body);
    if (build_new(call->api->config.builds, &wanted, &call->arena, &made, err) < 0)
        return -1;
    call_answer(&call->call, 202, made_json(&made));
    return 0;
}

/* The first generation of clients made an image themselves and pushed it to E2B's own registry. */
int api_builds_old(struct api_call *call, struct error *err)
{
    (void)call;
    return error_set(err, ERROR_UNSUPPORTED,
                     "this way of building pushes an image to E2B's own registry: use 'quicksand "
                     "template build', '@e2b/cli template create' or Template.build() of an SDK "
                     "2.x (POST /v3/templates)");
}

int api_builds_start(struct api_call *call, struct error *err)
{
    if (!str_trim(call->body).len)
        return api_builds_old(call, err);
    if (build_start(call->api->config.builds, call->team_id, call->params[0], call->params[1],
                    call->body, err) < 0)
        return -1;
    call_answer(&call->call, 202, NULL);
    return 0;
}

int api_builds_cancel(struct api_call *call, struct error *err)
{
    if (build_cancel(call->api->config.builds, call->team_id, call->params[0], call->params[1],
                     err) < 0)
        return -1;
    call_answer(&call->call, 204, NULL);
    return 0;
}

/* ---- looking at one ---- */

static json_t *log_json(const struct store_build_log *log)
{
    char timestamp[CLOCK_TEXT_SIZE];
    json_t *json;

    clock_format(log->at_us, timestamp);
    json = json_pack("{s:s,s:s,s:o}", "timestamp", timestamp, "level", api_level_name(log->level),
                     "message", json_str(log->message));
    if (log->step.len)
        (void)json_object_set_new(json, "step", json_str(log->step));
    return json;
}

static json_t *logs_json(const struct store_build_log *logs, size_t count)
{
    json_t *array = json_array();

    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(array, log_json(&logs[i]));
    return array;
}

/* What was never built is ready: the base template since the server first started, a snapshot since it was
 * taken. */
static int find_unbuilt(struct api_call *call, struct store_build *out, struct error *err)
{
    struct store_template row = {0};

    if (call->params[0].len > SANDBOX_NAME_MAX)
        return error_set(err, ERROR_NOT_FOUND, "there is no template of that name");
    if (template_find(call->api->config.store, call->team_id, call->params[0], &call->arena, &row,
                      err) < 0)
        return -1;
    *out = (struct store_build){
        .id = STR(API_NO_BUILD), .template_id = row.id, .state = STORE_BUILD_READY};
    return 0;
}

/* The template is told by its id or by its name. */
static int find_build(struct api_call *call, struct store_build *out, struct error *err)
{
    struct store_template row = {0};

    if (!id_is_uuid(call->params[1]))
        return error_set(err, ERROR_INVALID, "Invalid build ID");
    if (str_is(call->params[1], API_NO_BUILD))
        return find_unbuilt(call, out, err);
    if (build_get(call->api->config.builds, call->team_id, STR_NONE, call->params[1], &call->arena,
                  out, err) < 0)
        return -1;
    if (str_eq(out->template_id, call->params[0]))
        return 0;
    if (call->params[0].len > SANDBOX_NAME_MAX ||
        store_template_get(call->api->config.store, call->team_id, call->params[0], &call->arena,
                           &row, err) < 0 ||
        !str_eq(row.id, out->template_id))
        return error_set(err, ERROR_NOT_FOUND, "template '%.*s' has no build '%.*s'",
                         (int)(call->params[0].len < 60 ? call->params[0].len : 60),
                         call->params[0].p, STR_ARG(call->params[1]));
    return 0;
}

static int read_limit(struct api_call *call, struct build_log_query *out, struct error *err)
{
    uint64_t limit;

    if (api_query_number(call->query, "limit", &call->arena, BUILD_LOGS_MAX, INT32_MAX, &limit,
                         err) < 0 ||
        api_query_level(call->query, &call->arena, &out->level, err) < 0)
        return -1;
    out->limit = limit < BUILD_LOGS_MAX ? (size_t)limit : BUILD_LOGS_MAX;
    return 0;
}

/* A limit of 0 asks for none. */
static int read_logs(struct api_call *call, const struct build_log_query *wanted, json_t **out,
                     struct error *err)
{
    struct store_build_log *logs = NULL;
    size_t count = 0;

    if (wanted->limit && !str_is(wanted->build_id, API_NO_BUILD) &&
        build_logs(call->api->config.builds, wanted, &call->arena, &logs, &count, err) < 0)
        return -1;
    *out = logs_json(logs, count);
    return 0;
}

static int reason_json(struct api_call *call, const struct store_build *build, json_t **out,
                       struct error *err)
{
    struct store_build_log *logs = NULL;
    size_t count = 0;

    if (build_reason_logs(call->api->config.builds, build, &call->arena, &logs, &count, err) < 0)
        return -1;
    *out = json_pack("{s:o,s:o}", "message", json_str(build->reason), "logEntries",
                     logs_json(logs, count));
    if (build->reason_step.len)
        (void)json_object_set_new(*out, "step", json_str(build->reason_step));
    return 0;
}

int api_builds_status(struct api_call *call, struct error *err)
{
    struct store_build build = {0};
    struct build_log_query wanted = {0};
    json_t *entries = NULL, *reason = NULL, *answer;
    uint64_t offset;

    /* The state first: who sees an end may rely on all logs being there. */
    if (find_build(call, &build, err) < 0 ||
        api_query_number(call->query, "logsOffset", &call->arena, 0, INT32_MAX, &offset, err) < 0 ||
        read_limit(call, &wanted, err) < 0)
        return -1;
    wanted.build_id = build.id;
    wanted.offset = (int64_t)offset;
    if (build.state == STORE_BUILD_ERROR && reason_json(call, &build, &reason, err) < 0)
        return -1;
    if (read_logs(call, &wanted, &entries, err) < 0) {
        json_decref(reason);
        return -1;
    }
    answer = json_pack("{s:o,s:o,s:s,s:[],s:o}", "templateID", json_str(build.template_id),
                       "buildID", json_str(build.id), "status", store_build_state_name(build.state),
                       "logs", "logEntries", entries);
    if (reason)
        (void)json_object_set_new(answer, "reason", reason);
    call_answer(&call->call, 200, answer);
    return 0;
}

/* "source" says where E2B keeps them; here they are in one place. */
static int check_source(struct api_call *call, struct error *err)
{
    struct str source;

    if (api_query_get(call->query, "source", &call->arena, &source, err) < 0)
        return -1;
    if (source.p && !str_is(source, "temporary") && !str_is(source, "persistent"))
        return error_set(err, ERROR_INVALID,
                         "query parameter 'source' must be 'temporary' or 'persistent'");
    return 0;
}

int api_builds_logs(struct api_call *call, struct error *err)
{
    struct store_build build = {0};
    struct build_log_query wanted = {0};
    json_t *entries = NULL;
    uint64_t cursor_ms;

    if (find_build(call, &build, err) < 0 || read_limit(call, &wanted, err) < 0 ||
        api_query_number(call->query, "cursor", &call->arena, 0, INT64_MAX / 2000, &cursor_ms,
                         err) < 0 ||
        api_query_backward(call->query, &call->arena, &wanted.backward, err) < 0 ||
        check_source(call, err) < 0)
        return -1;
    wanted.build_id = build.id;
    wanted.cursor_us = (int64_t)cursor_ms * 1000;
    if (read_logs(call, &wanted, &entries, err) < 0)
        return -1;
    call_answer(&call->call, 200, json_pack("{s:o}", "logs", entries));
    return 0;
}

/* The template resource, as far as it can be read. */
#include "edge/api_e2b/api_internal.h"

#include <ctype.h>

#include "base/clock.h"
#include "domain/sandbox/sandbox.h"
#include "domain/template/template.h"
#include "edge/api_e2b/api_types.h"
#include "protocol/json/json_shape.h"

/* Builds are not recorded one by one yet; clients only show this. */
#define NO_BUILD "00000000-0000-0000-0000-000000000000"

struct template_body {
    struct str template_id, build_id, build_status, created_at, updated_at, last_spawned_at;
    struct str envd_version;
    int64_t cpu_count, mem_mb, disk_mb, spawn_count, build_count;
    bool is_public;
    json_t *aliases, *names, *created_by;
};

static const struct json_field template_fields[] = {
    JSON_FIELD(struct template_body, template_id, "templateID", 0),
    JSON_FIELD(struct template_body, build_id, "buildID", 0),
    JSON_FIELD(struct template_body, build_status, "buildStatus", 0),
    JSON_FIELD(struct template_body, cpu_count, "cpuCount", 0),
    JSON_FIELD(struct template_body, mem_mb, "memoryMB", 0),
    JSON_FIELD(struct template_body, disk_mb, "diskSizeMB", 0),
    JSON_FIELD(struct template_body, is_public, "public", 0),
    JSON_FIELD(struct template_body, aliases, "aliases", 0),
    JSON_FIELD(struct template_body, names, "names", 0),
    JSON_FIELD(struct template_body, created_at, "createdAt", 0),
    JSON_FIELD(struct template_body, updated_at, "updatedAt", 0),
    JSON_FIELD(struct template_body, created_by, "createdBy", 0),
    JSON_FIELD(struct template_body, last_spawned_at, "lastSpawnedAt", 0),
    JSON_FIELD(struct template_body, spawn_count, "spawnCount", 0),
    JSON_FIELD(struct template_body, build_count, "buildCount", 0),
    JSON_FIELD(struct template_body, envd_version, "envdVersion", 0),
    JSON_END,
};

static json_t *template_json(const struct store_template *row)
{
    char created_at[CLOCK_TEXT_SIZE], updated_at[CLOCK_TEXT_SIZE];
    auto_json json_t *names = json_array();
    struct template_body body = {
        .template_id = row->id,
        .build_id = STR(NO_BUILD),
        .build_status = STR("ready"),
        .cpu_count = row->cpu_count,
        .mem_mb = row->mem_mb,
        .disk_mb = row->disk_mb,
        .is_public = row->is_public,
        .aliases = names,
        .names = names,
        .build_count = 1,
        .envd_version = STR(SANDBOX_ENVD_VERSION),
    };

    if (row->alias.len)
        (void)json_array_append_new(names, json_str(row->alias));
    clock_format(row->created_at_us, created_at);
    clock_format(row->updated_at_us, updated_at);
    body.created_at = str_of(created_at);
    body.updated_at = str_of(updated_at);
    return json_write(template_fields, &body);
}

int api_templates_list(struct api_call *call, struct error *err)
{
    struct store_template *rows = NULL;
    size_t count = 0;
    json_t *array;

    if (template_list(call->api->config.store, call->team_id, &call->arena, &rows, &count, err) < 0)
        return -1;
    array = json_array();
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(array, template_json(&rows[i]));
    call_answer(&call->call, 200, array);
    return 0;
}

struct alias_body {
    struct str template_id;
    bool is_public;
};

static const struct json_field alias_fields[] = {
    JSON_FIELD(struct alias_body, template_id, "templateID", 0),
    JSON_FIELD(struct alias_body, is_public, "public", 0),
    JSON_END,
};

int api_templates_alias(struct api_call *call, struct error *err)
{
    struct store_template row = {0};
    struct alias_body body;

    if (call->params[0].len > API_NAME_MAX)
        return error_set(err, ERROR_NOT_FOUND, "there is no template of that name");
    if (template_find(call->api->config.store, call->team_id, call->params[0], &call->arena, &row,
                      err) < 0)
        return -1;
    body = (struct alias_body){.template_id = row.id, .is_public = row.is_public};
    call_answer(&call->call, 200, json_write(alias_fields, &body));
    return 0;
}

struct build_body {
    struct str template_id, build_id, status;
    json_t *logs, *entries;
};

static const struct json_field build_fields[] = {
    JSON_FIELD(struct build_body, template_id, "templateID", 0),
    JSON_FIELD(struct build_body, build_id, "buildID", 0),
    JSON_FIELD(struct build_body, status, "status", 0),
    JSON_FIELD(struct build_body, logs, "logs", 0),
    JSON_FIELD(struct build_body, entries, "logEntries", 0),
    JSON_END,
};

static bool is_uuid(struct str text)
{
    for (size_t i = 0; i < text.len; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;

        if (dash ? text.p[i] != '-' : !isxdigit((unsigned char)text.p[i]))
            return false;
    }
    return text.len == sizeof(NO_BUILD) - 1;
}

/* What there is was built: the base template when the server first started, a snapshot when it was
 * taken. */
int api_templates_build(struct api_call *call, struct error *err)
{
    auto_json json_t *none = json_array();
    struct store_template row = {0};
    struct build_body body;

    if (!is_uuid(call->params[1]))
        return error_set(err, ERROR_INVALID, "Invalid build ID");
    if (call->params[0].len > API_NAME_MAX)
        return error_set(err, ERROR_NOT_FOUND, "there is no template of that name");
    if (template_find(call->api->config.store, call->team_id, call->params[0], &call->arena, &row,
                      err) < 0)
        return -1;
    if (!str_is(call->params[1], NO_BUILD))
        return error_set(err, ERROR_NOT_FOUND, "template '%.*s' has no build '%.*s'",
                         STR_ARG(row.id), STR_ARG(call->params[1]));
    body = (struct build_body){.template_id = row.id,
                               .build_id = STR(NO_BUILD),
                               .status = STR("ready"),
                               .logs = none,
                               .entries = none};
    call_answer(&call->call, 200, json_write(build_fields, &body));
    return 0;
}

/* Tags of templates: names of builds. */
#include "base/clock.h"
#include "domain/sandbox/sandbox_check.h"
#include "domain/template/template.h"
#include "edge/api_e2b/api_builds.h"
#include "protocol/json/json_shape.h"

struct tags_body {
    struct str name; /* "target" of POST */
    json_t *tags;
};

static const struct json_field assign_fields[] = {
    JSON_FIELD(struct tags_body, name, "target", JSON_REQUIRED),
    JSON_FIELD(struct tags_body, tags, "tags", JSON_REQUIRED),
    JSON_END,
};

static const struct json_field delete_fields[] = {
    JSON_FIELD(struct tags_body, name, "name", JSON_REQUIRED),
    JSON_FIELD(struct tags_body, tags, "tags", JSON_REQUIRED),
    JSON_END,
};

struct wanted_tags {
    struct str name;
    struct str *tags;
    size_t count;
};

static int read_body(struct api_call *call, const struct json_field *fields,
                     struct wanted_tags *out, struct error *err)
{
    struct tags_body body = {.name = STR_NONE};
    auto_json json_t *tree = NULL;

    if (json_parse_as(fields, call->body, &body, &tree, err) < 0 ||
        api_builds_tags(body.tags, &call->arena, &out->tags, &out->count, err) < 0)
        return -1;
    out->name = arena_str(&call->arena, str_trim(body.name));
    if (!out->count)
        return error_set(err, ERROR_INVALID, "At least one tag is required");
    if (!out->name.len || out->name.len > SANDBOX_NAME_MAX)
        return error_set(err, ERROR_INVALID, "a template's name has 1 to %d characters",
                         SANDBOX_NAME_MAX);
    return 0;
}

int api_tags_assign(struct api_call *call, struct error *err)
{
    struct wanted_tags wanted = {.name = STR_NONE};
    struct str build_id = STR_NONE;

    if (read_body(call, assign_fields, &wanted, err) < 0)
        return -1;
    if (template_tags_assign(call->api->config.sandboxes, call->team_id, wanted.name, wanted.tags,
                             wanted.count, &call->arena, &build_id, err) < 0)
        return -1;
    call_answer(&call->call, 201,
                json_pack("{s:o,s:o}", "buildID", json_str(build_id), "tags",
                          api_builds_strings(wanted.tags, wanted.count)));
    return 0;
}

int api_tags_delete(struct api_call *call, struct error *err)
{
    struct wanted_tags wanted = {.name = STR_NONE};

    if (read_body(call, delete_fields, &wanted, err) < 0)
        return -1;
    if (str_find(wanted.name, ':') >= 0)
        return error_set(err, ERROR_INVALID,
                         "Template name should not contain a tag, use the 'tags' field instead");
    if (template_tags_delete(call->api->config.sandboxes, call->team_id, wanted.name, wanted.tags,
                             wanted.count, err) < 0)
        return -1;
    call_answer(&call->call, 204, NULL);
    return 0;
}

static json_t *tag_json(const struct template_tag *tag)
{
    char created_at[CLOCK_TEXT_SIZE];

    clock_format(tag->created_at_us, created_at);
    return json_pack("{s:o,s:o,s:s}", "tag", json_str(tag->tag), "buildID", json_str(tag->build_id),
                     "createdAt", created_at);
}

int api_tags_list(struct api_call *call, struct error *err)
{
    struct template_tag *tags = NULL;
    size_t count = 0;
    json_t *array;

    if (call->params[0].len > SANDBOX_NAME_MAX)
        return error_set(err, ERROR_NOT_FOUND, "there is no template of that name");
    if (template_tags(call->api->config.store, call->team_id, call->params[0], &call->arena, &tags,
                      &count, err) < 0)
        return -1;
    array = json_array();
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(array, tag_json(&tags[i]));
    call_answer(&call->call, 200, array);
    return 0;
}

/* Volumes. The token is for the content API, and told only with the one volume it belongs to. */
#include "domain/volume/volume.h"
#include "edge/api_e2b/api_internal.h"
#include "edge/api_e2b/api_types.h"
#include "protocol/json/json_shape.h"

struct volume_body {
    struct str id, name, token;
};

static const struct json_field volume_fields[] = {
    JSON_FIELD(struct volume_body, id, "volumeID", 0),
    JSON_FIELD(struct volume_body, name, "name", 0),
    JSON_FIELD(struct volume_body, token, "token", JSON_OMIT_EMPTY),
    JSON_END,
};

static json_t *volume_json(const struct store_volume *volume, bool with_token)
{
    struct volume_body body = {
        .id = volume->id, .name = volume->name, .token = with_token ? volume->token : STR_NONE};

    return json_write(volume_fields, &body);
}

struct new_volume {
    struct str name;
};

static const struct json_field new_volume_fields[] = {
    JSON_FIELD(struct new_volume, name, "name", JSON_REQUIRED),
    JSON_END,
};

int api_volumes_create(struct api_call *call, struct error *err)
{
    struct new_volume body = {.name = STR_NONE};
    auto_json json_t *tree = NULL;
    struct store_volume volume;

    if (json_parse_as(new_volume_fields, call->body, &body, &tree, err) < 0 ||
        volume_create(call->api->config.volumes, call->team_id, body.name, &call->arena, &volume,
                      err) < 0)
        return -1;
    call_answer(&call->call, 201, volume_json(&volume, true));
    return 0;
}

int api_volumes_list(struct api_call *call, struct error *err)
{
    struct store_volume *volumes;
    json_t *array;
    size_t count;

    if (volume_list(call->api->config.volumes, call->team_id, &call->arena, &volumes, &count, err) <
        0)
        return -1;
    array = json_array();
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(array, volume_json(&volumes[i], false));
    call_answer(&call->call, 200, array);
    return 0;
}

int api_volumes_get(struct api_call *call, struct error *err)
{
    struct store_volume volume;

    if (volume_get(call->api->config.volumes, call->team_id, call->params[0], &call->arena, &volume,
                   err) < 0)
        return -1;
    call_answer(&call->call, 200, volume_json(&volume, true));
    return 0;
}

int api_volumes_usage(struct api_call *call, struct error *err)
{
    uint64_t bytes = 0, limit = 0;

    if (volume_usage(call->api->config.volumes, call->team_id, call->params[0], &bytes, &limit,
                     err) < 0)
        return -1;
    call_answer(
        &call->call, 200,
        json_pack("{s:I,s:I}", "bytes", (json_int_t)bytes, "limitBytes", (json_int_t)limit));
    return 0;
}

int api_volumes_delete(struct api_call *call, struct error *err)
{
    if (volume_delete(call->api->config.volumes, call->team_id, call->params[0], err) < 0)
        return -1;
    call_answer(&call->call, 204, NULL);
    return 0;
}

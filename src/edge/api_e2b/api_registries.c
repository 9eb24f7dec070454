/* Passwords for registries of images. A password goes in and never comes out again. */
#include "base/clock.h"
#include "domain/secret/registry_login.h"
#include "edge/api_e2b/api_internal.h"
#include "protocol/json/json_shape.h"
#include "store/platform/store_registry.h"

static json_t *registry_json(const struct store_registry *row)
{
    char created_at[CLOCK_TEXT_SIZE];

    clock_format(row->made_at_us, created_at);
    return json_pack("{s:o,s:o,s:s}", "host", json_str(row->host), "username",
                     json_str(row->username), "createdAt", created_at);
}

int api_registries_list(struct api_call *call, struct error *err)
{
    struct store_registry *rows = NULL;
    size_t count = 0;
    json_t *array;

    if (store_registry_list(call->api->config.store, call->team_id, &call->arena, &rows, &count,
                            err) < 0)
        return -1;
    array = json_array();
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(array, registry_json(&rows[i]));
    call_answer(&call->call, 200, array);
    return 0;
}

static const struct json_field login_fields[] = {
    JSON_FIELD(struct registry_login, username, "username", JSON_REQUIRED),
    JSON_FIELD(struct registry_login, password, "password", JSON_REQUIRED),
    JSON_END,
};

int api_registries_put(struct api_call *call, struct error *err)
{
    struct registry_login body = {.host = call->params[0]};
    auto_json json_t *tree = NULL;

    if (json_parse_as(login_fields, call->body, &body, &tree, err) < 0 ||
        registry_login_put(call->api->config.store, call->api->config.secrets, call->team_id, &body,
                           err) < 0)
        return -1;
    call_answer(&call->call, 204, NULL);
    return 0;
}

int api_registries_delete(struct api_call *call, struct error *err)
{
    if (registry_login_delete(call->api->config.store, call->team_id, call->params[0], err) < 0)
        return -1;
    call_answer(&call->call, 204, NULL);
    return 0;
}

/* Teams and keys. A key manages the keys of its own team. */
#include "edge/api_e2b/api_accounts.h"

#include "base/clock.h"
#include "domain/account/api_key.h"
#include "domain/account/team.h"
#include "protocol/json/json_shape.h"

int api_teams_list(struct api_call *call, struct error *err)
{
    struct store_team team;

    if (team_get(call->api->config.store, call->team_id, &call->arena, &team, err) < 0)
        return -1;
    /* Keys are kept as hashes, so the only one that can be told is the one that was sent. */
    call_answer(&call->call, 200,
                json_pack("[{s:o,s:o,s:o,s:b}]", "teamID", json_str(team.id), "name",
                          json_str(team.name), "apiKey",
                          json_str(call->by_cookie ? STR("") : call->key), "isDefault", 1));
    return 0;
}

/* "e2b_12...cdef" in parts. */
static json_t *mask_json(struct str mask)
{
    ptrdiff_t dots = str_find_str(mask, STR("..."));
    struct str start = dots > 4 ? str_n(mask.p + 4, (size_t)dots - 4) : STR("");
    struct str tail = dots >= 0 ? str_skip(mask, (size_t)dots + 3) : STR("");

    return json_pack("{s:s,s:i,s:o,s:o}", "prefix", "e2b_", "valueLength", API_KEY_SIZE - 5,
                     "maskedValuePrefix", json_str(start), "maskedValueSuffix", json_str(tail));
}

static const char *role_name(const struct store_key *key)
{
    enum api_role role = API_ROLE_VIEWER;

    (void)api_role_stored(key->role, &role);
    return api_role_name(role, key->team_id);
}

json_t *api_accounts_key(const struct store_key *key, const char *secret)
{
    char created_at[CLOCK_TEXT_SIZE], used_at[CLOCK_TEXT_SIZE];
    json_t *json;

    clock_format(key->created_at_us, created_at);
    clock_format(key->last_used_at_us, used_at);
    json =
        json_pack("{s:o,s:o,s:o,s:s,s:n,s:o}", "id", json_str(key->id), "name", json_str(key->name),
                  "mask", mask_json(key->mask), "createdAt", created_at, "createdBy", "lastUsed",
                  key->last_used_at_us ? json_string(used_at) : json_null());
    (void)json_object_set_new(json, "role", json_string(role_name(key)));
    if (key->agent_id.len)
        (void)json_object_set_new(json, "agentID", json_str(key->agent_id));
    if (key->sandbox_id.len)
        (void)json_object_set_new(json, "sandboxID", json_str(key->sandbox_id));
    if (secret)
        (void)json_object_set_new(json, "key", json_string(secret));
    return json;
}

int api_keys_list(struct api_call *call, struct error *err)
{
    struct store_key *keys;
    json_t *array;
    size_t count;

    if (api_key_list(call->api->config.store, call->team_id, &call->arena, &keys, &count, err) < 0)
        return -1;
    array = json_array();
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(array, api_accounts_key(&keys[i], NULL));
    call_answer(&call->call, 200, array);
    return 0;
}

struct name_body {
    struct str name, agent_id, sandbox_id, role;
};

static const struct json_field name_fields[] = {
    JSON_FIELD(struct name_body, name, "name", JSON_REQUIRED),
    JSON_FIELD(struct name_body, agent_id, "agentID", 0),
    JSON_FIELD(struct name_body, sandbox_id, "sandboxID", 0),
    JSON_FIELD(struct name_body, role, "role", 0),
    JSON_END,
};

int api_accounts_new_key(struct api_call *call, struct str team_id, struct store_key *out,
                         char out_secret[API_KEY_SIZE], struct error *err)
{
    struct name_body body = {.name = STR_NONE};
    enum api_role role = API_ROLE_FULL;
    auto_json json_t *tree = NULL;

    if (json_parse_as(name_fields, call->body, &body, &tree, err) < 0 ||
        api_role_give(call->role, team_id, body.role, &role, err) < 0 ||
        api_key_new(call->api->config.store,
                    &(struct api_key_wanted){.team_id = team_id,
                                             .name = body.name,
                                             .agent_id = body.agent_id,
                                             .sandbox_id = body.sandbox_id,
                                             .role = role},
                    &call->arena, out, out_secret, err) < 0)
        return -1;
    api_keys_refresh(call->api->config.keys);
    return 0;
}

int api_keys_create(struct api_call *call, struct error *err)
{
    char secret[API_KEY_SIZE];
    struct store_key key;

    if (api_accounts_new_key(call, call->team_id, &key, secret, err) < 0)
        return -1;
    call_answer(&call->call, 201, api_accounts_key(&key, secret));
    return 0;
}

int api_keys_rename(struct api_call *call, struct error *err)
{
    struct name_body body = {.name = STR_NONE};
    auto_json json_t *tree = NULL;

    if (json_parse_as(name_fields, call->body, &body, &tree, err) < 0 ||
        api_key_rename(call->api->config.store, call->team_id, call->params[0], body.name, err) < 0)
        return -1;
    call_answer(&call->call, 200, NULL);
    return 0;
}

int api_keys_delete(struct api_call *call, struct error *err)
{
    if (api_key_delete(call->api->config.store, call->team_id, call->params[0], err) < 0)
        return -1;
    api_keys_refresh(call->api->config.keys);
    call_answer(&call->call, 204, NULL);
    return 0;
}

/* There are no users here, so a token is a key of the team under another name. */
int api_tokens_create(struct api_call *call, struct error *err)
{
    char secret[API_KEY_SIZE];
    struct store_key key;
    json_t *json;

    if (api_accounts_new_key(call, call->team_id, &key, secret, err) < 0)
        return -1;
    json = api_accounts_key(&key, NULL);
    (void)json_object_set_new(json, "token", json_string(secret));
    call_answer(&call->call, 201, json);
    return 0;
}

int api_tokens_delete(struct api_call *call, struct error *err)
{
    return api_keys_delete(call, err);
}

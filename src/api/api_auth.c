/* Who is asking. The key is taken from the head on the loop; its team is looked up on the worker,
 * in memory (account/api_keys.c). */
#include "account/api_key.h"
#include "api/api_internal.h"

struct str api_auth_key(const struct http_headers *headers)
{
    struct str key = str_trim(http_headers_get(headers, "X-API-KEY"));
    struct str authorization = str_trim(http_headers_get(headers, "Authorization"));
    struct str scheme;

    if (key.len)
        return key;
    scheme = str_split(&authorization, ' ');
    if (str_eq_nocase(scheme, STR("Bearer")))
        return str_trim(authorization);
    return STR_NONE;
}

int api_auth(struct api_call *call, struct error *err)
{
    struct api_key_owner owner;

    if (call->key.len > API_KEY_GIVEN_MAX)
        return error_set(err, ERROR_UNAUTHORIZED, "invalid API key");
    if (api_keys_find(call->api->config.keys, call->key, &owner, err) < 0)
        return -1;
    call->team_id = arena_str(&call->arena, str_of(owner.team_id));
    return 0;
}

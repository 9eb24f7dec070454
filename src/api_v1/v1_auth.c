/* Who is asking. The key is taken from the head on the loop; its team is looked up on the worker.
 *
 * Browsers cannot set headers on WebSockets and event streams, so a key may also come as a WebSocket
 * protocol ("key." and base64url of it), or in the query. The query is never logged. */
#include "account/api_key.h"
#include "api_v1/v1_internal.h"
#include "base/clock.h"
#include "base/encode.h"
#include "base/log.h"
#include "json/json_shape.h"

static struct str of_protocols(struct str list, struct arena *arena)
{
    while (list.p) {
        struct str one = str_trim(str_split(&list, ','));
        auto_buf struct buf text = {0};

        buf_init(&text, API_KEY_GIVEN_MAX);
        if (str_starts(one, STR("key.")) && base64_decode(str_skip(one, 4), &text) && text.len)
            return arena_str(arena, buf_str(&text));
    }
    return STR_NONE;
}

static struct str of_query(struct str query, struct arena *arena)
{
    static const char *const names[] = {"access_token", "api_key"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        auto_buf struct buf text = {0};

        buf_init(&text, HTTP_URL_MAX);
        if (url_query_get(query, names[i], &text) && text.len)
            return arena_str(arena, buf_str(&text));
    }
    return STR_NONE;
}

struct str v1_auth_key(const struct http_request *request, struct arena *arena)
{
    struct str key = http_given_key(&request->headers);

    if (key.len)
        return arena_str(arena, key);
    key = of_protocols(http_headers_get(&request->headers, "Sec-WebSocket-Protocol"), arena);
    return key.len ? key : of_query(request->query, arena);
}

int v1_auth(struct v1_call *call, struct error *err)
{
    struct api_key_owner owner;

    if (api_keys_find(call->v1->config.keys, call->key, &owner, err) < 0)
        return -1;
    if (owner.banned)
        return error_set(err, ERROR_FORBIDDEN, "team is banned");
    call->caller.team_id = arena_str(&call->arena, str_of(owner.team_id));
    call->key_id = arena_str(&call->arena, str_of(owner.key_id));
    call->caller.actor = call->key_id.len ? call->key_id : STR("operator");
    return 0;
}

void v1_audit(struct v1_call *call)
{
    struct store_audit entry = {.at_us = clock_wall_us(),
                                .team_id = call->caller.team_id,
                                .key_id = call->key_id,
                                .method = call->method,
                                .path = call->path,
                                .status = call->status,
                                .request_id = str_of(call->request_id)};
    struct error err = {0};

    if (!call->caller.team_id.len || !call->v1->config.store || str_is(call->method, "GET") ||
        str_is(call->method, "HEAD") || (call->route->flags & V1_QUIET))
        return;
    if (store_audit_add(call->v1->config.store, &entry, &err) < 0)
        log_warn("v1", "request=%s is not in the audit log: %s", call->request_id, err.message);
}

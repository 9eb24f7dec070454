/* Who is asking. The key is taken from the head on the loop; its team is looked up on the worker.
 *
 * Browsers cannot set headers on WebSockets and event streams, so a key may also come as a WebSocket
 * protocol ("key." and base64url of it), or in the query. The query is never logged. */
#include "base/encode.h"
#include "domain/account/team.h"
#include "edge/api_runtime/v1_internal.h"
#include "protocol/json/json_shape.h"
#include "runtime/sandbox/sandbox.h"

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

/* The path's sandbox by its id, when it is the one of the key. */
static int find_own(struct v1_call *call, struct error *err)
{
    struct str given = call->params[0], engine_id = STR_NONE;
    struct runtime_sandbox sandbox = {0};

    if (str_eq(given, call->key_sandbox))
        return 0;
    if (runtime_sandbox_get(call->v1->config.runtime, &call->caller, given, false, &call->arena,
                            &sandbox, err) < 0)
        return -1;
    call->params[0] = sandbox.id;
    if (str_eq(sandbox.id, call->key_sandbox))
        return 0;
    /* One that the E2B API made has the engine's id as well. */
    if (store_key_sandbox(call->v1->config.store, call->caller.team_id, sandbox.id, &call->arena,
                          &engine_id, err) == 0 &&
        engine_id.len && str_eq(engine_id, call->key_sandbox))
        return 0;
    return error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' not found", STR_ARG(given));
}

int v1_scope(struct v1_call *call, struct error *err)
{
    unsigned flags = call->endpoint->flags;

    if (call->key_agent.len && (flags & V1_TEAM))
        return error_set(
            err, ERROR_FORBIDDEN,
            "this API key acts as agent '%.*s': that needs an API key of the whole team",
            STR_ARG(call->key_agent));
    if (!call->key_sandbox.len || (flags & V1_SCOPED))
        return 0;
    if (!(flags & V1_BOX))
        return error_set(err, ERROR_FORBIDDEN, "this API key is for sandbox '%.*s' only",
                         STR_ARG(call->key_sandbox));
    return find_own(call, err);
}

int v1_scope_snapshot(struct v1_call *call, struct str name, struct error *err)
{
    struct runtime *runtime = call->v1->config.runtime;
    struct runtime_snapshot snapshot = {0};
    struct runtime_sandbox sandbox = {0};
    struct error why = {0};

    if (!call->key_agent.len || !name.len)
        return 0;
    if (runtime_snapshot_get(runtime, &call->caller, name, &call->arena, &snapshot, &why) < 0) {
        if (why.code == ERROR_NOT_FOUND)
            return 0;
        *err = why;
        return -1;
    }
    if (runtime_sandbox_get(runtime, &call->caller, snapshot.sandbox_id, false, &call->arena,
                            &sandbox, &why) == 0)
        return 0;
    return error_set(err, ERROR_FORBIDDEN, "snapshot '%.*s' is not of agent '%.*s'", STR_ARG(name),
                     STR_ARG(call->key_agent));
}

bool v1_operates(const struct v1_call *call)
{
    return str_is(call->team_id, TEAM_DEFAULT_ID) && call->role != API_ROLE_MEMBER;
}

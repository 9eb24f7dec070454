/* Who is asking. The key is taken from the head on the loop; its team is looked up on the worker,
 * in memory (domain/account/api_keys.c). */
#include "base/clock.h"
#include "base/log.h"
#include "domain/account/api_key.h"
#include "domain/account/team.h"
#include "domain/sandbox/sandbox.h"
#include "edge/api_e2b/api_internal.h"
#include "edge/api_e2b/api_sandboxes.h"
#include "protocol/json/json_shape.h"
#include "store/core/store.h"

static int not_found(const struct api_call *call, struct error *err)
{
    return error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' was not found",
                     (int)(call->params[0].len < 60 ? call->params[0].len : 60), call->params[0].p);
}

/* A key for one sandbox has the runtime's id of it, or the engine's. */
static int check_sandbox(struct api_call *call, struct error *err)
{
    struct str id, engine_id = STR_NONE;

    if (api_sandboxes_get_id(call, &id, err) < 0)
        return -1;
    if (str_eq(id, call->key_sandbox))
        return 0;
    if (store_key_sandbox(call->api->config.store, call->team_id, call->key_sandbox, &call->arena,
                          &engine_id, err) < 0)
        return err->code == ERROR_NOT_FOUND ? not_found(call, err) : -1;
    return str_eq(id, engine_id) ? 0 : not_found(call, err);
}

static int check_agent(struct api_call *call, struct error *err)
{
    auto_json json_t *metadata = NULL;
    struct sandbox_view view = {0};
    struct str id;

    if (api_sandboxes_get_id(call, &id, err) < 0 ||
        sandbox_get(call->api->config.sandboxes, call->team_id, id, &call->arena, &view, err) < 0)
        return -1;
    if (view.metadata.len && json_parse(view.metadata, &metadata, err) < 0)
        return -1;
    return str_eq(json_get_str(metadata, API_AGENT_LABEL), call->key_agent) ? 0
                                                                            : not_found(call, err);
}

/* What a key of less than the whole team may do. */
static int check_scope(struct api_call *call, struct error *err)
{
    enum api_scope scope = call->endpoint->scope;

    if (scope == API_SCOPE_ANY)
        return 0;
    if (call->key_sandbox.len)
        return scope == API_SCOPE_BOX
                   ? check_sandbox(call, err)
                   : error_set(err, ERROR_FORBIDDEN, "this key is for sandbox '%.*s' only",
                               STR_ARG(call->key_sandbox));
    if (!call->key_agent.len || scope == API_SCOPE_AGENT)
        return 0;
    if (scope == API_SCOPE_TEAM)
        return error_set(err, ERROR_FORBIDDEN,
                         "this key acts as agent '%.*s': that needs a key of the whole team",
                         STR_ARG(call->key_agent));
    return check_agent(call, err);
}

int api_auth(struct api_call *call, struct error *err)
{
    struct api_key_owner owner;

    if (api_keys_find(call->api->config.keys, call->key, &owner, err) < 0)
        return -1;
    if (owner.banned)
        return error_set(err, ERROR_FORBIDDEN, "team is banned");
    call->team_id = arena_str(&call->arena, str_of(owner.team_id));
    call->key_id = arena_str(&call->arena, str_of(owner.key_id));
    call->key_name = arena_str(&call->arena, str_of(owner.key_name));
    if (owner.agent_id[0])
        call->key_agent = arena_str(&call->arena, str_of(owner.agent_id));
    if (owner.sandbox_id[0])
        call->key_sandbox = arena_str(&call->arena, str_of(owner.sandbox_id));
    if (call->endpoint->auth == API_AUTH_OPERATOR && !str_is(call->team_id, TEAM_DEFAULT_ID))
        return error_set(err, ERROR_FORBIDDEN, "only the operator's keys may do this");
    return check_scope(call, err);
}

void api_audit(struct api_call *call)
{
    struct store_audit entry = {.at_us = clock_wall_us(),
                                .team_id = call->team_id,
                                .key_id = call->key_id,
                                .key_name = call->key_name,
                                .agent_id = call->key_agent,
                                .method = call->method,
                                .path = call->path,
                                .status = call->status,
                                .request_id = str_of(call->request_id)};
    struct error err = {0};

    if (!call->team_id.len || str_is(call->method, "GET") || str_is(call->method, "HEAD"))
        return;
    if (store_audit_add(call->api->config.store, &entry, &err) < 0)
        log_warn("api", "request=%s is not in the audit log: %s", call->request_id, err.message);
}

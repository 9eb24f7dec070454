/* What a key may do that is bound to an agent or to one sandbox. */
#include "domain/account/team.h"
#include "domain/sandbox/sandbox.h"
#include "edge/api_e2b/api_internal.h"
#include "edge/api_e2b/api_sandboxes.h"
#include "protocol/json/json_shape.h"

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
static int check_bound(struct api_call *call, struct error *err)
{
    enum api_scope scope = call->endpoint->scope;

    if (scope == API_SCOPE_ANY)
        return 0;
    if (call->key_sandbox.len)
        return scope == API_SCOPE_BOX
                   ? check_sandbox(call, err)
                   : error_set(err, ERROR_FORBIDDEN, "this API key is for sandbox '%.*s' only",
                               STR_ARG(call->key_sandbox));
    if (!call->key_agent.len || scope == API_SCOPE_AGENT)
        return 0;
    if (scope == API_SCOPE_TEAM)
        return error_set(
            err, ERROR_FORBIDDEN,
            "this API key acts as agent '%.*s': that needs an API key of the whole team",
            STR_ARG(call->key_agent));
    return check_agent(call, err);
}

int api_scope_check(struct api_call *call, struct error *err)
{
    bool enough = call->role == API_ROLE_FULL || call->need == CALL_MEASURES;

    if (call->endpoint->auth == API_AUTH_OPERATOR &&
        (!str_is(call->team_id, TEAM_DEFAULT_ID) || !enough || call->role == API_ROLE_MEMBER))
        return error_set(err, ERROR_FORBIDDEN, "only the operator's keys may do this");
    return check_bound(call, err);
}

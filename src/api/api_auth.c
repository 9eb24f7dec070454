/* Who is asking. The key is taken from the head on the loop; its team is looked up on the worker,
 * in memory (account/api_keys.c). */
#include "account/api_key.h"
#include "account/team.h"
#include "api/api_internal.h"
#include "base/clock.h"
#include "base/log.h"

int api_auth(struct api_call *call, struct error *err)
{
    struct api_key_owner owner;

    if (api_keys_find(call->api->config.keys, call->key, &owner, err) < 0)
        return -1;
    if (owner.banned)
        return error_set(err, ERROR_FORBIDDEN, "team is banned");
    call->team_id = arena_str(&call->arena, str_of(owner.team_id));
    call->key_id = arena_str(&call->arena, str_of(owner.key_id));
    if (call->route->auth == API_AUTH_OPERATOR && !str_is(call->team_id, TEAM_DEFAULT_ID))
        return error_set(err, ERROR_FORBIDDEN, "only the operator's keys may do this");
    return 0;
}

void api_audit(struct api_call *call)
{
    struct store_audit entry = {.at_us = clock_wall_us(),
                                .team_id = call->team_id,
                                .key_id = call->key_id,
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

#include "edge/api_runtime/v1_teams.h"

#include "domain/account/team.h"
#include "edge/api_runtime/v1_types.h"

static bool sees_all(const struct v1_call *call)
{
    return v1_operates(call) && !call->key_agent.len && !call->key_sandbox.len;
}

int v1_teams_read(struct v1_call *call, struct v1_teams *teams, struct error *err)
{
    if (teams->items)
        return 0;
    if (sees_all(call))
        return team_list(call->v1->config.store, &call->arena, &teams->items, &teams->count, err);
    teams->items = arena_alloc(&call->arena, sizeof(*teams->items));
    teams->count = 1;
    return team_get(call->v1->config.store, call->caller.team_id, &call->arena, teams->items, err);
}

int v1_teams_choose(struct v1_call *call, struct v1_teams *out, struct error *err)
{
    struct str wanted;

    *out = (struct v1_teams){.caller = call->caller};
    if (v1_query_str(call, "team", &wanted, err) < 0)
        return -1;
    if (!wanted.len)
        return 0;
    if (v1_teams_read(call, out, err) < 0)
        return -1;
    if (str_is(wanted, "*")) {
        if (sees_all(call))
            out->caller.team_id = STR_NONE;
        return 0;
    }
    for (size_t i = 0; i < out->count; i++)
        if (str_eq(wanted, out->items[i].id) || str_eq(wanted, out->items[i].name)) {
            out->caller.team_id = out->items[i].id;
            return 0;
        }
    if (sees_all(call))
        return error_set(err, ERROR_NOT_FOUND, "team '%.*s' not found", STR_ARG(wanted));
    return error_set(err, ERROR_FORBIDDEN,
                     "what other teams have is for API keys of the operator's team");
}

struct str v1_teams_name(const struct v1_teams *teams, struct str id)
{
    for (size_t i = 0; i < teams->count; i++)
        if (str_eq(teams->items[i].id, id))
            return teams->items[i].name;
    return id;
}

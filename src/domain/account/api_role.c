/* What API keys may do, by their names. */
#include "domain/account/api_key.h"
#include "domain/account/team.h"

static const char *const names[] = {"", "member", "viewer", "metrics"};

bool api_role_stored(struct str stored, enum api_role *out)
{
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (str_is(stored, names[i])) {
            *out = i;
            return true;
        }
    return false;
}

const char *api_role_store(enum api_role role)
{
    return names[role];
}

const char *api_role_name(enum api_role role, struct str team_id)
{
    if (role == API_ROLE_FULL)
        return str_is(team_id, TEAM_DEFAULT_ID) ? "operator" : "member";
    return names[role];
}

static int unknown(struct error *err)
{
    return error_set(err, ERROR_INVALID, "'role' must be operator, member, viewer or metrics");
}

int api_role_give(enum api_role giver, struct str team_id, struct str wanted, enum api_role *out,
                  struct error *err)
{
    bool operators = str_is(team_id, TEAM_DEFAULT_ID);

    *out = giver;
    if (!wanted.len)
        return 0;
    if (str_is(wanted, "operator"))
        *out = API_ROLE_FULL;
    else if (!api_role_stored(wanted, out))
        return unknown(err);
    /* Of another team, all that the team may is what a member is. */
    if (*out == API_ROLE_MEMBER && !operators)
        *out = API_ROLE_FULL;
    if ((str_is(wanted, "operator") || *out == API_ROLE_METRICS) && !operators)
        return error_set(err, ERROR_INVALID,
                         "the role '%.*s' is for API keys of the operator's team", STR_ARG(wanted));
    if (giver != API_ROLE_FULL && (*out == API_ROLE_FULL || *out == API_ROLE_METRICS))
        return error_set(err, ERROR_FORBIDDEN,
                         "an API key of the role '%s' cannot make one of the role '%.*s'",
                         names[giver], STR_ARG(wanted));
    return 0;
}

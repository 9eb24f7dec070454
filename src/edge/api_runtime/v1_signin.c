/* The way of browsers in: an API key, or a link that works once, is changed for a cookie (edge/call/call_cookie.c). */
#include "domain/account/signin.h"
#include "domain/account/team.h"
#include "edge/api_runtime/v1_internal.h"
#include "protocol/json/json_shape.h"

static void give_cookie(struct v1_call *call, struct str token, int64_t seconds)
{
    call_header(&call->call, "Set-Cookie",
                call_cookie_header(call->secure, token, seconds, &call->arena));
    call_header(&call->call, "Cache-Control", STR("no-store"));
}

int v1_signin_open(struct v1_call *call, struct error *err)
{
    char token[SIGNIN_TOKEN_SIZE];

    if (signin_browser(call->v1->config.store, call->key, token, err) < 0)
        return -1;
    give_cookie(call, arena_str(&call->arena, str_of(token)), SIGNIN_BROWSER_S);
    call_answer(&call->call, 201, json_pack("{s:i}", "expires_in", SIGNIN_BROWSER_S));
    return 0;
}

int v1_signin_redeem(struct v1_call *call, struct error *err)
{
    char token[SIGNIN_TOKEN_SIZE];

    if (signin_redeem(call->v1->config.store, call->signin_link, token, err) < 0)
        return -1;
    give_cookie(call, arena_str(&call->arena, str_of(token)), SIGNIN_BROWSER_S);
    call_answer(&call->call, 201, json_pack("{s:i}", "expires_in", SIGNIN_BROWSER_S));
    return 0;
}

static json_t *or_null(struct str text)
{
    return text.len ? json_str(text) : json_null();
}

int v1_signin_show(struct v1_call *call, struct error *err)
{
    const char *role = api_role_name(call->role, call->team_id);
    struct store_team team = {0};

    if (team_get(call->v1->config.store, call->team_id, &call->arena, &team, err) < 0)
        return -1;
    call_header(&call->call, "Cache-Control", STR("no-store"));
    call_answer(&call->call, 200,
                json_pack("{s:o,s:o,s:s,s:o,s:o,s:o,s:s}", "team_id", json_str(call->team_id),
                          "team", json_str(team.name), "role", role, "key_name",
                          json_str(call->key_name.len ? call->key_name : STR("configuration")),
                          "agent_id", or_null(call->key_agent), "sandbox_id",
                          or_null(call->key_sandbox), "version", QUICKSAND_VERSION));
    return 0;
}

int v1_signin_end(struct v1_call *call, struct error *err)
{
    if (signin_end(call->v1->config.store, call->key, err) < 0)
        return -1;
    api_keys_refresh(call->v1->config.keys);
    give_cookie(call, STR(""), 0);
    call_answer(&call->call, 204, NULL);
    return 0;
}

int v1_signin_link(struct v1_call *call, struct error *err)
{
    char link[SIGNIN_TOKEN_SIZE];

    if (signin_link(call->v1->config.store, call->key, link, err) < 0)
        return -1;
    call_header(&call->call, "Cache-Control", STR("no-store"));
    call_answer(&call->call, 201,
                json_pack("{s:s,s:o,s:i}", "link", link, "path",
                          json_str(str_of(arena_printf(&call->arena, "/#enter=%s", link))),
                          "expires_in", SIGNIN_LINK_S));
    return 0;
}

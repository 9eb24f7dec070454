/* The MCP servers of a session's agent: its own ones, as the agent's protocol wants them, and the gateway of the sandbox for those that
 * are packages or repositories. */
#include "protocol/json/json_shape.h"
#include "runtime/backend/profile.h"
#include "runtime/sandbox/equip.h"
#include "runtime/session/session_internal.h"

#define GATEWAY_URL "http://127.0.0.1:50005/mcp"

static void tell_failed(struct live_session *live, const struct error *err)
{
    session_tell(live, "agent.runtime.error",
                 json_pack("{s:s,s:o}", "step", "mcp", "message", json_str(str_of(err->message))));
}

static json_t *variables(const json_t *env)
{
    json_t *out = json_array(), *text;
    const char *name;

    json_object_foreach ((json_t *)(uintptr_t)env, name, text)
        (void)json_array_append_new(out, json_pack("{s:s,s:O}", "name", name, "value", text));
    return out;
}

/* {"name": {"command", "args", "env": {..}}} as ACP wants it; an array is taken as it is. */
static json_t *own_servers(const json_t *mcp)
{
    json_t *out, *value;
    const char *name;

    if (json_is_array(mcp))
        return json_deep_copy(mcp);
    out = json_array();
    json_object_foreach ((json_t *)(uintptr_t)mcp, name, value) {
        json_t *server;

        if (profile_of_gateway(name))
            continue;
        server = json_deep_copy(value);
        (void)json_object_set_new(server, "name", json_string(name));
        if (json_object_get(server, "command")) {
            (void)json_object_set_new(server, "env", variables(json_object_get(value, "env")));
            if (!json_object_get(server, "args"))
                (void)json_object_set_new(server, "args", json_array());
        }
        (void)json_array_append_new(out, server);
    }
    return out;
}

static int gateway_token(struct live_session *live, const json_t *servers, struct arena *arena,
                         struct str *out, struct error *err)
{
    struct equip_place place = {.runtime = live->runtime, .team_id = live->caller.team_id};
    struct runtime_use use;

    if (runtime_use(live->runtime, &live->caller, live->row.sandbox_id, PROVIDER_EXEC, arena, &use,
                    err) < 0)
        return -1;
    if (provider_caps(use.provider)->isolation == ISOLATION_NONE)
        return error_set(err, ERROR_UNSUPPORTED,
                         "plain processes have no MCP gateway: it needs a sandbox of its own");
    place.provider = use.provider;
    place.ref = use.ref;
    return equip_gateway(&place, servers, arena, out, err);
}

/* A gateway that does not start leaves the agent with its other servers; the session tells why. */
static void add_gateway(struct live_session *live, const json_t *servers, json_t *out)
{
    auto_arena struct arena arena = {0};
    struct error err = {0};
    struct str token = STR_NONE;

    if (gateway_token(live, servers, &arena, &token, &err) < 0) {
        tell_failed(live, &err);
        return;
    }
    runtime_secret_add(live->runtime, live->caller.team_id, token);
    (void)json_array_append_new(
        out, json_pack("{s:s, s:s, s:s, s:[{s:s, s:o}]}", "type", "http", "name", "gateway", "url",
                       GATEWAY_URL, "headers", "name", "Authorization", "value",
                       json_str(str_of(arena_printf(&arena, "Bearer %.*s", STR_ARG(token))))));
}

json_t *session_mcp_servers(struct live_session *live)
{
    struct runtime_overrides overrides = live->overrides;
    auto_arena struct arena arena = {0};
    auto_json json_t *gateway = NULL;
    struct profile profile;
    struct error err = {0};
    json_t *servers;

    if (!overrides.profile.p && live->row.profile.len)
        overrides.profile = live->row.profile;
    if (json_is_array(overrides.mcp))
        return own_servers(overrides.mcp);
    if (profile_resolve(live->runtime, &live->caller, &overrides, &arena, &profile, &err) < 0) {
        tell_failed(live, &err);
        return own_servers(overrides.mcp);
    }
    servers = own_servers(profile.mcp);
    gateway = profile_gateway(profile.tree);
    profile_done(&profile);
    if (gateway)
        add_gateway(live, gateway, servers);
    return servers;
}

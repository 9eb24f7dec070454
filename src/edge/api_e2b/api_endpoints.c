/* The table of all endpoints, and the search in it.
 *
 * Rows with a literal segment stand before rows with {..} at the same place; the first match wins.
 * Paths are compared as they came: nothing is normalised, so ".." or an escaped slash can only ever
 * be (part of) a parameter, and parameters are checked by the handlers. */
#include "edge/api_e2b/api_internal.h"

#define SMALL (64 * 1024)
/* clang-format off */
/* Without a lane: asks nothing but memory and the store. WORK may wait for the engine or an agent. */
#define WORK   .lane = API_LANE_WORK
#define CREATE .lane = API_LANE_CREATE
#define ROUTE(m, p, h, ...)   {.method = (m), .pattern = (p), .handler = (h), .body_max = SMALL, __VA_ARGS__}
#define BOX(m, p, h, ...)     {.method = (m), .pattern = (p), .handler = (h), .body_max = SMALL, \
                               .scope = API_SCOPE_BOX, __VA_ARGS__}
#define OWN(m, p, h, ...)     {.method = (m), .pattern = (p), .handler = (h), .body_max = SMALL, \
                               .scope = API_SCOPE_OWN, __VA_ARGS__}
#define AGENT(m, p, h, ...)   {.method = (m), .pattern = (p), .handler = (h), .body_max = API_BODY_MAX, \
                               .scope = API_SCOPE_AGENT, __VA_ARGS__}
#define ANY(m, p, h, ...)     {.method = (m), .pattern = (p), .handler = (h), .body_max = SMALL, \
                               .scope = API_SCOPE_ANY, __VA_ARGS__}
#define ADMIN(m, p, h, ...)   {.method = (m), .pattern = (p), .handler = (h), .body_max = SMALL, \
                               .auth = API_AUTH_OPERATOR, __VA_ARGS__}
#define MISSING(m, p, what)   {.method = (m), .pattern = (p), .handler = api_unsupported, \
                               .body_max = API_BODY_MAX, .feature = (what)}

const struct api_endpoint api_endpoints[] = {
    AGENT("POST", "/sandboxes", api_sandboxes_create, CREATE),
    AGENT("POST", "/v2/sandboxes", api_sandboxes_create_v2, CREATE),
    AGENT("GET", "/sandboxes", api_sandboxes_list),
    AGENT("GET", "/v2/sandboxes", api_sandboxes_list_v2),
    ROUTE("GET", "/sandboxes/metrics", api_metrics_sandboxes, WORK),
    BOX("GET", "/sandboxes/{id}", api_sandboxes_get),
    BOX("DELETE", "/sandboxes/{id}", api_sandboxes_kill, WORK),
    BOX("POST", "/sandboxes/{id}/timeout", api_sandboxes_timeout),
    BOX("POST", "/sandboxes/{id}/refreshes", api_sandboxes_refresh),
    BOX("POST", "/sandboxes/{id}/connect", api_sandboxes_connect, WORK),
    BOX("POST", "/v2/sandboxes/{id}/connect", api_sandboxes_connect_v2, WORK),
    BOX("POST", "/sandboxes/{id}/resume", api_sandboxes_resume, WORK),
    BOX("POST", "/sandboxes/{id}/pause", api_sandboxes_pause, WORK),
    OWN("POST", "/sandboxes/{id}/fork", api_sandboxes_fork, CREATE),
    OWN("POST", "/sandboxes/{id}/snapshots", api_snapshots_create, WORK),
    BOX("GET", "/sandboxes/{id}/metrics", api_metrics_sandbox, WORK),
    BOX("GET", "/sandboxes/{id}/logs", api_history_logs, WORK),
    BOX("GET", "/v2/sandboxes/{id}/logs", api_history_logs_v2, WORK),
    ROUTE("POST", "/events/webhooks", api_webhooks_create),
    ROUTE("GET", "/events/webhooks", api_webhooks_list),
    ROUTE("GET", "/events/webhooks/{id}", api_webhooks_get),
    ROUTE("PATCH", "/events/webhooks/{id}", api_webhooks_change),
    ROUTE("DELETE", "/events/webhooks/{id}", api_webhooks_delete),
    ADMIN("GET", "/metrics", api_monitor),
    ROUTE("GET", "/events/sandboxes", api_history_events),
    BOX("GET", "/events/sandboxes/{id}", api_history_sandbox_events),
    OWN("PUT", "/sandboxes/{id}/network", api_sandboxes_network, WORK),
    ROUTE("GET", "/snapshots", api_snapshots_list),

    ANY("GET", "/templates", api_templates_list),
    ANY("GET", "/templates/aliases/{alias}", api_templates_alias),
    MISSING("POST", "/templates", "building templates"),
    MISSING("POST", "/v2/templates", "building templates"),
    MISSING("POST", "/v3/templates", "building templates"),
    MISSING("POST", "/templates/tags", "template tags"),
    MISSING("DELETE", "/templates/tags", "template tags"),
    MISSING("GET", "/templates/{id}", "template details"),
    MISSING("PATCH", "/templates/{id}", "changing templates"),
    MISSING("PATCH", "/v2/templates/{id}", "changing templates"),
    ROUTE("DELETE", "/templates/{id}", api_templates_delete, WORK),
    MISSING("POST", "/templates/{id}", "building templates"),
    MISSING("GET", "/templates/{id}/tags", "template tags"),
    MISSING("GET", "/templates/{id}/files/{hash}", "building templates"),
    MISSING("POST", "/templates/{id}/builds/{build}", "building templates"),
    MISSING("POST", "/v2/templates/{id}/builds/{build}", "building templates"),
    ANY("GET", "/templates/{id}/builds/{build}/status", api_templates_build),

    ROUTE("GET", "/teams", api_teams_list),
    ROUTE("GET", "/api-keys", api_keys_list),
    ROUTE("POST", "/api-keys", api_keys_create),
    ROUTE("PATCH", "/api-keys/{id}", api_keys_rename),
    ROUTE("DELETE", "/api-keys/{id}", api_keys_delete),
    ROUTE("POST", "/access-tokens", api_tokens_create),
    ROUTE("DELETE", "/access-tokens/{id}", api_tokens_delete),
    ROUTE("GET", "/audit", api_audit_list),
    ADMIN("GET", "/admin/teams", api_admin_teams),
    ADMIN("POST", "/admin/teams", api_admin_team_create),
    ADMIN("PATCH", "/admin/teams/{id}", api_admin_team_change),
    ADMIN("POST", "/admin/teams/{id}/api-keys", api_admin_key_create),
    ROUTE("GET", "/teams/{id}/metrics", api_metrics_team),
    ROUTE("GET", "/teams/{id}/metrics/max", api_metrics_team_max),
    ROUTE("GET", "/volumes", api_volumes_list),
    ROUTE("POST", "/volumes", api_volumes_create, WORK),
    ROUTE("GET", "/volumes/{id}", api_volumes_get),
    ROUTE("DELETE", "/volumes/{id}", api_volumes_delete, WORK),
    MISSING("GET", "/secrets", "secrets"),
    MISSING("POST", "/secrets", "secrets"),
    MISSING("GET", "/secrets/{id}", "secrets"),
    MISSING("POST", "/secrets/{id}", "secrets"),
    MISSING("DELETE", "/secrets/{id}", "secrets"),
    {.method = NULL},
};
/* clang-format on */

enum api_match api_endpoints_find(struct str method, struct str path, struct arena *arena,
                                  const struct api_endpoint **out,
                                  struct str params[API_PARAMS_MAX], char allow[HTTP_ALLOW_SIZE])
{
    if (str_is(method, "HEAD"))
        method = STR("GET");
    allow[0] = '\0';
    for (const struct api_endpoint *endpoint = api_endpoints; endpoint->method; endpoint++) {
        struct str raw[API_PARAMS_MAX] = {STR_NONE, STR_NONE};

        if (!http_path_match(endpoint->pattern, path, raw, API_PARAMS_MAX))
            continue;
        if (!str_is(method, endpoint->method)) {
            http_allow_add(allow, endpoint->method);
            if (str_is(str_of(endpoint->method), "GET"))
                http_allow_add(allow, "HEAD");
            continue;
        }
        if (!http_path_decode(raw, API_PARAMS_MAX, arena, params))
            return API_MATCH_NO_PATH;
        *out = endpoint;
        return API_MATCH_FOUND;
    }
    if (!allow[0])
        return API_MATCH_NO_PATH;
    http_allow_add(allow, "OPTIONS");
    return API_MATCH_NO_METHOD;
}

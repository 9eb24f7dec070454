/* The table of all endpoints. Rows with a literal segment stand before rows with {..} at the same place; the
 * first match wins. Parameters are checked by the handlers. */
#include "edge/api_e2b/api_internal.h"

#define SMALL (64 * 1024)
/* clang-format off */
/* Without a lane: asks nothing but memory and the store. WORK may wait for the engine or an envd. */
#define WORK   .lane = API_LANE_WORK
#define CREATE .lane = API_LANE_CREATE
#define TEAM(m, p, h, ...)     {.is = {.method = (m), .pattern = (p)}, .handler = (h), .body_max = SMALL, __VA_ARGS__}
#define BOX(m, p, h, ...)     {.is = {.method = (m), .pattern = (p)}, .handler = (h), .body_max = SMALL, \
                               .scope = API_SCOPE_BOX, __VA_ARGS__}
#define OWN(m, p, h, ...)     {.is = {.method = (m), .pattern = (p)}, .handler = (h), .body_max = SMALL, \
                               .scope = API_SCOPE_OWN, __VA_ARGS__}
#define AGENT(m, p, h, ...)   {.is = {.method = (m), .pattern = (p)}, .handler = (h), .body_max = API_BODY_MAX, \
                               .scope = API_SCOPE_AGENT, __VA_ARGS__}
#define ANY(m, p, h, ...)     {.is = {.method = (m), .pattern = (p)}, .handler = (h), .body_max = SMALL, \
                               .scope = API_SCOPE_ANY, __VA_ARGS__}
#define ADMIN(m, p, h, ...)   {.is = {.method = (m), .pattern = (p)}, .handler = (h), .body_max = SMALL, \
                               .auth = API_AUTH_OPERATOR, __VA_ARGS__}
#define MISSING(m, p, what)   {.is = {.method = (m), .pattern = (p)}, .handler = api_unsupported, \
                               .body_max = API_BODY_MAX, .feature = (what)}

const struct api_endpoint api_endpoints[] = {
    AGENT("POST", "/sandboxes", api_sandboxes_create, CREATE),
    AGENT("POST", "/v2/sandboxes", api_sandboxes_create_v2, CREATE),
    AGENT("GET", "/sandboxes", api_sandboxes_list),
    AGENT("GET", "/v2/sandboxes", api_sandboxes_list_v2),
    TEAM("GET", "/sandboxes/metrics", api_metrics_sandboxes, WORK),
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
    TEAM("POST", "/events/webhooks", api_webhooks_create),
    TEAM("GET", "/events/webhooks", api_webhooks_list),
    TEAM("GET", "/events/webhooks/{id}", api_webhooks_get),
    TEAM("PATCH", "/events/webhooks/{id}", api_webhooks_change),
    TEAM("DELETE", "/events/webhooks/{id}", api_webhooks_delete),
    ADMIN("GET", "/metrics", api_monitor),
    TEAM("GET", "/events/sandboxes", api_history_events),
    BOX("GET", "/events/sandboxes/{id}", api_history_sandbox_events),
    OWN("PUT", "/sandboxes/{id}/network", api_sandboxes_network, WORK),
    TEAM("GET", "/snapshots", api_snapshots_list),

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
    TEAM("DELETE", "/templates/{id}", api_templates_delete, WORK),
    MISSING("POST", "/templates/{id}", "building templates"),
    MISSING("GET", "/templates/{id}/tags", "template tags"),
    MISSING("GET", "/templates/{id}/files/{hash}", "building templates"),
    MISSING("POST", "/templates/{id}/builds/{build}", "building templates"),
    MISSING("POST", "/v2/templates/{id}/builds/{build}", "building templates"),
    ANY("GET", "/templates/{id}/builds/{build}/status", api_templates_build),

    TEAM("GET", "/teams", api_teams_list),
    TEAM("GET", "/api-keys", api_keys_list),
    TEAM("POST", "/api-keys", api_keys_create),
    TEAM("PATCH", "/api-keys/{id}", api_keys_rename),
    TEAM("DELETE", "/api-keys/{id}", api_keys_delete),
    TEAM("POST", "/access-tokens", api_tokens_create),
    TEAM("DELETE", "/access-tokens/{id}", api_tokens_delete),
    TEAM("GET", "/audit", api_audit_list),
    ADMIN("GET", "/admin/teams", api_admin_teams),
    ADMIN("POST", "/admin/teams", api_admin_team_create),
    ADMIN("PATCH", "/admin/teams/{id}", api_admin_team_change),
    ADMIN("POST", "/admin/teams/{id}/api-keys", api_admin_key_create),
    TEAM("GET", "/teams/{id}/metrics", api_metrics_team),
    TEAM("GET", "/teams/{id}/metrics/max", api_metrics_team_max),
    TEAM("GET", "/volumes", api_volumes_list),
    TEAM("POST", "/volumes", api_volumes_create, WORK),
    TEAM("GET", "/volumes/{id}", api_volumes_get),
    TEAM("DELETE", "/volumes/{id}", api_volumes_delete, WORK),
    MISSING("GET", "/secrets", "secrets"),
    MISSING("POST", "/secrets", "secrets"),
    MISSING("GET", "/secrets/{id}", "secrets"),
    MISSING("POST", "/secrets/{id}", "secrets"),
    MISSING("DELETE", "/secrets/{id}", "secrets"),
    {.is = {.method = NULL}},
};
/* clang-format on */

enum call_match api_endpoints_find(struct str method, struct str path, struct arena *arena,
                                   const struct api_endpoint **out,
                                   struct str params[CALL_PARAMS_MAX], char allow[HTTP_ALLOW_SIZE])
{
    const struct call_endpoint *found = NULL;
    enum call_match match = call_endpoint_find(&api_endpoints[0].is, sizeof(api_endpoints[0]),
                                               method, path, arena, &found, params, allow);

    *out = (const struct api_endpoint *)found;
    return match;
}

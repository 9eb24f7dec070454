/* The table of all endpoints. Rows with a literal segment stand before rows with {..} at the same place; the
 * first match wins. Parameters are checked by the handlers. */
#include "edge/api_e2b/api_internal.h"

#define SMALL (64 * 1024)
/* clang-format off */
/* Without a lane: asks nothing but memory and the store. */
#define LIST    .lane = API_LANE_LIST
#define CONTROL .lane = API_LANE_CONTROL
#define LONG    .lane = API_LANE_LONG
#define CREATE  .lane = API_LANE_CREATE, .creates = true
#define FORK    .lane = API_LANE_WAIT, .creates = true
#define CANCELS .cancels = true
#define TEAM(m, p, h, ...)     {.is = {.method = (m), .pattern = (p)}, .handler = (h), .body_max = SMALL, __VA_ARGS__}
#define LARGE(m, p, h, ...)   {.is = {.method = (m), .pattern = (p)}, .handler = (h), .body_max = API_BODY_MAX, __VA_ARGS__}
#define BOX(m, p, h, ...)     {.is = {.method = (m), .pattern = (p)}, .handler = (h), .body_max = SMALL, \
                               .scope = API_SCOPE_BOX, __VA_ARGS__}
#define OWN(m, p, h, ...)     {.is = {.method = (m), .pattern = (p)}, .handler = (h), .body_max = SMALL, \
                               .scope = API_SCOPE_OWN, __VA_ARGS__}
#define AGENT(m, p, h, ...)   {.is = {.method = (m), .pattern = (p)}, .handler = (h), .body_max = API_BODY_MAX, \
                               .scope = API_SCOPE_AGENT, __VA_ARGS__}
#define ADMIN(m, p, h, ...)   {.is = {.method = (m), .pattern = (p)}, .handler = (h), .body_max = SMALL, \
                               .auth = API_AUTH_OPERATOR, __VA_ARGS__}
#define LINK(m, p, h, ...)    {.is = {.method = (m), .pattern = (p)}, .handler = (h), .auth = API_AUTH_LINK, \
                               .scope = API_SCOPE_ANY, __VA_ARGS__}

const struct api_endpoint api_endpoints[] = {
    AGENT("POST", "/sandboxes", api_sandboxes_create, CREATE),
    AGENT("POST", "/v2/sandboxes", api_sandboxes_create_v2, CREATE),
    AGENT("GET", "/sandboxes", api_sandboxes_list, LIST),
    AGENT("GET", "/v2/sandboxes", api_sandboxes_list_v2, LIST),
    TEAM("GET", "/sandboxes/metrics", api_metrics_sandboxes, CONTROL),
    BOX("GET", "/sandboxes/{id}", api_sandboxes_get, LIST),
    BOX("DELETE", "/sandboxes/{id}", api_sandboxes_kill, CONTROL),
    BOX("POST", "/sandboxes/{id}/timeout", api_sandboxes_timeout),
    BOX("POST", "/sandboxes/{id}/refreshes", api_sandboxes_refresh),
    BOX("POST", "/sandboxes/{id}/connect", api_sandboxes_connect, CONTROL),
    BOX("POST", "/v2/sandboxes/{id}/connect", api_sandboxes_connect_v2, CONTROL),
    BOX("POST", "/sandboxes/{id}/resume", api_sandboxes_resume, CONTROL),
    BOX("POST", "/sandboxes/{id}/pause", api_sandboxes_pause, CONTROL),
    OWN("POST", "/sandboxes/{id}/fork", api_sandboxes_fork, FORK),
    OWN("POST", "/sandboxes/{id}/snapshots", api_snapshots_create, LONG),
    BOX("GET", "/sandboxes/{id}/metrics", api_metrics_sandbox, CONTROL),
    BOX("GET", "/sandboxes/{id}/logs", api_history_logs, CONTROL),
    BOX("GET", "/v2/sandboxes/{id}/logs", api_history_logs_v2, CONTROL),
    TEAM("POST", "/events/webhooks", api_webhooks_create),
    TEAM("GET", "/events/webhooks", api_webhooks_list),
    TEAM("GET", "/events/webhooks/{id}", api_webhooks_get),
    TEAM("PATCH", "/events/webhooks/{id}", api_webhooks_change),
    TEAM("DELETE", "/events/webhooks/{id}", api_webhooks_delete),
    TEAM("GET", "/events/webhooks/{id}/deliveries", api_webhooks_deliveries),
    TEAM("POST", "/events/webhooks/{id}/test", api_webhooks_test, LONG, CANCELS),
    ADMIN("GET", "/metrics", api_monitor),
    TEAM("GET", "/events/sandboxes", api_history_events),
    BOX("GET", "/events/sandboxes/{id}", api_history_sandbox_events),
    OWN("PUT", "/sandboxes/{id}/network", api_sandboxes_network, CONTROL),
    TEAM("GET", "/snapshots", api_snapshots_list),

    AGENT("GET", "/templates", api_templates_list),
    AGENT("GET", "/v2/templates", api_templates_list_v2),
    AGENT("GET", "/templates/aliases/{alias}", api_templates_alias),
    LARGE("POST", "/templates", api_builds_old),
    TEAM("POST", "/v2/templates", api_builds_create),
    TEAM("POST", "/v3/templates", api_builds_create),
    TEAM("POST", "/templates/tags", api_tags_assign),
    TEAM("DELETE", "/templates/tags", api_tags_delete, LONG),
    LINK("PUT", "/templates/uploads/{hash}", api_build_files_upload, LONG),
    TEAM("GET", "/templates/{id}", api_templates_get),
    TEAM("PATCH", "/templates/{id}", api_templates_change),
    TEAM("PATCH", "/v2/templates/{id}", api_templates_change_v2),
    TEAM("DELETE", "/templates/{id}", api_templates_delete, LONG),
    LARGE("POST", "/templates/{id}", api_builds_old),
    TEAM("GET", "/templates/{id}/tags", api_tags_list),
    TEAM("GET", "/templates/{id}/settings", api_templates_settings),
    TEAM("GET", "/templates/{id}/layer", api_templates_layer, LONG, CANCELS),
    TEAM("GET", "/templates/{id}/files/{hash}", api_build_files_link, .reveals = true),
    LARGE("POST", "/templates/{id}/builds/{build}", api_builds_start, LONG),
    LARGE("POST", "/v2/templates/{id}/builds/{build}", api_builds_start, LONG),
    TEAM("DELETE", "/templates/{id}/builds/{build}", api_builds_cancel, LONG),
    TEAM("POST", "/templates/{id}/builds/{build}/cancel", api_builds_cancel, LONG),
    TEAM("GET", "/templates/{id}/builds/{build}/status", api_builds_status),
    TEAM("GET", "/templates/{id}/builds/{build}/logs", api_builds_logs),
    TEAM("GET", "/registries", api_registries_list),
    TEAM("PUT", "/registries/{host}", api_registries_put),
    TEAM("DELETE", "/registries/{host}", api_registries_delete),

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
    TEAM("POST", "/volumes", api_volumes_create, LONG),
    TEAM("GET", "/volumes/{id}", api_volumes_get, .reveals = true),
    TEAM("GET", "/volumes/{id}/usage", api_volumes_usage, LONG),
    TEAM("DELETE", "/volumes/{id}", api_volumes_delete, LONG),
    TEAM("GET", "/secrets", api_secrets_list),
    TEAM("POST", "/secrets", api_secrets_create),
    TEAM("GET", "/secrets/{id}", api_secrets_get),
    TEAM("POST", "/secrets/{id}", api_secrets_change, LONG),
    TEAM("DELETE", "/secrets/{id}", api_secrets_delete, LONG),
    {.is = {.method = NULL}},
};
/* clang-format on */

const char *api_lane_name(enum api_lane lane)
{
    static const char *const names[] = {
        [API_LANE_QUICK] = "quick",   [API_LANE_LIST] = "list", [API_LANE_CONTROL] = "control",
        [API_LANE_CREATE] = "create", [API_LANE_WAIT] = "wait", [API_LANE_LONG] = "long",
    };

    return names[lane];
}

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

/* The table of the core's endpoints, and those that extras add. The first match wins. Without V1_CONTROL or V1_PUBLIC an
 * endpoint is of the work lane. */
#include <assert.h>

#include "edge/api_runtime/v1_internal.h"
#include "edge/api_runtime/v1_members.h"

enum { TABLES_MAX = 16 };

/* clang-format off */
const struct v1_endpoint v1_endpoints[] = {
    {{"GET", "/health"}, v1_health, V1_PUBLIC},
    {{"GET", "/openapi.json"}, v1_openapi, V1_PUBLIC},
    {{"GET", "/stats"}, v1_stats, V1_TEAM | V1_CONTROL},
    {{"GET", "/usage"}, v1_usage, V1_TEAM | V1_CONTROL},
    {{"GET", "/history"}, v1_history, V1_TEAM | V1_CONTROL},
    {{"GET", "/settings"}, v1_settings, V1_TEAM | V1_CONTROL},
    {{"POST", "/prune"}, v1_prune, 0, v1_members_prune},

    {{"POST", "/signin"}, v1_signin_open, V1_SCOPED | V1_ANY_ROLE | V1_CONTROL},
    {{"GET", "/signin"}, v1_signin_show, V1_SCOPED | V1_ANY_ROLE | V1_CONTROL},
    {{"DELETE", "/signin"}, v1_signin_end, V1_SCOPED | V1_ANY_ROLE | V1_CONTROL},
    {{"POST", "/signin/redeem"}, v1_signin_redeem, V1_PUBLIC},
    {{"POST", "/signin/links"}, v1_signin_link, V1_SCOPED | V1_ANY_ROLE | V1_CONTROL},

    {{"GET", "/providers"}, v1_providers_list, V1_CONTROL},
    {{"POST", "/providers"}, v1_providers_register, V1_TEAM | V1_CONTROL, v1_members_runner},
    {{"GET", "/providers/{name}"}, v1_providers_get, V1_CONTROL},
    {{"DELETE", "/providers/{name}"}, v1_providers_remove, V1_TEAM | V1_CONTROL},
    {{"POST", "/providers/{name}/heartbeat"}, v1_providers_heartbeat, V1_TEAM | V1_CONTROL, v1_members_heartbeat},

    {{"GET", "/profiles"}, v1_profiles_list, V1_CONTROL},
    {{"GET", "/profiles/{name}"}, v1_profiles_get, V1_CONTROL},
    {{"PUT", "/profiles/{name}"}, v1_profiles_put, V1_TEAM | V1_CONTROL, v1_members_any},
    {{"DELETE", "/profiles/{name}"}, v1_profiles_delete, V1_TEAM | V1_CONTROL},
    {{"POST", "/profiles/{name}/validate"}, v1_profiles_validate, V1_CONTROL, v1_members_any},

    {{"POST", "/sandboxes"}, v1_sandboxes_create, 0, v1_members_sandbox},
    {{"GET", "/sandboxes"}, v1_sandboxes_list, V1_CONTROL},
    {{"GET", "/sandboxes/{id}"}, v1_sandboxes_get, V1_BOX | V1_CONTROL},
    {{"DELETE", "/sandboxes/{id}"}, v1_sandboxes_delete, V1_BOX | V1_CONTROL},
    {{"POST", "/sandboxes/{id}/pause"}, v1_sandboxes_pause, V1_BOX | V1_CONTROL},
    {{"POST", "/sandboxes/{id}/resume"}, v1_sandboxes_resume, V1_BOX | V1_CONTROL},
    {{"POST", "/sandboxes/{id}/snapshots"}, v1_snapshots_create, 0, v1_members_snapshot},
    {{"GET", "/sandboxes/{id}/snapshots"}, v1_snapshots_of, V1_CONTROL},
    {{"POST", "/sandboxes/{id}/execute"}, v1_execute, V1_BOX, v1_members_execute},
    {{"GET", "/sandboxes/{id}/executions"}, v1_executions_list, V1_BOX | V1_CONTROL},
    {{"GET", "/sandboxes/{id}/executions/{execution}"}, v1_executions_get, V1_BOX | V1_CONTROL},
    {{"GET", "/sandboxes/{id}/files", true}, v1_files_get, V1_STREAM | V1_BOX},
    {{"PUT", "/sandboxes/{id}/files"}, v1_files_put, V1_RAW | V1_BOX, .file_max = V1_FILE_MAX},
    {{"DELETE", "/sandboxes/{id}/files"}, v1_files_delete, V1_BOX},
    {{"GET", "/sandboxes/{id}/ports/{port}"}, v1_sandboxes_port, V1_BOX | V1_REVEALS | V1_CONTROL},
    {{"GET", "/sandboxes/{id}/metrics"}, v1_sandboxes_metrics, V1_BOX | V1_CONTROL},
    {{"GET", "/sandboxes/{id}/network"}, v1_sandboxes_network, V1_BOX | V1_CONTROL},
    {{"GET", "/sandboxes/{id}/processes"}, v1_processes_list, V1_BOX | V1_CONTROL},
    {{"GET", "/sandboxes/{id}/processes/{process}"}, v1_processes_get, V1_BOX | V1_CONTROL},
    {{"GET", "/sandboxes/{id}/processes/{process}/logs", true}, v1_processes_logs, V1_STREAM | V1_BOX},
    {{"POST", "/sandboxes/{id}/processes/{process}/input"}, v1_processes_input, V1_QUIET | V1_BOX, v1_members_input},
    {{"PUT", "/sandboxes/{id}/processes/{process}/input"}, v1_processes_stdin, V1_RAW | V1_QUIET | V1_BOX},
    {{"POST", "/sandboxes/{id}/processes/{process}/signal"}, v1_processes_signal, V1_BOX | V1_CONTROL, v1_members_signal},
    {{"POST", "/sandboxes/{id}/processes/{process}/stop"}, v1_processes_stop, V1_BOX | V1_CONTROL},
    {{"GET", "/sandboxes/{id}/terminal", true}, v1_terminal_sandbox, V1_UPGRADE | V1_BOX},
    {{"POST", "/sandboxes/{id}/keys"}, v1_sandboxes_key, V1_CONTROL, v1_members_key},

    {{"GET", "/snapshots"}, v1_snapshots_list, V1_CONTROL},
    {{"GET", "/snapshots/{id}"}, v1_snapshots_get, V1_CONTROL},
    {{"DELETE", "/snapshots/{id}"}, v1_snapshots_delete, V1_CONTROL},

    {{"POST", "/sessions"}, v1_sessions_create, 0, v1_members_session},
    {{"GET", "/sessions"}, v1_sessions_list, V1_CONTROL},
    {{"GET", "/sessions/{id}"}, v1_sessions_get, V1_CONTROL},
    {{"DELETE", "/sessions/{id}"}, v1_sessions_delete, V1_CONTROL},
    {{"POST", "/sessions/{id}/messages"}, v1_sessions_message, 0, v1_members_message},
    {{"POST", "/sessions/{id}/pause"}, v1_sessions_pause, V1_CONTROL},
    {{"POST", "/sessions/{id}/resume"}, v1_sessions_resume, V1_CONTROL},
    {{"POST", "/sessions/{id}/interrupt"}, v1_sessions_interrupt, V1_CONTROL},
    {{"POST", "/sessions/{id}/cancel"}, v1_sessions_cancel, V1_CONTROL, v1_members_cancel},
    {{"POST", "/sessions/{id}/snapshot"}, v1_sessions_snapshot, 0, v1_members_snapshot},
    {{"POST", "/sessions/{id}/approve"}, v1_sessions_approve, V1_CONTROL, v1_members_approve},
    {{"POST", "/sessions/{id}/push"}, v1_sessions_push, 0, v1_members_push},
    {{"GET", "/sessions/{id}/history"}, v1_sessions_history, 0},
    {{"GET", "/sessions/{id}/changes"}, v1_sessions_changes, 0},
    {{"GET", "/sessions/{id}/events"}, v1_sessions_events, V1_CONTROL},
    {{"GET", "/sessions/{id}/stream", true}, v1_events_session, V1_STREAM | V1_CONTROL},
    {{"GET", "/sessions/{id}/terminal", true}, v1_terminal_session, V1_UPGRADE},

    {{"GET", "/events", true}, v1_events, V1_STREAM | V1_SCOPED | V1_CONTROL},
    {{"GET", "/sse", true}, v1_events_recent, V1_STREAM | V1_SCOPED | V1_CONTROL},
    {.is = {.method = NULL}},
};
/* clang-format on */

enum v1_lane v1_lane_of(const struct v1_endpoint *endpoint)
{
    if (endpoint->flags & V1_PUBLIC)
        return V1_LANE_PUBLIC;
    return endpoint->flags & V1_CONTROL ? V1_LANE_CONTROL : V1_LANE_WORK;
}

const char *v1_lane_name(enum v1_lane lane)
{
    static const char *const names[] = {
        [V1_LANE_WORK] = "work", [V1_LANE_CONTROL] = "control", [V1_LANE_PUBLIC] = "public"};

    return names[lane];
}

static const struct v1_endpoint *tables[TABLES_MAX + 1] = {v1_endpoints};

void v1_endpoints_add(const struct v1_endpoint *rows)
{
    size_t count = 0;

    while (tables[count])
        count++;
    assert(count < TABLES_MAX);
    tables[count] = rows;
}

enum call_match v1_endpoints_find(struct str method, struct str path, struct arena *arena,
                                  const struct v1_endpoint **out,
                                  struct str params[CALL_PARAMS_MAX], char allow[HTTP_ALLOW_SIZE])
{
    const struct call_endpoint *found = NULL;
    enum call_match match = CALL_NO_PATH;

    /* No path is in two tables. */
    for (size_t i = 0; tables[i] && match == CALL_NO_PATH; i++)
        match = call_endpoint_find(&tables[i]->is, sizeof(*tables[i]), method, path, arena, &found,
                                   params, allow);
    *out = (const struct v1_endpoint *)found;
    return match;
}

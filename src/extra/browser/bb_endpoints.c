/* All endpoints of the API at /v1, and what its clients may ask for that is not served.
 *
 * Only requests with an API key may take the control lane: a signed link has no team whose share would limit it. */
#include "extra/browser/bb_internal.h"

/* Parts of the service that are none of a browser's, or not here: told by their name instead of not being found. */
#define NOT_HERE(path)                                                       \
    {{"GET", path}, bb_unsupported, 0}, {{"POST", path}, bb_unsupported, 0}, \
        {{"PUT", path}, bb_unsupported, 0},                                  \
    {                                                                        \
        {"DELETE", path}, bb_unsupported, 0                                  \
    }

const struct bb_endpoint bb_endpoints[] = {
    {{"GET", "/v1/projects"}, bb_projects_list, 0},
    {{"GET", "/v1/projects/{id}"}, bb_projects_get, 0},
    {{"GET", "/v1/projects/{id}/usage"}, bb_projects_usage, 0},
    {{"POST", "/v1/sessions"}, bb_sessions_create, BB_WAITS},
    {{"GET", "/v1/sessions"}, bb_sessions_list, 0},
    {{"GET", "/v1/sessions/{id}"}, bb_sessions_get, 0},
    {{"POST", "/v1/sessions/{id}"}, bb_sessions_update, 0},
    {{"GET", "/v1/sessions/{id}/debug"}, bb_sessions_debug, BB_WAITS},
    {{"GET", "/v1/sessions/{id}/logs"}, bb_sessions_logs, BB_WAITS},
    {{"GET", "/v1/sessions/{id}/recording"}, bb_sessions_recording, BB_WAITS},
    {{"POST", "/v1/sessions/{id}/uploads"}, bb_sessions_upload, BB_FILE | BB_WAITS},
    {{"GET", "/v1/sessions/{id}/downloads"}, bb_sessions_downloads, BB_WAITS},
    {{"GET", "/v1/connect/{id}", .no_head = true}, bb_connect, BB_SIGNED | BB_WAITS},
    {{"POST", "/v1/contexts"}, bb_contexts_create, BB_WAITS},
    {{"GET", "/v1/contexts/{id}"}, bb_contexts_get, 0},
    {{"DELETE", "/v1/contexts/{id}"}, bb_contexts_delete, BB_WAITS},
    {{"POST", "/v1/extensions"}, bb_extensions_create, BB_FILE | BB_WAITS},
    {{"GET", "/v1/extensions/{id}"}, bb_extensions_get, 0},
    {{"DELETE", "/v1/extensions/{id}"}, bb_extensions_delete, 0},
    {{"PUT", "/v1/contexts/{id}"}, bb_unsupported, 0},
    NOT_HERE("/v1/sessions/{id}/replays"),
    NOT_HERE("/v1/certificates"),
    NOT_HERE("/v1/secrets"),
    NOT_HERE("/v1/webhooks"),
    NOT_HERE("/v1/agents"),
    NOT_HERE("/v1/agents/runs"),
    NOT_HERE("/v1/functions"),
    NOT_HERE("/v1/fetch"),
    NOT_HERE("/v1/search"),
    {{0}},
};

enum bb_lane bb_lane_of(const struct bb_endpoint *endpoint)
{
    return endpoint->flags & BB_WAITS ? BB_LANE_WAIT : BB_LANE_CONTROL;
}

const char *bb_lane_name(enum bb_lane lane)
{
    return lane == BB_LANE_WAIT ? "wait" : "control";
}

/* The table of all routes, and the search in it. The first match wins. Paths are compared as they
 * came; parameters are decoded afterwards, so an escaped slash is part of one. */
#include "api_v1/v1_internal.h"

#include "base/encode.h"

/* clang-format off */
const struct v1_route v1_routes[] = {
    {"GET", "/health", v1_health, V1_PUBLIC},
    {"GET", "/openapi.json", v1_openapi, V1_PUBLIC},
    {"GET", "/stats", v1_stats, 0},
    {"POST", "/prune", v1_prune, 0},

    {"GET", "/providers", v1_providers_list, 0},
    {"POST", "/providers", v1_providers_register, 0},
    {"GET", "/providers/{name}", v1_providers_get, 0},
    {"DELETE", "/providers/{name}", v1_providers_remove, 0},
    {"POST", "/providers/{name}/heartbeat", v1_providers_heartbeat, 0},

    {"GET", "/profiles", v1_profiles_list, 0},
    {"GET", "/profiles/{name}", v1_profiles_get, 0},
    {"PUT", "/profiles/{name}", v1_profiles_put, 0},
    {"DELETE", "/profiles/{name}", v1_profiles_delete, 0},
    {"POST", "/profiles/{name}/validate", v1_profiles_validate, 0},

    {"POST", "/sandboxes", v1_sandboxes_create, 0},
    {"GET", "/sandboxes", v1_sandboxes_list, 0},
    {"GET", "/sandboxes/{id}", v1_sandboxes_get, 0},
    {"DELETE", "/sandboxes/{id}", v1_sandboxes_delete, 0},
    {"POST", "/sandboxes/{id}/pause", v1_sandboxes_pause, 0},
    {"POST", "/sandboxes/{id}/resume", v1_sandboxes_resume, 0},
    {"POST", "/sandboxes/{id}/snapshots", v1_snapshots_create, 0},
    {"GET", "/sandboxes/{id}/snapshots", v1_snapshots_of, 0},
    {"POST", "/sandboxes/{id}/execute", v1_execute, 0},
    {"GET", "/sandboxes/{id}/files", v1_files_get, V1_STREAM},
    {"PUT", "/sandboxes/{id}/files", v1_files_put, V1_RAW},
    {"DELETE", "/sandboxes/{id}/files", v1_files_delete, 0},
    {"GET", "/sandboxes/{id}/ports/{port}", v1_sandboxes_port, 0},
    {"GET", "/sandboxes/{id}/processes", v1_processes_list, 0},
    {"GET", "/sandboxes/{id}/processes/{process}", v1_processes_get, 0},
    {"GET", "/sandboxes/{id}/processes/{process}/logs", v1_processes_logs, V1_STREAM},
    {"POST", "/sandboxes/{id}/processes/{process}/input", v1_processes_input, 0},
    {"POST", "/sandboxes/{id}/processes/{process}/signal", v1_processes_signal, 0},
    {"POST", "/sandboxes/{id}/processes/{process}/stop", v1_processes_stop, 0},
    {"GET", "/sandboxes/{id}/terminal", v1_terminal_sandbox, V1_UPGRADE},

    {"GET", "/snapshots", v1_snapshots_list, 0},
    {"GET", "/snapshots/{id}", v1_snapshots_get, 0},
    {"DELETE", "/snapshots/{id}", v1_snapshots_delete, 0},

    {"POST", "/sessions", v1_sessions_create, 0},
    {"GET", "/sessions", v1_sessions_list, 0},
    {"GET", "/sessions/{id}", v1_sessions_get, 0},
    {"DELETE", "/sessions/{id}", v1_sessions_delete, 0},
    {"POST", "/sessions/{id}/messages", v1_sessions_message, 0},
    {"POST", "/sessions/{id}/pause", v1_sessions_pause, 0},
    {"POST", "/sessions/{id}/resume", v1_sessions_resume, 0},
    {"POST", "/sessions/{id}/interrupt", v1_sessions_interrupt, 0},
    {"POST", "/sessions/{id}/cancel", v1_sessions_cancel, 0},
    {"POST", "/sessions/{id}/snapshot", v1_sessions_snapshot, 0},
    {"POST", "/sessions/{id}/approve", v1_sessions_approve, 0},
    {"POST", "/sessions/{id}/push", v1_sessions_push, 0},
    {"GET", "/sessions/{id}/events", v1_sessions_events, 0},
    {"GET", "/sessions/{id}/stream", v1_events_session, V1_STREAM},
    {"GET", "/sessions/{id}/terminal", v1_terminal_session, V1_UPGRADE},

    {"GET", "/events", v1_events, V1_STREAM},
    {"GET", "/sse", v1_events_recent, V1_STREAM},
    {.method = NULL},
};
/* clang-format on */

/* Fills raw[] with the segments that stand for {..}. */
static bool match(const char *pattern, struct str path, struct str raw[V1_PARAMS_MAX])
{
    struct str want = str_of(pattern);
    size_t n = 0;

    while (want.p && path.p) {
        struct str expected = str_split(&want, '/');
        struct str got = str_split(&path, '/');

        if (expected.len && expected.p[0] == '{') {
            if (got.len == 0 || n == V1_PARAMS_MAX)
                return false;
            raw[n++] = got;
        } else if (!str_eq(expected, got)) {
            return false;
        }
    }
    return !want.p && !path.p;
}

static bool decode(const struct str raw[V1_PARAMS_MAX], struct arena *arena,
                   struct str params[V1_PARAMS_MAX])
{
    for (size_t i = 0; i < V1_PARAMS_MAX && raw[i].p; i++) {
        auto_buf struct buf text = {0};

        buf_init(&text, HTTP_URL_MAX);
        if (!url_decode(raw[i], false, &text) || memchr(text.p, '\0', text.len) ||
            !str_valid_utf8(buf_str(&text)))
            return false;
        params[i] = arena_str(arena, buf_str(&text));
    }
    return true;
}

static void allow_add(char allow[V1_ALLOW_SIZE], const char *method)
{
    size_t len = strlen(allow);

    (void)snprintf(allow + len, V1_ALLOW_SIZE - len, "%s%s", len ? ", " : "", method);
}

enum v1_match v1_routes_find(struct str method, struct str path, struct arena *arena,
                             const struct v1_route **out, struct str params[V1_PARAMS_MAX],
                             char allow[V1_ALLOW_SIZE])
{
    bool head = str_is(method, "HEAD");

    if (head)
        method = STR("GET");
    allow[0] = '\0';
    for (const struct v1_route *route = v1_routes; route->method; route++) {
        struct str raw[V1_PARAMS_MAX] = {STR_NONE, STR_NONE};

        if (!match(route->pattern, path, raw))
            continue;
        if (!str_is(method, route->method) || (head && (route->flags & (V1_STREAM | V1_UPGRADE)))) {
            allow_add(allow, route->method);
            continue;
        }
        if (!decode(raw, arena, params))
            return V1_NO_PATH;
        *out = route;
        return V1_FOUND;
    }
    return allow[0] ? V1_NO_METHOD : V1_NO_PATH;
}

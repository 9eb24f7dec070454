/* The runtime's way to the engine beside it. */
#include <errno.h>
#include <stdio.h>

#include "domain/route/route.h"
#include "edge/api_e2b/api.h"
#include "host/engine/engine.h"
#include "provider/core/provider.h"
#include "quicksand/runtime_service.h"

static int embedded_call(void *arg, struct str team_id, const char *method, const char *target,
                         struct str body, int *out_status, struct buf *out_body, struct error *err)
{
    const struct runtime_service_config *config = arg;
    struct api_local request = {
        .team_id = team_id, .method = method, .target = target, .body = body};

    return api_local(config->api, &request, out_status, out_body, err);
}

static int embedded_socket(void *arg, struct str id, char *out, size_t size, struct error *err)
{
    const struct runtime_service_config *config = arg;
    char path[ENGINE_SOCKET_PATH_SIZE];
    struct route route;

    if (!routes_find(config->routes, id, &route))
        return error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' was not found", STR_ARG(id));
    if (route.state != ROUTE_RUNNING) {
        (void)error_set(err, ERROR_CONFLICT, "sandbox '%.*s' is paused", STR_ARG(id));
        err->errnum = EHOSTDOWN;
        return -1;
    }
    if (engine_socket_path(config->run_dir, route.id, path) < 0 ||
        !str_copy(str_of(path), out, size))
        return error_set(err, ERROR_INTERNAL, "run folder '%s' has too long a name",
                         config->run_dir);
    return 0;
}

/* A frozen agent takes connections and answers nothing: calls to it would wait for all their time. */
static bool envd_runs(void *arg, const char *unix_path)
{
    const struct runtime_service_config *config = arg;
    struct route route;

    return !routes_find(config->routes, engine_socket_id(config->run_dir, unix_path), &route) ||
           route.state == ROUTE_RUNNING;
}

struct fetch_gate runtime_service_gate(const struct runtime_service_config *config)
{
    return (struct fetch_gate){envd_runs, (void *)(uintptr_t)config};
}

struct provider_embedded runtime_service_embedded(const struct runtime_service_config *config)
{
    return (struct provider_embedded){.arg = (void *)(uintptr_t)config,
                                      .call = embedded_call,
                                      .envd_socket = embedded_socket,
                                      .proxy_url = config->url};
}

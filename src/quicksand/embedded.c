/* The runtime's way to the engine beside it. */
#include <errno.h>
#include <stdio.h>

#include "domain/route/route.h"
#include "host/engine/engine.h"
#include "provider/embedded/embedded.h"
#include "quicksand/runtime_service.h"

/* envds are known to fetch by their sandboxes' ids, and found by find_envd(). */
static int embedded_socket(void *arg, struct str id, char *out, size_t size, struct error *err)
{
    const struct runtime_service_config *config = arg;
    struct route route;

    if (!routes_find(config->routes, id, &route))
        return error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' was not found", STR_ARG(id));
    if (route.state != ROUTE_RUNNING) {
        (void)error_set(err, ERROR_CONFLICT, "sandbox '%.*s' is paused", STR_ARG(id));
        err->errnum = EHOSTDOWN;
        return -1;
    }
    return str_copy(str_of(route.id), out, size)
               ? 0
               : error_set(err, ERROR_INTERNAL, "no room for the id '%s'", route.id);
}

/* A frozen envd takes connections and answers nothing: calls to it would wait for all their time. */
static bool envd_runs(void *arg, const char *id)
{
    const struct runtime_service_config *config = arg;
    struct route route;

    return !routes_find(config->routes, str_of(id), &route) || route.state == ROUTE_RUNNING;
}

static int find_envd(void *arg, const char *id, char *out, size_t size)
{
    const struct runtime_service_config *config = arg;

    return config->engine->ops->find_envd(config->engine, id, out, size);
}

struct fetch_gate runtime_service_gate(const struct runtime_service_config *config)
{
    return (struct fetch_gate){
        .open = envd_runs, .find = find_envd, .arg = (void *)(uintptr_t)config};
}

struct provider_embedded runtime_service_embedded(const struct runtime_service_config *config)
{
    return (struct provider_embedded){.open = provider_embedded_open,
                                      .sandboxes = config->sandboxes,
                                      .creates = config->creates,
                                      .arg = (void *)(uintptr_t)config,
                                      .envd_socket = embedded_socket,
                                      .proxy_url = config->url,
                                      .https_domain = config->https_domain};
}

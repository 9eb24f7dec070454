/* The agent runtime in this server: its settings and its edge. */
#include "quicksand/runtime_service.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/address.h"
#include "base/alloc.h"
#include "base/fd.h"
#include "domain/account/api_key.h"
#include "domain/account/team.h"
#include "domain/route/route.h"
#include "domain/sandbox/sandbox.h"
#include "edge/api_runtime/v1.h"
#include "host/engine/engine.h"
#include "protocol/fetch/fetch.h"
#include "protocol/loop/workers.h"
#include "provider/core/provider.h"
#include "runtime/backend/backend.h"
#include "runtime/core/runtime.h"
#include "runtime/core/settings.h"

enum {
    FILE_MAX = 1024 * 1024,
    THREADS_MAX = 512,                      /* each waits for one command, upload, ... */
    TEAM_THREADS_MAX = THREADS_MAX / 4 * 3, /* so that other teams find some */
    QUEUE_MAX = 1024,
    STOP_MS = 2000,
};

struct runtime_service {
    struct runtime_service_config config;
    struct runtime_settings settings;
    struct fetch *fetch;
    struct provider_embedded embedded;
    struct runtime *runtime;
    struct workers *workers;
    struct v1 *v1;
};

static const char *environment(const char *name)
{
    return getenv(name);
}

/* HOST of a URL or of a domain, which may carry "api." in front of it as the SDKs do. */
static bool is_own_domain(const char *own, struct str host)
{
    struct str own_host = STR_NONE;
    uint16_t port = 0;

    if (!own[0] || !address_of_url(str_of(own), &own_host, &port))
        return false;
    return str_eq_nocase(host, own_host) ||
           (str_starts(host, STR("api.")) && str_eq_nocase(str_skip(host, 4), own_host));
}

/* Whether an e2b endpoint is this server: by its address, its domain or, when neither is said, by a
 * key that is one of its own. */
static bool is_self(void *arg, const char *api_url, const char *domain, const char *api_key)
{
    const struct runtime_service_config *config = arg;
    const char *place = api_url[0] ? api_url : domain;
    union address listen = {.any = {.sa_family = AF_UNSPEC}};
    socklen_t len = sizeof(listen);
    struct api_key_owner owner;
    struct str host;
    uint16_t port = 443;
    struct error err;

    if (!place[0])
        return api_key[0] && api_keys_find(config->keys, str_of(api_key), &owner, &err) == 0;
    if (!address_of_url(str_of(place), &host, &port))
        return false;
    if (is_own_domain(config->domain, host))
        return true;
    return getsockname(config->listen_fd, &listen.any, &len) == 0 &&
           address_is_reached(&listen, host, port);
}

static int load_settings(struct runtime_service *service, struct error *err)
{
    const char *path = service->config.settings_path;
    struct runtime_self self = {.is_self = is_self, .arg = &service->config};
    auto_buf struct buf text = {0}, faults = {0};
    int r = 0;

    buf_init(&text, FILE_MAX);
    buf_init(&faults, 16384);
    if (path[0])
        r = fd_read_file_at(AT_FDCWD, path, &text);
    if (r == -EACCES)
        return error_set(
            err, ERROR_INVALID,
            "cannot read --runtime-config '%s': the server runs as user %u, which must "
            "be allowed to (and so must all folders above it)",
            path, (unsigned)geteuid());
    if (r < 0)
        return error_set_errno(err, -r, "cannot read --runtime-config '%s'", path);
    if (runtime_settings_load(path[0] ? buf_str(&text) : STR_NONE, environment, &self,
                              &service->settings, &faults) == 0)
        return 0;
    (void)fprintf(stderr, "%s", faults.p ? faults.p : "");
    return error_set(err, ERROR_INVALID, "the runtime's settings%s%s are wrong; see above",
                     path[0] ? " in " : "", path);
}

/* A sandbox was paused, or is gone. */
static void on_route(const char *id, void *arg)
{
    struct runtime_service *service = arg;
    char path[ENGINE_SOCKET_PATH_SIZE];
    struct route route;

    if (routes_find(service->config.routes, str_of(id), &route) && route.state == ROUTE_PAUSED &&
        engine_socket_path(service->config.run_dir, id, path) == 0)
        fetch_cut(service->fetch, path);
}

/* A sandbox of the engine was made, paused, resumed or has ended. */
static void on_engine(void *arg)
{
    runtime_engine_changed(arg);
}

int runtime_service_open(const struct runtime_service_config *config, struct runtime_service **out,
                         struct error *err)
{
    struct runtime_service *service = xcalloc(1, sizeof(*service));
    struct runtime_config runtime = {.store = config->store,
                                     .settings = &service->settings,
                                     .embedded = &service->embedded,
                                     .operator_team = TEAM_DEFAULT_ID};
    struct fetch_gate gate;

    *out = service;
    service->config = *config;
    service->embedded = runtime_service_embedded(&service->config);
    if (load_settings(service, err) < 0)
        return -1;
    service->fetch = runtime.fetch = fetch_new();
    gate = runtime_service_gate(&service->config);
    fetch_set_gate(service->fetch, &gate);
    routes_watch(config->routes, on_route, service);
    if (runtime_open(&runtime, &service->runtime, err) < 0)
        return -1;
    if (config->sandboxes) {
        sandboxes_watch(config->sandboxes, on_engine, service->runtime);
        runtime_engine_changed(service->runtime); /* whatever happened before we watched */
    }
    backends_check(service->runtime);
    service->workers = workers_new_elastic(THREADS_MAX, QUEUE_MAX);
    service->v1 = v1_new(&(struct v1_config){.runtime = service->runtime,
                                             .keys = config->keys,
                                             .store = config->store,
                                             .workers = service->workers,
                                             .limits = config->limits,
                                             .file_directory = config->file_directory,
                                             .team_calls_max = TEAM_THREADS_MAX});
    return 0;
}

void runtime_service_default(const struct runtime_service *service, struct buf *out,
                             bool *out_remote)
{
    runtime_settings_default(&service->settings, out, out_remote);
}

bool runtime_service_handle(struct runtime_service *service, struct http_exchange *ex)
{
    return v1_handle(service->v1, ex);
}

void runtime_service_quiet(struct runtime_service *service)
{
    runtime_quiet(service->runtime);
}

void runtime_service_drain(struct runtime_service *service, struct loop *loop)
{
    v1_drain(service->v1, loop);
}

int runtime_service_close(struct runtime_service *service)
{
    if (workers_free_within(service->workers, STOP_MS) < 0)
        return -1;
    v1_free(service->v1);
    if (service->config.sandboxes)
        sandboxes_watch(service->config.sandboxes, NULL, NULL);
    runtime_close(service->runtime);
    routes_unwatch(service->config.routes, on_route, service);
    fetch_free(service->fetch);
    runtime_settings_done(&service->settings);
    free(service);
    return 0;
}

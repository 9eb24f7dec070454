/* The agent runtime in this server: its settings and its edge. */
#include "quicksand/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "account/api_key.h"
#include "account/team.h"
#include "agent/agent.h"
#include "agent/agent_backend.h"
#include "agent/agent_settings.h"
#include "api_v1/v1.h"
#include "base/address.h"
#include "base/alloc.h"
#include "base/fd.h"
#include "engine/engine.h"
#include "fetch/fetch.h"
#include "loop/workers.h"
#include "provider/provider.h"
#include "route/route.h"
#include "sandbox/sandbox.h"

enum {
    FILE_MAX = 1024 * 1024,
    THREADS_MAX = 512,                      /* each waits for one command, upload, ... */
    TEAM_THREADS_MAX = THREADS_MAX / 4 * 3, /* so that other teams find some */
    QUEUE_MAX = 1024,
    STOP_MS = 2000,
};

struct runtime {
    struct runtime_config config;
    struct agent_settings settings;
    struct fetch *fetch;
    struct provider_embedded embedded;
    struct agents *agents;
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
    const struct runtime_config *config = arg;
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

static int load_settings(struct runtime *runtime, struct error *err)
{
    const char *path = runtime->config.settings_path;
    struct agent_self self = {.is_self = is_self, .arg = &runtime->config};
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
    if (agent_settings_load(path[0] ? buf_str(&text) : STR_NONE, environment, &self,
                            &runtime->settings, &faults) == 0)
        return 0;
    (void)fprintf(stderr, "%s", faults.p ? faults.p : "");
    return error_set(err, ERROR_INVALID, "the runtime's settings%s%s are wrong; see above",
                     path[0] ? " in " : "", path);
}

/* A sandbox was paused, or is gone. */
static void on_route(const char *id, void *arg)
{
    struct runtime *runtime = arg;
    char path[ENGINE_SOCKET_PATH_SIZE];
    struct route route;

    if (routes_find(runtime->config.routes, str_of(id), &route) && route.state == ROUTE_PAUSED &&
        engine_socket_path(runtime->config.run_dir, id, path) == 0)
        fetch_cut(runtime->fetch, path);
}

/* A sandbox of the engine was made, paused, resumed or has ended. */
static void on_engine(void *arg)
{
    agents_engine_changed(arg);
}

int runtime_open(const struct runtime_config *config, struct runtime **out, struct error *err)
{
    struct runtime *runtime = xcalloc(1, sizeof(*runtime));
    struct agents_config agents = {.store = config->store,
                                   .settings = &runtime->settings,
                                   .embedded = &runtime->embedded,
                                   .operator_team = TEAM_DEFAULT_ID};
    struct fetch_gate gate;

    *out = runtime;
    runtime->config = *config;
    runtime->embedded = runtime_embedded(&runtime->config);
    if (load_settings(runtime, err) < 0)
        return -1;
    runtime->fetch = agents.fetch = fetch_new();
    gate = runtime_gate(&runtime->config);
    fetch_set_gate(runtime->fetch, &gate);
    routes_watch(config->routes, on_route, runtime);
    if (agents_open(&agents, &runtime->agents, err) < 0)
        return -1;
    if (config->sandboxes) {
        sandboxes_watch(config->sandboxes, on_engine, runtime->agents);
        agents_engine_changed(runtime->agents); /* whatever happened before we watched */
    }
    agent_backends_check(runtime->agents);
    runtime->workers = workers_new_elastic(THREADS_MAX, QUEUE_MAX);
    runtime->v1 = v1_new(&(struct v1_config){.agents = runtime->agents,
                                             .keys = config->keys,
                                             .store = config->store,
                                             .workers = runtime->workers,
                                             .limits = config->limits,
                                             .team_calls_max = TEAM_THREADS_MAX});
    return 0;
}

void runtime_default(const struct runtime *runtime, struct buf *out, bool *out_remote)
{
    agent_settings_default(&runtime->settings, out, out_remote);
}

bool runtime_handle(struct runtime *runtime, struct http_exchange *ex)
{
    return v1_handle(runtime->v1, ex);
}

void runtime_quiet(struct runtime *runtime)
{
    agents_quiet(runtime->agents);
}

void runtime_drain(struct runtime *runtime, struct loop *loop)
{
    v1_drain(runtime->v1, loop);
}

int runtime_close(struct runtime *runtime)
{
    if (workers_free_within(runtime->workers, STOP_MS) < 0)
        return -1;
    v1_free(runtime->v1);
    if (runtime->config.sandboxes)
        sandboxes_watch(runtime->config.sandboxes, NULL, NULL);
    agents_close(runtime->agents);
    routes_unwatch(runtime->config.routes, on_route, runtime);
    fetch_free(runtime->fetch);
    agent_settings_done(&runtime->settings);
    free(runtime);
    return 0;
}

/* The agent runtime in this server: its settings, its way to the engine beside it, its edge. */
#include "quicksand/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "account/team.h"
#include "agent/agent.h"
#include "agent/agent_backend.h"
#include "agent/agent_settings.h"
#include "api/api.h"
#include "api_v1/v1.h"
#include "base/alloc.h"
#include "base/fd.h"
#include "engine/engine.h"
#include "fetch/fetch.h"
#include "loop/workers.h"
#include "provider/provider.h"
#include "route/route.h"

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

static int embedded_call(void *arg, struct str team_id, const char *method, const char *target,
                         struct str body, int *out_status, struct buf *out_body, struct error *err)
{
    struct runtime *runtime = arg;
    struct api_local request = {
        .team_id = team_id, .method = method, .target = target, .body = body};

    return api_local(runtime->config.api, &request, out_status, out_body, err);
}

static int embedded_socket(void *arg, struct str id, char *out, size_t size, struct error *err)
{
    struct runtime *runtime = arg;
    char path[ENGINE_SOCKET_PATH_SIZE];
    struct route route;

    if (!routes_find(runtime->config.routes, id, &route))
        return error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' was not found", STR_ARG(id));
    if (route.state != ROUTE_RUNNING)
        return error_set(err, ERROR_CONFLICT, "sandbox '%.*s' is paused", STR_ARG(id));
    if (engine_socket_path(runtime->config.run_dir, route.id, path) < 0 ||
        !str_copy(str_of(path), out, size))
        return error_set(err, ERROR_INTERNAL, "run folder '%s' has too long a name",
                         runtime->config.run_dir);
    return 0;
}

static const char *environment(const char *name)
{
    return getenv(name);
}

static int load_settings(struct runtime *runtime, struct error *err)
{
    const char *path = runtime->config.settings_path;
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
    if (agent_settings_load(path[0] ? buf_str(&text) : STR_NONE, environment, &runtime->settings,
                            &faults) == 0)
        return 0;
    (void)fprintf(stderr, "%s", faults.p ? faults.p : "");
    return error_set(err, ERROR_INVALID, "the runtime's settings%s%s are wrong; see above",
                     path[0] ? " in " : "", path);
}

int runtime_open(const struct runtime_config *config, struct runtime **out, struct error *err)
{
    struct runtime *runtime = xcalloc(1, sizeof(*runtime));
    struct agents_config agents = {.store = config->store,
                                   .settings = &runtime->settings,
                                   .embedded = &runtime->embedded,
                                   .server_url = config->url,
                                   .operator_team = TEAM_DEFAULT_ID};

    *out = runtime;
    runtime->config = *config;
    runtime->embedded = (struct provider_embedded){.arg = runtime,
                                                   .call = embedded_call,
                                                   .agent_socket = embedded_socket,
                                                   .proxy_url = config->url};
    if (load_settings(runtime, err) < 0)
        return -1;
    runtime->fetch = agents.fetch = fetch_new();
    if (agents_open(&agents, &runtime->agents, err) < 0)
        return -1;
    agent_backends_check(runtime->agents);
    runtime->workers = workers_new_elastic(THREADS_MAX, QUEUE_MAX);
    runtime->v1 = v1_new(&(struct v1_config){.agents = runtime->agents,
                                             .keys = config->keys,
                                             .store = config->store,
                                             .workers = runtime->workers,
                                             .team_calls_max = TEAM_THREADS_MAX});
    return 0;
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
    agents_close(runtime->agents);
    fetch_free(runtime->fetch);
    agent_settings_done(&runtime->settings);
    free(runtime);
    return 0;
}

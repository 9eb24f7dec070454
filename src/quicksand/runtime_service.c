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
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "domain/account/api_key.h"
#include "domain/account/team.h"
#include "domain/route/route.h"
#include "domain/sandbox/sandbox.h"
#include "edge/api_runtime/v1.h"
#include "extra/core/extra.h"
#include "host/engine/engine.h"
#include "protocol/fetch/fetch.h"
#include "protocol/json/json_shape.h"
#include "protocol/loop/workers.h"
#include "provider/core/provider.h"
#include "runtime/backend/backend.h"
#include "runtime/backend/profile.h"
#include "runtime/config/config.h"
#include "runtime/core/runtime.h"
#include "runtime/core/settings.h"
#include "runtime/main/runtime_main.h"
#include "runtime/sandbox/follow.h"
#include "runtime/session/session.h"

enum {
    FILE_MAX = 1024 * 1024,
    THREADS_MAX = 1024, /* each waits for one command, upload, ... */
    TEAM_THREADS_MAX = THREADS_MAX / 8,
    CONTROL_MAX = 256,
    TEAM_CONTROL_MAX = CONTROL_MAX / 8,
    PUBLIC_THREADS = 2,
    QUEUE_MAX = 1024,
    STOP_MS = 2000,
};

struct runtime_service {
    struct runtime_service_config config;
    struct runtime_settings settings;
    json_t *file;     /* that they came from, or NULL */
    json_t *profiles; /* of the file as it was read last */
    struct kept_settings {
        struct kept_settings *next;
        struct runtime_settings settings;
    } * kept; /* of reloads that brought new keys, which backends use from there */
    struct fetch *fetch;
    struct provider_embedded embedded;
    struct runtime *runtime;
    struct workers *workers, *control_workers, *public_workers;
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

static int read_settings(struct runtime_service *service, struct runtime_settings *out,
                         json_t **out_file, struct buf *faults, struct error *err)
{
    const char *path = service->config.settings_path;
    struct runtime_self self = {.is_self = is_self, .arg = &service->config};
    auto_buf struct buf text = {0};
    struct error ignored;
    int r = 0;

    buf_init(&text, FILE_MAX);
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
    if (runtime_settings_load(path[0] ? buf_str(&text) : STR_NONE, environment, &self, out,
                              faults) < 0)
        return error_set(err, ERROR_INVALID, "the runtime's settings%s%s are wrong; see above",
                         path[0] ? " in " : "", path);
    if (path[0])
        (void)json_parse(buf_str(&text), out_file, &ignored);
    return 0;
}

static int load_settings(struct runtime_service *service, struct error *err)
{
    auto_buf struct buf faults = {0};
    int r;

    buf_init(&faults, 16384);
    r = read_settings(service, &service->settings, &service->file, &faults, err);
    if (r < 0)
        (void)fprintf(stderr, "%s", faults.p ? faults.p : "");
    return r;
}

/* ---- reload ---- */

static void tell_profiles(json_t *was, json_t *is)
{
    const char *name;
    json_t *record;

    json_object_foreach (is, name, record) {
        const json_t *before = json_object_get(was, name);

        if (!before || !json_equal(before, record))
            log_warn("server", "reload: profile '%s' %s", name, before ? "was changed" : "is new");
    }
    json_object_foreach (was, name, record)
        if (!json_object_get(is, name))
            log_warn("server", "reload: profile '%s' is gone", name);
}

/* Keys are taken over without a restart. */
static void remove_keys(json_t *value)
{
    const char *name;
    json_t *member;

    (void)json_object_del(value, "api_key");
    (void)json_object_del(value, "apiKey");
    json_object_foreach (value, name, member)
        remove_keys(member);
}

static void tell_others(const json_t *was, json_t *is, const char *path)
{
    auto_json json_t *old = json_deep_copy(was), *new = json_deep_copy(is);
    const char *name;
    json_t *value;

    remove_keys(old);
    remove_keys(new);
    json_object_foreach (new, name, value)
        if (strcmp(name, "profiles") != 0 && !json_equal(json_object_get(old, name), value))
            log_warn("server", "reload: '%s' in %s was changed and needs a restart", name, path);
}

static int replace_profiles(struct runtime_service *service, json_t *profiles, struct error *err)
{
    if (json_equal(service->profiles, profiles))
        return 0;
    if (profiles_replace(service->runtime, profiles, err) < 0)
        return -1;
    tell_profiles(service->profiles, profiles);
    json_decref(service->profiles);
    service->profiles = json_incref(profiles);
    return 0;
}

static int take_over(struct runtime_service *service, struct buf *faults, struct error *err)
{
    struct kept_settings *kept = xcalloc(1, sizeof(*kept));
    auto_json json_t *file = NULL;
    size_t keys = 0;
    int r = read_settings(service, &kept->settings, &file, faults, err);

    if (r == 0)
        r = replace_profiles(service, kept->settings.profiles, err);
    if (r == 0)
        r = backends_replace_keys(service->runtime, &kept->settings, &keys, err);
    if (r == 0 && file)
        tell_others(service->file, file, service->config.settings_path);
    if (keys) {
        kept->next = service->kept;
        service->kept = kept;
    } else {
        runtime_settings_done(&kept->settings);
        free(kept);
    }
    return r;
}

void runtime_service_reload(struct runtime_service *service)
{
    auto_buf struct buf faults = {0};
    struct error err;
    struct str rest;

    if (!service->config.settings_path[0])
        return;
    buf_init(&faults, 16384);
    if (take_over(service, &faults, &err) == 0)
        return;
    rest = buf_str(&faults);
    while (rest.len) {
        struct str line = str_split(&rest, '\n');

        log_error("server", "reload: %.*s", STR_ARG(line));
    }
    log_error("server", "reload: profiles and keys of providers stay as they were: %s",
              err.message);
}

/* ---- figures ---- */

struct figures {
    struct buf *out;
    int pass;
};

static void write_backend(void *arg, const struct backend_figures *backend)
{
    const struct figures *figures = arg;

    if (figures->pass == 0)
        (void)buf_printf(figures->out, "quicksand_provider_up{provider=\"%s\"} %d\n", backend->name,
                         backend->up);
    else
        (void)buf_printf(
            figures->out,
            "quicksand_provider_calls_total{provider=\"%s\",outcome=\"ok\"} %llu\n"
            "quicksand_provider_calls_total{provider=\"%s\",outcome=\"failed\"} %llu\n",
            backend->name, (unsigned long long)(backend->calls - backend->failures), backend->name,
            (unsigned long long)backend->failures);
}

void runtime_service_monitor(struct runtime_service *service, struct buf *out)
{
    struct figures figures = {.out = out};

    (void)buf_printf(out, "# HELP quicksand_provider_up 1 when it is asked and answers.\n"
                          "# TYPE quicksand_provider_up gauge\n");
    backends_each(service->runtime, write_backend, &figures);
    (void)buf_printf(out,
                     "# HELP quicksand_provider_calls_total Calls to a provider; failed: it was "
                     "silent or broken.\n"
                     "# TYPE quicksand_provider_calls_total counter\n");
    figures.pass = 1;
    backends_each(service->runtime, write_backend, &figures);
}

/* A sandbox was paused, or is gone. */
static void on_route(const char *id, void *arg)
{
    struct runtime_service *service = arg;
    struct route route;

    if (routes_find(service->config.routes, str_of(id), &route) && route.state == ROUTE_PAUSED)
        fetch_cut(service->fetch, id);
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
                                     .sender = config->sender,
                                     .embedded = &service->embedded,
                                     .operator_team = TEAM_DEFAULT_ID};
    struct fetch_gate gate;

    *out = service;
    service->config = *config;
    service->embedded = runtime_service_embedded(&service->config);
    if (load_settings(service, err) < 0)
        return -1;
    service->profiles = json_incref(service->settings.profiles);
    service->fetch = runtime.fetch = fetch_new();
    gate = runtime_service_gate(&service->config);
    fetch_set_gate(service->fetch, &gate);
    routes_watch(config->routes, on_route, service);
    if (runtime_open(&runtime, &service->runtime, err) < 0)
        return -1;
    sandboxes_watch(config->sandboxes, on_engine, service->runtime);
    runtime_engine_changed(service->runtime); /* whatever happened before we watched */
    backends_check(service->runtime);
    service->workers = workers_new_elastic(THREADS_MAX, QUEUE_MAX);
    service->control_workers = workers_new_elastic(CONTROL_MAX, QUEUE_MAX);
    service->public_workers = workers_new(PUBLIC_THREADS, QUEUE_MAX);
    service->v1 = v1_new(&(struct v1_config){
        .runtime = service->runtime,
        .keys = config->keys,
        .store = config->store,
        .history = config->history,
        .lanes = {[V1_LANE_WORK] = {service->workers, TEAM_THREADS_MAX},
                  [V1_LANE_CONTROL] = {service->control_workers, TEAM_CONTROL_MAX},
                  [V1_LANE_PUBLIC] = {service->public_workers, 0}},
        .limits = config->limits,
        .file_directory = config->file_directory,
        .spool = config->spool,
        .join = config->join,
        .join_arg = config->join_arg,
        .settings = config->server_settings,
        .settings_arg = config->server_settings_arg});
    return 0;
}

void runtime_service_share(const struct runtime_service *service, struct extra_host *out)
{
    out->runtime = service->runtime;
    out->lanes[EXTRA_LANE_RUNTIME_CONTROL].workers = service->control_workers;
    out->lanes[EXTRA_LANE_RUNTIME_CONTROL].team_max = TEAM_CONTROL_MAX;
    out->lanes[EXTRA_LANE_RUNTIME_WORK].workers = service->workers;
    out->lanes[EXTRA_LANE_RUNTIME_WORK].team_max = TEAM_THREADS_MAX;
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
    if (workers_free_within(service->workers, STOP_MS) < 0 ||
        workers_free_within(service->control_workers, STOP_MS) < 0 ||
        workers_free_within(service->public_workers, STOP_MS) < 0)
        return -1;
    v1_free(service->v1);
    sandboxes_unwatch(service->config.sandboxes, service->runtime);
    runtime_close(service->runtime);
    routes_unwatch(service->config.routes, on_route, service);
    fetch_free(service->fetch);
    runtime_settings_done(&service->settings);
    while (service->kept) {
        struct kept_settings *next = service->kept->next;

        runtime_settings_done(&service->kept->settings);
        free(service->kept);
        service->kept = next;
    }
    json_decref(service->profiles);
    json_decref(service->file);
    free(service);
    return 0;
}

/* The unprivileged server: everything that parses network bytes. Opens the store and the domain,
 * then runs one thread per edge loop; the main thread waits for signals. */
#include "quicksand/serve.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/log.h"
#include "domain/account/account.h"
#include "domain/account/api_key.h"
#include "domain/account/team.h"
#include "domain/route/route.h"
#include "domain/sandbox/sandbox.h"
#include "domain/template/template.h"
#include "edge/api_e2b/api.h"
#include "edge/proxy/proxy.h"
#include "host/engine/engine.h"
#include "host/engine/engine_dial.h"
#include "host/warden/warden.h"
#include "protocol/http/http_limits.h"
#include "protocol/http/http_server.h"
#include "protocol/loop/loop.h"
#include "protocol/loop/share.h"
#include "protocol/loop/workers.h"
#include "quicksand/runtime_service.h"
#include "store/core/store.h"

enum {
    EXIT_CONFIG = 78, /* starting again would fail the same way */
    DRAIN_MS = 10000, /* how long requests may take to finish after SIGTERM */
    QUEUE_MAX = 4096,
    QUICK_WORKERS = 4, /* for what asks memory and the store only */
};
#define FILE_BYTES ((size_t)64 << 30) /* of uploads that lie in files meanwhile */

struct server {
    struct config config;
    char run_dir[CONFIG_TEXT_SIZE + 8], store_dir[CONFIG_TEXT_SIZE + 8];
    struct server_fds fds;
    struct store *store;
    struct routes *routes;
    struct engine *engine;
    struct sandboxes *sandboxes;
    struct workers *workers, *quick_workers, *create_workers;
    struct api_keys *keys;
    struct http_limits *limits;
    struct shares *addresses, *box_connections; /* of clients, and into sandboxes */
    struct api *api;
    struct runtime_service *runtime;
    struct edge *edges;
    char generated_key[API_KEY_SIZE];
    pthread_mutex_t lock; /* guards busy_edges */
    pthread_cond_t drained;
    size_t busy_edges;
};

/* One thread, one loop, its own listener, proxy and warden channel. */
struct edge {
    struct server *server;
    size_t index;
    pthread_t thread;
    struct loop *loop;
    struct http_server *http;
    struct engine_dialer *dialer;
    struct proxy *proxy;
    struct loop_errand drain_errand;
};

static void on_request(struct http_exchange *ex, void *arg)
{
    struct edge *edge = arg;

    if (!proxy_handle(edge->proxy, ex) && !runtime_service_handle(edge->server->runtime, ex))
        api_handle(edge->server->api, ex);
}

static void on_drained(void *arg)
{
    struct edge *edge = arg;
    struct server *server = edge->server;

    (void)pthread_mutex_lock(&server->lock);
    server->busy_edges--;
    (void)pthread_cond_signal(&server->drained);
    (void)pthread_mutex_unlock(&server->lock);
}

static void drain(struct loop_errand *errand)
{
    struct edge *edge = (struct edge *)((char *)errand - offsetof(struct edge, drain_errand));

    runtime_service_drain(edge->server->runtime, edge->loop);
    http_server_drain(edge->http, on_drained, edge);
}

/* Before the domain: the proxy must watch routes from the first one on. */
static void edge_prepare(struct server *server, size_t index)
{
    struct edge *edge = &server->edges[index];
    struct proxy_config proxy = {
        .run_dir = server->run_dir,
        .routes = server->routes,
        .workers = server->workers,
        .shares = server->box_connections,
    };

    edge->server = server;
    edge->index = index;
    edge->drain_errand.fn = drain;
    edge->loop = loop_new();
    edge->dialer = engine_dialer_new(edge->loop, server->fds.dial[index]);
    proxy.dialer = edge->dialer;
    edge->proxy = proxy_new(edge->loop, &proxy);
}

static int edge_listen(struct edge *edge, struct error *err)
{
    struct http_server_config http = {
        .on_request = on_request,
        .arg = edge,
        .max_connections =
            ((size_t)edge->server->config.connections + edge->server->fds.loops - 1) /
            edge->server->fds.loops,
        .addresses = edge->server->addresses,
        .head_timeout_ms = 15000,
        .idle_timeout_ms = 75000,
        .body_timeout_ms = 60000,
        .whole_timeout_ms = (uint32_t)edge->server->config.request_s * 1000,
        .write_timeout_ms = 600000,
    };
    int r;

    edge->http = http_server_new(edge->loop, &http);
    r = http_server_listen(edge->http, edge->server->fds.listen[edge->index]);
    return r < 0 ? error_set_errno(err, -r, "listen") : 0;
}

static void *edge_run(void *arg)
{
    struct edge *edge = arg;

    loop_run(edge->loop);
    return NULL;
}

static int open_store(struct server *server, struct error *err)
{
    char path[CONFIG_TEXT_SIZE + 32];
    struct template_base base = {.layer = STR("base"),
                                 .cpu_count = server->config.template_cpu,
                                 .mem_mb = server->config.template_mem_mb,
                                 .disk_mb = server->config.template_disk_mb};
    auto_arena struct arena arena = {0};
    struct str id;

    (void)snprintf(server->store_dir, sizeof(server->store_dir), "%s/store", server->config.data);
    (void)snprintf(path, sizeof(path), "%s/quicksand.db", server->store_dir);
    if (store_open(path, &server->store, err) < 0)
        return -1;
    if (team_ensure_default(server->store, err) < 0)
        return -1;
    return template_register_base(server->store, &base, &arena, &id, err);
}

static int open_domain(struct server *server, struct error *err)
{
    struct sandboxes_config config = {
        .run_dir = server->run_dir,
        .domain = server->config.domain,
        .warm = (size_t)server->config.warm,
        .max_running = (size_t)server->config.max_sandboxes,
        .max_timeout_s = server->config.max_hours * 3600,
        .volume_mb = server->config.volume_mb,
        .webhook_ca = server->config.webhook_ca,
        .webhook_ms = server->config.webhook_pause_s * 1000,
        .grace_s = server->config.grace,
    };

    server->engine =
        engine_warden_new(server->fds.control, WARDEN_CONTROL_CHANNELS, server->fds.event);
    config.engine = server->engine;
    config.store = server->store;
    config.routes = server->routes;
    return sandboxes_open(&config, &server->sandboxes, err);
}

static void prepare_edges(struct server *server)
{
    (void)snprintf(server->run_dir, sizeof(server->run_dir), "%s/run", server->config.data);
    server->routes = routes_new();
    server->workers = workers_new((size_t)server->config.workers, QUEUE_MAX);
    server->addresses =
        shares_new(&(struct shares_config){.each_max = (size_t)server->config.address_connections});
    server->box_connections =
        shares_new(&(struct shares_config){.each_max = (size_t)server->config.box_connections});
    server->edges = xcalloc(server->fds.loops, sizeof(*server->edges));
    for (size_t i = 0; i < server->fds.loops; i++)
        edge_prepare(server, i);
}

/* So that one team cannot hold all. */
static size_t three_quarters(int64_t threads)
{
    return threads < 2 ? 1 : (size_t)threads * 3 / 4;
}

static void open_lanes(struct server *server, struct api_config *api)
{
    int64_t threads = server->config.workers;

    server->quick_workers = workers_new(QUICK_WORKERS, QUEUE_MAX);
    server->create_workers = workers_new((size_t)threads, QUEUE_MAX);
    api->lanes[API_LANE_QUICK].workers = server->quick_workers;
    api->lanes[API_LANE_QUICK].team_max = three_quarters(QUICK_WORKERS);
    api->lanes[API_LANE_WORK].workers = server->workers;
    api->lanes[API_LANE_WORK].team_max = three_quarters(threads);
    api->lanes[API_LANE_CREATE].workers = server->create_workers;
    api->lanes[API_LANE_CREATE].team_max = three_quarters(threads);
    api->create_max = (size_t)server->config.create_queue;
}

/* The edges' common parts: what a request is handed to. */
static int open_edge_parts(struct server *server, struct error *err)
{
    struct api_config api = {.sandboxes = server->sandboxes,
                             .store = server->store,
                             .max_timeout_s = server->config.max_hours * 3600};

    server->keys = api.keys = api_keys_new(server->store, getenv("QUICKSAND_API_KEY"));
    open_lanes(server, &api);
    server->limits = api.limits = http_limits_new(&(struct http_limits_config){
        .body_bytes = (size_t)server->config.body_memory_mb * 1024 * 1024,
        .file_bytes = FILE_BYTES});
    server->api = api_new(&api);
    return runtime_service_open(
        &(struct runtime_service_config){.settings_path = server->config.runtime_config,
                                         .url = getenv("QUICKSAND_URL_SELF"),
                                         .domain = server->config.domain,
                                         .listen_fd = server->fds.listen[0],
                                         .run_dir = server->run_dir,
                                         .file_directory = server->store_dir,
                                         .store = server->store,
                                         .api = server->api,
                                         .keys = server->keys,
                                         .routes = server->routes,
                                         .limits = server->limits,
                                         .sandboxes = server->sandboxes},
        &server->runtime, err);
}

static int open_edges(struct server *server, struct error *err)
{
    for (size_t i = 0; i < server->fds.loops; i++)
        if (edge_listen(&server->edges[i], err) < 0)
            return -1;
    for (size_t i = 0; i < server->fds.loops; i++)
        if (pthread_create(&server->edges[i].thread, NULL, edge_run, &server->edges[i]) != 0)
            return error_set(err, ERROR_INTERNAL, "cannot start an edge thread");
    return 0;
}

static int open_all(struct server *server, struct error *err)
{
    if (open_store(server, err) < 0)
        return -1;
    prepare_edges(server);
    if (open_domain(server, err) < 0 || open_edge_parts(server, err) < 0 ||
        open_edges(server, err) < 0)
        return -1;
    /* Last: a key that was made and never told would be lost. */
    return account_ensure_default(server->store, getenv("QUICKSAND_API_KEY"), server->generated_key,
                                  err);
}

/* Requests finish (for a while), sandboxes keep running. */
static void stop(struct server *server)
{
    int64_t deadline_us;

    log_info("server", "stopping; sandboxes keep running");
    runtime_service_quiet(server->runtime);
    (void)pthread_mutex_lock(&server->lock);
    server->busy_edges = server->fds.loops;
    (void)pthread_mutex_unlock(&server->lock);
    for (size_t i = 0; i < server->fds.loops; i++)
        loop_post(server->edges[i].loop, &server->edges[i].drain_errand);
    deadline_us = clock_mono_us() + DRAIN_MS * INT64_C(1000);
    (void)pthread_mutex_lock(&server->lock);
    while (server->busy_edges && cond_wait_until(&server->drained, &server->lock, deadline_us))
        ;
    (void)pthread_mutex_unlock(&server->lock);
    for (size_t i = 0; i < server->fds.loops; i++) {
        loop_stop(server->edges[i].loop);
        (void)pthread_join(server->edges[i].thread, NULL);
    }
    if (runtime_service_close(server->runtime) < 0) {
        /* What was acknowledged is stored; what runs in sandboxes goes on without us. */
        log_warn("server", "requests were still under way");
        _exit(0);
    }
    http_limits_free(server->limits);
    workers_free(server->quick_workers);
    workers_free(server->create_workers);
    workers_free(server->workers);
    sandboxes_close(server->sandboxes);
    store_close(server->store);
}

static int wait_for_signal(void)
{
    struct signalfd_siginfo info;
    sigset_t set;
    int fd;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    fd = signalfd(-1, &set, SFD_CLOEXEC);
    if (fd < 0)
        return -1;
    while (read(fd, &info, sizeof(info)) < 0 && errno == EINTR)
        ;
    (void)close(fd);
    return 0;
}

static void set_log_level(const char *name)
{
    log_set_level(strcmp(name, "debug") == 0   ? LOG_DEBUG
                  : strcmp(name, "warn") == 0  ? LOG_WARN
                  : strcmp(name, "error") == 0 ? LOG_ERROR
                                               : LOG_INFO);
}

static void tell_ready(const struct server *server)
{
    const char *url = getenv("QUICKSAND_URL_SELF");
    auto_buf struct buf provider = {0};
    bool remote = false;

    buf_init(&provider, 1024);
    runtime_service_default(server->runtime, &provider, &remote);
    if (remote)
        log_warn(
            "server",
            "sandboxes of /api/v1 and the command line are made elsewhere: the default provider "
            "is %s; start the server without that variable, or choose another default_provider",
            provider.p);
    ready_print(&(struct ready){
        .url = url,
        .made_key = server->generated_key,
        .key_kept =
            credentials_settle(server->fds.credentials, url, server->generated_key, server->keys),
        .key_given = serve_key_given(),
        .provider = provider.p ? provider.p : "",
    });
}

/* What was opened before the failure works already, in threads of its own: nothing is taken from under them. */
static _Noreturn void give_up(struct server *server)
{
    if (server->sandboxes)
        sandboxes_drop_warm(server->sandboxes);
    _exit(EXIT_CONFIG);
}

int server_main(int argc, char **argv)
{
    static struct server server = {.lock = PTHREAD_MUTEX_INITIALIZER};
    auto_buf struct buf faults = {0};
    struct error err;
    sigset_t set;

    cond_init(&server.drained);
    buf_init(&faults, 16384);
    /* Blocked before any thread starts: only the signalfd sees them. */
    (void)signal(SIGPIPE, SIG_IGN);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    if (warden_server_fds(&server.fds, &err) < 0) {
        (void)fprintf(stderr, "quicksand: %s\n", err.message);
        return EXIT_CONFIG;
    }
    if (config_load(&server.config, argc, argv, &faults) != 0) {
        (void)fprintf(stderr, "%s", faults.p ? faults.p : "");
        return EXIT_CONFIG;
    }
    set_log_level(server.config.log);
    if (open_all(&server, &err) < 0) {
        (void)fprintf(stderr, "quicksand: %s\n", err.message);
        give_up(&server);
    }
    tell_ready(&server);
    (void)wait_for_signal();
    stop(&server);
    return 0;
}

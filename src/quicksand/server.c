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
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/log.h"
#include "base/parts.h"
#include "base/spool.h"
#include "base/thread.h"
#include "domain/account/account.h"
#include "domain/account/api_key.h"
#include "domain/account/signin.h"
#include "domain/account/team.h"
#include "domain/build/build.h"
#include "domain/delivery/webhook.h"
#include "domain/history/history.h"
#include "domain/network/egress_authority.h"
#include "domain/network/egress_link.h"
#include "domain/route/route.h"
#include "domain/sandbox/sandbox.h"
#include "domain/sandbox/sandbox_creates.h"
#include "domain/secret/secret.h"
#include "domain/template/template.h"
#include "domain/volume/volume.h"
#include "edge/api_e2b/api.h"
#include "edge/proxy/proxy.h"
#include "extra/core/extra_serve.h"
#include "host/engine/engine.h"
#include "host/engine/engine_dial.h"
#include "host/warden/warden.h"
#include "image/template/images.h"
#include "protocol/http/http_budget.h"
#include "protocol/http/http_limits.h"
#include "protocol/http/http_server.h"
#include "protocol/http2/http2.h"
#include "protocol/loop/loop.h"
#include "protocol/loop/share.h"
#include "protocol/sender/sender.h"
#include "quicksand/on_demand.h"
#include "quicksand/redirect.h"
#include "quicksand/runtime_service.h"
#include "quicksand/server_lanes.h"
#include "quicksand/server_monitor.h"
#include "quicksand/server_reload.h"
#include "quicksand/server_tls.h"
#include "store/core/store.h"

enum {
    DRAIN_MS = 3000, /* how long requests may take to finish after SIGTERM */
    STOP_MS = 6000,  /* until the server has ended, whatever is under way */
};

struct server {
    struct config config;
    char store_dir[CONFIG_TEXT_SIZE + 8];
    struct server_fds fds;
    struct store *store;
    struct routes *routes;
    struct engine *engine;
    struct history *history;
    struct sender *sender; /* of webhooks and callbacks */
    struct egress_link *egress;
    struct egress_authority *authority;
    struct sandboxes *sandboxes;
    struct volumes *volumes;
    struct webhooks *webhooks;
    struct spool *spool; /* of temporary files */
    struct builds *builds;
    struct on_demand *demand;
    struct sandbox_creates *creates;
    struct server_lanes lanes;
    struct api_keys *keys;
    struct secrets *secrets;
    struct images *images;
    struct http_limits *limits;
    struct http_budget *budget;
    struct shares *addresses, *box_connections; /* of clients, and into sandboxes */
    struct api *api;
    struct runtime_service *runtime;
    struct monitor_targets monitor;
    struct edge *edges;
    struct server_tls *tls; /* NULL: none */
    uint16_t tls_port;
    char domain[SERVER_DOMAIN_SIZE], hsts[SERVER_HSTS_SIZE];
    char generated_key[API_KEY_SIZE];
    pthread_mutex_t lock; /* guards busy_edges */
    pthread_cond_t drained;
    size_t busy_edges;
};

/* One thread, one loop, its own listener, proxy and warden channel. */
struct edge {
    struct server *server;
    size_t index;
    struct thread thread;
    struct loop *loop;
    struct http_server *http, *https; /* the latter may be NULL */
    struct engine_dialer *dialer;
    struct proxy *proxy;
    struct loop_errand drain_errand;
};

static void on_request(struct http_exchange *ex, void *arg)
{
    struct edge *edge = arg;

    if (edge->server->tls && !http_secure(ex) && extras_handle_plain(ex, edge->server->config.data))
        return;
    if (edge->server->config.redirect_http && !http_secure(ex) && !extras_plain(ex) &&
        redirect_handle(ex, edge->server->tls_port))
        return;
    if (!proxy_handle(edge->proxy, ex) && !extras_refuse_absent(ex) &&
        !runtime_service_handle(edge->server->runtime, ex) && !extras_handle(ex))
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
    extras_drain();
    http_server_drain(edge->http, on_drained, edge);
    if (edge->https)
        http_server_drain(edge->https, on_drained, edge);
}

/* Before the domain: the proxy must watch routes from the first one on. */
static void edge_prepare(struct server *server, size_t index)
{
    struct edge *edge = &server->edges[index];
    struct proxy_config proxy = {
        .engine = server->engine,
        .routes = server->routes,
        .workers = server->lanes.wake,
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

static struct stream_filter *new_filter(void *arg)
{
    return server_tls_filter(((struct edge *)arg)->server->tls);
}

static int edge_listen_tls(struct edge *edge, struct http_server_config *http, struct error *err)
{
    int r;

    http->filter = new_filter;
    if (edge->server->hsts[0])
        http->extra = (struct pair){STR("Strict-Transport-Security"), str_of(edge->server->hsts)};
    edge->https = http_server_new(edge->loop, http);
    r = http_server_listen(edge->https, edge->server->fds.listen_tls[edge->index]);
    return r < 0 ? error_set_errno(err, -r, "listen") : 0;
}

static int edge_listen(struct edge *edge, struct error *err)
{
    struct http_server_config http = {
        .on_request = on_request,
        .arg = edge,
        .http2 = &http2_protocol,
        .max_connections =
            ((size_t)edge->server->config.connections + edge->server->fds.loops - 1) /
            edge->server->fds.loops,
        .connects = true,
        .addresses = edge->server->addresses,
        .budget = edge->server->budget,
        .head_timeout_ms = 15000,
        .idle_timeout_ms = 75000,
        .body_timeout_ms = 60000,
        .whole_timeout_ms = (uint32_t)edge->server->config.request_s * 1000,
        .write_timeout_ms = 600000,
    };
    int r;

    edge->http = http_server_new(edge->loop, &http);
    r = http_server_listen(edge->http, edge->server->fds.listen[edge->index]);
    if (r < 0)
        return error_set_errno(err, -r, "listen");
    return edge->server->tls ? edge_listen_tls(edge, &http, err) : 0;
}

static void edge_run(void *arg)
{
    struct edge *edge = arg;

    loop_run(edge->loop);
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
    if (secrets_open(server->store_dir, &server->secrets, err) < 0 ||
        team_ensure_default(server->store, err) < 0)
        return -1;
    return template_register_base(server->store, &base, &arena, &id, err);
}

/* Without an authority rules are refused; all else goes on. */
static void open_egress(struct server *server, struct sandboxes_config *config)
{
    struct error err;

    config->egress = server->egress = egress_link_open(getenv(WARDEN_EGRESS_ENV));
    if (egress_authority_open(server->store_dir, &server->authority, &err) < 0) {
        log_error("server", "%s; sandboxes with rules are refused", err.message);
        return;
    }
    config->authority = server->authority;
    egress_link_authority(server->egress, buf_str(&server->authority->certificate),
                          buf_str(&server->authority->key));
}

static int open_domain(struct server *server, struct error *err)
{
    struct sandboxes_config config = {
        .domain = server->domain,
        .warm = (size_t)server->config.warm,
        .blank =
            (size_t)(server->config.blank < 0 ? 3 * server->config.warm : server->config.blank),
        .max_running = (size_t)server->config.max_sandboxes,
        .max_timeout_s = server->config.max_hours * 3600,
        .volume_mb = server->config.volume_mb,
        .grace_s = server->config.grace,
        .ready_s = server->config.ready_timeout_s,
    };

    config.engine = server->engine;
    config.store = server->store;
    config.routes = server->routes;
    config.secrets = server->secrets;
    config.team_rates = server->config.team_kbit || server->config.team_packets ||
                        server->config.team_connections || server->config.team_dns;
    config.no_network = getenv(WARDEN_NO_NETWORK_ENV);
    if (getenv(WARDEN_EGRESS_ENV))
        open_egress(server, &config);
    if (sandboxes_open(&config, &server->sandboxes, err) < 0)
        return -1;
    if (server->egress)
        egress_link_start(server->egress);
    if (volumes_open(&(struct volumes_config){.sandboxes = server->sandboxes,
                                              .engine = server->engine,
                                              .store = server->store,
                                              .routes = server->routes},
                     &server->volumes, err) < 0)
        return -1;
    return webhooks_open(
        &(struct webhooks_config){.sandboxes = server->sandboxes,
                                  .store = server->store,
                                  .sender = server->sender,
                                  .ca_file = server->config.webhook_ca,
                                  .pause_ms = server->config.webhook_pause_s * 1000},
        &server->webhooks, err);
}

static int open_builds(struct server *server, struct error *err)
{
    const struct config *config = &server->config;
    char unpack[PATH_MAX];

    part_path("unpack", unpack, sizeof(unpack));
    server->spool = spool_new(&(struct spool_config){.directory = server->store_dir,
                                                     .max_bytes = config->spool_mb * 1024 * 1024,
                                                     .disk_of = sandboxes_disk_of,
                                                     .arg = server->sandboxes});
    if (images_open(&(struct images_config){.store = server->store,
                                            .secrets = server->secrets,
                                            .store_dir = server->store_dir,
                                            .mirrors = config->registry_mirrors,
                                            .stall_ms = (uint32_t)config->registry_s * 1000,
                                            .keep_days = config->build_cache_days,
                                            .keep_mb = config->build_cache_mb},
                    &server->images, err) < 0)
        return -1;
    return builds_open(&(struct builds_config){.engine = server->engine,
                                               .store = server->store,
                                               .sandboxes = server->sandboxes,
                                               .volumes = server->volumes,
                                               .spool = server->spool,
                                               .data = config->data,
                                               .unpack = unpack,
                                               .images = images_for_builds(server->images),
                                               .max = (size_t)config->builds,
                                               .team_max = (size_t)config->team_builds,
                                               .cpu_count = config->build_cpu,
                                               .mem_mb = config->build_mem_mb,
                                               .disk_mb = config->build_disk_mb,
                                               .timeout_s = config->build_s,
                                               .cache_days = config->build_cache_days,
                                               .cache_mb = config->build_cache_mb,
                                               .packages = {.mirror = config->package_mirror,
                                                            .security = config->package_security,
                                                            .keyring = config->package_keyring,
                                                            .stall_s = config->package_s}},
                       &server->builds, err);
}

static void prepare_edges(struct server *server)
{
    char run_dir[CONFIG_TEXT_SIZE + 8];

    (void)snprintf(run_dir, sizeof(run_dir), "%s/run", server->config.data);
    server->engine =
        engine_warden_new(server->fds.control, WARDEN_CONTROL_CHANNELS, server->fds.event, run_dir);
    server->routes = routes_new();
    server_lanes_open(&server->lanes, server->config.workers);
    server->addresses =
        shares_new(&(struct shares_config){.each_max = (size_t)server->config.address_connections});
    server->budget =
        http_budget_new((size_t)server->config.response_memory_mb << 20, server->lanes.wait);
    server->box_connections =
        shares_new(&(struct shares_config){.each_max = (size_t)server->config.box_connections});
    server->edges = xcalloc(server->fds.loops, sizeof(*server->edges));
    for (size_t i = 0; i < server->fds.loops; i++)
        edge_prepare(server, i);
}

/* On the loop: a client of a browser that was admitted. */
static void on_join(void *arg, struct loop *loop, struct http_exchange *ex,
                    const struct call_join *join)
{
    struct server *server = arg;
    const struct proxy_join to = {.id = join->sandbox_id,
                                  .port = join->port,
                                  .target = join->path,
                                  .ended = join->ended,
                                  .arg = join->arg};

    for (size_t i = 0; i < server->fds.loops; i++)
        if (server->edges[i].loop == loop)
            proxy_join(server->edges[i].proxy, ex, &to);
}

static int open_extras(struct server *server, struct error *err)
{
    struct extra_host host = {.sandboxes = server->sandboxes,
                              .volumes = server->volumes,
                              .engine = server->engine,
                              .store = server->store,
                              .secrets = server->secrets,
                              .spool = server->spool,
                              .keys = server->keys,
                              .limits = server->limits,
                              .directory = server->store_dir,
                              .url = getenv("QUICKSAND_URL_SELF"),
                              .domain = server->domain,
                              .join = on_join,
                              .join_arg = server};

    server_lanes_share(&server->lanes, server->config.workers, &host);
    runtime_service_share(server->runtime, &host);
    return extras_open(&host, err);
}

/* The edges' common parts: what a request is handed to. */
static int open_edge_parts(struct server *server, struct error *err)
{
    struct api_config api = {.sandboxes = server->sandboxes,
                             .volumes = server->volumes,
                             .webhooks = server->webhooks,
                             .builds = server->builds,
                             .store = server->store,
                             .secrets = server->secrets,
                             .file_directory = server->store_dir,
                             .spool = server->spool,
                             .upload_max = server->config.upload_mb * 1024 * 1024,
                             .monitor = server_monitor,
                             .monitor_arg = &server->monitor,
                             .url = getenv("QUICKSAND_URL_SELF")};

    server->monitor = (struct monitor_targets){
        .sandboxes = server->sandboxes, .budget = server->budget, .started_us = clock_wall_us()};
    server->keys = api.keys = api_keys_new(server->store, getenv("QUICKSAND_API_KEY"));
    server_lanes_assign(&server->lanes, server->config.workers, &api);
    server->creates = api.creates = sandbox_creates_new((size_t)server->config.create_queue);
    server->limits = api.limits = http_limits_new(&(struct http_limits_config){
        .body_bytes = (size_t)server->config.body_memory_mb * 1024 * 1024});
    server->api = api_new(&api);
    return runtime_service_open(
        &(struct runtime_service_config){
            .settings_path = server->config.runtime_config,
            .url = getenv("QUICKSAND_URL_SELF"),
            .domain = server->domain,
            .https_domain = server->tls && server->domain[0] ? server->domain : NULL,
            .listen_fd = server->fds.listen[0],
            .engine = server->engine,
            .file_directory = server->store_dir,
            .spool = server->spool,
            .store = server->store,
            .keys = server->keys,
            .routes = server->routes,
            .limits = server->limits,
            .sender = server->sender,
            .sandboxes = server->sandboxes,
            .creates = server->creates,
            .history = server->history,
            .join = on_join,
            .join_arg = server,
            .server_settings = server_settings,
            .server_settings_arg = &server->config},
        &server->runtime, err);
}

/* What clients are told depends on it: comes first. */
static int open_tls(struct server *server, struct error *err)
{
    uint64_t port = 0;

    (void)str_copy(str_of(server->config.domain), server->domain, sizeof(server->domain));
    if (server->fds.tls < 0)
        return 0;
    (void)str_to_u64(str_of(getenv(SERVE_TLS_PORT)), &port);
    server->tls_port = (uint16_t)port;
    server_tls_words(&server->config, server->tls_port, server->domain, server->hsts);
    return server_tls_open(server->fds.tls, &server->tls, err);
}

static int open_edges(struct server *server, struct error *err)
{
    for (size_t i = 0; i < server->fds.loops; i++)
        if (edge_listen(&server->edges[i], err) < 0)
            return -1;
    for (size_t i = 0; i < server->fds.loops; i++)
        if (thread_start(&server->edges[i].thread, "edge", THREAD_STACK_DEFAULT, edge_run,
                         &server->edges[i], err) < 0)
            return -1;
    return 0;
}

static int open_all(struct server *server, struct error *err)
{
    if (open_tls(server, err) < 0 || open_store(server, err) < 0)
        return -1;
    prepare_edges(server);
    if (sender_open(&server->sender, err) < 0 || open_domain(server, err) < 0 ||
        open_builds(server, err) < 0 ||
        history_open(server->sandboxes, server->store, &server->history, err) < 0 ||
        open_edge_parts(server, err) < 0 || open_extras(server, err) < 0)
        return -1;
    server->demand =
        on_demand_open(&(struct on_demand_config){.builds = server->builds,
                                                  .sandboxes = server->sandboxes,
                                                  .store = server->store,
                                                  .store_dir = server->store_dir,
                                                  .wait_s = server->config.build_demand_s});
    server->monitor.runtime = server->runtime;
    if (open_edges(server, err) < 0)
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
    server_stop_within(STOP_MS);
    api_stop(server->api);
    runtime_service_quiet(server->runtime);
    on_demand_hurry(server->demand);
    (void)pthread_mutex_lock(&server->lock);
    server->busy_edges = server->fds.loops * (server->tls ? 2 : 1);
    (void)pthread_mutex_unlock(&server->lock);
    for (size_t i = 0; i < server->fds.loops; i++)
        loop_post(server->edges[i].loop, &server->edges[i].drain_errand);
    deadline_us = clock_mono_us() + DRAIN_MS * INT64_C(1000);
    (void)pthread_mutex_lock(&server->lock);
    while (server->busy_edges && cond_wait_until(&server->drained, &server->lock, deadline_us))
        ;
    (void)pthread_mutex_unlock(&server->lock);
    sandboxes_hurry(server->sandboxes);
    for (size_t i = 0; i < server->fds.loops; i++) {
        loop_stop(server->edges[i].loop);
        thread_join(&server->edges[i].thread);
    }
    if (runtime_service_close(server->runtime) < 0) {
        /* What was acknowledged is stored; what runs in sandboxes goes on without us. */
        log_warn("server", "requests were still under way");
        _exit(0);
    }
    http_limits_free(server->limits);
    server_lanes_close(&server->lanes);
    extras_close();
    on_demand_close(server->demand);
    builds_close(server->builds);
    history_close(server->history);
    webhooks_close(server->webhooks);
    volumes_close(server->volumes);
    sandboxes_close(server->sandboxes);
    egress_link_close(server->egress);
    egress_authority_close(server->authority);
    sender_close(server->sender);
    images_close(server->images);
    store_close(server->store);
    secrets_close(server->secrets);
    server_tls_close(server->tls);
    spool_free(server->spool);
}

static void reload(struct server *server, int argc, char **argv)
{
    server_reload(&server->config, argc, argv,
                  &(struct reload_targets){.sandboxes = server->sandboxes,
                                           .creates = server->creates,
                                           .addresses = server->addresses,
                                           .box_connections = server->box_connections,
                                           .keys = server->keys,
                                           .runtime = server->runtime});
}

/* Until the server is to end. When the terminal is gone the warden is told too, and ends us. */
static int wait_for_signals(struct server *server, const sigset_t *set, int argc, char **argv)
{
    struct signalfd_siginfo info;
    auto_close int fd = signalfd(-1, set, SFD_CLOEXEC);
    ssize_t n;

    if (fd < 0)
        return -1;
    for (;;) {
        n = read(fd, &info, sizeof(info));
        if (n < 0 && errno == EINTR)
            continue;
        if (n != (ssize_t)sizeof(info) || info.ssi_signo != SIGHUP)
            return 0;
        if (info.ssi_code != SI_KERNEL)
            reload(server, argc, argv);
    }
}

/* The file by which clients trust our own certificates; "" when they are somebody else's. */
static void own_authority(const struct server *server, char *out, size_t size)
{
    (void)snprintf(out, size, "%s/tls/ca.pem", server->config.data);
    if (!server->tls || server->config.tls_certs[0] || access(out, R_OK) < 0)
        out[0] = '\0';
}

/* Not into files of logs, unless they get the key itself. */
static void make_link(const struct server *server, const char *key,
                      char out_link[SIGNIN_TOKEN_SIZE])
{
    const char *given = getenv("QUICKSAND_API_KEY");
    struct error err = {0};

    out_link[0] = '\0';
    if (!key[0] && given)
        key = given;
    if (!key[0] || (!server->generated_key[0] && !isatty(STDOUT_FILENO)))
        return;
    if (signin_link(server->store, str_of(key), out_link, &err) < 0) {
        log_warn("server", "no link to the dashboard: %s", err.message);
        out_link[0] = '\0';
    }
}

static void tell_ready(const struct server *server)
{
    const char *url = getenv("QUICKSAND_URL_SELF");
    char authority[CONFIG_TEXT_SIZE + 16];
    char key[API_KEY_GIVEN_MAX + 1], link[SIGNIN_TOKEN_SIZE];
    auto_buf struct buf provider = {0};
    bool remote = false, kept;

    buf_init(&provider, 1024);
    runtime_service_default(server->runtime, &provider, &remote);
    if (remote)
        log_warn(
            "server",
            "sandboxes of /api/v1 and the command line are made elsewhere: the default provider "
            "is %s; start the server without that variable, or choose another default_provider",
            provider.p);
    own_authority(server, authority, sizeof(authority));
    kept =
        credentials_settle(server->fds.credentials, url, server->generated_key, server->keys, key);
    make_link(server, key, link);
    ready_print(&(struct ready){
        .url = url,
        .domain = server->tls ? server->domain : "",
        .authority = authority,
        .made_key = server->generated_key,
        .key_kept = kept,
        .key_given = serve_key_given(),
        .link = link,
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

/* Its memory has keys and secrets. A limit of 1, unlike 0, holds for programs that take dumps, too (core(5)). */
static void dump_nothing(void)
{
    const struct rlimit least = {1, 1};

    (void)setrlimit(RLIMIT_CORE, &least);
}

int server_main(int argc, char **argv)
{
    static struct server server = {.lock = PTHREAD_MUTEX_INITIALIZER};
    char parts[CONFIG_TEXT_SIZE + 16];
    auto_buf struct buf faults = {0};
    struct error err;
    sigset_t set;

    dump_nothing();
    cond_init(&server.drained);
    buf_init(&faults, 16384);
    /* Blocked before any thread starts: only the signalfd sees them. */
    (void)signal(SIGPIPE, SIG_IGN);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    if (warden_server_fds(&server.fds, &err) < 0) {
        (void)fprintf(stderr, "quicksand: %s\n", err.message);
        return EXIT_CONFIG;
    }
    if (config_load(&server.config, argc, argv, &faults) != 0) {
        (void)fprintf(stderr, "%s", faults.p ? faults.p : "");
        return EXIT_CONFIG;
    }
    server_reload_log(&server.config);
    (void)snprintf(parts, sizeof(parts), "%s/" WARDEN_PARTS_DIR, server.config.data);
    parts_set_dir(parts);
    if (open_all(&server, &err) < 0) {
        (void)fprintf(stderr, "quicksand: %s\n", err.message);
        give_up(&server);
    }
    tell_ready(&server);
    (void)wait_for_signals(&server, &set, argc, argv);
    stop(&server);
    return 0;
}

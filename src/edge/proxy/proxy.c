#include "edge/proxy/proxy.h"

#include "base/alloc.h"
#include "base/list.h"
#include "edge/proxy/proxy_errors.h"
#include "edge/proxy/proxy_guard.h"
#include "edge/proxy/proxy_raw.h"
#include "edge/proxy/proxy_relay.h"
#include "edge/proxy/proxy_token.h"
#include "edge/proxy/proxy_wake.h"
#include "protocol/http/http_answer.h"
#include "protocol/http/http_errors.h"
#include "protocol/json/json_out.h"

struct proxy {
    struct loop *loop;
    struct routes *routes;
    struct proxy_wakes wakes;
    struct list woken; /* of wakes */
    struct proxy_upstream *upstream;
    struct shares *shares;
    struct list relays;
};

/* A route's end on its way from the thread that changed it. */
struct cut_errand {
    struct loop_errand errand;
    struct proxy *proxy;
    char id[ID_SIZE];
};

static void on_cut(struct loop_errand *errand)
{
    struct cut_errand *cut = container_of(errand, struct cut_errand, errand);
    struct proxy *proxy = cut->proxy;
    struct list *node, *next;
    struct route route;
    bool runs = routes_find(proxy->routes, str_of(cut->id), &route) && route.state == ROUTE_RUNNING;

    proxy_upstream_drop(proxy->upstream, cut->id);
    list_for_each_safe (node, next, &proxy->relays) {
        struct proxy_relay *relay = proxy_relay_of(node);

        if (strcmp(proxy_relay_id(relay), cut->id) != 0)
            continue;
        /* The id may live again by now; relays of its new life stay. */
        if (!runs || proxy_relay_generation(relay) != route.generation)
            proxy_relay_cut(relay);
    }
    free(cut);
}

static void on_route_gone(const char *id, void *arg)
{
    struct proxy *proxy = arg;
    struct cut_errand *cut = xcalloc(1, sizeof(*cut));

    cut->errand.fn = on_cut;
    cut->proxy = proxy;
    (void)str_copy(str_of(id), cut->id, sizeof(cut->id));
    loop_post(proxy->loop, &cut->errand);
}

struct proxy *proxy_new(struct loop *loop, const struct proxy_config *config)
{
    struct proxy *proxy = xcalloc(1, sizeof(*proxy));

    proxy->loop = loop;
    proxy->routes = config->routes;
    proxy->wakes = (struct proxy_wakes){
        .workers = config->workers, .routes = config->routes, .under_way = &proxy->woken};
    list_init(&proxy->woken);
    proxy->shares = config->shares;
    proxy->upstream = proxy_upstream_new(loop, config);
    list_init(&proxy->relays);
    routes_watch(config->routes, on_route_gone, proxy);
    return proxy;
}

void proxy_free(struct proxy *proxy)
{
    struct list *node, *next;

    if (!proxy)
        return;
    routes_unwatch(proxy->routes, on_route_gone, proxy);
    list_for_each_safe (node, next, &proxy->relays) /* tunnels: the exchanges are over */
        proxy_relay_cut(proxy_relay_of(node));
    proxy_upstream_free(proxy->upstream);
    loop_free_later(proxy->loop, proxy);
}

/* The bare connection is for who may run commands inside, and for who has the traffic token; never to envd,
 * whose control routes would be open then. True when it may go on; otherwise it is answered. */
static bool admit_raw(struct http_exchange *ex, const struct route *route,
                      const struct proxy_target *target)
{
    bool is_envd = target->port == PROXY_ENVD_PORT;

    if (!is_envd && (proxy_raw_is_owner(route, http_request(ex)) || route->traffic_token[0]))
        return true;
    proxy_errors_reply(ex, is_envd ? PROXY_ERROR_CONTROL : PROXY_ERROR_RAW, target);
    return false;
}

/* True when the request may go on; otherwise it is answered. */
static bool admit(struct http_exchange *ex, const struct route *route,
                  const struct proxy_target *target)
{
    if (target->port == PROXY_ENVD_PORT && proxy_guard_is_control(http_request(ex)->path)) {
        proxy_errors_reply(ex, PROXY_ERROR_CONTROL, target);
        return false;
    }
    if (proxy_raw_of(http_request(ex)) && proxy_raw_is_owner(route, http_request(ex)))
        return true;
    switch (proxy_guard_traffic(route, target->port, http_header(ex, PROXY_TRAFFIC_HEADER))) {
    case PROXY_TRAFFIC_OK:
        return true;
    case PROXY_TRAFFIC_MISSING:
        proxy_errors_reply(ex, PROXY_ERROR_TOKEN_MISSING, target);
        return false;
    case PROXY_TRAFFIC_INVALID:
        proxy_errors_reply(ex, PROXY_ERROR_TOKEN_INVALID, target);
        return false;
    }
    return false;
}

static void start_relay(struct proxy *proxy, struct http_exchange *ex,
                        const struct proxy_target *target, const struct route *route)
{
    proxy_relay_start(proxy->loop, proxy->upstream, proxy->shares, &proxy->relays, ex, target,
                      route, NULL);
}

void proxy_join(struct proxy *proxy, struct http_exchange *ex, const struct proxy_join *join)
{
    struct proxy_target target = {.port = join->port, .place = PROXY_PLACE_HEADER};
    struct route route;

    if (str_copy(join->id, target.id, sizeof(target.id)) &&
        routes_find(proxy->routes, join->id, &route) && route.state == ROUTE_RUNNING) {
        proxy_relay_start(proxy->loop, proxy->upstream, proxy->shares, &proxy->relays, ex, &target,
                          &route, join);
        return;
    }
    proxy_errors_reply(ex, PROXY_ERROR_NOT_FOUND, &target);
    if (join->ended)
        join->ended(join->arg);
}

static void on_woken(struct http_exchange *ex, const struct proxy_target *target,
                     const struct error *failure, void *arg)
{
    struct proxy *proxy = arg;
    struct route route;

    if (failure)
        proxy_errors_reply(ex, PROXY_ERROR_PAUSED, target);
    else if (routes_find(proxy->routes, str_of(target->id), &route) && route.state == ROUTE_RUNNING)
        start_relay(proxy, ex, target, &route);
    else
        proxy_errors_reply(ex, PROXY_ERROR_NOT_FOUND, target);
}

static void forward(struct proxy *proxy, struct http_exchange *ex, const struct route *route,
                    const struct proxy_target *target)
{
    if (route->volume) { /* its token opens the content of the volume, and nothing else */
        proxy_errors_reply(ex, PROXY_ERROR_NOT_FOUND, target);
        return;
    }
    if (target->place != PROXY_PLACE_OWN && proxy_guard_is_script(http_request(ex))) {
        proxy_errors_reply(ex, PROXY_ERROR_SCRIPT, target);
        return;
    }
    if (proxy_raw_of(http_request(ex)) && !admit_raw(ex, route, target))
        return;
    if (!admit(ex, route, target))
        return;
    if (route->state == ROUTE_RUNNING)
        start_relay(proxy, ex, target, route);
    else if (!proxy_wake_allowed(route, target, http_request(ex)) ||
             !proxy_wake(&proxy->wakes, ex, target, on_woken, proxy))
        proxy_errors_reply(ex, PROXY_ERROR_PAUSED, target);
}

static const struct pair json_type = {STR_INIT("Content-Type"),
                                      STR_INIT("application/json; charset=utf-8")};

/* Requests that name no sandbox may still belong to one; with an API key they never do. */
static bool handle_unnamed(struct proxy *proxy, struct http_exchange *ex)
{
    struct proxy_target target = {.id = "unknown", .port = PROXY_ENVD_PORT};
    struct route route;

    if (http_given_key(&http_request(ex)->headers).len)
        return false;
    switch (proxy_token_route(proxy->routes, http_request(ex), &route)) {
    case PROXY_TOKEN_NONE:
        return false;
    case PROXY_TOKEN_UNKNOWN:
        proxy_errors_reply(ex, PROXY_ERROR_NOT_FOUND, &target);
        return true;
    case PROXY_TOKEN_UNSIGNED:
        http_reply(ex, 401, &json_type, 1, STR("{\"code\":401,\"message\":\"invalid signature\"}"));
        return true;
    case PROXY_TOKEN_OK:
        break;
    }
    memcpy(target.id, route.id, ID_SIZE);
    target.place = http_header(ex, "x-access-token").len ? PROXY_PLACE_HEADER : PROXY_PLACE_LINK;
    forward(proxy, ex, &route, &target);
    return true;
}

/* ---- content of volumes ---- */

static void refuse_volume(struct http_exchange *ex, const struct error *err)
{
    auto_buf struct buf body = {0};

    buf_init(&body, 1024);
    json_out_open(&body, NULL, '{');
    json_out_str(&body, "code", str_of(http_error_connect_code(err->code)));
    json_out_str(&body, "message",
                 err->code == ERROR_UNAUTHORIZED ? STR("the volume's token is missing or wrong")
                 : err->code == ERROR_QUOTA ? STR("too many volumes are in use; try again later")
                                            : STR("the volume cannot be reached now"));
    json_out_close(&body, "}");
    http_reply(ex, http_error_status(err->code), &json_type, 1, buf_str(&body));
}

static bool start_volume(struct proxy *proxy, struct http_exchange *ex, struct str token)
{
    struct proxy_target target = {.port = PROXY_ENVD_PORT, .place = PROXY_PLACE_HEADER};
    struct route route;

    if (!routes_find_token(proxy->routes, token, &route) || !route.volume)
        return false;
    memcpy(target.id, route.id, ID_SIZE);
    start_relay(proxy, ex, &target, &route);
    return true;
}

static void on_volume_woken(struct http_exchange *ex, const struct proxy_target *target,
                            const struct error *failure, void *arg)
{
    const struct error gone = {.code = ERROR_UNAVAILABLE};

    if (failure || !start_volume(arg, ex, str_of(target->volume_token)))
        refuse_volume(ex, failure ? failure : &gone);
}

/* The token says which volume it is; whether the path names the same, its envd checks. */
static void handle_volume(struct proxy *proxy, struct http_exchange *ex)
{
    struct str header = http_header(ex, "authorization"), token = STR_NONE;
    struct error err = {.code = ERROR_UNAUTHORIZED};
    struct proxy_target target = {0};

    if (str_starts(header, STR("Bearer ")))
        token = str_trim(str_skip(header, 7));
    if (token.len == 0 || !str_copy(token, target.volume_token, sizeof(target.volume_token))) {
        refuse_volume(ex, &err);
        return;
    }
    if (start_volume(proxy, ex, token))
        return;
    err.code = ERROR_UNAVAILABLE;
    if (!proxy_wake(&proxy->wakes, ex, &target, on_volume_woken, proxy))
        refuse_volume(ex, &err);
}

/* Some clients (the Python SDK from 2.7 to 2.26) name the sandbox also where they call the control
 * plane about it: their key says so, and a path that is none of envd's. */
static bool is_control_call(const struct http_request *request, const struct proxy_target *target)
{
    return target->place == PROXY_PLACE_HEADER && target->port == PROXY_ENVD_PORT &&
           http_given_key(&request->headers).len && !proxy_guard_is_envds(request->path);
}

/* Who wants to be connected says where to in the request's first line; a Host need not be there. */
static struct str host_of(const struct http_request *request)
{
    return str_is(request->method, "CONNECT") ? request->target
                                              : http_headers_get(&request->headers, "host");
}

bool proxy_handle(struct proxy *proxy, struct http_exchange *ex)
{
    struct proxy_target target = {0};
    const char *error = NULL;
    char why[ROUTE_REASON_SIZE];
    struct route route;

    switch (proxy_host_parse(host_of(http_request(ex)), http_header(ex, "e2b-sandbox-id"),
                             http_header(ex, "e2b-sandbox-port"), &target, &error)) {
    case PROXY_HOST_NONE:
        if (str_is(http_request(ex)->method, "CONNECT")) {
            proxy_errors_bad_request(ex,
                                     "CONNECT leads to PORT-ID.DOMAIN only, a port of a sandbox");
            return true;
        }
        if (str_starts(http_request(ex)->path, STR("/volumecontent/")) &&
            !str_is(http_request(ex)->method, "OPTIONS")) {
            handle_volume(proxy, ex);
            return true;
        }
        return handle_unnamed(proxy, ex);
    case PROXY_HOST_BAD:
        proxy_errors_bad_request(ex, error);
        return true;
    case PROXY_HOST_OK:
        if (is_control_call(http_request(ex), &target))
            return false;
        break;
    }
    if (!routes_find(proxy->routes, str_of(target.id), &route))
        proxy_errors_ended(ex, &target,
                           routes_why(proxy->routes, str_of(target.id), why) ? why : NULL);
    else
        forward(proxy, ex, &route, &target);
    return true;
}

size_t proxy_relays(const struct proxy *proxy)
{
    struct list *node;
    size_t count = 0;

    list_for_each (node, &proxy->relays)
        count++;
    return count;
}

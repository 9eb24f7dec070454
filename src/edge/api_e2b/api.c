/* From an exchange on a loop to a handler on a worker and back.
 *
 * A struct api_call is owned by the loop until it is queued, by the worker while it runs, and by
 * the loop again from done() on. `ex` is only touched on the loop: when the client goes while a
 * worker runs, on_exchange_done() forgets the exchange and done() frees the call; otherwise the call
 * lives until its exchange is over. So the call is freed by whoever comes last, and both run on the
 * same loop.
 *
 * GET /health takes none of this way. */
#include "edge/api_e2b/api.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/list.h"
#include "base/log.h"
#include "edge/api_e2b/api_internal.h"
#include "protocol/http/http_answer.h"
#include "protocol/json/json_shape.h"

struct api *api_new(const struct api_config *config)
{
    struct api *api = xcalloc(1, sizeof(*api));

    api->config = *config;
    if (api->config.max_timeout_s <= 0)
        api->config.max_timeout_s = 24 * 3600;
    api_lanes_open(api);
    return api;
}

static void call_free(struct api_call *call)
{
    buf_done(&call->body_memory);
    http_room_give(call->api->config.limits, &call->room);
    free(call->text);
    arena_done(&call->arena);
    free(call);
}

static void log_request(const struct api_call *call, const char *note)
{
    double ms = (double)(clock_mono_us() - call->started_us) / 1000;

    api_monitor_count(call->api, call->status, clock_mono_us() - call->started_us);
    log_info("api", "request=%s %.*s %.*s status=%d ms=%.1f%s", call->request_id,
             STR_ARG(call->method), STR_ARG(call->path), call->status, ms, note);
}

void api_answer_header(struct api_call *call, const char *name, struct str value)
{
    if (call->header_count < HTTP_ANSWER_HEADERS_MAX)
        call->headers[call->header_count++] = (struct http_header){str_of(name), value};
}

void api_answer(struct api_call *call, int status, json_t *json_consume)
{
    free(call->text);
    call->text = json_consume ? json_text(json_consume) : NULL;
    call->status = status;
    json_decref(json_consume);
}

/* Last use of the call here: its exchange may end, and free it, inside. */
static void reply(struct api_call *call)
{
    http_answer(call->ex, call->status, call->content_type, call->headers, call->header_count,
                call->text);
}

static void on_exchange_done(struct http_exchange *ex, void *arg)
{
    struct api_call *call = arg;

    call->ex = NULL;
    if (call->working || !api_lane_leave(call) || (!http_finished(ex) && api_take_back(call)))
        return;
    /* Logged when the answer is on its way: a slow log must not delay it. Without a status it was
     * never answered by us: the body was too long (or too slow), or the client went inside it. */
    log_request(call, !http_finished(ex) ? " client=gone" : call->status ? "" : " refused=body");
    call_free(call);
}

void api_call_run(struct api_call *call)
{
    struct error err = {0};

    if (api_auth(call, &err) < 0 || call->endpoint->handler(call, &err) < 0)
        api_fail(call, &err);
    if (!call->again)
        api_audit(call);
}

void api_call_done(struct api_call *call)
{
    if ((!call->ex || (call->made.len && http_client_left(call->ex))) && api_take_back(call))
        return;
    if (call->ex) {
        reply(call);
        return;
    }
    log_request(call, " client=gone");
    call_free(call);
}

static void on_body(struct http_exchange *ex, struct str body, void *arg)
{
    struct api_call *call = arg;

    call->body_memory = http_take_body(ex);
    call->body = body;
    api_lane_enter(call);
}

/* A request that ends before a worker is needed. */
static void refuse(struct api_call *call, enum error_code code, const char *message)
{
    struct error err = {0};

    (void)error_set(&err, code, "%s", message);
    api_fail(call, &err);
    reply(call);
}

/* Who calls us by a loopback address reaches every name under "localhost" here as well, at the port
 * he used: browsers and curl take those for loopback. Others know their own way (E2B_DOMAIN). */
static struct str local_domain(struct str host, struct arena *arena)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct str name = str_of(names[i]), port = str_skip(host, name.len);
        uint64_t number = 80;

        if (host.len < name.len || !str_eq_nocase(str_n(host.p, name.len), name))
            continue;
        if (port.len && (port.p[0] != ':' || !str_to_u64(str_skip(port, 1), &number) ||
                         number < 1 || number > UINT16_MAX))
            return STR_NONE;
        return port.len ? str_of(arena_printf(arena, "localhost:%u", (unsigned)number))
                        : STR("localhost");
    }
    return STR_NONE;
}

static struct api_call *call_new(struct api *api, struct http_exchange *ex)
{
    const struct http_request *request = http_request(ex);
    struct api_call *call = xcalloc(1, sizeof(*call));

    call->api = api;
    call->ex = ex;
    call->started_us = clock_mono_us();
    id_hex(call->request_id, (API_REQUEST_ID_SIZE - 1) / 2);
    call->method = arena_str(&call->arena, request->method);
    call->path = arena_str(&call->arena, request->path);
    call->query = arena_str(&call->arena, request->query);
    call->key = arena_str(&call->arena, http_given_key(&request->headers));
    call->domain = local_domain(http_headers_get(&request->headers, "Host"), &call->arena);
    call->idempotency_key =
        arena_str(&call->arena, str_trim(http_headers_get(&request->headers, "Idempotency-Key")));
    http_on_done(ex, on_exchange_done, call);
    return call;
}

/* Who asks is known: now a body may come. What the key may do is asked again on the worker. */
static void admit(struct api_call *call)
{
    struct error err = {0};

    if (call->who.banned)
        (void)error_set(&err, ERROR_FORBIDDEN, "team is banned");
    else
        (void)http_room_take(call->api->config.limits, call->ex, str_of(call->who.team_id),
                             call->endpoint->body_max, &call->room, &err);
    if (err.code) {
        api_fail(call, &err);
        reply(call);
        return;
    }
    http_read_all(call->ex, call->endpoint->body_max, on_body, call);
}

static void look_up(struct work *work)
{
    struct api_call *call = container_of(work, struct api_call, work);

    (void)api_keys_find(call->api->config.keys, call->key, &call->who, &call->who_err);
}

static void looked_up(struct work *work)
{
    struct api_call *call = container_of(work, struct api_call, work);

    call->working = false;
    http_door_leave(call->api->config.limits, &call->door);
    if (!call->ex) {
        log_request(call, " client=gone");
        call_free(call);
    } else if (call->who_err.code) {
        api_fail(call, &call->who_err);
        reply(call);
    } else {
        admit(call);
    }
}

static void ask_who(struct api_call *call)
{
    struct error err = {0};

    call->work = (struct work){.run = look_up, .done = looked_up, .loop = http_loop(call->ex)};
    call->working = true;
    if (http_door_enter(call->api->config.limits, call->ex, &call->door, &call->work, &err) == 0)
        return;
    call->working = false;
    api_fail(call, &err);
    reply(call);
}

static void dispatch(struct api *api, struct http_exchange *ex)
{
    struct api_call *call = call_new(api, ex);
    char allow[HTTP_ALLOW_SIZE];

    switch (api_endpoints_find(call->method, call->path, &call->arena, &call->endpoint,
                               call->params, allow)) {
    case API_MATCH_NO_PATH:
        refuse(call, ERROR_NOT_FOUND, "there is no such route");
        return;
    case API_MATCH_NO_METHOD:
        api_answer_header(call, "Allow", arena_str(&call->arena, str_of(allow)));
        call->text = api_error_text(405, "this route does not take that method");
        call->status = 405;
        reply(call);
        return;
    case API_MATCH_FOUND:
        break;
    }
    /* Without a key there is no reason to read a body. */
    if (call->key.len == 0) {
        refuse(call, ERROR_UNAUTHORIZED,
               "no API key: send it as the header X-API-KEY or as 'Authorization: Bearer KEY'");
        return;
    }
    switch (api_keys_peek(api->config.keys, call->key, &call->who)) {
    case API_KEY_KNOWN:
        admit(call);
        break;
    case API_KEY_REFUSED:
        refuse(call, ERROR_UNAUTHORIZED, "Invalid API key");
        break;
    case API_KEY_UNSEEN:
        ask_who(call);
        break;
    }
}

void api_handle(struct api *api, struct http_exchange *ex)
{
    const struct http_request *request = http_request(ex);

    if (str_eq(request->path, STR("/health")) &&
        (str_eq(request->method, STR("GET")) || str_eq(request->method, STR("HEAD")))) {
        http_answer(ex, 200, "text/plain; charset=utf-8", NULL, 0, "Health check successful");
        log_debug("api", "GET /health status=200");
    } else if (str_eq(request->method, STR("OPTIONS"))) {
        http_answer_preflight(
            ex, "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS",
            "Origin, Content-Length, Content-Type, User-Agent, Authorization, X-API-Key, "
            "X-Access-Token, Idempotency-Key, browser, lang, lang_version, machine, os, "
            "package_version, processor, publisher, release, sdk_runtime, system");
    } else {
        dispatch(api, ex);
    }
}

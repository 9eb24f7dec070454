/* The E2B wire's endpoints on the common way of calls (edge/call/call.h). GET /health takes none of it. */
#include "edge/api_e2b/api.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "domain/sandbox/sandbox.h"
#include "domain/sandbox/sandbox_creates.h"
#include "edge/api_e2b/api_internal.h"
#include "protocol/http/http_answer.h"

static struct api_call *of(struct call *call)
{
    return (struct api_call *)call;
}

static int handle(struct call *call, struct error *err)
{
    return api_scope_check(of(call), err) < 0 ? -1 : of(call)->endpoint->handler(of(call), err);
}

static void fail(struct call *call, const struct error *err)
{
    api_fail(of(call), err);
}

static int kill_made(struct call *call, struct error *err)
{
    return sandbox_kill(of(call)->api->config.sandboxes, call->team_id, call->made, err);
}

static int admit(struct call *call, struct error *err)
{
    if (!of(call)->endpoint->creates)
        return 0;
    if (sandbox_creates_begin(of(call)->api->config.creates, call->seat.owner, err) < 0)
        return -1;
    call->only_for_client = !of(call)->idempotency_key.len;
    return 0;
}

static void leave(struct call *call)
{
    if (of(call)->endpoint->creates)
        sandbox_creates_end(of(call)->api->config.creates, call->seat.owner);
}

static void count(struct call *call)
{
    api_monitor_count(of(call)->api, call->status, clock_mono_us() - call->started_us);
}

static void done(struct call *call)
{
    json_decref(of(call)->json);
}

static const struct call_ops ops = {
    .name = "api",
    .keep_hint = "send an Idempotency-Key",
    .admit = admit,
    .leave = leave,
    .handle = handle,
    .fail = fail,
    .kill = kill_made,
    .count = count,
    .done = done,
};

void api_init(struct api *api, const struct api_config *config)
{
    *api = (struct api){.config = *config};
    api->desk = (struct call_desk){.ops = &ops,
                                   .keys = config->keys,
                                   .limits = config->limits,
                                   .store = config->store,
                                   .file_directory = config->file_directory,
                                   .spool = config->spool,
                                   .work_lane = API_LANE_CONTROL};
    for (size_t i = 0; i < API_LANE_COUNT; i++) {
        api->desk.lanes[i].workers = config->lanes[i].workers;
        api->desk.lanes[i].shares = shares_new(&(struct shares_config){
            .each_max = config->lanes[i].team_max, .waiting_max = API_TEAM_WAITING_MAX});
    }
}

void api_done(struct api *api)
{
    for (size_t i = 0; i < API_LANE_COUNT; i++)
        shares_free(api->desk.lanes[i].shares);
}

struct api *api_new(const struct api_config *config)
{
    struct api *api = xcalloc(1, sizeof(*api));

    api_init(api, config);
    return api;
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

/* A signed link stands for the API key. False: it was refused, and answered. */
static bool admit_link(struct api_call *call, const struct http_request *request)
{
    struct error err = {0};
    bool has_body = request->chunked || request->content_length >= 0;
    int r = api_build_files_admit(call, has_body ? request->content_length : 0, &err);

    if (r == 0)
        return true;
    api_fail(call, &err);
    if (r > 0) {
        free(call->text);
        call->text = api_error_text(r, err.message);
        call->status = r;
    }
    call_reply(&call->call);
    return false;
}

static enum call_need need_of(const struct api_endpoint *endpoint)
{
    if (endpoint->handler == api_monitor)
        return CALL_MEASURES;
    return str_is(str_of(endpoint->is.method), "GET") && !endpoint->reveals ? CALL_READS
                                                                            : CALL_CHANGES;
}

static void dispatch(struct api *api, struct http_exchange *ex)
{
    const struct http_headers *headers = &http_request(ex)->headers;
    struct api_call *call = xcalloc(1, sizeof(*call));
    char allow[HTTP_ALLOW_SIZE];

    call->api = api;
    call_begin(&call->call, &api->desk, ex);
    call->host = arena_str(&call->arena, http_headers_get(headers, "Host"));
    call->forwarded_proto =
        http_secure(ex) ? STR("https")
                        : arena_str(&call->arena, http_headers_get(headers, "X-Forwarded-Proto"));
    call->domain = local_domain(call->host, &call->arena);
    call->idempotency_key =
        arena_str(&call->arena, str_trim(http_headers_get(headers, "Idempotency-Key")));
    switch (api_endpoints_find(call->method, call->path, &call->arena, &call->endpoint,
                               call->params, allow)) {
    case CALL_NO_PATH:
        call_refuse(&call->call, ERROR_NOT_FOUND, "there is no such endpoint");
        return;
    case CALL_NO_METHOD:
        call->text = api_error_text(405, "this endpoint does not take that method");
        call->status = 405;
        call_header(&call->call, "Allow", arena_str(&call->arena, str_of(allow)));
        call_reply(&call->call);
        return;
    case CALL_FOUND:
        break;
    }
    call->row = &call->endpoint->is;
    call->lane = call->endpoint->lane;
    call->cancels = call->endpoint->cancels;
    call->body_max = call->endpoint->body_max;
    call->need = need_of(call->endpoint);
    if (call->endpoint->auth != API_AUTH_LINK || admit_link(call, http_request(ex)))
        call_start(&call->call);
}

void api_stop(struct api *api)
{
    atomic_store(&api->desk.stopping, true);
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

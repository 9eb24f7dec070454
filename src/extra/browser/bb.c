/* Browserbase's endpoints on the common way of calls (edge/call/call.h). */
#include "extra/browser/bb.h"

#include "base/alloc.h"
#include "base/encode.h"
#include "base/log.h"
#include "extra/browser/bb_internal.h"
#include "protocol/http/http_answer.h"
#include "protocol/http/http_errors.h"
#include "protocol/json/json_shape.h"

enum { HOST_MAX = 255 };

static struct bb_call *of(struct call *call)
{
    return (struct bb_call *)call;
}

/* ---- answers ---- */

static const char *status_words(int status)
{
    static const struct {
        int status;
        const char *words;
    } table[] = {{400, "Bad Request"},        {401, "Unauthorized"},       {403, "Forbidden"},
                 {404, "Not Found"},          {405, "Method Not Allowed"}, {409, "Conflict"},
                 {413, "Payload Too Large"},  {429, "Too Many Requests"},  {501, "Not Implemented"},
                 {503, "Service Unavailable"}};

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (table[i].status == status)
            return table[i].words;
    return status < 500 ? "Bad Request" : "Internal Server Error";
}

char *bb_error_text(int status, const char *message)
{
    auto_json json_t *json = json_pack("{s:i, s:s, s:o}", "statusCode", status, "error",
                                       status_words(status), "message", json_str(str_of(message)));

    return json_text(json);
}

void bb_fail(struct bb_call *call, const struct error *err)
{
    call_fault(&call->call, err, bb_error_text);
    /* Its clients try these again unless they are told not to: it would not help. */
    if (call->status == 409 || call->status == 501 || call->status == 507)
        call_header(&call->call, "x-should-retry", STR("false"));
}

struct str bb_query(struct bb_call *call, const char *name)
{
    auto_buf struct buf text = {0};

    buf_init(&text, HTTP_URL_MAX);
    if (!url_query_get(call->query, name, &text) || !text.len)
        return STR_NONE;
    return arena_str(&call->arena, buf_str(&text));
}

/* ---- the call ---- */

static int handle(struct call *base, struct error *err)
{
    struct bb_call *call = of(base);

    if (call->key_agent.len || call->key_sandbox.len)
        return error_set(err, ERROR_FORBIDDEN,
                         "sessions are for API keys of a whole team, and this one is bound to %s",
                         call->key_agent.len ? "an agent" : "a sandbox");
    if (!(call->endpoint->flags & BB_FILE) && call_json(&call->call, &call->json, err) < 0)
        return -1;
    return call->endpoint->handler(call, err);
}

static void fail(struct call *call, const struct error *err)
{
    bb_fail(of(call), err);
}

static int kill_made(struct call *call, struct error *err)
{
    struct store_browser_session session = {0};

    return browser_release(of(call)->bb->config.browsers, call->team_id, call->made, &call->arena,
                           &session, err);
}

static enum call_end finish(struct call *base)
{
    struct bb_call *call = of(base);

    if (call->ex && call->joins) {
        bb_take_over(call);
        return CALL_TAKEN;
    }
    bb_forget(call);
    return CALL_REPLY;
}

static void done(struct call *call)
{
    json_decref(of(call)->json);
}

static const struct call_ops ops = {
    .name = "browser",
    .keep_hint = "ask for it with keepAlive",
    .handle = handle,
    .fail = fail,
    .kill = kill_made,
    .finish = finish,
    .done = done,
};

/* ---- on the loop ---- */

static bool host_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == ':' || c == '[' || c == ']' || c == '_';
}

/* What the client reached us by; behind a proxy that ends TLS, what that says. */
static struct str find_origin(struct bb_call *call)
{
    struct str host = http_header(call->ex, "Host");
    bool secure = http_secure(call->ex) ||
                  str_eq_nocase(http_header(call->ex, "X-Forwarded-Proto"), STR("https"));
    bool good = host.len > 0 && host.len <= HOST_MAX;

    for (size_t i = 0; good && i < host.len; i++)
        good = host_char(host.p[i]);
    if (!good)
        return str_of(call->bb->config.url ? call->bb->config.url : "");
    return str_of(
        arena_printf(&call->arena, "%s://%.*s", secure ? "https" : "http", STR_ARG(host)));
}

static void read_head(struct bb_call *call)
{
    struct str key = str_trim(http_header(call->ex, "X-BB-API-Key"));

    if (key.len)
        call->key = arena_str(&call->arena, key);
    call->origin = find_origin(call);
    call->body_type = arena_str(&call->arena, http_header(call->ex, "Content-Type"));
    call->upgrade = http_request(call->ex)->upgrade;
}

/* False: the request was answered. */
static bool find_endpoint(struct bb_call *call)
{
    const struct call_endpoint *row = NULL;
    char allow[HTTP_ALLOW_SIZE];

    switch (call_endpoint_find(&bb_endpoints[0].is, sizeof(bb_endpoints[0]), call->method,
                               call->path, &call->arena, &row, call->params, allow)) {
    case CALL_NO_PATH:
        call_refuse(&call->call, ERROR_NOT_FOUND, "there is no such endpoint");
        return false;
    case CALL_NO_METHOD:
        call->text = bb_error_text(405, "this endpoint does not take that method");
        call->status = 405;
        call_header(&call->call, "Allow", arena_str(&call->arena, str_of(allow)));
        call_reply(&call->call);
        return false;
    case CALL_FOUND:
        break;
    }
    call->endpoint = (const struct bb_endpoint *)row;
    call->lane = bb_lane_of(call->endpoint);
    return true;
}

static void dispatch(struct bb *bb, struct http_exchange *ex)
{
    struct bb_call *call = xcalloc(1, sizeof(*call));

    call->bb = bb;
    call_begin(&call->call, &bb->desk, ex);
    read_head(call);
    if (!find_endpoint(call))
        return;
    call->body_max = call->endpoint->flags & BB_FILE ? BB_FILE_MAX : BB_BODY_MAX;
    call->public = call->no_body = call->endpoint->flags & BB_SIGNED;
    call->quiet = call->public;
    if (call->public && !call->upgrade)
        call_refuse(&call->call, ERROR_INVALID,
                    "this is a WebSocket: ask for it with 'Upgrade: websocket'");
    else
        call_start(&call->call);
}

bool bb_handle(struct bb *bb, struct http_exchange *ex)
{
    if (!str_starts(http_request(ex)->path, STR("/v1/")))
        return false;
    if (str_is(http_request(ex)->method, "OPTIONS"))
        http_answer_preflight(ex, "GET, HEAD, POST, PUT, DELETE, OPTIONS",
                              "Accept, Authorization, Content-Type, X-API-Key, X-BB-API-Key");
    else if (!bb_live_handle(ex))
        dispatch(bb, ex);
    return true;
}

/* ---- the whole ---- */

struct bb *bb_new(const struct bb_config *config)
{
    struct bb *bb = xcalloc(1, sizeof(*bb));

    bb->config = *config;
    /* Sessions that are taken back have no share: not on the control lane. */
    bb->desk = (struct call_desk){.ops = &ops,
                                  .keys = config->keys,
                                  .limits = config->limits,
                                  .store = config->store,
                                  .work_lane = BB_LANE_WAIT,
                                  .file_directory = config->file_directory,
                                  .spool = config->spool};
    for (size_t i = 0; i < BB_LANE_COUNT; i++) {
        bb->desk.lanes[i].workers = config->lanes[i].workers;
        bb->desk.lanes[i].shares = shares_new(&(struct shares_config){
            .each_max = config->lanes[i].team_max, .waiting_max = BB_TEAM_WAITING_MAX});
    }
    return bb;
}

void bb_free(struct bb *bb)
{
    if (!bb)
        return;
    for (size_t i = 0; i < BB_LANE_COUNT; i++)
        shares_free(bb->desk.lanes[i].shares);
    free(bb);
}

/* How it works: one table of everything envd answers. Plain HTTP endpoints get the exchange; for
 * remote procedure calls the body is read and parsed here and the handler gets a struct call. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "envd/core/auth.h"
#include "envd/core/claim.h"
#include "envd/core/codec.h"
#include "envd/core/envd.h"
#include "envd/core/journal.h"
#include "envd/files/files.h"
#include "envd/process/process_rpc.h"
#include "envd/volume/volume.h"
#include "protocol/http/http_errors.h"
#include "protocol/json/json_shape.h"
#include "protocol/rpc/connect.h"

enum {
    KEEPALIVE_DEFAULT_S = 90,
    KEEPALIVE_MAX_S = 3600,
};

enum endpoint_kind {
    ROUTE_HTTP,
    ROUTE_INIT,
    ROUTE_LEASE,
    ROUTE_AUTHORITY,
    ROUTE_UNARY,
    ROUTE_STREAM,
    ROUTE_CLIENT_STREAM
};

struct endpoint {
    const char *method, *path;
    enum endpoint_kind kind;
    void (*http)(struct envd *envd, struct http_exchange *ex);
    call_fn *call;
    bool binary; /* call reads messages of the binary codec itself */
};

static void health(struct envd *envd, struct http_exchange *ex)
{
    static const struct pair headers[] = {
        {STR_INIT("cache-control"), STR_INIT("no-store")},
        {STR_INIT("access-control-allow-origin"), STR_INIT("*")},
    };

    (void)envd;
    http_reply(ex, 204, headers, sizeof(headers) / sizeof(headers[0]), STR(""));
}

#define PROCESS_RPC(name)    "/process.Process/" name
#define FILESYSTEM_RPC(name) "/filesystem.Filesystem/" name

static const struct endpoint endpoints[] = {
    {"GET", "/health", ROUTE_HTTP, .http = health},
    {"POST", "/init", ROUTE_INIT},
    {"POST", "/init/lease", ROUTE_LEASE},
    {"POST", "/init/authority", ROUTE_AUTHORITY},
    {"GET", "/journal", ROUTE_HTTP, .http = journal_handle},
    {"GET", "/metrics", ROUTE_HTTP, .http = metrics_handle},
    {"GET", "/envs", ROUTE_HTTP, .http = init_envs},
    {"GET", "/files", ROUTE_HTTP, .http = files_download},
    {"POST", "/files", ROUTE_HTTP, .http = files_upload},
    {"POST", "/files/compose", ROUTE_HTTP, .http = files_compose},
    {"POST", PROCESS_RPC("Start"), ROUTE_STREAM, .call = process_rpc_start},
    {"POST", PROCESS_RPC("Connect"), ROUTE_STREAM, .call = process_rpc_connect},
    {"POST", PROCESS_RPC("List"), ROUTE_UNARY, .call = process_rpc_list},
    {"POST", PROCESS_RPC("SendInput"), ROUTE_UNARY, .call = process_rpc_send_input, .binary = true},
    {"POST", PROCESS_RPC("CloseStdin"), ROUTE_UNARY, .call = process_rpc_close_stdin},
    {"POST", PROCESS_RPC("SendSignal"), ROUTE_UNARY, .call = process_rpc_send_signal},
    {"POST", PROCESS_RPC("Update"), ROUTE_UNARY, .call = process_rpc_update},
    {"POST", PROCESS_RPC("StreamInput"), ROUTE_CLIENT_STREAM, .http = process_rpc_stream_input},
    {"POST", FILESYSTEM_RPC("Stat"), ROUTE_UNARY, .call = filesystem_stat},
    {"POST", FILESYSTEM_RPC("MakeDir"), ROUTE_UNARY, .call = filesystem_make_dir},
    {"POST", FILESYSTEM_RPC("Move"), ROUTE_UNARY, .call = filesystem_move},
    {"POST", FILESYSTEM_RPC("ListDir"), ROUTE_UNARY, .call = filesystem_list_dir},
    {"POST", FILESYSTEM_RPC("Remove"), ROUTE_UNARY, .call = filesystem_remove},
    {"POST", FILESYSTEM_RPC("WatchDir"), ROUTE_STREAM, .call = watch_rpc_dir},
    {"POST", FILESYSTEM_RPC("CreateWatcher"), ROUTE_UNARY, .call = watch_rpc_create},
    {"POST", FILESYSTEM_RPC("GetWatcherEvents"), ROUTE_UNARY, .call = watch_rpc_events},
    {"POST", FILESYSTEM_RPC("RemoveWatcher"), ROUTE_UNARY, .call = watch_rpc_remove},
};

static const struct pair json_headers[] = {
    {STR_INIT("content-type"), STR_INIT("application/json")},
    {STR_INIT("access-control-allow-origin"), STR_INIT("*")},
};

void envd_reply_json(struct http_exchange *ex, int status, struct str body)
{
    http_reply(ex, status, json_headers, sizeof(json_headers) / sizeof(json_headers[0]), body);
}

void envd_reply_error(struct http_exchange *ex, int status, const char *message)
{
    auto_json json_t *json = json_object();
    auto_free char *text = NULL;

    json_object_set_new(json, "code", json_integer(status));
    json_object_set_new(json, "message", json_str(str_of(message)));
    text = json_text(json);
    envd_reply_json(ex, status, str_of(text));
}

void envd_reply_failure(struct http_exchange *ex, const struct error *err)
{
    envd_reply_error(ex, http_error_status(err->code), err->message);
}

int call_user(const struct call *call, struct user *out, struct error *err)
{
    struct str header = http_header(call->ex, "authorization");
    struct str name = str_of(call->envd->settings.default_user);
    auto_buf struct buf decoded = {0};

    buf_init(&decoded, 1024);
    if (str_starts(header, STR("Basic "))) {
        struct str rest;

        if (!base64_decode(str_trim(str_skip(header, 6)), &decoded))
            return error_set(err, ERROR_UNAUTHORIZED, "invalid authorization header");
        rest = buf_str(&decoded);
        name = str_split(&rest, ':');
    }
    return users_find(name, out, err);
}

int64_t call_keepalive_ms(const struct call *call)
{
    int64_t seconds;

    if (!str_to_i64(http_header(call->ex, "keepalive-ping-interval"), &seconds) || seconds <= 0)
        seconds = KEEPALIVE_DEFAULT_S;
    return (seconds < KEEPALIVE_MAX_S ? seconds : KEEPALIVE_MAX_S) * 1000;
}

static const struct endpoint *find_route(const struct http_request *request, bool *path_known)
{
    *path_known = false;
    for (size_t i = 0; i < sizeof(endpoints) / sizeof(endpoints[0]); i++) {
        if (!str_is(request->path, endpoints[i].path))
            continue;
        *path_known = true;
        if (str_is(request->method, endpoints[i].method))
            return &endpoints[i];
    }
    return NULL;
}

/* Reads the one message of a call and lets the handler answer. */
static int run_call(struct envd *envd, struct http_exchange *ex, struct str message,
                    struct error *err)
{
    struct call call = {.envd = envd, .ex = ex};
    auto_json json_t *request = NULL;
    const struct endpoint *endpoint;
    bool path_known;

    endpoint = find_route(http_request(ex), &path_known);
    if (endpoint->binary && connect_format(ex)) {
        call.binary = message;
        return endpoint->call(&call, err);
    }
    if (connect_read(ex, message, &request, err) != 0)
        return -1;
    call.request = request;
    return endpoint->call(&call, err);
}

static void on_unary_body(struct http_exchange *ex, struct str body, void *arg)
{
    struct error err = {0};

    if (run_call(arg, ex, body, &err) != 0)
        connect_reply_error(ex, &err);
}

static void on_stream_body(struct http_exchange *ex, struct str body, void *arg)
{
    struct error err = {0};
    struct str message;

    if (connect_decode_single(body, &message, &err) != 0 || run_call(arg, ex, message, &err) != 0)
        connect_fail(ex, &err);
}

/* Preflight of browsers: everything is allowed, since requests carry their own proof. */
static void reply_preflight(struct http_exchange *ex)
{
    static const struct pair headers[] = {
        {STR_INIT("access-control-allow-origin"), STR_INIT("*")},
        {STR_INIT("access-control-allow-methods"), STR_INIT("GET, HEAD, POST, PUT, PATCH, DELETE")},
        {STR_INIT("access-control-allow-headers"), STR_INIT("*")},
        {STR_INIT("access-control-max-age"), STR_INIT("7200")},
    };

    http_reply(ex, 204, headers, sizeof(headers) / sizeof(headers[0]), STR(""));
}

/* In the words of the protocol, where the HTTP server would only say 413. */
static bool refuse_large(struct http_exchange *ex, const struct endpoint *endpoint)
{
    struct error err;

    if ((endpoint->kind != ROUTE_UNARY && endpoint->kind != ROUTE_STREAM) ||
        http_request(ex)->content_length <= CONNECT_HEAD_SIZE + CONNECT_MESSAGE_MAX)
        return false;
    error_set(&err, ERROR_LIMIT, "message of %lld bytes is longer than %d",
              (long long)http_request(ex)->content_length, CONNECT_MESSAGE_MAX);
    connect_fail(ex, &err);
    return true;
}

static void run(struct envd_door *door, const struct endpoint *endpoint, struct http_exchange *ex)
{
    if (endpoint->kind >= ROUTE_UNARY &&
        !connect_open(ex, codec_find(http_request(ex)->path), endpoint->kind != ROUTE_UNARY)) {
        envd_reply_error(ex, 415, "unsupported content type");
        return;
    }
    if (refuse_large(ex, endpoint))
        return;
    switch (endpoint->kind) {
    case ROUTE_INIT:
        init_handle(door, ex);
        break;
    case ROUTE_LEASE:
        lease_handle(door, ex);
        break;
    case ROUTE_AUTHORITY:
        init_authority(door, ex);
        break;
    case ROUTE_HTTP:
    case ROUTE_CLIENT_STREAM:
        endpoint->http(door->envd, ex);
        break;
    case ROUTE_UNARY:
        http_read_all(ex, CONNECT_MESSAGE_MAX, on_unary_body, door->envd);
        break;
    case ROUTE_STREAM:
        http_read_all(ex, CONNECT_HEAD_SIZE + CONNECT_MESSAGE_MAX, on_stream_body, door->envd);
        break;
    }
}

static bool is_init(const struct http_exchange *ex)
{
    return str_is(http_request(ex)->path, "/init");
}

void endpoints_handle(struct http_exchange *ex, void *arg)
{
    struct envd_door *door = arg;
    bool path_known;
    const struct endpoint *endpoint;
    struct error err = {0};

    if (str_is(http_request(ex)->method, "OPTIONS")) {
        reply_preflight(ex);
        return;
    }
    if (!str_is(http_request(ex)->path, "/health") && claim_take(door->envd, &err) != 0) {
        envd_reply_failure(ex, &err);
        return;
    }
    if (!is_init(ex)) /* which does it by itself, later */
        claim_finish();
    if (door->envd->volume.id[0] && !str_is(http_request(ex)->path, "/health") &&
        !(door->control && is_init(ex))) {
        volume_handle(door->envd, ex);
        return;
    }
    if (!auth_allows(&door->envd->settings, ex)) {
        envd_reply_error(ex, 401,
                         "unauthorized access, please provide a valid access token or method "
                         "signing if supported");
        return;
    }
    endpoint = find_route(http_request(ex), &path_known);
    if (endpoint)
        run(door, endpoint, ex);
    else
        envd_reply_error(ex, path_known ? 405 : 404,
                         path_known ? "method not allowed" : "not found");
}

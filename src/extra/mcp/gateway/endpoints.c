/* What clients of the gateway see: /mcp, with the tools of all servers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/id.h"
#include "extra/mcp/gateway/gateway.h"
#include "extra/mcp/mcp_message.h"
#include "protocol/http/http_answer.h"
#include "protocol/json/json_shape.h"

/* One request of a client. Lives until its exchange is over. */
struct request {
    struct list link; /* of the gateway's requests */
    struct gateway *gateway;
    struct http_exchange *ex;
    struct str session; /* as its head says; of the exchange */
    struct mcp_message message;
    struct asked *asked; /* what a server works on for it, or NULL */
    json_t *token;       /* of its progress, or NULL; borrowed from the message */
    bool takes_events, streams;
};

enum { SESSION_ID_BYTES = 16 };

/* ---- answers ---- */

static void write_event(struct request *request, json_t *message)
{
    static const struct pair headers[] = {{STR_INIT("Content-Type"), STR_INIT("text/event-stream")},
                                          {STR_INIT("Cache-Control"), STR_INIT("no-store")}};
    auto_free char *text = json_text(message);
    auto_free char *event = xasprintf("event: message\ndata: %s\n\n", text);

    if (!request->streams)
        http_begin(request->ex, 200, headers, 2, -1);
    request->streams = true;
    (void)http_write(request->ex, event, strlen(event));
}

/* Last use of the request: its exchange may end inside. */
static void answer(struct request *request, int status, json_t *message_consume)
{
    auto_json json_t *message = message_consume;
    auto_free char *text = NULL;

    if (request->streams) {
        write_event(request, message);
        http_end(request->ex);
        return;
    }
    text = message ? json_text(message) : NULL;
    http_answer(request->ex, status, NULL, NULL, 0, text);
}

/* The same for who begins, with a name for it to repeat: the ids of different clients are alike. */
static void answer_initialize(struct request *request, json_t *message_consume)
{
    auto_json json_t *message = message_consume;
    auto_free char *text = json_text(message);
    char id[SESSION_ID_BYTES * 2 + 1];
    struct pair header;

    id_hex(id, SESSION_ID_BYTES);
    header = (struct pair){STR("Mcp-Session-Id"), str_of(id)};
    http_answer(request->ex, 200, NULL, &header, 1, text);
}

static void refuse(struct request *request, struct mcp_fault *fault)
{
    answer(request, fault->status, mcp_fault_json(fault, request->message.id));
}

static void fail(struct request *request, enum mcp_code code, const char *message)
{
    int status = !request->message.stateless ? 200
                 : code == MCP_NO_METHOD     ? 404
                 : code == MCP_PARAMS_BAD    ? 400
                                             : 200;
    struct mcp_fault fault;

    (void)mcp_fault_set(&fault, status, code, "%s", message);
    refuse(request, &fault);
}

static void add_meta(struct request *request, json_t *result)
{
    bool kept = !str_is(request->message.method, "tools/call");

    if (!request->message.stateless)
        return;
    if (!json_object_get(result, "resultType"))
        (void)json_object_set_new(result, "resultType", json_string("complete"));
    if (kept) {
        (void)json_object_set_new(result, "ttlMs", json_integer(0));
        (void)json_object_set_new(result, "cacheScope", json_string("private"));
    }
}

static void succeed(struct request *request, json_t *result_consume)
{
    add_meta(request, result_consume);
    answer(request, 200,
           json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", request->message.id, "result",
                     result_consume));
}

/* ---- tools ---- */

static bool has_tool(const struct server *server, const char *name)
{
    json_t *tools = server_tools(server), *one;
    size_t i;

    json_array_foreach (tools, i, one) {
        if (str_is(json_get_str(one, "name"), name))
            return true;
    }
    return false;
}

char *gateway_tool_name(const struct gateway *gateway, const struct server *server,
                        const char *tool)
{
    const char *slash = strrchr(server_name(server), '/');
    bool twice = false;

    for (size_t i = 0; i < gateway->count; i++)
        twice = twice || (gateway->servers[i] != server && has_tool(gateway->servers[i], tool));
    return twice ? xasprintf("%s_%s", slash ? slash + 1 : server_name(server), tool)
                 : xstrdup(tool);
}

static void tools_list(struct request *request)
{
    json_t *all = json_array(), *one;
    size_t i;

    for (size_t s = 0; s < request->gateway->count; s++) {
        struct server *server = request->gateway->servers[s];

        json_array_foreach (server_tools(server), i, one) {
            auto_free char *name = gateway_tool_name(
                request->gateway, server, json_string_value(json_object_get(one, "name")));
            json_t *copy = json_copy(one);

            (void)json_object_set_new(copy, "name", json_string(name));
            (void)json_array_append_new(all, copy);
        }
    }
    succeed(request, json_pack("{s:o}", "tools", all));
}

/* Whose tool this is, and what it is called there. */
static struct server *find_tool(const struct gateway *gateway, struct str name, const char **out)
{
    json_t *one;
    size_t i;

    for (size_t s = 0; s < gateway->count; s++) {
        json_array_foreach (server_tools(gateway->servers[s]), i, one) {
            const char *own = json_string_value(json_object_get(one, "name"));
            auto_free char *told = gateway_tool_name(gateway, gateway->servers[s], own);

            if (!str_is(name, told))
                continue;
            *out = own;
            return gateway->servers[s];
        }
    }
    return NULL;
}

static void on_progress(void *arg, json_t *params)
{
    struct request *request = arg;
    auto_json json_t *told = json_copy(params);
    auto_json json_t *message = NULL;

    (void)json_object_set(told, "progressToken", request->token);
    message = json_pack("{s:s, s:s, s:O}", "jsonrpc", "2.0", "method", "notifications/progress",
                        "params", told);
    /* One who does not read is told the result only. */
    if (http_pending(request->ex) < HTTP_HIGH_WATER)
        write_event(request, message);
}

static void on_called(void *arg, json_t *answered, const char *why)
{
    struct request *request = arg;
    json_t *result = json_object_get(answered, "result");
    json_t *error = json_object_get(answered, "error");

    request->asked = NULL;
    if (json_is_object(result))
        succeed(request, json_copy(result));
    else if (error)
        answer(request, 200,
               json_pack("{s:s, s:O, s:O}", "jsonrpc", "2.0", "id", request->message.id, "error",
                         error));
    else
        fail(request, MCP_INTERNAL, why ? why : "the server's answer is none");
}

static void tools_call(struct request *request)
{
    json_t *params = request->message.params, *passed;
    const char *own = NULL;
    struct server *server = find_tool(request->gateway, json_get_str(params, "name"), &own);
    struct asked wanted = {.on_answer = on_called, .arg = request};

    if (!server) {
        fail(request, MCP_PARAMS_BAD, "there is no such tool");
        return;
    }
    request->token = json_object_get(json_object_get(params, "_meta"), "progressToken");
    if (request->token && request->takes_events)
        wanted.on_progress = on_progress;
    passed =
        json_pack("{s:s, s:O*}", "name", own, "arguments", json_object_get(params, "arguments"));
    request->asked = server_ask(server, "tools/call", passed, &wanted);
    if (!request->asked)
        fail(request, MCP_INTERNAL, "the server of this tool does not run, or has too much to do");
}

/* ---- methods ---- */

static json_t *server_info(void)
{
    return json_pack("{s:s, s:s}", "name", "mcp-gateway", "version", QUICKSAND_VERSION);
}

static void initialize(struct request *request)
{
    struct str asked = json_get_str(request->message.params, "protocolVersion");

    answer_initialize(request, json_pack("{s:s, s:O, s:{s:s, s:{s:{}}, s:o}}", "jsonrpc", "2.0",
                                         "id", request->message.id, "result", "protocolVersion",
                                         mcp_version_for(asked), "capabilities", "tools",
                                         "serverInfo", server_info()));
}

static void discover(struct request *request)
{
    succeed(request, json_pack("{s:o, s:{s:{}}, s:{s:o}}", "supportedVersions", mcp_versions(),
                               "capabilities", "tools", "_meta",
                               "io.modelcontextprotocol/serverInfo", server_info()));
}

static void ping(struct request *request)
{
    succeed(request, json_object());
}

static const struct {
    const char *name;
    bool initialized, stateless;
    void (*fn)(struct request *request);
} methods[] = {
    {"initialize", true, false, initialize},    {"ping", true, false, ping},
    {"server/discover", false, true, discover}, {"tools/list", true, true, tools_list},
    {"tools/call", true, true, tools_call},
};

/* The call of the same client with that id, when a server still works on it. */
static struct request *find_call(const struct request *asking, const json_t *id)
{
    struct list *node;

    list_for_each (node, &asking->gateway->requests) {
        struct request *one = container_of(node, struct request, link);

        if (one->asked && str_eq(one->session, asking->session) && json_equal(one->message.id, id))
            return one;
    }
    return NULL;
}

static void cancel(const struct request *asking)
{
    const json_t *id = json_object_get(asking->message.params, "requestId");
    struct request *call = asking->session.len && id ? find_call(asking, id) : NULL;

    if (!call)
        return;
    server_cancel(call->asked);
    call->asked = NULL;
    fail(call, MCP_CANCELLED, "the request was cancelled");
}

static void dispatch(struct request *request)
{
    const struct mcp_message *message = &request->message;

    if (message->kind != MCP_REQUEST) {
        if (str_is(message->method, "notifications/cancelled"))
            cancel(request);
        answer(request, 202, NULL);
        return;
    }
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
        if (str_is(message->method, methods[i].name) &&
            (message->stateless ? methods[i].stateless : methods[i].initialized)) {
            methods[i].fn(request);
            return;
        }
    fail(request, MCP_NO_METHOD, "there is no such method");
}

/* ---- HTTP ---- */

/* Its end, however it came. A client that leaves cancels. */
static void on_done(struct http_exchange *ex, void *arg)
{
    struct request *request = arg;

    (void)ex;
    if (request->asked)
        server_cancel(request->asked);
    list_remove(&request->link);
    mcp_message_done(&request->message);
    free(request);
}

static void on_body(struct http_exchange *ex, struct str body, void *arg)
{
    struct request *request = arg;
    struct mcp_heads heads = {http_header(ex, "MCP-Protocol-Version"),
                              http_header(ex, "Mcp-Method"), http_header(ex, "Mcp-Name")};
    struct mcp_fault fault = {0};

    if (mcp_message_parse(body, &request->message, &fault) < 0 ||
        mcp_message_check(&request->message, &heads, &fault) < 0)
        refuse(request, &fault);
    else
        dispatch(request);
}

/* In a time that does not tell how much of it was right. */
static bool same(struct str a, struct str b)
{
    unsigned char differs = a.len != b.len;

    for (size_t i = 0; i < b.len; i++)
        differs |= (unsigned char)((a.len ? a.p[i % a.len] : 0) ^ b.p[i]);
    return !differs;
}

static void refuse_head(struct http_exchange *ex, int status, const char *name, const char *value,
                        const char *message)
{
    struct pair header = {str_of(name), str_of(value)};
    struct mcp_fault fault;
    auto_json json_t *json = NULL;
    auto_free char *text = NULL;

    (void)mcp_fault_set(&fault, status, MCP_REFUSED, "%s", message);
    json = mcp_fault_json(&fault, NULL);
    text = json_text(json);
    http_answer(ex, status, NULL, &header, 1, text);
}

void gateway_handle(struct http_exchange *ex, void *arg)
{
    struct gateway *gateway = arg;
    struct str path = http_request(ex)->path, method = http_request(ex)->method;
    struct request *request;

    if (!str_is(path, "/mcp") && !str_is(path, "/mcp/")) {
        refuse_head(ex, 404, "Cache-Control", "no-store", "the gateway is at /mcp");
    } else if (!same(http_given_key(&http_request(ex)->headers), gateway->token)) {
        refuse_head(ex, 401, "WWW-Authenticate", "Bearer", "the gateway's token is needed");
    } else if (!str_is(method, "POST")) {
        refuse_head(ex, 405, "Allow", "POST", "send messages by POST");
    } else {
        request = xcalloc(1, sizeof(*request));
        request->gateway = gateway;
        request->ex = ex;
        request->session = http_header(ex, "Mcp-Session-Id");
        list_push_back(&gateway->requests, &request->link);
        request->takes_events =
            str_find_str(http_header(ex, "Accept"), STR("text/event-stream")) >= 0;
        http_on_done(ex, on_done, request);
        http_leave_at_end(ex);
        http_read_all(ex, GATEWAY_BODY_MAX, on_body, request);
    }
}

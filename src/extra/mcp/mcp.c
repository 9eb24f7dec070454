/* /mcp on the common way of calls (edge/call/call.h), one message a request. Only the message says which tool it calls, so
 * each is parsed by a worker of the control lane, and handed on to the work lane when its tool takes long. The answer is
 * one JSON text, unless a notification comes before it: then it is a stream of events. */
#include "extra/mcp/mcp.h"

#include "base/address.h"
#include "base/alloc.h"
#include "base/encode.h"
#include "base/id.h"
#include "base/log.h"
#include "extra/mcp/mcp_tool.h"
#include "protocol/http/http_answer.h"
#include "protocol/json/json_shape.h"

#define PATH "/mcp"

enum { AGENT_ID_MAX = 256, SESSION_MAX = 128 };

static struct mcp_call *of(struct call *call)
{
    return (struct mcp_call *)call;
}

/* In whose name: as the key says, else the header. */
static int find_agent(struct mcp_call *call, struct error *err)
{
    struct str given = call->agent_header;

    if (given.len > AGENT_ID_MAX || !str_valid_utf8(given))
        return error_set(err, ERROR_INVALID, "X-Agent-ID must be at most %d bytes of text",
                         AGENT_ID_MAX);
    if (call->key_agent.len && given.len && !str_eq(given, call->key_agent))
        return error_set(err, ERROR_FORBIDDEN, "this API key acts as agent '%.*s', not as '%.*s'",
                         STR_ARG(call->key_agent), STR_ARG(given));
    if (call->key_agent.len)
        given = call->key_agent;
    call->agent_id = given.len ? given : STR_NONE;
    call->caller = (struct runtime_caller){
        .team_id = call->team_id,
        .agent_id = call->agent_id,
        .actor = call->key_id.len ? call->key_id : STR("operator"),
    };
    return 0;
}

static void cancel(struct mcp_call *call)
{
    json_t *id = json_object_get(call->message.params, "requestId");
    char *text = id ? json_dumps(id, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;

    if (text)
        mcp_running_cancel(call, str_of(text));
    free(text);
}

/* Answered with a fault: false. */
static bool parse(struct mcp_call *call)
{
    struct mcp_fault fault = {0};

    if (mcp_message_parse(call->body, &call->message, &fault) == 0 &&
        mcp_message_check(&call->message, &call->heads, &fault) == 0)
        return true;
    mcp_answer_fault(call, &fault);
    return false;
}

/* Notifications, and answers to what was never asked. */
static void take_note(struct mcp_call *call)
{
    if (str_is(call->message.method, "notifications/cancelled"))
        cancel(call);
    call->quiet = true;
    call_answer(&call->call, 202, NULL);
}

static int work(struct call *base, struct error *err)
{
    struct mcp_call *call = of(base);

    (void)err;
    mcp_running_add(call);
    mcp_method(call);
    mcp_running_remove(call);
    return 0;
}

static int handle(struct call *base, struct error *err)
{
    struct mcp_call *call = of(base);
    enum mcp_lane lane;

    if (find_agent(call, err) < 0)
        return -1;
    call->quiet = true; /* until a tool changes something */
    if (str_is(call->method, "DELETE")) {
        mcp_running_cancel(call, STR_NONE);
        call_answer(&call->call, 204, NULL);
        return 0;
    }
    if (!parse(call))
        return 0;
    if (call->message.kind != MCP_REQUEST) {
        take_note(call);
        return 0;
    }
    lane = mcp_method_lane(call);
    if (lane == MCP_LANE_CONTROL)
        return work(base, err);
    call_move(base, lane, work);
    return 0;
}

static void fail(struct call *call, const struct error *err)
{
    mcp_refuse(of(call), err);
}

static int kill_made(struct call *call, struct error *err)
{
    return runtime_sandbox_kill(of(call)->mcp->config.runtime, &of(call)->caller, call->made, NULL,
                                err);
}

static void gone(struct call *call)
{
    call_pipe_close(&of(call)->pipe);
}

static enum call_end finish(struct call *base)
{
    struct mcp_call *call = of(base);

    if (!call->ex || !call->pipe.writes)
        return CALL_REPLY;
    call_pipe_finish(&call->pipe, false);
    return CALL_SENT;
}

static void done(struct call *call)
{
    mcp_message_done(&of(call)->message);
    buf_done(&of(call)->progress.text);
    call_pipe_done(&of(call)->pipe);
}

static const struct call_ops ops = {
    .name = "mcp",
    .keep_hint = "give it a 'key'",
    .handle = handle,
    .fail = fail,
    .kill = kill_made,
    .gone = gone,
    .finish = finish,
    .done = done,
};

/* ---- on the loop ---- */

static struct str header_of(struct mcp_call *call, const char *name)
{
    struct str value = http_header(call->ex, name);

    return value.p ? arena_str(&call->arena, str_trim(value)) : STR_NONE;
}

static void read_head(struct mcp_call *call)
{
    struct str accept = http_header(call->ex, "Accept");
    auto_buf struct buf key = {0};

    /* Clients that are given nothing but a URL. */
    buf_init(&key, HTTP_URL_MAX);
    if (!call->key.len && url_query_get(call->query, "api_key", &key) && key.len)
        call->key = arena_str(&call->arena, buf_str(&key));
    call->agent_header = header_of(call, "X-Agent-ID");
    call->session = header_of(call, "Mcp-Session-Id");
    call->heads.version = header_of(call, "MCP-Protocol-Version");
    call->heads.method = header_of(call, "Mcp-Method");
    call->heads.name = header_of(call, "Mcp-Name");
    call->takes_events = str_find_str(accept, STR("text/event-stream")) >= 0;
}

static bool is_loopback(struct str host)
{
    return str_eq_nocase(host, STR("localhost")) || str_is(host, "::1") || str_is(host, "[::1]") ||
           str_starts(host, STR("127."));
}

/* A page may ask when it is of this host or of the server's domain. Programs that are no browsers say nothing. A
 * name that somebody lets lead here (DNS rebinding) is neither. */
static bool origin_allowed(const struct mcp *mcp, struct str origin)
{
    struct str host = STR_NONE, own = STR_NONE;
    uint16_t port = 0;

    if (!origin.len)
        return true;
    if (!address_of_url(origin, &host, &port))
        return false;
    if (is_loopback(host))
        return true;
    if (!mcp->config.domain || !address_of_url(str_of(mcp->config.domain), &own, &port))
        return false;
    return str_eq_nocase(host, own);
}

static void refuse_method(struct mcp_call *call)
{
    struct mcp_fault fault;

    (void)mcp_fault_set(&fault, 405, MCP_REQUEST_BAD,
                        "send messages by POST; there is no stream of the server's own");
    mcp_answer_fault(call, &fault);
    call_header(&call->call, "Allow", STR("POST, DELETE, OPTIONS"));
    call_reply(&call->call);
}

static void dispatch(struct mcp *mcp, struct http_exchange *ex)
{
    static const struct call_endpoint row = {.method = "POST", .pattern = PATH};
    struct mcp_call *call = xcalloc(1, sizeof(*call));
    bool ends;

    call->mcp = mcp;
    call_pipe_init(&call->pipe, &call->call);
    buf_init(&call->progress.text, MCP_BODY_MAX);
    call_begin(&call->call, &mcp->desk, ex);
    http_leave_at_end(ex);
    read_head(call);
    ends = str_is(call->method, "DELETE") && call->session.len;
    call->row = &row;
    call->lane = MCP_LANE_CONTROL;
    call->body_max = MCP_BODY_MAX;
    call->no_body = ends;
    if (!origin_allowed(mcp, str_trim(http_header(ex, "Origin"))))
        call_refuse(&call->call, ERROR_FORBIDDEN, "pages of this origin may not ask");
    else if (!str_is(call->method, "POST") && !ends)
        refuse_method(call);
    else if (call->session.len > SESSION_MAX)
        call_refuse(&call->call, ERROR_INVALID, "Mcp-Session-Id is too long");
    else
        call_start(&call->call);
}

bool mcp_handle(struct mcp *mcp, struct http_exchange *ex)
{
    struct str path = http_request(ex)->path;

    if (!str_is(path, PATH) && !str_is(path, PATH "/"))
        return false;
    if (str_is(http_request(ex)->method, "OPTIONS"))
        http_answer_preflight(ex, "POST, DELETE, OPTIONS",
                              "Accept, Authorization, Content-Type, Mcp-Method, Mcp-Name, "
                              "MCP-Protocol-Version, Mcp-Session-Id, X-Agent-ID, X-API-Key");
    else
        dispatch(mcp, ex);
    return true;
}

/* ---- the whole ---- */

struct mcp *mcp_new(const struct mcp_config *config)
{
    struct mcp *mcp = xcalloc(1, sizeof(*mcp));
    struct error err = {0};

    mcp->config = *config;
    (void)pthread_mutex_init(&mcp->lock, NULL);
    list_init(&mcp->running);
    mcp->tools = mcp_tools_described();
    if (config->fixtures && json_parse(str_of(config->fixtures), &mcp->fixtures, &err) < 0)
        log_error("mcp", "the fixtures are not used: %s", err.message);
    mcp->desk = (struct call_desk){.ops = &ops,
                                   .keys = config->keys,
                                   .limits = config->limits,
                                   .store = config->store,
                                   .work_lane = MCP_LANE_CONTROL};
    for (size_t i = 0; i < MCP_LANE_COUNT; i++) {
        mcp->desk.lanes[i].workers = config->lanes[i].workers;
        mcp->desk.lanes[i].shares = shares_new(&(struct shares_config){
            .each_max = config->lanes[i].team_max, .waiting_max = MCP_TEAM_WAITING_MAX});
    }
    return mcp;
}

void mcp_free(struct mcp *mcp)
{
    if (!mcp)
        return;
    for (size_t i = 0; i < MCP_LANE_COUNT; i++)
        shares_free(mcp->desk.lanes[i].shares);
    json_decref(mcp->tools);
    json_decref(mcp->fixtures);
    (void)pthread_mutex_destroy(&mcp->lock);
    free(mcp);
}

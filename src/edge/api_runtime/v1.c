/* The endpoints under /api/v1 on the common way of calls (edge/call/call.h).
 *
 * A handler may write its answer in pieces, or read its body so (call_pipe.h); or leave a take_over() for
 * the loop, which makes an event stream or a WebSocket of the exchange. */
#include "edge/api_runtime/v1.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/encode.h"
#include "base/id.h"
#include "base/log.h"
#include "edge/api_runtime/v1_internal.h"
#include "edge/api_runtime/v1_members.h"
#include "edge/ui/ui.h"
#include "protocol/http/http_answer.h"
#include "protocol/json/json_shape.h"
#include "runtime/sandbox/sandbox.h"

#define PREFIX "/api/v1"

void v1_free(struct v1 *v1)
{
    if (!v1)
        return;
    for (size_t i = 0; i < V1_LANE_COUNT; i++)
        shares_free(v1->desk.lanes[i].shares);
    shares_free(v1->stream_shares);
    (void)pthread_mutex_destroy(&v1->lock);
    free(v1);
}

void v1_stream_add(struct v1 *v1, struct v1_stream *stream)
{
    (void)pthread_mutex_lock(&v1->lock);
    list_push_back(&v1->streams, &stream->link);
    (void)pthread_mutex_unlock(&v1->lock);
}

void v1_stream_remove(struct v1 *v1, struct v1_stream *stream)
{
    (void)pthread_mutex_lock(&v1->lock);
    list_remove(&stream->link);
    (void)pthread_mutex_unlock(&v1->lock);
}

/* One stream of that loop that was not told yet: told ones are moved to the end. */
static struct v1_stream *next_of(struct v1 *v1, const struct loop *loop, struct list *told)
{
    struct v1_stream *found = NULL;
    struct list *node;

    (void)pthread_mutex_lock(&v1->lock);
    list_for_each (node, &v1->streams) {
        struct v1_stream *stream = container_of(node, struct v1_stream, link);

        if (stream->loop != loop)
            continue;
        found = stream;
        list_remove(node);
        list_push_back(told, node);
        break;
    }
    (void)pthread_mutex_unlock(&v1->lock);
    return found;
}

void v1_drain(struct v1 *v1, struct loop *loop)
{
    struct v1_stream *stream;
    struct list told;

    list_init(&told);
    atomic_store(&v1->draining, true);
    while ((stream = next_of(v1, loop, &told)))
        stream->end(stream);
    (void)pthread_mutex_lock(&v1->lock);
    while (!list_empty(&told))
        list_push_back(&v1->streams, list_pop_front(&told));
    (void)pthread_mutex_unlock(&v1->lock);
}

static struct v1_call *of(struct call *call)
{
    return (struct v1_call *)call;
}

/* Whose sandboxes these must be: body, then query, then header; with a key that acts as an agent, that
 * one's, and nobody else may be named. */
static int find_agent(struct v1_call *call, struct error *err)
{
    struct str given = json_get_str(call->json, "agent_id");
    auto_buf struct buf text = {0};

    buf_init(&text, HTTP_URL_MAX);
    if (!given.len && url_query_get(call->query, "agent_id", &text))
        given = buf_str(&text);
    if (!given.len)
        given = call->agent_header;
    if (given.len > V1_AGENT_ID_MAX ||
        (given.len && (memchr(given.p, '\0', given.len) || !str_valid_utf8(given))))
        return error_set(err, ERROR_INVALID, "'agent_id' must be at most %d bytes of text",
                         V1_AGENT_ID_MAX);
    if (call->key_agent.len && given.len && !str_eq(given, call->key_agent))
        return error_set(err, ERROR_FORBIDDEN, "this API key acts as agent '%.*s', not as '%.*s'",
                         STR_ARG(call->key_agent), STR_ARG(given));
    if (call->key_agent.len)
        given = call->key_agent;
    call->agent_id = given.len ? arena_str(&call->arena, given) : STR_NONE;
    call->caller.agent_id = call->agent_id;
    return 0;
}

static int handle(struct call *base, struct error *err)
{
    struct v1_call *call = of(base);
    static const char *const none[] = {NULL};

    call->caller.team_id = call->team_id;
    call->caller.actor = call->key_id.len ? call->key_id : STR("operator");
    call->caller.looks = call->role == API_ROLE_VIEWER;
    if (!(call->endpoint->flags & V1_RAW) &&
        (call_json(&call->call, &call->json, err) < 0 ||
         v1_members_check(call->json, call->endpoint->members ? call->endpoint->members : none,
                          err) < 0))
        return -1;
    if (find_agent(call, err) < 0 || v1_scope(call, err) < 0)
        return -1;
    return call->endpoint->handler(call, err);
}

static void fail(struct call *call, const struct error *err)
{
    v1_fail(of(call), err);
}

static int kill_made(struct call *call, struct error *err)
{
    return runtime_sandbox_kill(of(call)->v1->config.runtime, &of(call)->caller, call->made, NULL,
                                err);
}

static void gone(struct call *call)
{
    call_pipe_close(&of(call)->pipe);
}

static enum call_end finish(struct call *base)
{
    struct v1_call *call = of(base);

    if (call->ex && call->take_over) {
        call->take_over(call);
        return CALL_TAKEN;
    }
    if (call->forget)
        call->forget(call->taken);
    call->forget = NULL;
    if (!call->ex || !call->pipe.writes)
        return CALL_REPLY;
    call_pipe_finish(&call->pipe, call->text != NULL); /* a text is that of an error */
    return CALL_SENT;
}

static void done(struct call *call)
{
    json_decref(of(call)->json);
    call_pipe_done(&of(call)->pipe);
}

static const struct call_ops ops = {
    .name = "v1",
    .keep_hint = "give it a 'key'",
    .handle = handle,
    .fail = fail,
    .kill = kill_made,
    .gone = gone,
    .finish = finish,
    .done = done,
};

static void read_head(struct v1_call *call)
{
    struct http_exchange *ex = call->ex;
    const struct http_request *request = http_request(ex);
    struct arena *arena = &call->arena;

    if (!call->by_cookie)
        call->key = v1_auth_key(request, arena);
    call->signin_link = arena_str(arena, str_trim(http_header(ex, "X-Signin-Link")));
    call->secure = call_is_secure(ex);
    call->content_length =
        request->chunked || request->content_length >= 0 ? request->content_length : 0;
    call->agent_header = arena_str(arena, str_trim(http_header(ex, "X-Agent-ID")));
    call->accept = arena_str(arena, http_header(ex, "Accept"));
    call->last_event_id = arena_str(arena, str_trim(http_header(ex, "Last-Event-ID")));
    call->websocket_key = arena_str(arena, str_trim(http_header(ex, "Sec-WebSocket-Key")));
    call->offers_protocol =
        http_headers_has_token(&request->headers, "Sec-WebSocket-Protocol", "quicksand");
}

static enum call_need call_need(const struct v1_call *call)
{
    unsigned flags = call->endpoint->flags;

    if (flags & V1_ANY_ROLE)
        return CALL_ANY_ROLE;
    return str_is(str_of(call->endpoint->is.method), "GET") && !(flags & (V1_UPGRADE | V1_REVEALS))
               ? CALL_READS
               : CALL_CHANGES;
}

/* False: the request was answered. */
static bool find_endpoint(struct v1_call *call)
{
    char allow[HTTP_ALLOW_SIZE];

    switch (v1_endpoints_find(call->method, str_skip(call->path, sizeof(PREFIX) - 1), &call->arena,
                              &call->endpoint, call->params, allow)) {
    case CALL_NO_PATH:
        call_refuse(&call->call, ERROR_NOT_FOUND,
                    "there is no such endpoint; see " PREFIX "/openapi.json");
        return false;
    case CALL_NO_METHOD:
        v1_refuse(call, 405, "invalid", "this endpoint does not take that method", NULL);
        call_header(&call->call, "Allow", arena_str(&call->arena, str_of(allow)));
        call_reply(&call->call);
        return false;
    case CALL_FOUND:
        break;
    }
    call->row = &call->endpoint->is;
    call->lane = v1_lane_of(call->endpoint);
    call->body_max = V1_BODY_MAX;
    call->public = call->endpoint->flags & V1_PUBLIC;
    call->no_body = call->endpoint->flags & (V1_PUBLIC | V1_RAW | V1_UPGRADE);
    call->file_max = call->content_length < 0 ? call->endpoint->file_max : 0;
    call->quiet = call->endpoint->flags & V1_QUIET;
    call->need = call_need(call);
    return true;
}

static void dispatch(struct v1 *v1, struct http_exchange *ex)
{
    struct v1_call *call = xcalloc(1, sizeof(*call));

    call->v1 = v1;
    call_pipe_init(&call->pipe, &call->call);
    call_begin(&call->call, &v1->desk, ex);
    read_head(call);
    if (!find_endpoint(call))
        return;
    if (!call->public && call->key.len && !call->no_body && call->content_length > V1_BODY_MAX) {
        call_refuse(&call->call, ERROR_LIMIT, "the body is longer than 1 MiB");
    } else if ((call->endpoint->flags & V1_UPGRADE) && call->key.len &&
               (!http_request(ex)->upgrade || !call->websocket_key.len)) {
        v1_refuse(call, 409, "unsupported-terminal",
                  "this is a WebSocket: ask for it with 'Upgrade: websocket'", NULL);
        call_reply(&call->call);
    } else {
        call_start(&call->call);
    }
}

struct v1 *v1_new(const struct v1_config *config)
{
    struct v1 *v1 = xcalloc(1, sizeof(*v1));

    v1->config = *config;
    (void)pthread_mutex_init(&v1->lock, NULL);
    list_init(&v1->streams);
    v1->desk = (struct call_desk){.ops = &ops,
                                  .keys = config->keys,
                                  .limits = config->limits,
                                  .store = config->store,
                                  .file_directory = config->file_directory,
                                  .spool = config->spool,
                                  .work_lane = V1_LANE_CONTROL};
    for (size_t i = 0; i < V1_LANE_COUNT; i++) {
        v1->desk.lanes[i].workers = config->lanes[i].workers;
        v1->desk.lanes[i].shares = shares_new(&(struct shares_config){
            .each_max = config->lanes[i].team_max, .waiting_max = V1_TEAM_WAITING_MAX});
    }
    v1->stream_shares = shares_new(&(struct shares_config){.each_max = V1_TEAM_STREAMS_MAX});
    return v1;
}

bool v1_handle(struct v1 *v1, struct http_exchange *ex)
{
    struct str path = http_request(ex)->path;
    struct str rest = str_skip(path, sizeof(PREFIX) - 1);

    if (ui_handle(ex))
        return true;
    if (!str_starts(path, STR(PREFIX)) || (rest.len && rest.p[0] != '/'))
        return false;
    if (str_is(http_request(ex)->method, "OPTIONS"))
        http_answer_preflight(
            ex, "GET, HEAD, POST, PUT, DELETE, OPTIONS",
            "Accept, Authorization, Content-Type, Last-Event-ID, X-Agent-ID, X-API-Key");
    else
        dispatch(v1, ex);
    return true;
}

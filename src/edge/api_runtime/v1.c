/* From an exchange on a loop to a handler on a worker and back.
 *
 * A struct v1_call is owned by the loop until it is queued, by the worker while it runs, and by the
 * loop again from done() on. `ex` is only touched on the loop. When the client goes while a worker
 * runs, on_exchange_done() forgets the exchange and done() frees the call; otherwise the call lives
 * until its exchange is over, or is taken over by a stream.
 *
 * A handler may instead write its answer in pieces, or read its body so (v1_pipe.h); or leave a
 * take_over() for the loop, which makes an event stream or a WebSocket of the exchange. */
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

struct v1 *v1_new(const struct v1_config *config)
{
    struct v1 *v1 = xcalloc(1, sizeof(*v1));

    v1->config = *config;
    (void)pthread_mutex_init(&v1->lock, NULL);
    list_init(&v1->streams);
    v1->worker_shares = shares_new(&(struct shares_config){.each_max = config->team_calls_max,
                                                           .waiting_max = V1_TEAM_WAITING_MAX});
    v1->stream_shares = shares_new(&(struct shares_config){.each_max = V1_TEAM_STREAMS_MAX});
    return v1;
}

void v1_free(struct v1 *v1)
{
    if (!v1)
        return;
    shares_free(v1->worker_shares);
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

static void call_free(struct v1_call *call)
{
    free(call->text);
    json_decref(call->json);
    buf_done(&call->body_memory);
    http_room_give(call->v1->config.limits, &call->room);
    v1_pipe_done(&call->pipe);
    arena_done(&call->arena);
    free(call);
}

static void log_request(const struct v1_call *call, const char *note)
{
    double ms = (double)(clock_mono_us() - call->started_us) / 1000;

    log_info("v1", "request=%s %.*s %.*s status=%d ms=%.1f%s%.*s%s", call->request_id,
             STR_ARG(call->method), STR_ARG(call->path), call->status, ms,
             call->caller.agent_id.len ? " agent=" : "", STR_ARG(call->caller.agent_id), note);
}

void v1_answer_header(struct v1_call *call, const char *name, struct str value)
{
    if (call->header_count < HTTP_ANSWER_HEADERS_MAX)
        call->headers[call->header_count++] = (struct http_header){str_of(name), value};
}

void v1_answer(struct v1_call *call, int status, json_t *json_consume)
{
    free(call->text);
    call->text = json_consume ? json_text(json_consume) : NULL;
    call->status = status;
    json_decref(json_consume);
}

/* Last use of the call here: its exchange may end, and free it, inside. */
static void reply(struct v1_call *call)
{
    http_answer(call->ex, call->status, call->content_type, call->headers, call->header_count,
                call->text);
}

static void run_take_back(struct work *work)
{
    struct v1_call *call = container_of(work, struct v1_call, work);
    struct error err = {0};

    if (runtime_sandbox_kill(call->v1->config.runtime, &call->caller, call->made, NULL, &err) >= 0)
        log_info("v1", "request=%s id=%.*s is taken back: its client left before the answer",
                 call->request_id, STR_ARG(call->made));
    else
        log_warn("v1", "request=%s id=%.*s, whose client left before the answer: %s",
                 call->request_id, STR_ARG(call->made), err.message);
    call->made = STR_NONE;
    v1_refuse(call, 400, "invalid",
              "the client's side of the connection was closed before the answer, so there is no "
              "sandbox; give it a 'key' to have it all the same",
              NULL);
}

static void taken_back(struct work *work)
{
    struct v1_call *call = container_of(work, struct v1_call, work);

    call->working = false;
    if (call->ex) {
        reply(call);
        return;
    }
    log_request(call, " client=gone");
    call_free(call);
}

/* A sandbox that was made for nobody ends. True: the call is with a worker for that. */
static bool take_back(struct v1_call *call)
{
    if (!call->made.len)
        return false;
    call->work = (struct work){.run = run_take_back, .done = taken_back, .loop = call->loop};
    call->working = workers_run(call->v1->config.workers, &call->work) == 0;
    if (!call->working)
        log_warn("v1", "request=%s id=%.*s, whose client left before the answer, stays: busy",
                 call->request_id, STR_ARG(call->made));
    return call->working;
}

static void on_exchange_done(struct http_exchange *ex, void *arg)
{
    struct v1_call *call = arg;

    call->ex = NULL;
    v1_pipe_close(&call->pipe);
    if (call->working || !shares_leave(call->v1->worker_shares, &call->seat) ||
        (!http_finished(ex) && take_back(call)))
        return;
    log_request(call, !http_finished(ex) ? " client=gone" : call->status ? "" : " refused=body");
    call_free(call);
}

/* The body as JSON: {} when there is none. */
static int parse_body(struct v1_call *call, struct error *err)
{
    if (str_trim(call->body).len == 0) {
        call->json = json_object();
        return 0;
    }
    if (json_parse(call->body, &call->json, err) < 0)
        return -1;
    return json_is_object(call->json)
               ? 0
               : error_set(err, ERROR_INVALID, "the body must be a JSON object");
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
        return error_set(err, ERROR_FORBIDDEN, "this key acts as agent '%.*s', not as '%.*s'",
                         STR_ARG(call->key_agent), STR_ARG(given));
    if (call->key_agent.len)
        given = call->key_agent;
    call->caller.agent_id = given.len ? arena_str(&call->arena, given) : STR_NONE;
    return 0;
}

static int answer(struct v1_call *call, struct error *err)
{
    static const char *const none[] = {NULL};

    if (!(call->endpoint->flags & V1_RAW) &&
        (parse_body(call, err) < 0 ||
         v1_members_check(call->json, call->endpoint->members ? call->endpoint->members : none,
                          err) < 0))
        return -1;
    if (find_agent(call, err) < 0 || v1_scope(call, err) < 0)
        return -1;
    return call->endpoint->handler(call, err);
}

static void give_share(struct v1_call *call)
{
    if (call->has_share)
        shares_give(call->v1->worker_shares, call->seat.owner, 1);
    call->has_share = false;
}

static int serve(struct v1_call *call, struct error *err)
{
    int r;

    if (call->endpoint->flags & V1_PUBLIC)
        return answer(call, err);
    if (!call->has_share)
        call->has_share = shares_take(call->v1->worker_shares, call->seat.owner, 1) == SHARE_TAKEN;
    call->must_wait = !call->has_share;
    if (call->must_wait)
        return 0;
    r = v1_auth(call, err);
    if (r == 0)
        r = answer(call, err);
    give_share(call);
    return r;
}

static void run(struct work *work)
{
    struct v1_call *call = container_of(work, struct v1_call, work);
    struct error err = {0};

    if (serve(call, &err) < 0)
        v1_fail(call, &err);
    if (!call->must_wait)
        v1_audit(call);
}

static void done(struct work *work);

/* A request that ends before a worker is needed. */
static void refuse(struct v1_call *call, int status, const char *code, const char *message)
{
    v1_refuse(call, status, code, message, NULL);
    reply(call);
}

static bool try_queue(struct v1_call *call)
{
    call->work = (struct work){.run = run, .done = done, .loop = call->loop};
    call->working = true;
    if (workers_run(call->v1->config.workers, &call->work) == 0)
        return true;
    call->working = false;
    return false;
}

static void refuse_busy(struct v1_call *call)
{
    refuse(call, 503, "unavailable", "the server is busy; try again in a second");
}

static void queue(struct v1_call *call)
{
    if (!try_queue(call))
        refuse_busy(call);
}

/* Its turn has come. */
static void on_called(struct loop_errand *errand)
{
    struct v1_call *call = container_of(errand, struct v1_call, seat.errand);

    shares_called(call->v1->worker_shares, &call->seat);
    call->has_share = true;
    if (call->ex && try_queue(call))
        return;
    give_share(call);
    if (call->ex) {
        refuse_busy(call);
        return;
    }
    log_request(call, " client=gone");
    call_free(call);
}

static void wait_in_line(struct v1_call *call)
{
    call->must_wait = false;
    call->seat.loop = call->loop;
    call->seat.errand.fn = on_called;
    if (shares_wait(call->v1->worker_shares, &call->seat) < 0)
        refuse(call, 429, "quota", "your team has too many requests waiting for its own to end");
}

static void done(struct work *work)
{
    struct v1_call *call = container_of(work, struct v1_call, work);

    call->working = false;
    if (call->ex && call->must_wait) {
        wait_in_line(call);
        return;
    }
    if (call->ex && call->take_over) {
        call->take_over(call);
        log_request(call, " stream");
        call_free(call);
        return;
    }
    if (call->forget)
        call->forget(call->taken);
    if ((!call->ex || (call->made.len && http_client_left(call->ex))) && take_back(call))
        return;
    if (call->ex && call->pipe.writes) {
        v1_pipe_finish(call, call->text != NULL); /* a text is that of an error */
        return;
    }
    if (call->ex) {
        reply(call);
        return;
    }
    log_request(call, " client=gone");
    call_free(call);
}

static void on_body(struct http_exchange *ex, struct str body, void *arg)
{
    struct v1_call *call = arg;

    call->body_memory = http_take_body(ex);
    call->body = body;
    queue(call);
}

/* Who asks is known: now a body may come. What the key may do is asked again on the worker. */
static void admit(struct v1_call *call)
{
    struct error err = {0};

    call->seat.owner = str_of(call->who.team_id);
    if (call->endpoint->flags & (V1_PUBLIC | V1_RAW | V1_UPGRADE)) {
        queue(call);
        return;
    }
    if (call->who.banned)
        (void)error_set(&err, ERROR_FORBIDDEN, "team is banned");
    else
        (void)http_room_take(call->v1->config.limits, call->ex, str_of(call->who.team_id),
                             V1_BODY_MAX, &call->room, &err);
    if (err.code) {
        v1_fail(call, &err);
        reply(call);
        return;
    }
    http_read_all(call->ex, V1_BODY_MAX, on_body, call);
}

static void look_up(struct work *work)
{
    struct v1_call *call = container_of(work, struct v1_call, work);

    (void)api_keys_find(call->v1->config.keys, call->key, &call->who, &call->who_err);
}

static void looked_up(struct work *work)
{
    struct v1_call *call = container_of(work, struct v1_call, work);

    call->working = false;
    http_door_leave(call->v1->config.limits, &call->door);
    if (!call->ex) {
        log_request(call, " client=gone");
        call_free(call);
    } else if (call->who_err.code) {
        v1_fail(call, &call->who_err);
        reply(call);
    } else {
        admit(call);
    }
}

static void ask_who(struct v1_call *call)
{
    struct error err = {0};

    call->work = (struct work){.run = look_up, .done = looked_up, .loop = call->loop};
    call->working = true;
    if (http_door_enter(call->v1->config.limits, call->ex, &call->door, &call->work, &err) == 0)
        return;
    call->working = false;
    v1_fail(call, &err);
    reply(call);
}

static void check_key(struct v1_call *call)
{
    struct error err = {0};

    switch (api_keys_peek(call->v1->config.keys, call->key, &call->who)) {
    case API_KEY_KNOWN:
        admit(call);
        break;
    case API_KEY_REFUSED:
        (void)error_set(&err, ERROR_UNAUTHORIZED, "Invalid API key");
        v1_fail(call, &err);
        reply(call);
        break;
    case API_KEY_UNSEEN:
        ask_who(call);
        break;
    }
}

static struct v1_call *call_new(struct v1 *v1, struct http_exchange *ex)
{
    const struct http_request *request = http_request(ex);
    struct v1_call *call = xcalloc(1, sizeof(*call));
    struct arena *arena = &call->arena;

    call->v1 = v1;
    call->ex = ex;
    call->loop = http_loop(ex);
    call->started_us = clock_mono_us();
    v1_pipe_init(&call->pipe);
    id_hex(call->request_id, (V1_REQUEST_ID_SIZE - 1) / 2);
    call->method = arena_str(arena, request->method);
    call->path = arena_str(arena, request->path);
    call->query = arena_str(arena, request->query);
    call->key = v1_auth_key(request, arena);
    call->content_length =
        request->chunked || request->content_length >= 0 ? request->content_length : 0;
    call->agent_header = arena_str(arena, str_trim(http_header(ex, "X-Agent-ID")));
    call->accept = arena_str(arena, http_header(ex, "Accept"));
    call->last_event_id = arena_str(arena, str_trim(http_header(ex, "Last-Event-ID")));
    call->websocket_key = arena_str(arena, str_trim(http_header(ex, "Sec-WebSocket-Key")));
    call->offers_protocol =
        http_headers_has_token(&request->headers, "Sec-WebSocket-Protocol", "quicksand");
    http_on_done(ex, on_exchange_done, call);
    return call;
}

/* True when the request was answered. */
static bool refused(struct v1_call *call, struct http_exchange *ex)
{
    char allow[HTTP_ALLOW_SIZE];

    switch (v1_endpoints_find(call->method, str_skip(call->path, sizeof(PREFIX) - 1), &call->arena,
                              &call->endpoint, call->params, allow)) {
    case V1_NO_PATH:
        refuse(call, 404, "not_found", "there is no such route; see " PREFIX "/openapi.json");
        return true;
    case V1_NO_METHOD:
        v1_refuse(call, 405, "invalid", "this route does not take that method", NULL);
        v1_answer_header(call, "Allow", arena_str(&call->arena, str_of(allow)));
        reply(call);
        return true;
    case V1_FOUND:
        break;
    }
    /* Without a key there is no reason to read a body. */
    if (!(call->endpoint->flags & V1_PUBLIC) && call->key.len == 0) {
        refuse(call, 401, "unauthorized",
               "no API key: send it as the header X-API-KEY or as 'Authorization: Bearer KEY'");
        return true;
    }
    if (!(call->endpoint->flags & V1_RAW) && http_request(ex)->content_length > V1_BODY_MAX) {
        refuse(call, 413, "too_large", "the body is longer than 1 MiB");
        return true;
    }
    return false;
}

static void dispatch(struct v1 *v1, struct http_exchange *ex)
{
    struct v1_call *call = call_new(v1, ex);

    if (refused(call, ex))
        return;
    if (call->endpoint->flags & V1_UPGRADE &&
        (!http_request(ex)->upgrade || !call->websocket_key.len))
        refuse(call, 409, "unsupported-terminal",
               "a terminal is a WebSocket: ask for it with 'Upgrade: websocket'");
    else if (call->endpoint->flags & V1_PUBLIC)
        admit(call);
    else
        check_key(call);
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

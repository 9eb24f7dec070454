#include "edge/call/call.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/list.h"
#include "base/log.h"
#include "protocol/json/json_shape.h"
#include "store/platform/store_audit.h"

static void call_free(struct call *call)
{
    if (call->desk->ops->done)
        call->desk->ops->done(call);
    buf_done(&call->body_memory);
    http_file_free(call->file);
    http_room_give(call->desk->limits, &call->room);
    free(call->text);
    buf_account_done(&call->making.account);
    close_fd(&call->reply_fd);
    spool_release(&call->reply_charge);
    arena_done(&call->arena);
    free(call);
}

static void log_request(struct call *call, const char *note)
{
    const struct call_ops *ops = call->desk->ops;
    double ms = (double)(clock_mono_us() - call->started_us) / 1000;
    /* The dashboard asks every few seconds: what only reads and succeeds would hide all else. */
    bool is_polling = call->by_cookie && str_is(call->method, "GET") && call->status < 400;

    if (ops->count)
        ops->count(call);
    call_count(call);
    log_write(is_polling ? LOG_DEBUG : LOG_INFO, ops->name,
              "request=%s %.*s %.*s status=%d ms=%.1f%s%.*s%s%s%s", call->request_id,
              STR_ARG(call->method), STR_ARG(call->path), call->status, ms,
              call->agent_id.len ? " agent=" : "", STR_ARG(call->agent_id),
              call->trace_id[0] ? " trace=" : "", call->trace_id, note);
}

void call_close(struct call *call, const char *note)
{
    call_set_state(call, CALL_OVER);
    log_request(call, note);
    call_free(call);
}

void call_header(struct call *call, const char *name, struct str value)
{
    if (call->header_count < HTTP_ANSWER_HEADERS_MAX)
        call->headers[call->header_count++] = (struct pair){str_of(name), value};
}

void call_answer_text(struct call *call, int status, char *text_consume)
{
    free(call->text);
    call->text = text_consume;
    call->status = status;
}

void call_answer(struct call *call, int status, json_t *json_consume)
{
    call_answer_text(call, status, json_consume ? json_text(json_consume) : NULL);
    json_decref(json_consume);
}

void call_answer_static(struct call *call, int status, struct str text)
{
    call->fixed = text;
    call->status = status;
}

void call_answer_file(struct call *call, int status, const char *content_type, int fd_consume,
                      int64_t length)
{
    call->status = status;
    call->content_type = content_type;
    call->reply_fd = fd_consume;
    call->reply_length = length;
}

/* With what call_answer...() left. */
static void send_file(struct call *call)
{
    struct pair headers[HTTP_ANSWER_HEADERS_MAX + 1] = {
        {STR("Content-Type"), str_of(call->content_type)}};
    struct http_exchange *ex = call->ex;
    int fd = call->reply_fd;
    int64_t length = call->reply_length;

    memcpy(headers + 1, call->headers, call->header_count * sizeof(headers[0]));
    call->reply_fd = -1;
    http_begin(ex, call->status, headers, call->header_count + 1, length);
    http_write_file(ex, fd, 0, length);
    http_end(ex);
}

static void send_answer(struct call *call)
{
    if (call->reply_fd >= 0)
        send_file(call);
    else if (call->fixed.p)
        http_answer_static(call->ex, call->status, call->content_type, call->headers,
                           call->header_count, call->fixed);
    else
        http_answer_owned(call->ex, call->status, call->content_type, call->headers,
                          call->header_count, take_ptr(&call->text));
}

void call_reply(struct call *call)
{
    call_set_state(call, CALL_ANSWERING);
    send_answer(call);
}

static void fail(struct call *call, const struct error *err)
{
    call->desk->ops->fail(call, err);
    call_reply(call);
}

void call_refuse(struct call *call, enum error_code code, const char *message)
{
    struct error err = {0};

    (void)error_set(&err, code, "%s", message);
    fail(call, &err);
}

static void on_exchange_done(struct http_exchange *ex, void *arg)
{
    struct call *call = arg;
    bool finished = http_finished(ex);
    bool given_back = true;

    call->ex = NULL;
    if (call->desk->ops->gone)
        call->desk->ops->gone(call);
    switch (atomic_load(&call->state)) {
    case CALL_ASKING:
    case CALL_RUNNING:
    case CALL_UNDOING:
        given_back = false;
        break;
    case CALL_WAITING:
    case CALL_MOVING:
        given_back = call_leave(call);
        break;
    case CALL_ANSWERING:
        given_back = finished || !call_take_back(call);
        break;
    default:
        break;
    }
    /* Logged when the answer is on its way: a slow log must not delay it. Without a status it was
     * never answered by us: the body was too long (or too slow), or the client went inside it. */
    if (given_back)
        call_close(call, !finished ? " client=gone" : call->status ? "" : " refused=body");
    else
        call_set_state(call, CALL_ORPHANED);
}

static int check_role(const struct call *call, enum api_role role, struct error *err)
{
    bool enough = call->need == CALL_ANY_ROLE || role == API_ROLE_FULL || role == API_ROLE_MEMBER;

    if (role == API_ROLE_VIEWER)
        enough = enough || call->need == CALL_READS;
    else if (role == API_ROLE_METRICS)
        enough = enough || call->need == CALL_MEASURES;
    if (enough)
        return 0;
    return error_set(err, ERROR_FORBIDDEN,
                     role == API_ROLE_VIEWER
                         ? "this API key is a viewer's, which reads only: use a member's"
                         : "this API key reads /metrics and nothing else: use a member's");
}

/* What the key may do, for the handler. */
static int authorize(struct call *call, struct error *err)
{
    struct api_key_owner owner = call->who;

    if (!call->vouched && !api_keys_current(call->desk->keys, &owner) &&
        api_keys_find(call->desk->keys, call->key, &owner, err) < 0)
        return -1;
    if (owner.banned)
        return error_set(err, ERROR_FORBIDDEN, "team is banned");
    if (check_role(call, owner.role, err) < 0)
        return -1;
    call->role = owner.role;
    call->team_id = arena_str(&call->arena, str_of(owner.team_id));
    call->key_id = arena_str(&call->arena, str_of(owner.key_id));
    call->key_name = arena_str(&call->arena, str_of(owner.key_name));
    if (owner.agent_id[0])
        call->agent_id = call->key_agent = arena_str(&call->arena, str_of(owner.agent_id));
    if (owner.sandbox_id[0])
        call->key_sandbox = arena_str(&call->arena, str_of(owner.sandbox_id));
    return 0;
}

static void audit(struct call *call)
{
    struct store_audit entry = {.at_us = clock_wall_us(),
                                .team_id = call->team_id,
                                .key_id = call->key_id,
                                .key_name = call->key_name,
                                .agent_id = call->agent_id,
                                .method = call->method,
                                .path = call->path,
                                .status = call->status,
                                .request_id = str_of(call->request_id)};
    struct error err = {0};

    if (!call->team_id.len || !call->desk->store || call->quiet || str_is(call->method, "GET") ||
        str_is(call->method, "HEAD"))
        return;
    if (store_audit_add(call->desk->store, &entry, &err) < 0)
        log_warn(call->desk->ops->name, "request=%s is not in the audit log: %s", call->request_id,
                 err.message);
}

static int begin(struct call *call, struct error *err)
{
    if (!call->public && authorize(call, err) < 0)
        return -1;
    return call->desk->ops->handle(call, err);
}

void call_move(struct call *call, unsigned lane, call_step_fn *step)
{
    call->step = step;
    call->step_lane = lane;
}

void call_run(struct call *call)
{
    call_step_fn *step = call->step ? call->step : begin;
    struct error err = {0};

    call->step = NULL;
    if (!call->public && !call->making.limits)
        http_making_init(&call->making, call->desk->limits, str_of(call->who.team_id));
    (void)buf_account_enter(call->making.limits ? &call->making.account : NULL);
    if (step(call, &err) < 0) {
        call->step = NULL;
        call->desk->ops->fail(call, &err);
    }
    (void)buf_account_enter(NULL);
    if (!call->step)
        audit(call);
}

void call_finish(struct call *call)
{
    enum call_end how;

    /* Before the client has its answer, or its next upload could find the space of this one taken. */
    http_file_free(call->file);
    call->file = NULL;
    call->body_fd = -1;
    if (call->made.len && (!call->ex || http_client_left(call->ex)) && call_take_back(call)) {
        if (call->ex)
            call_set_state(call, CALL_UNDOING);
        return;
    }
    if (call->ex)
        call_set_state(call, CALL_ANSWERING);
    how = call->desk->ops->finish ? call->desk->ops->finish(call) : CALL_REPLY;
    if (how == CALL_TAKEN)
        call_close(call, " stream");
    else if (how == CALL_REPLY && !call->ex)
        call_close(call, " client=gone");
    else if (how == CALL_REPLY)
        send_answer(call);
}

static void on_body(struct http_exchange *ex, struct str body, void *arg)
{
    struct call *call = arg;

    call->body_memory = http_take_body(ex);
    call->body = body;
    call_enter(call);
}

static void on_file(int fd, int64_t length, const struct error *err, void *arg)
{
    struct call *call = arg;

    if (fd < 0) {
        fail(call, err);
        return;
    }
    call->body_fd = fd;
    call->body_length = length;
    call_enter(call);
}

static void read_to_file(struct call *call)
{
    struct http_file_config config = {.directory = call->desk->file_directory,
                                      .max = call->file_max,
                                      .workers = call->desk->lanes[call->lane].workers,
                                      .spool = call->desk->spool,
                                      .team_id = str_of(call->who.team_id),
                                      .kept = call->file_kept};
    struct error err = {0};

    call_set_state(call, CALL_READING);
    call->file = http_file_read(call->ex, &config, on_file, call, &err);
    if (!call->file)
        fail(call, &err);
}

static void read_to_memory(struct call *call)
{
    call_set_state(call, CALL_READING);
    http_read_all(call->ex, call->body_max, on_body, call);
}

/* Who asks is known: now a body may come. */
static void admit(struct call *call)
{
    struct error err = {0};

    if (call->who.banned)
        (void)error_set(&err, ERROR_FORBIDDEN, "team is banned");
    else if (!http_set_owner(call->ex, str_of(call->who.team_id)))
        call_unread(&err);
    else if (!call->no_body || call->file_max)
        (void)http_room_take(call->desk->limits, call->ex, str_of(call->who.team_id),
                             call->file_max ? HTTP_FILE_MEMORY : call->body_max, &call->room, &err);
    if (err.code)
        fail(call, &err);
    else if (call->file_max)
        read_to_file(call);
    else if (call->no_body)
        call_enter(call);
    else
        read_to_memory(call);
}

static void look_up(struct work *work)
{
    struct call *call = container_of(work, struct call, work);

    (void)api_keys_find(call->desk->keys, call->key, &call->who, &call->who_err);
}

static void looked_up(struct work *work)
{
    struct call *call = container_of(work, struct call, work);

    http_door_leave(call->desk->limits, &call->door);
    if (!call->ex)
        call_close(call, " client=gone");
    else if (call->who_err.code)
        fail(call, &call->who_err);
    else
        admit(call);
}

static void ask_who(struct call *call)
{
    struct error err = {0};

    call->work = (struct work){.run = look_up, .done = looked_up, .loop = call->loop};
    if (http_door_enter(call->desk->limits, call->ex, &call->door, &call->work, &err) < 0)
        fail(call, &err);
    else
        call_set_state(call, CALL_ASKING);
}

void call_begin(struct call *call, struct call_desk *desk, struct http_exchange *ex)
{
    const struct http_request *request = http_request(ex);

    call->desk = desk;
    call->ex = ex;
    call->loop = http_loop(ex);
    call->body_fd = call->reply_fd = -1;
    call->started_us = clock_mono_us();
    id_hex(call->request_id, (CALL_REQUEST_ID_SIZE - 1) / 2);
    call->method = arena_str(&call->arena, request->method);
    call->path = arena_str(&call->arena, request->path);
    call->query = arena_str(&call->arena, request->query);
    call->key = arena_str(&call->arena, http_given_key(&request->headers));
    if (!call->key.len) {
        call->key = call_cookie(ex, &call->arena);
        call->by_cookie = call->key.len > 0;
    }
    call_trace(http_headers_get(&request->headers, "traceparent"), call->trace_id);
    http_on_done(ex, on_exchange_done, call);
}

bool call_unwanted(void *arg)
{
    const struct call *call = arg;

    return call->cancels &&
           (atomic_load(&call->state) == CALL_ORPHANED || atomic_load(&call->desk->stopping));
}

int call_set_unwanted(const struct call *call, struct error *err)
{
    return atomic_load(&call->desk->stopping)
               ? error_set(err, ERROR_UNAVAILABLE, "the server is stopping; try again later")
               : error_set(err, ERROR_INVALID, "the client left before the answer");
}

void call_start(struct call *call)
{
    /* A client that closes its side has left: nobody else wants what this makes. */
    if (call->cancels)
        http_leave_at_end(call->ex);
    if (call->public) {
        call_enter(call);
        return;
    }
    if (call->vouched) {
        admit(call);
        return;
    }
    /* Without a key there is no reason to read a body. */
    if (call->key.len == 0) {
        call_refuse(call, ERROR_UNAUTHORIZED,
                    "no API key: send it as the header X-API-KEY or as 'Authorization: Bearer "
                    "KEY'");
        return;
    }
    switch (api_keys_peek(call->desk->keys, call->key, &call->who)) {
    case API_KEY_KNOWN:
        admit(call);
        break;
    case API_KEY_REFUSED:
        call_refuse(call, ERROR_UNAUTHORIZED, "Invalid API key");
        break;
    case API_KEY_UNSEEN:
        ask_who(call);
        break;
    }
}

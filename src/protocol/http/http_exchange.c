/* What handlers call. Everything here records or sends; nothing here calls a handler. */
#include <arpa/inet.h>
#include <netinet/in.h>

#include "base/cleanup.h"
#include "protocol/http/http_conn.h"
#include "protocol/http/http_exchange.h"

const struct http_request *http_request(const struct http_exchange *ex)
{
    return &ex->request;
}

struct str http_header(const struct http_exchange *ex, const char *name)
{
    return http_headers_get(&ex->request.headers, name);
}

struct arena *http_arena(struct http_exchange *ex)
{
    return &ex->arena;
}

struct loop *http_loop(struct http_exchange *ex)
{
    return ex->server->loop;
}

void http_peer(struct http_exchange *ex, char out[HTTP_PEER_SIZE])
{
    union {
        struct sockaddr_storage any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } address = {0};
    const struct stream *stream = ex->ops->stream(ex);

    out[0] = '\0';
    if (!stream || !stream_peer(stream, &address.any))
        return;
    if (address.any.ss_family == AF_INET)
        (void)inet_ntop(AF_INET, &address.in.sin_addr, out, HTTP_PEER_SIZE);
    else if (address.any.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&address.in6.sin6_addr))
        (void)inet_ntop(AF_INET, &address.in6.sin6_addr.s6_addr[12], out, HTTP_PEER_SIZE);
    else if (address.any.ss_family == AF_INET6)
        (void)inet_ntop(AF_INET6, &address.in6.sin6_addr, out, HTTP_PEER_SIZE);
}

uint64_t http_connection(const struct http_exchange *ex)
{
    const struct stream *stream = ex->ops->stream(ex);

    return stream ? stream_number(stream) : 0;
}

bool http_secure(struct http_exchange *ex)
{
    return ex->server->config.filter != NULL;
}

void http_set_user(struct http_exchange *ex, void *user)
{
    ex->user = user;
}

void *http_user(const struct http_exchange *ex)
{
    return ex->user;
}

void http_on_done(struct http_exchange *ex, http_exchange_fn *fn, void *arg)
{
    ex->on_done = fn;
    ex->done_arg = arg;
}

bool http_finished(const struct http_exchange *ex)
{
    return ex->finished;
}

bool http_client_left(struct http_exchange *ex)
{
    return !ex->open || ex->ops->client_left(ex);
}

void http_leave_at_end(struct http_exchange *ex)
{
    ex->leaves_at_end = true;
}

/* ---- request body ---- */

/* The body is wanted now. */
static void ask_for_body(struct http_exchange *ex)
{
    if (ex->continue_due && ex->answer == ANSWER_NONE)
        ex->ops->send_continue(ex);
    ex->continue_due = false;
    ex->ops->touch(ex, false);
}

static bool can_ask(const struct http_exchange *ex)
{
    return ex->open && ex->mode == BODY_UNASKED && ex->answer != ANSWER_ENDED;
}

void http_read_all(struct http_exchange *ex, size_t max,
                   void (*on_body)(struct http_exchange *ex, struct str body, void *arg), void *arg)
{
    int64_t length = ex->request.content_length;

    if (!can_ask(ex))
        return;
    if (length > 0 && (uint64_t)length > max) {
        ex->ops->fail(ex, 413, "request body is too large");
        return;
    }
    ex->mode = BODY_ALL;
    ex->body_max = max;
    ex->on_body = on_body;
    ex->body_arg = arg;
    buf_init(&ex->body, max);
    ask_for_body(ex);
}

struct buf http_take_body(struct http_exchange *ex)
{
    struct buf body = ex->body;

    ex->body = (struct buf){0};
    return body;
}

void http_read_stream(struct http_exchange *ex,
                      void (*on_data)(struct http_exchange *ex, struct str data, void *arg),
                      http_exchange_fn *on_end, void *arg)
{
    if (!can_ask(ex))
        return;
    ex->mode = BODY_STREAM;
    ex->on_data = on_data;
    ex->on_end = on_end;
    ex->body_arg = arg;
    ask_for_body(ex);
}

const struct http_headers *http_trailers(const struct http_exchange *ex)
{
    return &ex->trailers;
}

void http_pause(struct http_exchange *ex)
{
    ex->paused = true;
    ex->ops->touch(ex, false);
}

void http_resume(struct http_exchange *ex)
{
    if (!ex->paused)
        return;
    ex->paused = false;
    ex->ops->touch(ex, true);
}

/* ---- answer ---- */

static struct http_head own_head(int status, const struct pair *headers, size_t count,
                                 int64_t length)
{
    return (struct http_head){
        .status = status,
        .reason = str_of(http_reason(status)),
        .headers = headers,
        .count = count,
        .framing = {length < 0 ? HTTP_BODY_CHUNKED : HTTP_BODY_LENGTH, length < 0 ? -1 : length},
    };
}

/* False when there is nobody to answer. */
static bool can_begin(const struct http_exchange *ex)
{
    return ex->open && ex->answer == ANSWER_NONE;
}

static void begin_own(struct http_exchange *ex, const struct http_head *head, struct str body,
                      enum http_memory memory, enum answer_state state)
{
    ex->answer = state;
    ex->no_payload = !http_status_has_payload(head->status) || str_is(ex->request.method, "HEAD");
    ex->framing = head->framing.length >= 0 ? FRAMING_LENGTH : FRAMING_CHUNKED;
    ex->left = head->framing.length;
    ex->ops->head(ex, head, body, memory);
}

static void reply(struct http_exchange *ex, int status, const struct pair *headers, size_t count,
                  struct str body, enum http_memory memory)
{
    struct http_head head = own_head(status, headers, count, (int64_t)body.len);

    begin_own(ex, &head, body, memory, ANSWER_ENDED);
}

void http_reply(struct http_exchange *ex, int status, const struct pair *headers, size_t count,
                struct str body)
{
    if (can_begin(ex))
        reply(ex, status, headers, count, body, HTTP_COPIED);
}

void http_reply_static(struct http_exchange *ex, int status, const struct pair *headers,
                       size_t count, struct str body)
{
    if (can_begin(ex))
        reply(ex, status, headers, count, body, HTTP_STATIC);
}

void http_reply_owned(struct http_exchange *ex, int status, const struct pair *headers,
                      size_t count, char *body_consume, size_t len)
{
    http_budget_made(ex->server, len);
    if (can_begin(ex))
        reply(ex, status, headers, count, str_n(body_consume, len), HTTP_OWNED);
    else
        free(body_consume);
}

void http_begin(struct http_exchange *ex, int status, const struct pair *headers, size_t count,
                int64_t length)
{
    struct http_head head = own_head(status, headers, count, length);

    if (can_begin(ex))
        begin_own(ex, &head, STR_NONE, HTTP_COPIED, ANSWER_OPEN);
}

void http_begin_raw(struct http_exchange *ex, int status, struct str reason,
                    const struct pair *headers, size_t count, const struct http_framing *framing)
{
    struct http_head head = {.status = status,
                             .reason = reason,
                             .headers = headers,
                             .count = count,
                             .framing = *framing,
                             .passed_on = true};

    if (!can_begin(ex))
        return;
    ex->answer = ANSWER_OPEN;
    ex->no_payload = framing->kind == HTTP_BODY_NONE;
    ex->framing = framing->kind == HTTP_BODY_LENGTH ? FRAMING_LENGTH : FRAMING_RAW;
    ex->left = framing->length;
    ex->ops->head(ex, &head, STR_NONE, HTTP_COPIED);
}

size_t http_pending(const struct http_exchange *ex)
{
    return ex->open ? ex->ops->pending(ex) : HTTP_HIGH_WATER + 1;
}

/* Returns what waits now. While somebody who counts it is short of memory, that is too much: the producer stops, and
 * goes on when less than HTTP_LOW_WATER waits. */
static size_t note_pending(struct http_exchange *ex)
{
    size_t pending = ex->ops->pending(ex);

    if (pending <= HTTP_HIGH_WATER && pending > HTTP_LOW_WATER && http_budget_tight(ex))
        pending = HTTP_HIGH_WATER + 1;
    if (pending > HTTP_LOW_WATER)
        ex->drain_due = true;
    return pending;
}

size_t http_write(struct http_exchange *ex, const void *p, size_t len)
{
    if (!ex->open || ex->answer != ANSWER_OPEN || !len)
        return http_pending(ex);
    if (ex->framing == FRAMING_LENGTH) {
        if (len > (uint64_t)ex->left) { /* the head has promised less */
            http_abort(ex);
            return http_pending(ex);
        }
        ex->left -= (int64_t)len;
    }
    if (ex->no_payload)
        return http_pending(ex);
    ex->ops->write(ex, p, len);
    return note_pending(ex);
}

void http_widen(struct http_exchange *ex, int size)
{
    struct stream *stream = ex->ops->stream(ex);

    if (stream)
        stream_widen(stream, size);
}

void http_on_drain(struct http_exchange *ex, http_exchange_fn *fn, void *arg)
{
    ex->on_drain = fn;
    ex->drain_arg = arg;
}

void http_write_file(struct http_exchange *ex, int fd_consume, int64_t offset, int64_t len)
{
    bool answers = ex->open && ex->answer == ANSWER_OPEN;

    if (!answers || len < 0 || ex->framing != FRAMING_LENGTH || len > ex->left) {
        close_fd(&fd_consume);
        if (answers)
            http_abort(ex);
        return;
    }
    ex->left -= len;
    if (ex->no_payload) {
        close_fd(&fd_consume);
        return;
    }
    ex->ops->write_file(ex, fd_consume, offset, len);
    (void)note_pending(ex);
}

void http_end(struct http_exchange *ex)
{
    http_end_trailers(ex, NULL, 0);
}

void http_end_trailers(struct http_exchange *ex, const struct pair *trailers, size_t count)
{
    if (!ex->open || ex->answer != ANSWER_OPEN)
        return;
    if (ex->framing == FRAMING_LENGTH && ex->left > 0 && !ex->no_payload) {
        http_abort(ex);
        return;
    }
    ex->answer = ANSWER_ENDED;
    ex->ops->end(ex, trailers, count);
}

void http_abort(struct http_exchange *ex)
{
    if (!ex->open)
        return;
    ex->mode = BODY_UNASKED;
    ex->on_drain = NULL;
    ex->ops->abort(ex);
}

struct stream *http_detach(struct http_exchange *ex, struct buf *rest)
{
    return can_begin(ex) ? ex->ops->detach(ex, rest) : NULL;
}

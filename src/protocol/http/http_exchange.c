/* What handlers call. Everything here records or sends; nothing here calls a handler. */
#include <arpa/inet.h>
#include <netinet/in.h>

#include "base/cleanup.h"
#include "protocol/http/http_conn.h"
#include "protocol/http/http_server.h"

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
    return conn_of(ex)->server->loop;
}

void http_peer(struct http_exchange *ex, char out[HTTP_PEER_SIZE])
{
    union {
        struct sockaddr_storage any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } address = {0};
    const struct stream *stream = conn_of(ex)->stream;

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
    const struct http_conn *conn = conn_of(ex);

    if (conn->state != CONN_EXCHANGE || conn->broken || conn->eof)
        return true;
    /* What it sent behind the request, and is not read yet, stands before its end. */
    return !conn->in.len && stream_peek(conn->stream) == 0;
}

/* ---- request body ---- */

/* The body is wanted now. */
static void ask_for_body(struct http_exchange *ex)
{
    struct http_conn *conn = conn_of(ex);
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct iovec iov = http_iov(go_on, sizeof(go_on) - 1);

    if (ex->continue_due && ex->answer == ANSWER_NONE)
        http_conn_send(conn, &iov, 1);
    ex->continue_due = false;
    http_conn_touch(conn);
}

static bool can_ask(struct http_exchange *ex)
{
    return conn_of(ex)->state == CONN_EXCHANGE && ex->mode == BODY_UNASKED &&
           ex->answer != ANSWER_ENDED;
}

void http_read_all(struct http_exchange *ex, size_t max,
                   void (*on_body)(struct http_exchange *ex, struct str body, void *arg), void *arg)
{
    int64_t length = ex->request.content_length;

    if (!can_ask(ex))
        return;
    if (length > 0 && (uint64_t)length > max) {
        http_conn_fail(conn_of(ex), 413, "request body is too large");
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

void http_pause(struct http_exchange *ex)
{
    ex->paused = true;
    http_conn_touch(conn_of(ex));
}

void http_resume(struct http_exchange *ex)
{
    if (!ex->paused)
        return;
    ex->paused = false;
    conn_of(ex)->restart = true;
    http_conn_touch(conn_of(ex));
}

/* ---- answer ---- */

/* A line end inside a name or value would let its writer invent headers. */
static void add_clean(struct buf *head, struct str s)
{
    char *to = buf_reserve(head, s.len);

    if (!to)
        return;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.p[i];

        if (c == '\r' || c == '\n' || c == '\0')
            c = ' ';
        to[i] = c;
    }
    buf_grew(head, s.len);
}

static void add_status(struct buf *head, int status, struct str reason)
{
    char line[] = "HTTP/1.1 000 ";

    line[9] = (char)('0' + status / 100 % 10);
    line[10] = (char)('0' + status / 10 % 10);
    line[11] = (char)('0' + status % 10);
    (void)buf_add(head, line, sizeof(line) - 1);
    add_clean(head, reason);
    (void)buf_add(head, "\r\n", 2);
}

static void add_headers(struct buf *head, const struct http_header *headers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        add_clean(head, headers[i].name);
        (void)buf_add(head, ": ", 2);
        add_clean(head, headers[i].value);
        (void)buf_add(head, "\r\n", 2);
    }
}

static void add_length(struct buf *head, uint64_t length)
{
    char digits[24];
    size_t at = sizeof(digits);

    do
        digits[--at] = (char)('0' + length % 10);
    while (length /= 10);
    (void)buf_add_str(head, STR("Content-Length: "));
    (void)buf_add(head, digits + at, sizeof(digits) - at);
    (void)buf_add(head, "\r\n", 2);
}

static void end_head(struct http_exchange *ex, struct buf *head)
{
    if (conn_of(ex)->close_after)
        (void)buf_add_str(head, STR("Connection: close\r\n"));
    else if (ex->request.minor == 0)
        (void)buf_add_str(head, STR("Connection: keep-alive\r\n"));
    (void)buf_add(head, "\r\n", 2);
    if (head->overflowed) /* half a head must not go out */
        http_abort(ex);
}

static bool status_has_payload(int status)
{
    return status >= 200 && status != 204 && status != 304;
}

/* A long unread body costs more than a new connection. */
static void decide_close(struct http_exchange *ex)
{
    struct http_conn *conn = conn_of(ex);

    if (conn->server->draining || conn->eof)
        conn->close_after = true;
    if (!conn->parser.complete && ex->mode == BODY_UNASKED &&
        (ex->continue_due || ex->request.content_length > CONN_SKIP_MAX))
        conn->close_after = true;
}

/* Makes the head in the server's scratch buffer. NULL when there is nobody to answer. */
static struct buf *make_head(struct http_exchange *ex, int status,
                             const struct http_header *headers, size_t count, int64_t length)
{
    struct http_conn *conn = conn_of(ex);
    struct buf *head = &conn->server->head;

    if (conn->state != CONN_EXCHANGE || ex->answer != ANSWER_NONE)
        return NULL;
    decide_close(ex);
    ex->answer = ANSWER_OPEN;
    ex->no_payload = !status_has_payload(status) || str_is(ex->request.method, "HEAD");
    ex->framing = length >= 0 ? FRAMING_LENGTH : FRAMING_CHUNKED;
    ex->left = length;
    if (length < 0 && ex->request.minor == 0) {
        ex->framing = FRAMING_RAW;
        conn->close_after = true;
    }
    buf_clear(head);
    add_status(head, status, str_of(http_reason(status)));
    (void)buf_add_str(head, STR("Date: "));
    (void)buf_add_str(head, http_server_date(conn->server));
    (void)buf_add(head, "\r\n", 2);
    add_headers(head, headers, count);
    if (status_has_payload(status)) {
        if (ex->framing == FRAMING_LENGTH)
            add_length(head, (uint64_t)length);
        else if (ex->framing == FRAMING_CHUNKED)
            (void)buf_add_str(head, STR("Transfer-Encoding: chunked\r\n"));
    }
    end_head(ex, head);
    return head;
}

void http_reply(struct http_exchange *ex, int status, const struct http_header *headers,
                size_t count, struct str body)
{
    struct buf *head = make_head(ex, status, headers, count, (int64_t)body.len);
    struct iovec iov[2];

    if (!head)
        return;
    iov[0] = (struct iovec){.iov_base = head->p, .iov_len = head->len};
    iov[1] = http_iov(body.p, body.len);
    ex->answer = ANSWER_ENDED;
    http_conn_send(conn_of(ex), iov, ex->no_payload || !body.len ? 1 : 2);
}

/* The head waits for the first body bytes, or for the end of the loop's turn. */
static void queue_head(struct http_exchange *ex, struct buf *head)
{
    struct iovec iov = {.iov_base = head->p, .iov_len = head->len};

    http_outq_add(&conn_of(ex)->out, &iov, 1);
    http_conn_touch(conn_of(ex));
}

void http_begin(struct http_exchange *ex, int status, const struct http_header *headers,
                size_t count, int64_t length)
{
    struct buf *head = make_head(ex, status, headers, count, length < 0 ? -1 : length);

    if (head)
        queue_head(ex, head);
}

/* The one place that says how a body that is passed on ends. */
static void add_framing(struct http_exchange *ex, struct buf *head, int status,
                        const struct http_framing *framing)
{
    struct http_conn *conn = conn_of(ex);
    bool chunked = framing->kind == HTTP_BODY_CHUNKED;

    ex->no_payload = framing->kind == HTTP_BODY_NONE;
    ex->framing = framing->kind == HTTP_BODY_LENGTH ? FRAMING_LENGTH : FRAMING_RAW;
    ex->left = framing->length;
    /* Who speaks 1.0 cannot see the end of chunks. */
    if (framing->kind == HTTP_BODY_UNTIL_CLOSE || (chunked && ex->request.minor == 0))
        conn->close_after = true;
    if (chunked)
        (void)buf_add_str(head, STR("Transfer-Encoding: chunked\r\n"));
    else if (framing->length >= 0 && status != 204)
        add_length(head, (uint64_t)framing->length);
}

void http_begin_raw(struct http_exchange *ex, int status, struct str reason,
                    const struct http_header *headers, size_t count,
                    const struct http_framing *framing)
{
    struct http_conn *conn = conn_of(ex);
    struct buf *head = &conn->server->head;

    if (conn->state != CONN_EXCHANGE || ex->answer != ANSWER_NONE)
        return;
    decide_close(ex);
    ex->answer = ANSWER_OPEN;
    buf_clear(head);
    add_status(head, status, reason);
    for (size_t i = 0; i < count; i++) {
        if (!str_eq_nocase(headers[i].name, STR("content-length")) &&
            !str_eq_nocase(headers[i].name, STR("transfer-encoding")))
            add_headers(head, &headers[i], 1);
    }
    add_framing(ex, head, status, framing);
    end_head(ex, head);
    queue_head(ex, head);
}

size_t http_pending(const struct http_exchange *ex)
{
    const struct http_conn *conn = (const struct http_conn *)(const void *)ex; /* first member */

    /* A producer that loops until the queue is full must not loop for ever. */
    if (conn->broken || conn->state != CONN_EXCHANGE)
        return HTTP_HIGH_WATER + 1;
    return conn->out.pending;
}

size_t http_write(struct http_exchange *ex, const void *p, size_t len)
{
    struct http_conn *conn = conn_of(ex);
    struct iovec iov[3];
    char size_line[20], line_end[] = "\r\n";
    size_t count = 0;

    if (conn->state != CONN_EXCHANGE || ex->answer != ANSWER_OPEN || !len)
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
    if (ex->framing == FRAMING_CHUNKED) {
        int digits = snprintf(size_line, sizeof(size_line), "%zx\r\n", len);

        iov[count++] = (struct iovec){.iov_base = size_line, .iov_len = (size_t)digits};
    }
    iov[count++] = http_iov(p, len);
    if (ex->framing == FRAMING_CHUNKED)
        iov[count++] = (struct iovec){.iov_base = line_end, .iov_len = 2};
    http_conn_send(conn, iov, count);
    if (conn->out.pending > HTTP_LOW_WATER)
        ex->drain_due = true;
    return http_pending(ex);
}

void http_widen(struct http_exchange *ex, int size)
{
    if (conn_of(ex)->stream)
        stream_widen(conn_of(ex)->stream, size);
}

void http_on_drain(struct http_exchange *ex, http_exchange_fn *fn, void *arg)
{
    ex->on_drain = fn;
    ex->drain_arg = arg;
}

void http_write_file(struct http_exchange *ex, int fd_consume, int64_t offset, int64_t len)
{
    struct http_conn *conn = conn_of(ex);

    if (conn->state != CONN_EXCHANGE || ex->answer != ANSWER_OPEN || len < 0 ||
        ex->framing != FRAMING_LENGTH || len > ex->left) {
        close_fd(&fd_consume);
        if (conn->state == CONN_EXCHANGE && ex->answer == ANSWER_OPEN)
            http_abort(ex);
        return;
    }
    ex->left -= len;
    if (ex->no_payload) {
        close_fd(&fd_consume);
        return;
    }
    http_outq_add_file(&conn->out, fd_consume, offset, len);
    if (conn->out.pending > HTTP_LOW_WATER)
        ex->drain_due = true;
    http_conn_send(conn, NULL, 0);
}

void http_end(struct http_exchange *ex)
{
    struct http_conn *conn = conn_of(ex);
    char last_chunk[] = "0\r\n\r\n";
    struct iovec last = {.iov_base = last_chunk, .iov_len = 5};

    if (conn->state != CONN_EXCHANGE || ex->answer != ANSWER_OPEN)
        return;
    if (ex->framing == FRAMING_LENGTH && ex->left > 0 && !ex->no_payload) {
        http_abort(ex);
        return;
    }
    ex->answer = ANSWER_ENDED;
    http_conn_send(conn, &last, ex->framing == FRAMING_CHUNKED && !ex->no_payload ? 1 : 0);
}

void http_abort(struct http_exchange *ex)
{
    struct http_conn *conn = conn_of(ex);

    if (conn->state != CONN_EXCHANGE)
        return;
    conn->broken = conn->reset = true;
    ex->mode = BODY_UNASKED;
    ex->on_drain = NULL;
    http_conn_touch(conn);
}

struct stream *http_detach(struct http_exchange *ex, struct buf *rest)
{
    struct http_conn *conn = conn_of(ex);

    if (conn->state != CONN_EXCHANGE || conn->broken || ex->answer != ANSWER_NONE ||
        !buf_add_str(rest, conn->in))
        return NULL;
    stream_watch(conn->stream, 0, NULL, NULL);
    conn->in = STR_NONE;
    conn->broken = true; /* nothing more is done here */
    ex->mode = BODY_UNASKED;
    http_conn_touch(conn);
    return take_ptr(&conn->stream);
}

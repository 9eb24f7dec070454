/* How a connection of HTTP/1 carries an exchange: heads and chunks as bytes. */
#include <stdio.h>

#include "base/cleanup.h"
#include "protocol/http/http_conn.h"

static struct stream *conn_stream(const struct http_exchange *ex)
{
    return conn_of_const(ex)->stream;
}

static struct http_conn *conn_itself(struct http_exchange *ex)
{
    return conn_of(ex);
}

static bool client_left(struct http_exchange *ex)
{
    const struct http_conn *conn = conn_of(ex);

    if (conn->broken || conn->eof)
        return true;
    /* What it sent behind the request, and is not read yet, stands before its end. */
    return !conn->in.len && stream_peek(conn->stream) == 0;
}

static void touch(struct http_exchange *ex, bool restart)
{
    struct http_conn *conn = conn_of(ex);

    conn->restart = conn->restart || restart;
    http_conn_touch(conn);
}

static void send_continue(struct http_exchange *ex)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct iovec iov = http_iov(go_on, sizeof(go_on) - 1);

    http_conn_send(conn_of(ex), &iov, 1);
}

/* ---- head ---- */

static void add_status(struct buf *head, int status, struct str reason)
{
    char line[] = "HTTP/1.1 000 ";

    line[9] = (char)('0' + status / 100 % 10);
    line[10] = (char)('0' + status / 10 % 10);
    line[11] = (char)('0' + status % 10);
    (void)buf_add(head, line, sizeof(line) - 1);
    http_add_clean(head, reason);
    (void)buf_add(head, "\r\n", 2);
}

static void add_header(struct buf *head, const struct pair *header)
{
    http_add_clean(head, header->name);
    (void)buf_add(head, ": ", 2);
    http_add_clean(head, header->value);
    (void)buf_add(head, "\r\n", 2);
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

static void add_extra(const struct http_exchange *ex, struct buf *head)
{
    if (ex->server->config.extra.name.len)
        add_header(head, &ex->server->config.extra);
}

static void add_own(struct http_exchange *ex, struct buf *head, const struct http_head *own)
{
    (void)buf_add_str(head, STR("Date: "));
    (void)buf_add_str(head, http_server_date(ex->server));
    (void)buf_add(head, "\r\n", 2);
    add_extra(ex, head);
    for (size_t i = 0; i < own->count; i++)
        add_header(head, &own->headers[i]);
    if (ex->framing == FRAMING_CHUNKED && ex->request.minor == 0) {
        ex->framing = FRAMING_RAW;
        conn_of(ex)->close_after = true;
    }
    if (!http_status_has_payload(own->status))
        return;
    if (ex->framing == FRAMING_LENGTH)
        add_length(head, (uint64_t)own->framing.length);
    else if (ex->framing == FRAMING_CHUNKED)
        (void)buf_add_str(head, STR("Transfer-Encoding: chunked\r\n"));
}

/* The one place that says how a body that is passed on ends. */
static void add_passed_on(struct http_exchange *ex, struct buf *head, const struct http_head *other)
{
    const struct http_framing *framing = &other->framing;
    bool chunked = framing->kind == HTTP_BODY_CHUNKED;

    add_extra(ex, head);
    for (size_t i = 0; i < other->count; i++) {
        if (!str_eq_nocase(other->headers[i].name, STR("content-length")) &&
            !str_eq_nocase(other->headers[i].name, STR("transfer-encoding")) &&
            !str_eq_nocase(other->headers[i].name, ex->server->config.extra.name))
            add_header(head, &other->headers[i]);
    }
    /* Who speaks 1.0 cannot see the end of chunks. */
    if (framing->kind == HTTP_BODY_UNTIL_CLOSE || (chunked && ex->request.minor == 0))
        conn_of(ex)->close_after = true;
    if (chunked)
        (void)buf_add_str(head, STR("Transfer-Encoding: chunked\r\n"));
    else if (framing->length >= 0 && other->status != 204)
        add_length(head, (uint64_t)framing->length);
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

/* Made in the server's scratch buffer. With a whole answer it goes out at once; else it waits for the first
 * body bytes, or for the end of the loop's turn. */
static void send_head(struct http_exchange *ex, const struct http_head *head, struct str body,
                      enum http_memory memory)
{
    struct http_conn *conn = conn_of(ex);
    struct buf *text = &conn->server->head;
    struct iovec iov;

    decide_close(ex);
    buf_clear(text);
    add_status(text, head->status, head->reason);
    if (head->passed_on)
        add_passed_on(ex, text, head);
    else
        add_own(ex, text, head);
    end_head(ex, text);
    if (ex->answer == ANSWER_ENDED) {
        if (ex->no_payload)
            body = http_memory_drop(body, memory);
        http_conn_send_body(conn, buf_str(text), body, memory);
        return;
    }
    iov = http_iov(text->p, text->len);
    http_outq_add(&conn->out, &iov, 1);
    http_conn_touch(conn);
}

/* ---- body ---- */

static size_t pending(const struct http_exchange *ex)
{
    const struct http_conn *conn = conn_of_const(ex);

    /* A producer that loops until the queue is full must not loop for ever. */
    return conn->broken ? HTTP_HIGH_WATER + 1 : conn->out.pending;
}

static void send_data(struct http_exchange *ex, const void *p, size_t len)
{
    struct iovec iov[3];
    char size_line[20], line_end[] = "\r\n";
    size_t count = 0;

    if (ex->framing == FRAMING_CHUNKED) {
        int digits = snprintf(size_line, sizeof(size_line), "%zx\r\n", len);

        iov[count++] = (struct iovec){.iov_base = size_line, .iov_len = (size_t)digits};
    }
    iov[count++] = http_iov(p, len);
    if (ex->framing == FRAMING_CHUNKED)
        iov[count++] = (struct iovec){.iov_base = line_end, .iov_len = 2};
    http_conn_send(conn_of(ex), iov, count);
}

static void send_file(struct http_exchange *ex, int fd_consume, int64_t offset, int64_t len)
{
    http_outq_add_file(&conn_of(ex)->out, fd_consume, offset, len);
    http_conn_send(conn_of(ex), NULL, 0);
}

static void send_end(struct http_exchange *ex, const struct pair *trailers, size_t count)
{
    struct buf *text = &ex->server->head;
    struct iovec last;

    if (ex->no_payload || ex->framing == FRAMING_LENGTH || (ex->framing == FRAMING_RAW && !count)) {
        http_conn_send(conn_of(ex), NULL, 0);
        return;
    }
    buf_clear(text);
    if (ex->framing == FRAMING_CHUNKED)
        (void)buf_add(text, "0\r\n", 3);
    for (size_t i = 0; i < count; i++)
        add_header(text, &trailers[i]);
    (void)buf_add(text, "\r\n", 2);
    if (text->overflowed)
        http_abort(ex);
    last = (struct iovec){.iov_base = text->p, .iov_len = text->len};
    http_conn_send(conn_of(ex), &last, 1);
}

static void break_off(struct http_exchange *ex)
{
    struct http_conn *conn = conn_of(ex);

    conn->broken = conn->reset = true;
    http_conn_touch(conn);
}

static void fail(struct http_exchange *ex, int status, const char *text)
{
    http_conn_fail(conn_of(ex), status, text);
}

static struct stream *detach(struct http_exchange *ex, struct buf *rest)
{
    struct http_conn *conn = conn_of(ex);

    if (conn->broken || !buf_add_str(rest, conn->in))
        return NULL;
    stream_watch(conn->stream, 0, NULL, NULL);
    conn->in = STR_NONE;
    conn->broken = true; /* nothing more is done here */
    ex->mode = BODY_UNASKED;
    http_conn_touch(conn);
    return take_ptr(&conn->stream);
}

const struct http_exchange_ops http_conn_ops = {
    .stream = conn_stream,
    .conn = conn_itself,
    .client_left = client_left,
    .touch = touch,
    .send_continue = send_continue,
    .head = send_head,
    .write = send_data,
    .write_file = send_file,
    .end = send_end,
    .abort = break_off,
    .fail = fail,
    .pending = pending,
    .detach = detach,
};

/* How it works
 *
 * Handlers only ever record what they want; http_conn_advance() looks at the state and does what is
 * possible, and is the only place that calls handlers. It runs when the stream is ready, and for
 * connections a handler has touched from elsewhere, in the server's prepare handle before the loop
 * waits again. So no callback is ever called from inside a call a handler made, and the memory of a
 * connection, which is given back at the end of a turn, outlives every stack frame that uses it.
 *
 * Input is parsed straight from the loop's read buffer. What cannot be used yet (a pipelined
 * request, a body nobody has asked for) is copied to `rest`, and nothing more is read until that is
 * used up: the peer waits in its socket.
 *
 * The poll mask is changed rarely, because a change costs two system calls: while a handler works
 * on a request the stream stays armed for reading, to see the peer go away. When nothing may be
 * read, only UV_PRIORITIZED is armed, which still reports errors and hang-ups. */
#include "protocol/http/http_conn.h"

#include <errno.h>

#include "base/alloc.h"
#include "base/cleanup.h"

enum { READS_PER_EVENT = 4 };

static void end_exchange(struct http_conn *conn)
{
    struct http_exchange *ex = &conn->ex;

    if (ex->on_done)
        ex->on_done(ex, ex->done_arg);
    arena_done(&ex->arena);
    buf_done(&ex->body);
    *ex = (struct http_exchange){0};
}

static void conn_free(void *arg)
{
    struct http_conn *conn = arg;
    struct http_server *server = conn->server;

    http_parser_done(&conn->parser);
    http_outq_done(&conn->out);
    buf_done(&conn->rest);
    free(conn);
    http_server_unref(server);
}

void http_conn_close(struct http_conn *conn)
{
    bool had_exchange = conn->state == CONN_EXCHANGE;

    if (conn->state == CONN_CLOSED)
        return;
    conn->state = CONN_CLOSED;
    if (conn->stream)
        stream_close(conn->stream, conn->reset);
    loop_later(conn->server->loop, conn_free, conn);
    list_remove(&conn->todo);
    if (had_exchange) {
        conn->ex.finished = conn->ex.answer == ANSWER_ENDED && !conn->out.pending &&
                            !conn->send_failed && !conn->reset;
        end_exchange(conn);
    }
    http_server_conn_closed(conn);
}

void http_conn_send(struct http_conn *conn, const struct iovec *iov, size_t count)
{
    size_t before = conn->out.pending;

    if (conn->broken)
        return;
    if (http_outq_send(&conn->out, conn->stream, iov, count) < 0)
        conn->broken = conn->send_failed = true;
    if (conn->out.pending < before)
        conn->progress = true;
    http_conn_touch(conn);
}

void http_conn_touch(struct http_conn *conn)
{
    if (!conn->busy && conn->state != CONN_CLOSED && list_empty(&conn->todo))
        list_push_back(&conn->server->todo, &conn->todo);
}

static int on_body(void *arg, struct str data)
{
    struct http_conn *conn = arg;
    struct http_exchange *ex = &conn->ex;

    if (conn->state != CONN_EXCHANGE) {
        conn->skipped += data.len;
        return 0;
    }
    if (ex->mode == BODY_ALL) {
        if (ex->body.len + data.len > ex->body_max)
            ex->too_large = true;
        else
            (void)buf_add_str(&ex->body, data);
    } else if (ex->mode == BODY_STREAM) {
        ex->on_data(ex, data, ex->body_arg);
    }
    return ex->paused || ex->too_large || conn->broken || ex->mode == BODY_UNASKED;
}

void http_conn_fail(struct http_conn *conn, int status, const char *text)
{
    struct http_exchange *ex = &conn->ex;
    struct http_header type = {STR("Content-Type"), STR("application/json")};
    char body[160];
    int len;

    if (conn->state == CONN_HEAD)
        conn->state = CONN_EXCHANGE;
    conn->close_after = true;
    ex->mode = BODY_UNASKED;
    ex->on_drain = NULL;
    if (ex->answer != ANSWER_NONE) {
        conn->broken = conn->reset = true;
        return;
    }
    len = snprintf(body, sizeof(body), "{\"code\":%d,\"message\":\"%s\"}", status, text);
    http_reply(ex, status, &type, 1, str_n(body, (size_t)len));
}

static void start_exchange(struct http_conn *conn)
{
    struct http_exchange *ex = &conn->ex;

    conn->state = CONN_EXCHANGE;
    http_parser_request(&conn->parser, &ex->request);
    if (!conn->parser.complete && ex->request.minor == 1)
        ex->continue_due = http_headers_has_token(&ex->request.headers, "expect", "100-continue");
    conn->close_after = conn->server->draining || conn->eof || !conn->parser.keep_alive;
    conn->server->config.on_request(ex, conn->server->config.arg);
}

/* Each step returns true when it changed something. */
static bool step_head(struct http_conn *conn)
{
    if (conn->in.len) {
        switch (http_parser_feed(&conn->parser, &conn->in)) {
        case HTTP_PARSE_HEAD:
            start_exchange(conn);
            return true;
        case HTTP_PARSE_ERROR:
            http_conn_fail(conn, conn->parser.error_status, conn->parser.error_text);
            return true;
        case HTTP_PARSE_MORE:
        case HTTP_PARSE_DONE:
        case HTTP_PARSE_PAUSED:
            break;
        }
    }
    if (conn->eof || (conn->server->draining && !http_parser_begun(&conn->parser))) {
        http_conn_close(conn);
        return true;
    }
    return false;
}

static void next_request(struct http_conn *conn)
{
    http_parser_next(&conn->parser);
    conn->state = CONN_HEAD;
    conn->restart = true;
}

static void finish_exchange(struct http_conn *conn)
{
    struct http_exchange *ex = &conn->ex;
    int64_t length = ex->request.content_length;
    bool waits_for_continue = ex->continue_due;

    ex->finished = true;
    conn->state = CONN_HEAD; /* no exchange from here on, should on_done close the server */
    end_exchange(conn);
    if (conn->state == CONN_CLOSED)
        return;
    if (conn->parser.complete && !conn->close_after) {
        next_request(conn);
    } else if (conn->eof || (conn->parser.complete && !conn->in.len)) {
        http_conn_close(conn);
    } else if (!conn->parser.complete && !conn->close_after && !waits_for_continue &&
               length <= CONN_SKIP_MAX) {
        conn->state = CONN_SKIP;
        conn->skipped = 0;
    } else {
        conn->state = CONN_LINGER;
        stream_shut(conn->stream, SHUT_WR);
    }
    conn->restart = true;
}

/* Parses body bytes and tells the handler about the end. */
static bool step_body(struct http_conn *conn)
{
    struct http_exchange *ex = &conn->ex;

    if (!conn->parser.complete && conn->in.len) {
        if (http_parser_feed(&conn->parser, &conn->in) == HTTP_PARSE_ERROR)
            http_conn_fail(conn, conn->parser.error_status, conn->parser.error_text);
        else if (ex->too_large)
            http_conn_fail(conn, 413, "request body is too large");
        return true;
    }
    if (conn->parser.complete) {
        enum body_mode mode = ex->mode;

        ex->mode = BODY_DELIVERED;
        if (mode == BODY_ALL)
            ex->on_body(ex, buf_str(&ex->body), ex->body_arg);
        else if (ex->on_end)
            ex->on_end(ex, ex->body_arg);
        return true;
    }
    if (conn->eof) {
        conn->broken = true;
        return true;
    }
    return false;
}

static bool step_exchange(struct http_conn *conn)
{
    struct http_exchange *ex = &conn->ex;

    if (ex->answer == ANSWER_ENDED && !conn->out.pending) {
        finish_exchange(conn);
        return true;
    }
    if (ex->drain_due && conn->out.pending < HTTP_LOW_WATER) {
        ex->drain_due = false;
        if (ex->on_drain && ex->answer == ANSWER_OPEN) {
            ex->on_drain(ex, ex->drain_arg);
            return true;
        }
    }
    if ((ex->mode == BODY_ALL || ex->mode == BODY_STREAM) && !ex->paused &&
        ex->answer != ANSWER_ENDED)
        return step_body(conn);
    return false;
}

static bool step_skip(struct http_conn *conn)
{
    if (!conn->parser.complete && conn->in.len) {
        if (http_parser_feed(&conn->parser, &conn->in) == HTTP_PARSE_ERROR ||
            conn->skipped > CONN_SKIP_MAX) {
            conn->state = CONN_LINGER;
            stream_shut(conn->stream, SHUT_WR);
        }
        return true;
    }
    if (conn->parser.complete) {
        next_request(conn);
        return true;
    }
    conn->broken = conn->eof;
    return conn->broken;
}

static bool step(struct http_conn *conn)
{
    if (conn->broken) {
        http_conn_close(conn);
        return false;
    }
    switch (conn->state) {
    case CONN_HEAD:
        return step_head(conn);
    case CONN_EXCHANGE:
        return step_exchange(conn);
    case CONN_SKIP:
        return step_skip(conn);
    case CONN_LINGER:
        conn->in = STR_NONE;
        conn->broken = conn->eof;
        return conn->broken;
    case CONN_CLOSED:
        break;
    }
    return false;
}

/* A body that is collected holds memory: its sender has so much time for all of it. */
static bool has_deadline(const struct http_conn *conn)
{
    return conn->state == CONN_EXCHANGE && conn->ex.mode == BODY_ALL &&
           conn->server->timeouts[CONN_TIMER_WHOLE];
}

static enum conn_timer body_timer_kind(const struct http_conn *conn)
{
    const struct http_exchange *ex = &conn->ex;

    if ((ex->mode != BODY_ALL && ex->mode != BODY_STREAM) || ex->paused || conn->parser.complete)
        return CONN_TIMER_NONE;
    return has_deadline(conn) ? CONN_TIMER_WHOLE : CONN_TIMER_BODY;
}

static enum conn_timer read_timer_kind(const struct http_conn *conn)
{
    switch (conn->state) {
    case CONN_HEAD:
        return http_parser_begun(&conn->parser) ? CONN_TIMER_HEAD : CONN_TIMER_IDLE;
    case CONN_EXCHANGE:
        return body_timer_kind(conn);
    case CONN_SKIP:
    case CONN_LINGER:
        return CONN_TIMER_LINGER;
    case CONN_CLOSED:
        break;
    }
    return CONN_TIMER_NONE;
}

static void on_ready(struct stream *stream, int status, int events, void *arg);

static void update(struct http_conn *conn)
{
    int mask = 0;

    if (conn->in.len && !conn->in_rest) {
        (void)buf_add_str(&conn->rest, conn->in);
        conn->in = buf_str(&conn->rest);
        conn->in_rest = true;
    } else if (!conn->in.len && conn->rest.cap) {
        buf_done(&conn->rest);
        conn->in_rest = false;
    }
    if (!conn->eof && !conn->in.len)
        mask |= UV_READABLE;
    if (conn->out.pending)
        mask |= UV_WRITABLE;
    if (!mask)
        mask = UV_PRIORITIZED;
    stream_watch(conn->stream, mask, on_ready, conn);
    http_server_set_timer(conn, &conn->read_timer, read_timer_kind(conn), conn->restart);
    http_server_set_timer(conn, &conn->write_timer,
                          conn->out.pending ? CONN_TIMER_WRITE : CONN_TIMER_NONE, conn->progress);
    conn->restart = conn->progress = false;
}

void http_conn_advance(struct http_conn *conn)
{
    if (conn->state == CONN_CLOSED)
        return;
    list_remove(&conn->todo);
    conn->busy = true;
    while (step(conn)) {
    }
    if (conn->state != CONN_CLOSED && conn->out.pending && !conn->out.blocked) {
        conn->broken = conn->send_failed = http_outq_flush(&conn->out, conn->stream) < 0;
        while (step(conn)) {
        }
    }
    conn->busy = false;
    if (conn->state != CONN_CLOSED)
        update(conn);
}

/* False when there is nothing more to read now. */
static bool read_some(struct http_conn *conn)
{
    char *buffer = loop_read_buffer(conn->server->loop);
    ssize_t got = stream_read(conn->stream, buffer, LOOP_READ_SIZE);

    if (got < 0) {
        conn->broken = got != -EAGAIN;
        return false;
    }
    if (got == 0) {
        conn->eof = true;
        /* A client may close its side after a request and still wait for the answer. Closing it in
         * the middle of a silent answer is leaving: nothing else would tell for a long time. */
        conn->broken =
            conn->state == CONN_EXCHANGE && conn->ex.answer == ANSWER_OPEN && !conn->out.pending;
        return false;
    }
    conn->in = str_n(buffer, (size_t)got);
    if (conn->state == CONN_EXCHANGE && !has_deadline(conn))
        conn->restart = true; /* the body timer counts from the last byte */
    return got == LOOP_READ_SIZE;
}

static void on_ready(struct stream *stream, int status, int events, void *arg)
{
    struct http_conn *conn = arg;

    (void)stream;
    if (status < 0 || (events & UV_PRIORITIZED))
        conn->broken = true;
    if ((events & UV_WRITABLE) && !conn->broken) {
        conn->out.blocked = false;
        conn->progress = true;
    }
    for (int i = 0; i < READS_PER_EVENT && (events & UV_READABLE) && !conn->broken; i++) {
        bool more = read_some(conn);

        http_conn_advance(conn);
        if (!more || conn->state == CONN_CLOSED || conn->in.len || conn->eof)
            return;
    }
    http_conn_advance(conn);
}

void http_conn_timed_out(struct http_conn *conn, enum conn_timer kind)
{
    if (kind == CONN_TIMER_HEAD ||
        ((kind == CONN_TIMER_BODY || kind == CONN_TIMER_WHOLE) && conn->state == CONN_EXCHANGE))
        http_conn_fail(conn, 408, "the request did not come in time");
    else if (kind == CONN_TIMER_WRITE)
        conn->broken = conn->reset = true;
    else
        conn->broken = true;
    http_conn_advance(conn);
}

void http_conn_open(struct http_server *server, int fd_consume, const struct http_address *address,
                    const char *refusal)
{
    struct http_conn *conn = xcalloc(1, sizeof(*conn));

    conn->server = server;
    conn->stream = stream_new(server->loop, fd_consume);
    conn->address = *address;
    if (!conn->stream) {
        http_server_forget(server, &conn->address);
        free(conn);
        return;
    }
    if (server->config.filter)
        stream_add_filter(conn->stream, server->config.filter(server->config.arg));
    http_parser_init(&conn->parser, true, on_body, conn);
    buf_init(&conn->rest, LOOP_READ_SIZE);
    list_init(&conn->todo);
    list_init(&conn->read_timer.link);
    list_init(&conn->write_timer.link);
    list_push_back(&server->conns, &conn->all);
    server->conn_count++;
    server->handles++;
    conn->restart = true;
    if (refusal)
        http_conn_fail(conn, 503, refusal);
    http_conn_advance(conn);
}

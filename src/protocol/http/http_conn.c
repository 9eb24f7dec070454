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

static void conn_free(void *arg)
{
    struct http_conn *conn = arg;
    struct http_server *server = conn->server;

    if (conn->session)
        server->config.http2->free(conn->session);
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
    if (conn->session)
        conn->server->config.http2->close(conn->session);
    if (had_exchange) {
        conn->ex.finished = conn->ex.answer == ANSWER_ENDED && !conn->out.pending &&
                            !conn->send_failed && !conn->reset;
        http_exchange_done(&conn->ex);
    }
    http_hold_release(&conn->hold);
    http_account_drop(conn->server, &conn->account);
    http_server_conn_closed(conn);
}

static void note_sent(struct http_conn *conn, int result, size_t before)
{
    if (result < 0)
        conn->broken = conn->send_failed = true;
    if (conn->out.pending < before)
        conn->progress = true;
    http_conn_touch(conn);
}

void http_conn_send_body(struct http_conn *conn, struct str head, struct str body,
                         enum http_memory memory)
{
    size_t before = conn->out.pending;

    if (conn->broken)
        (void)http_memory_drop(body, memory);
    else
        note_sent(conn, http_outq_send_body(&conn->out, conn->stream, head, body, memory), before);
}

void http_conn_send(struct http_conn *conn, const struct iovec *iov, size_t count)
{
    size_t before = conn->out.pending;

    if (conn->broken)
        return;
    note_sent(conn, http_outq_send(&conn->out, conn->stream, iov, count), before);
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
    return !http_exchange_data(ex, data) || conn->broken;
}

void http_conn_fail(struct http_conn *conn, int status, const char *text)
{
    if (conn->state == CONN_HEAD) {
        conn->state = CONN_EXCHANGE;
        conn->ex.open = true;
    }
    conn->close_after = true;
    if (conn->ex.answer == ANSWER_NONE)
        http_exchange_fail(&conn->ex, status, text);
    else
        http_abort(&conn->ex);
}

static void start_exchange(struct http_conn *conn)
{
    struct http_exchange *ex = &conn->ex;

    conn->state = CONN_EXCHANGE;
    ex->open = true;
    http_parser_request(&conn->parser, &ex->request);
    if (!conn->parser.complete && ex->request.minor == 1)
        ex->continue_due = http_headers_has_token(&ex->request.headers, "expect", "100-continue");
    conn->close_after = conn->server->draining || conn->eof || !conn->parser.keep_alive;
    if (!http_budget_admits(conn)) {
        http_conn_fail(conn, 503, HTTP_UNREAD_TEXT);
        return;
    }
    conn->server->config.on_request(ex, conn->server->config.arg);
}

static bool head_begun(const struct http_conn *conn)
{
    return http_parser_begun(&conn->parser) || (conn->preface && !conn->sniffed);
}

/* The first bytes were no preface after all: the parser gets those that looked like one. */
static void give_back_preface(struct http_conn *conn)
{
    struct str preface = str_n(conn->server->config.http2->preface.p, conn->preface);

    conn->sniffed = true;
    /* It is no complete head, so there is nothing to be done about it but to go on. */
    if (preface.len && http_parser_feed(&conn->parser, &preface) == HTTP_PARSE_ERROR)
        http_conn_fail(conn, conn->parser.error_status, conn->parser.error_text);
}

/* Is it the other protocol? Bytes that may belong to its preface are only counted: what they are is known. True
 * when that is decided or all were used. */
static bool sniff(struct http_conn *conn)
{
    const struct http_protocol *http2 = conn->server->config.http2;
    size_t len = conn->in.len;

    if (!http2) {
        conn->sniffed = true;
        return false;
    }
    if (len > http2->preface.len - conn->preface)
        len = http2->preface.len - conn->preface;
    if (memcmp(conn->in.p, http2->preface.p + conn->preface, len) != 0) {
        give_back_preface(conn);
        return true;
    }
    conn->preface += len;
    conn->in = str_skip(conn->in, len);
    if (conn->preface < http2->preface.len)
        return true;
    conn->sniffed = true;
    conn->session = http2->open(conn);
    conn->broken = !conn->session;
    conn->state = conn->session ? CONN_STREAMS : conn->state;
    conn->restart = true;
    return true;
}

static bool step_streams(struct http_conn *conn)
{
    const struct http_protocol *http2 = conn->server->config.http2;
    struct str in = conn->in;

    conn->in = STR_NONE;
    if (in.len)
        http2->input(conn->session, in);
    else if (conn->eof)
        conn->broken = true;
    else
        return http2->advance(conn->session);
    return true;
}

/* Each step returns true when it changed something. */
static bool step_head(struct http_conn *conn)
{
    if (!conn->sniffed && conn->in.len && sniff(conn))
        return true;
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
    if (conn->eof || (conn->server->draining && !head_begun(conn))) {
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

void http_conn_linger(struct http_conn *conn)
{
    conn->state = CONN_LINGER;
    conn->restart = true;
    stream_shut(conn->stream, SHUT_WR);
}

static void finish_exchange(struct http_conn *conn)
{
    struct http_exchange *ex = &conn->ex;
    int64_t length = ex->request.content_length;
    bool waits_for_continue = ex->continue_due;

    ex->finished = true;
    conn->state = CONN_HEAD; /* no exchange from here on, should on_done close the server */
    http_exchange_done(&conn->ex);
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
        http_conn_linger(conn);
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
        ex->trailers = *http_parser_trailers(&conn->parser);
        http_exchange_data_end(ex);
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
    if (conn->out.pending < HTTP_LOW_WATER && http_exchange_drained(ex))
        return true;
    return http_exchange_reads(ex) && step_body(conn);
}

static bool step_skip(struct http_conn *conn)
{
    if (!conn->parser.complete && conn->in.len) {
        if (http_parser_feed(&conn->parser, &conn->in) == HTTP_PARSE_ERROR ||
            conn->skipped > CONN_SKIP_MAX) {
            http_conn_linger(conn);
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
    case CONN_STREAMS:
        return step_streams(conn);
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
    if (stream_opening(conn->stream)) /* whatever there is to say, a refusal included */
        return CONN_TIMER_HEAD;
    switch (conn->state) {
    case CONN_HEAD:
        return head_begun(conn) ? CONN_TIMER_HEAD : CONN_TIMER_IDLE;
    case CONN_EXCHANGE:
        return body_timer_kind(conn);
    case CONN_SKIP:
    case CONN_LINGER:
        return CONN_TIMER_LINGER;
    case CONN_STREAMS:
        return conn->server->config.http2->timer(conn->session);
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
    if (conn->out.pending || conn->more)
        mask |= UV_WRITABLE;
    if (!mask)
        mask = UV_PRIORITIZED;
    if (!list_empty(&conn->opening) && !stream_opening(conn->stream))
        http_server_opened(conn);
    stream_watch(conn->stream, mask, on_ready, conn);
    http_server_set_timer(conn->server, &conn->read_timer, read_timer_kind(conn), conn->restart);
    http_server_set_timer(conn->server, &conn->write_timer,
                          conn->out.pending ? CONN_TIMER_WRITE : CONN_TIMER_NONE, conn->progress);
    conn->restart = conn->progress = false;
    http_hold_set(&conn->hold, conn->out.memory);
    if (conn->state == CONN_STREAMS)
        conn->server->config.http2->settle(conn->session);
}

void http_conn_advance(struct http_conn *conn)
{
    if (conn->state == CONN_CLOSED)
        return;
    list_remove(&conn->todo);
    conn->busy = true;
    conn->more = false;
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
        conn->broken = conn->state == CONN_EXCHANGE &&
                       ((conn->ex.answer == ANSWER_OPEN && !conn->out.pending) ||
                        (conn->ex.answer == ANSWER_NONE && conn->ex.leaves_at_end));
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

static void on_read_timer(struct conn_timer_link *link, enum conn_timer kind)
{
    struct http_conn *conn = container_of(link, struct http_conn, read_timer);

    if (stream_opening(conn->stream))
        conn->broken = true; /* nothing could be said */
    else if (conn->state == CONN_STREAMS)
        conn->server->config.http2->timed_out(conn->session);
    else if (kind == CONN_TIMER_HEAD || ((kind == CONN_TIMER_BODY || kind == CONN_TIMER_WHOLE) &&
                                         conn->state == CONN_EXCHANGE))
        http_conn_fail(conn, 408, "the request did not come in time");
    else
        conn->broken = true;
    http_conn_advance(conn);
}

static void on_write_timer(struct conn_timer_link *link, enum conn_timer kind)
{
    struct http_conn *conn = container_of(link, struct http_conn, write_timer);

    (void)kind;
    conn->broken = conn->reset = true;
    http_conn_touch(conn); /* whatever is on the stack now, its own input perhaps */
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
    http_exchange_init(&conn->ex, server, &http_conn_ops);
    http_parser_init(&conn->parser, true, on_body, conn);
    conn->parser.connects = server->config.connects;
    buf_init(&conn->rest, LOOP_READ_SIZE);
    list_init(&conn->todo);
    conn_timer_init(&conn->read_timer, on_read_timer);
    conn_timer_init(&conn->write_timer, on_write_timer);
    conn->hold =
        (struct http_hold){.conn = conn, .ex = &conn->ex, .secure = stream_filtered(conn->stream)};
    conn->write_timer.hold = &conn->hold;
    http_budget_join(conn);
    conn->read_timer.conn = conn;
    list_init(&conn->opening);
    list_push_back(&server->conns, &conn->all);
    server->conn_count++;
    server->handles++;
    conn->restart = true;
    if (stream_opening(conn->stream))
        http_server_opening(conn);
    if (refusal) {
        conn->refused = true;
        server->refused++;
        http_conn_fail(conn, 503, refusal);
    }
    http_conn_advance(conn);
}

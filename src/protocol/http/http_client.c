/* How it works
 *
 * The connection is armed for reading all the time, except while paused, so that a peer that goes
 * away is seen even between requests. A failed write is only remembered: the peer may have answered
 * (and closed) before it took the whole request, so what can be read is read first and the end of
 * the stream decides.
 *
 * Memory goes back at the end of the loop's turn, so callbacks may free the client they are called for; `closed` is looked at after each of them. */
#include "protocol/http/http_client.h"

#include <errno.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "protocol/http/http_outq.h"
#include "protocol/http/http_parser.h"
#include "protocol/http/http_server.h"

enum { READS_PER_EVENT = 4 };

struct http_client {
    struct loop *loop;
    struct stream *stream;
    struct http_parser parser;
    struct http_outq out;
    const struct http_client_events *events;
    void *arg;
    struct buf rest; /* behind a 101 */
    int write_errnum;
    bool active;    /* a response is awaited */
    bool head_only; /* ... to a HEAD request */
    bool head_seen;
    bool upgraded;
    bool paused;
    bool drain_due;
    bool failed, closed;
};

static void on_ready(struct stream *stream, int status, int events, void *arg);

static void update(struct http_client *client)
{
    int mask = 0;

    if (client->closed)
        return;
    if (!client->failed && !client->paused && !client->upgraded)
        mask |= UV_READABLE;
    if (!client->failed && client->out.pending)
        mask |= UV_WRITABLE;
    stream_watch(client->stream, mask, on_ready, client);
}

struct http_client *http_client_new(struct loop *loop, struct stream *stream_consume)
{
    struct http_client *client = xcalloc(1, sizeof(*client));

    client->loop = loop;
    client->stream = stream_consume;
    http_parser_init(&client->parser, false, NULL, NULL);
    buf_init(&client->rest, LOOP_READ_WIDE);
    update(client);
    return client;
}

static void client_free(void *arg)
{
    struct http_client *client = arg;

    http_parser_done(&client->parser);
    http_outq_done(&client->out);
    buf_done(&client->rest);
    free(client);
}

void http_client_free(struct http_client *client)
{
    if (!client || client->closed)
        return;
    client->closed = true;
    stream_close(client->stream, false);
    loop_later(client->loop, client_free, client);
}

struct stream *http_client_detach(struct http_client *client, struct buf *rest)
{
    (void)buf_add_str(rest, buf_str(&client->rest));
    stream_watch(client->stream, 0, NULL, NULL);
    client->closed = true;
    loop_later(client->loop, client_free, client);
    return client->stream;
}

static void send_out(struct http_client *client, const struct iovec *iov, size_t count)
{
    int result;

    if (client->failed || client->write_errnum)
        return;
    result = http_outq_send(&client->out, client->stream, iov, count);
    if (result < 0) {
        client->write_errnum = -result;
        http_outq_done(&client->out);
    }
    update(client);
}

void http_client_watch(struct http_client *client, const struct http_client_events *events,
                       void *arg)
{
    client->events = events;
    client->arg = arg;
}

void http_client_start(struct http_client *client, const struct http_client_events *events,
                       void *arg, struct str head, bool head_only)
{
    struct iovec iov = http_iov(head.p, head.len);

    client->events = events;
    client->arg = arg;
    client->active = true;
    client->head_seen = client->drain_due = client->paused = false;
    client->head_only = head_only;
    http_parser_next(&client->parser);
    client->parser.head_only = head_only;
    send_out(client, &iov, 1);
}

static size_t write_iov(struct http_client *client, const struct iovec *iov, size_t count)
{
    send_out(client, iov, count);
    if (client->out.pending > HTTP_LOW_WATER)
        client->drain_due = true;
    return client->out.pending;
}

size_t http_client_write(struct http_client *client, const void *p, size_t len)
{
    struct iovec iov = http_iov(p, len);

    return write_iov(client, &iov, len ? 1 : 0);
}

size_t http_client_write_chunk(struct http_client *client, const void *p, size_t len)
{
    char size_line[20], line_end[] = "\r\n";
    int digits = snprintf(size_line, sizeof(size_line), "%zx\r\n", len);
    struct iovec iov[3] = {{size_line, (size_t)digits}, http_iov(p, len), {line_end, 2}};

    return write_iov(client, iov, 3);
}

const struct http_headers *http_client_trailers(const struct http_client *client)
{
    return http_parser_trailers(&client->parser);
}

bool http_client_alive(const struct http_client *client)
{
    return !client->failed && !client->closed && !client->active &&
           stream_peek(client->stream) == -EAGAIN;
}

void http_client_pause(struct http_client *client)
{
    client->paused = true;
    update(client);
}

void http_client_resume(struct http_client *client)
{
    client->paused = false;
    update(client);
}

static void fail(struct http_client *client, int errnum)
{
    if (client->failed || client->closed)
        return;
    client->failed = true;
    client->active = false;
    if (client->events && client->events->on_error)
        client->events->on_error(client, errnum, client->arg);
}

static void finish(struct http_client *client, bool more_input)
{
    bool reusable =
        client->parser.keep_alive && !more_input && !client->out.pending && !client->write_errnum;

    client->active = false;
    client->failed = !reusable; /* nothing follows */
    client->events->on_end(client, reusable, client->arg);
}

/* A complete head. True when the rest of the input is still to be looked at. */
static bool take_head(struct http_client *client, struct str in)
{
    int status = client->parser.ll.status_code;
    struct http_headers headers = http_parser_headers(&client->parser);
    struct http_framing framing = http_parser_framing(&client->parser);

    if (status < 200 && status != 101) {
        http_parser_next(&client->parser);
        client->parser.head_only = client->head_only;
        return true;
    }
    client->head_seen = true;
    if (status == 101) {
        client->upgraded = true;
        (void)buf_add_str(&client->rest, in);
    }
    client->events->on_head(client, status, http_parser_reason(&client->parser), &headers, &framing,
                            client->arg);
    if (client->closed || client->upgraded)
        return false;
    if (client->parser.complete) {
        finish(client, in.len > 0);
        return false;
    }
    return true;
}

/* Trailers are on_end's, with the blank line behind them. Without any, that line comes with the rest of the
 * body unless the network got in between. */
static void pass_body(struct http_client *client, struct str raw, bool done)
{
    bool trails = http_client_trailers(client)->count > 0;
    size_t tail = client->parser.body.tail;
    bool whole = done && tail == 2 && !trails;

    if (!whole)
        raw.len -= tail;
    if (raw.len)
        client->events->on_data(client, raw, client->arg);
    if (done && tail && !whole && !trails && !client->closed)
        client->events->on_data(client, STR("\r\n"), client->arg);
}

static void take_input(struct http_client *client, struct str in)
{
    while (in.len && !client->closed && !client->failed) {
        struct str before = in;
        enum http_parse result;

        if (!client->active) {
            fail(client, EPROTO); /* nobody asked anything */
            return;
        }
        result = http_parser_feed(&client->parser, &in);
        if (result == HTTP_PARSE_ERROR) {
            fail(client, EPROTO);
            return;
        }
        if (result == HTTP_PARSE_HEAD) {
            if (!take_head(client, in))
                return;
            continue;
        }
        if (client->head_seen && before.len > in.len)
            pass_body(client, str_n(before.p, before.len - in.len), result == HTTP_PARSE_DONE);
        if (client->closed)
            return;
        if (result == HTTP_PARSE_DONE) {
            finish(client, in.len > 0);
            return;
        }
    }
}

static void take_eof(struct http_client *client)
{
    if (client->active && client->head_seen && http_parser_finish(&client->parser)) {
        client->parser.keep_alive = false;
        finish(client, false);
        return;
    }
    fail(client, client->write_errnum ? client->write_errnum : ECONNRESET);
}

static void read_input(struct http_client *client, bool error_seen)
{
    char *buffer = loop_read_buffer(client->loop);

    for (int i = 0; i < READS_PER_EVENT; i++) {
        ssize_t got;

        if (client->closed || client->failed || client->paused || client->upgraded)
            return;
        got = stream_read(client->stream, buffer, LOOP_READ_WIDE);
        if (got > 0) {
            take_input(client, str_n(buffer, (size_t)got));
            if (got < LOOP_READ_WIDE && !error_seen)
                return;
        } else if (got == 0) {
            take_eof(client);
        } else if (got != -EAGAIN) {
            fail(client, (int)-got);
        } else {
            if (error_seen)
                fail(client, EIO);
            return;
        }
    }
}

static void on_ready(struct stream *stream, int status, int events, void *arg)
{
    struct http_client *client = arg;

    if ((events & UV_WRITABLE) && !client->write_errnum) {
        int result = http_outq_flush(&client->out, stream);

        if (result < 0) {
            client->write_errnum = -result;
            http_outq_done(&client->out);
        }
        if (client->drain_due && client->out.pending < HTTP_LOW_WATER) {
            client->drain_due = false;
            if (client->active && client->events->on_drain)
                client->events->on_drain(client, client->arg);
        }
    }
    if (!client->closed && (status < 0 || (events & UV_READABLE)))
        read_input(client, status < 0); /* which finds out what the matter is */
    update(client);
}

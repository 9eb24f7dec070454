/* How it works
 *
 * Input is read when the stream is readable, parsed and given on; output is sent at once and what it
 * does not take waits in `out` for writability. A peer that takes nothing is bounded by
 * whoever sends (v1_socket_pending()), and by the timer: every 30 s a ping goes out, and when nothing
 * at all came in since two of them, the peer is given up. The same timer ends a closing that the peer
 * does not answer.
 *
 * Callbacks may close the socket; it is freed only when libuv has given its timer back. */
#include "edge/api_runtime/v1_socket.h"

#include <errno.h>

#include "base/alloc.h"
#include "protocol/stream/stream.h"

enum {
    PING_MS = 30000,
    CLOSE_MS = 3000,
    MESSAGE_MAX = 1024 * 1024,
    OUT_MAX = 8 * 1024 * 1024,
    READS_PER_EVENT = 4,
};

struct v1_socket {
    struct loop *loop;
    struct v1_socket_events events;
    void *arg;
    struct stream *stream;
    uv_timer_t timer;
    struct websocket_parser parser;
    struct buf rest; /* read, not parsed: while paused */
    struct buf out;
    bool paused, closing, gone;
    bool told;   /* a close frame was sent */
    int silence; /* pings without any answer */
};

static void on_ready(struct stream *stream, int status, int events, void *arg);

static void on_timer_closed(uv_handle_t *handle)
{
    struct v1_socket *socket = handle->data;

    websocket_parser_done(&socket->parser);
    buf_done(&socket->rest);
    buf_done(&socket->out);
    free(socket);
}

static void hang_up(struct v1_socket *socket)
{
    if (socket->gone)
        return;
    socket->gone = true;
    stream_close(socket->stream, false);
    uv_close((uv_handle_t *)&socket->timer, on_timer_closed);
    socket->events.on_closed(socket->arg);
}

static void update(struct v1_socket *socket)
{
    int mask = 0;

    if (socket->gone)
        return;
    if (!socket->paused)
        mask |= UV_READABLE;
    if (socket->out.len)
        mask |= UV_WRITABLE;
    if (!mask)
        mask = UV_DISCONNECT;
    stream_watch(socket->stream, mask, on_ready, socket);
}

/* False when the connection is broken. */
static bool flush(struct v1_socket *socket)
{
    struct iovec iov = {socket->out.p, socket->out.len};
    ssize_t sent = iov.iov_len ? stream_write(socket->stream, &iov, 1, false) : 0;

    if (sent > 0)
        buf_drop(&socket->out, (size_t)sent);
    return sent >= 0 || sent == -EAGAIN;
}

/* A broken connection shows itself to who watches it: nothing is freed below a caller. */
static void send_frame(struct v1_socket *socket, enum websocket_opcode opcode, struct str data)
{
    if (socket->gone || socket->told)
        return;
    if (socket->out.len + data.len + WEBSOCKET_HEAD_MAX > OUT_MAX) {
        stream_shut(socket->stream, SHUT_RDWR); /* half a frame must not go out */
        return;
    }
    websocket_add(&socket->out, WEBSOCKET_SERVER, opcode, data);
    (void)flush(socket);
    update(socket);
}

size_t v1_socket_pending(const struct v1_socket *socket)
{
    return socket->out.len;
}

size_t v1_socket_send(struct v1_socket *socket, bool text, struct str data)
{
    if (!socket->closing)
        send_frame(socket, text ? WEBSOCKET_TEXT : WEBSOCKET_BINARY, data);
    return socket->out.len;
}

static void on_close_timeout(uv_timer_t *timer)
{
    hang_up(timer->data);
}

void v1_socket_close(struct v1_socket *socket, enum websocket_code code, struct str reason)
{
    char data[WEBSOCKET_CONTROL_MAX];
    size_t len = reason.len < sizeof(data) - 2 ? reason.len : sizeof(data) - 2;

    if (socket->gone || socket->closing)
        return;
    /* Not in the middle of a character. */
    while (len < reason.len && len && ((unsigned char)reason.p[len] & 0xc0) == 0x80)
        len--;
    data[0] = (char)(code >> 8);
    data[1] = (char)code;
    if (len)
        memcpy(data + 2, reason.p, len);
    send_frame(socket, WEBSOCKET_CLOSE, str_n(data, 2 + len));
    socket->closing = socket->told = true;
    socket->paused = false;
    (void)uv_timer_start(&socket->timer, on_close_timeout, CLOSE_MS, 0);
    update(socket);
}

static void on_ping(uv_timer_t *timer)
{
    struct v1_socket *socket = timer->data;

    if (++socket->silence > 2)
        hang_up(socket);
    else
        send_frame(socket, WEBSOCKET_PING, STR_NONE);
}

/* The other side closes: answered with its own code, then the end. */
static void on_peer_close(struct v1_socket *socket, uint16_t code)
{
    uint8_t data[2] = {(uint8_t)(code >> 8), (uint8_t)code};

    if (!socket->told)
        send_frame(socket, WEBSOCKET_CLOSE, str_n(data, code == WEBSOCKET_NO_CODE ? 0 : 2));
    hang_up(socket);
}

static void on_frame(struct v1_socket *socket, const struct websocket_message *message)
{
    switch (message->opcode) {
    case WEBSOCKET_PING:
        if (socket->out.len < V1_SOCKET_HIGH_WATER) /* or it does not read its answers */
            send_frame(socket, WEBSOCKET_PONG, message->data);
        break;
    case WEBSOCKET_CLOSE:
        on_peer_close(socket, message->code);
        break;
    case WEBSOCKET_TEXT:
    case WEBSOCKET_BINARY:
        if (!socket->closing)
            socket->events.on_message(socket->arg, message->data,
                                      message->opcode == WEBSOCKET_TEXT);
        break;
    case WEBSOCKET_PONG:
    case WEBSOCKET_CONTINUATION:
        break;
    }
}

/* Until all is parsed, or somebody pauses it: then the rest is kept. */
static void parse(struct v1_socket *socket, struct str bytes)
{
    struct websocket_message message;

    while (!socket->gone && !socket->paused) {
        int r = websocket_parse(&socket->parser, &bytes, &message);

        if (r == 0)
            return;
        if (r > 0)
            on_frame(socket, &message);
        else
            v1_socket_close(socket, message.code, STR("the protocol was broken"));
        if (r < 0)
            return;
    }
    if (!socket->gone)
        (void)buf_add_str(&socket->rest, bytes);
}

static void read_some(struct v1_socket *socket)
{
    char *buffer = loop_read_buffer(socket->loop);

    for (int i = 0; i < READS_PER_EVENT && !socket->gone && !socket->paused; i++) {
        ssize_t got = stream_read(socket->stream, buffer, LOOP_READ_SIZE);

        if (got == -EAGAIN)
            return;
        if (got <= 0) {
            hang_up(socket);
            return;
        }
        socket->silence = 0;
        parse(socket, str_n(buffer, (size_t)got));
    }
}

static void on_ready(struct stream *stream, int status, int events, void *arg)
{
    struct v1_socket *socket = arg;
    size_t before = socket->out.len;

    (void)stream;
    if (status < 0 || (events & UV_DISCONNECT) || ((events & UV_WRITABLE) && !flush(socket))) {
        hang_up(socket);
        return;
    }
    if (before && !socket->out.len && !socket->closing)
        socket->events.on_drain(socket->arg);
    if (events & UV_READABLE)
        read_some(socket);
    update(socket);
}

void v1_socket_pause(struct v1_socket *socket, bool pause)
{
    struct buf rest = socket->rest;

    if (socket->gone || socket->closing || pause == socket->paused)
        return;
    socket->paused = pause;
    if (!pause && rest.len) {
        buf_init(&socket->rest, LOOP_READ_SIZE);
        parse(socket, buf_str(&rest));
        buf_done(&rest);
    }
    update(socket);
}

static void add_answer(struct v1_socket *socket, const char *accept, const char *protocol)
{
    (void)buf_printf(&socket->out,
                     "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                     "Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n",
                     accept);
    if (protocol)
        (void)buf_printf(&socket->out, "Sec-WebSocket-Protocol: %s\r\n", protocol);
    (void)buf_add_str(&socket->out, STR("\r\n"));
}

static bool acceptable(struct http_exchange *ex, char accept[WEBSOCKET_ACCEPT_SIZE])
{
    const struct http_request *request = http_request(ex);

    return request->upgrade && request->minor == 1 && !request->chunked &&
           request->content_length <= 0 &&
           http_headers_has_token(&http_request(ex)->headers, "Upgrade", "websocket") &&
           str_is(str_trim(http_header(ex, "Sec-WebSocket-Version")), "13") &&
           websocket_accept(str_trim(http_header(ex, "Sec-WebSocket-Key")), accept);
}

struct v1_socket *v1_socket_new(struct http_exchange *ex, const char *protocol,
                                const struct v1_socket_events *events, void *arg)
{
    char accept[WEBSOCKET_ACCEPT_SIZE];
    struct v1_socket *socket;

    if (!acceptable(ex, accept))
        return NULL;
    socket = xcalloc(1, sizeof(*socket));
    socket->loop = http_loop(ex);
    socket->events = *events;
    socket->arg = arg;
    buf_init(&socket->rest, LOOP_READ_SIZE);
    buf_init(&socket->out, OUT_MAX);
    socket->stream = http_detach(ex, &socket->rest);
    if (!socket->stream) {
        buf_done(&socket->rest);
        free(socket);
        return NULL;
    }
    websocket_parser_init(&socket->parser, WEBSOCKET_CLIENT, MESSAGE_MAX);
    (void)uv_timer_init(loop_uv(socket->loop), &socket->timer);
    socket->timer.data = socket;
    socket->paused = true; /* until its owner is ready */
    (void)uv_timer_start(&socket->timer, on_ping, PING_MS, PING_MS);
    add_answer(socket, accept, protocol);
    (void)flush(socket);
    update(socket);
    return socket;
}

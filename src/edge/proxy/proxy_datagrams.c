/* Bytes of the client are collected until they hold whole datagrams, which go to the socket at once. In the other
 * direction there is one buffer: the socket is read only while it is empty, so that what comes too fast is
 * dropped by the kernel and not collected here. */
#include "edge/proxy/proxy_datagrams.h"

#include <errno.h>

#include "base/alloc.h"
#include "base/buf.h"

enum { HEAD = 2, DATAGRAM_MAX = 65507, STEPS = 32 };

struct proxy_datagrams {
    struct loop *loop;
    struct stream *client, *socket;
    struct buf in, out; /* from and to the client */
    bool closed, ended;
    proxy_datagrams_fn *on_end;
    void *arg;
};

static void on_ready(struct stream *stream, int status, int events, void *arg);

/* All whole ones that have come. Nobody there, or no room: lost. */
static void send_whole(struct proxy_datagrams *datagrams)
{
    struct str rest = buf_str(&datagrams->in);

    while (rest.len >= HEAD) {
        size_t len = (size_t)(unsigned char)rest.p[0] << 8 | (unsigned char)rest.p[1];
        struct iovec iov = {(char *)(uintptr_t)rest.p + HEAD, len};

        if (len > DATAGRAM_MAX)
            datagrams->ended = true;
        if (len > DATAGRAM_MAX || rest.len < HEAD + len)
            break;
        (void)stream_write(datagrams->socket, &iov, 1, false);
        rest = str_skip(rest, HEAD + len);
    }
    buf_drop(&datagrams->in, datagrams->in.len - rest.len);
}

static void take_from_client(struct proxy_datagrams *datagrams)
{
    char *buffer = loop_read_buffer(datagrams->loop);

    for (int i = 0; i < STEPS && !datagrams->ended; i++) {
        ssize_t n = stream_read(datagrams->client, buffer, LOOP_READ_SIZE);

        if (n == -EAGAIN)
            return;
        datagrams->ended = n <= 0 || !buf_add(&datagrams->in, buffer, (size_t)n);
        if (!datagrams->ended)
            send_whole(datagrams);
    }
}

/* False when the client takes no more now. */
static bool write_out(struct proxy_datagrams *datagrams)
{
    while (datagrams->out.len) {
        struct iovec iov = {datagrams->out.p, datagrams->out.len};
        ssize_t n = stream_write(datagrams->client, &iov, 1, false);

        if (n < 0)
            datagrams->ended |= n != -EAGAIN;
        if (n <= 0)
            return false;
        buf_drop(&datagrams->out, (size_t)n);
    }
    return true;
}

static void take_from_socket(struct proxy_datagrams *datagrams)
{
    char *buffer = loop_read_buffer(datagrams->loop);

    for (int i = 0; i < STEPS && write_out(datagrams); i++) {
        ssize_t n = stream_read(datagrams->socket, buffer, DATAGRAM_MAX);
        const char head[HEAD] = {(char)(n >> 8), (char)n};

        if (n == -EAGAIN)
            return;
        if (n < 0) /* nobody listened when something was sent; somebody may now */
            continue;
        (void)buf_add(&datagrams->out, head, HEAD);
        (void)buf_add(&datagrams->out, buffer, (size_t)n);
    }
}

static void advance(struct proxy_datagrams *datagrams)
{
    take_from_client(datagrams);
    take_from_socket(datagrams);
    if (datagrams->ended) {
        stream_watch(datagrams->client, 0, NULL, NULL);
        stream_watch(datagrams->socket, 0, NULL, NULL);
        datagrams->on_end(datagrams->arg);
        return;
    }
    stream_watch(datagrams->client, UV_READABLE | (datagrams->out.len ? UV_WRITABLE : 0), on_ready,
                 datagrams);
    stream_watch(datagrams->socket, datagrams->out.len ? 0 : UV_READABLE, on_ready, datagrams);
}

/* An error of the socket is one datagram that nobody took; of the client it is the end, which reading tells. */
static void on_ready(struct stream *stream, int status, int events, void *arg)
{
    (void)stream;
    (void)status;
    (void)events;
    advance(arg);
}

void proxy_datagrams_free(struct proxy_datagrams *datagrams, bool reset)
{
    if (!datagrams || datagrams->closed)
        return;
    datagrams->closed = true;
    stream_close(datagrams->client, reset);
    stream_close(datagrams->socket, false);
    buf_done(&datagrams->in);
    buf_done(&datagrams->out);
    loop_free_later(datagrams->loop, datagrams);
}

struct proxy_datagrams *proxy_datagrams_new(struct loop *loop, struct stream *client_consume,
                                            struct stream *socket_consume, struct str to_client,
                                            struct str from_client, proxy_datagrams_fn *on_end,
                                            void *arg)
{
    struct proxy_datagrams *datagrams = xcalloc(1, sizeof(*datagrams));

    *datagrams = (struct proxy_datagrams){.loop = loop,
                                          .client = client_consume,
                                          .socket = socket_consume,
                                          .on_end = on_end,
                                          .arg = arg};
    buf_init(&datagrams->in, HEAD + DATAGRAM_MAX + LOOP_READ_SIZE);
    buf_init(&datagrams->out, HEAD + DATAGRAM_MAX + to_client.len);
    (void)buf_add_str(&datagrams->out, to_client);
    (void)buf_add_str(&datagrams->in, from_client);
    send_whole(datagrams);
    stream_watch(datagrams->client, UV_READABLE | UV_WRITABLE, on_ready, datagrams);
    return datagrams;
}

/* How it works
 *
 * Each direction is a `half`: a source, perhaps a pipe, a sink. What was read goes on at once, and what the sink does
 * not take waits in front of what follows, as do the few bytes that were read before the tunnel began. When there was
 * more to read than fits at once, and what goes between is what the two sockets have (streams without filters, or with
 * filters that the kernel does the work of), the half gets a pipe, and from then on bytes go source -> pipe -> sink
 * without passing through our memory: most tunnels are silent most of the time, and need no descriptors for that. What
 * a filter must see goes through memory in between. A half that is empty waits for its source, one that is not for its sink; that
 * is the whole backpressure. The end of a source is passed on as a half-close of the sink.
 *
 * A stream is the source of one half and the sink of the other, so what is wanted of it is made of both. */
#include "protocol/stream/stream_tunnel.h"

#include <errno.h>
#include <fcntl.h>

#include "base/alloc.h"
#include "base/cleanup.h"

enum { STEP = 64 * 1024, STEPS_PER_EVENT = 8 };

struct half {
    int source, sink; /* index of the streams */
    int pipe[2];      /* -1 without, as at first */
    size_t in_pipe;
    struct buf first; /* goes before the pipe */
    bool ended;       /* the source sends no more */
    bool finished;    /* ... and the sink knows */
};

struct stream_tunnel {
    struct loop *loop;
    struct half halves[2];
    struct stream *streams[2]; /* 0: client, 1: server */
    bool closed, broken;
    stream_tunnel_fn *on_end;
    void *arg;
};

static void on_ready(struct stream *stream, int status, int events, void *arg);

/* True for bytes; a failure that is more than "not now" breaks the tunnel. */
static bool moved(struct stream_tunnel *tunnel, ssize_t result)
{
    tunnel->broken = tunnel->broken || (result < 0 && result != -EAGAIN);
    return result > 0;
}

/* Towards the sink. False when it takes no more now. */
static bool drain_half(struct stream_tunnel *tunnel, struct half *half)
{
    struct stream *sink = tunnel->streams[half->sink];
    ssize_t sent;

    while (half->first.len) {
        struct iovec iov = {half->first.p, half->first.len};

        sent = stream_write(sink, &iov, 1, false);
        if (!moved(tunnel, sent))
            return false;
        buf_drop(&half->first, (size_t)sent);
    }
    while (half->in_pipe) {
        sent = stream_write_pipe(sink, half->pipe[0], half->in_pipe);
        if (!moved(tunnel, sent ? sent : -EPIPE))
            return false;
        half->in_pipe -= (size_t)sent;
    }
    return true;
}

/* Source to sink through memory. */
static ssize_t copy(struct stream_tunnel *tunnel, struct half *half)
{
    char *buffer = loop_read_buffer(tunnel->loop);
    ssize_t got = stream_read(tunnel->streams[half->source], buffer, STEP), sent;
    struct iovec iov = {buffer, got > 0 ? (size_t)got : 0};

    if (got <= 0)
        return got;
    sent = stream_write(tunnel->streams[half->sink], &iov, 1, false);
    if (sent < 0 && sent != -EAGAIN)
        return sent;
    if (sent < 0)
        sent = 0;
    buf_done(&half->first);
    buf_init(&half->first, STEP);
    (void)buf_add(&half->first, buffer + sent, (size_t)(got - sent));
    return got;
}

/* Source to pipe, as long as there is no word for a filter in between. */
static ssize_t fill_pipe(struct stream_tunnel *tunnel, struct half *half)
{
    ssize_t got = stream_read_pipe(tunnel->streams[half->source], half->pipe[1], STEP);

    if (got == -EOPNOTSUPP)
        return copy(tunnel, half);
    half->in_pipe = got > 0 ? (size_t)got : 0;
    return got;
}

static bool goes_by_pipe(const struct stream_tunnel *tunnel, const struct half *half)
{
    return stream_source_fd(tunnel->streams[half->source]) >= 0 &&
           stream_sink_fd(tunnel->streams[half->sink]) >= 0;
}

/* From the source. False when it has no more now. */
static bool fill_half(struct stream_tunnel *tunnel, struct half *half)
{
    bool piped = half->pipe[1] >= 0;
    ssize_t got = piped ? fill_pipe(tunnel, half) : copy(tunnel, half);

    half->ended = got == 0;
    if (!moved(tunnel, got))
        return false;
    if (!piped && got == STEP && goes_by_pipe(tunnel, half) &&
        pipe2(half->pipe, O_CLOEXEC | O_NONBLOCK) < 0)
        half->pipe[0] = half->pipe[1] = -1; /* out of descriptors: it goes on without */
    return true;
}

static void advance_half(struct stream_tunnel *tunnel, struct half *half)
{
    for (int step = 0; step < STEPS_PER_EVENT && !tunnel->broken; step++) {
        if (!drain_half(tunnel, half))
            return;
        if (half->ended || !fill_half(tunnel, half))
            break;
    }
    if (half->ended && !half->finished && !half->in_pipe && !half->first.len) {
        half->finished = true;
        stream_shut(tunnel->streams[half->sink], SHUT_WR);
    }
}

static void update(struct stream_tunnel *tunnel)
{
    for (int i = 0; i < 2; i++) {
        const struct half *from = &tunnel->halves[i], *to = &tunnel->halves[1 - i];
        int mask = 0;

        if (!from->ended && !from->in_pipe && !from->first.len)
            mask |= UV_READABLE;
        if (to->in_pipe || to->first.len)
            mask |= UV_WRITABLE;
        stream_watch(tunnel->streams[i], mask, on_ready, tunnel);
    }
}

static void advance(struct stream_tunnel *tunnel)
{
    advance_half(tunnel, &tunnel->halves[0]);
    advance_half(tunnel, &tunnel->halves[1]);
    if (tunnel->broken || (tunnel->halves[0].finished && tunnel->halves[1].finished)) {
        for (int i = 0; i < 2; i++)
            stream_watch(tunnel->streams[i], 0, NULL, NULL);
        tunnel->on_end(tunnel->arg);
        return;
    }
    update(tunnel);
}

static void on_ready(struct stream *stream, int status, int events, void *arg)
{
    struct stream_tunnel *tunnel = arg;

    (void)stream;
    (void)events;
    if (status < 0)
        tunnel->broken = true;
    advance(tunnel);
}

void stream_tunnel_free(struct stream_tunnel *tunnel, bool reset)
{
    if (!tunnel || tunnel->closed)
        return;
    tunnel->closed = true;
    for (int i = 0; i < 2; i++) {
        stream_close(tunnel->streams[i], reset || tunnel->broken);
        close_fd(&tunnel->halves[i].pipe[0]);
        close_fd(&tunnel->halves[i].pipe[1]);
        buf_done(&tunnel->halves[i].first);
    }
    loop_free_later(tunnel->loop, tunnel);
}

static void init_half(struct half *half, int source, struct str first)
{
    half->source = source;
    half->sink = 1 - source;
    buf_init(&half->first, first.len);
    (void)buf_add_str(&half->first, first);
    half->pipe[0] = half->pipe[1] = -1;
}

struct stream_tunnel *stream_tunnel_new(struct loop *loop, struct stream *client_consume,
                                        struct stream *server_consume, struct str to_client,
                                        struct str to_server, stream_tunnel_fn *on_end, void *arg)
{
    struct stream_tunnel *tunnel = xcalloc(1, sizeof(*tunnel));

    tunnel->loop = loop;
    tunnel->on_end = on_end;
    tunnel->arg = arg;
    tunnel->streams[0] = client_consume;
    tunnel->streams[1] = server_consume;
    init_half(&tunnel->halves[0], 0, to_server);
    init_half(&tunnel->halves[1], 1, to_client);
    update(tunnel);
    return tunnel;
}

/* How it works
 *
 * Each direction is a `half`: a source socket, a pipe, a sink socket. Bytes go source -> pipe ->
 * sink without passing through our memory, except the few that were read before the tunnel began,
 * which are sent first. A half that is empty waits for its source, one that is not for its sink;
 * that is the whole backpressure. The end of a source is passed on as a half-close of the sink.
 *
 * A socket is the source of one half and the sink of the other, so its poll mask is made of both. */
#include "edge/proxy/proxy_tunnel.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/cleanup.h"

enum { STEP = 64 * 1024, STEPS_PER_EVENT = 8 };

struct half {
    int source, sink; /* index of the sockets */
    int pipe[2];
    size_t in_pipe;
    struct buf first;
    bool ended;    /* the source sends no more */
    bool finished; /* ... and the sink knows */
};

struct proxy_tunnel {
    struct loop *loop;
    struct half halves[2];
    uv_poll_t polls[2]; /* 0: client, 1: server */
    int fds[2], masks[2];
    int open_handles;
    bool closed, broken;
    proxy_tunnel_fn *on_end;
    void *arg;
};

static void on_ready(uv_poll_t *poll, int status, int events);

static bool would_block(ssize_t result)
{
    return result < 0 && (errno == EAGAIN || errno == EINTR);
}

/* Towards the sink. False when it takes no more now. */
static bool drain_half(struct proxy_tunnel *tunnel, struct half *half)
{
    int fd = tunnel->fds[half->sink];
    ssize_t sent;

    while (half->first.len) {
        sent = send(fd, half->first.p, half->first.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) {
            tunnel->broken = tunnel->broken || !would_block(sent);
            return false;
        }
        buf_drop(&half->first, (size_t)sent);
    }
    while (half->in_pipe) {
        sent =
            splice(half->pipe[0], NULL, fd, NULL, half->in_pipe, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        if (sent <= 0) {
            tunnel->broken = tunnel->broken || !would_block(sent);
            return false;
        }
        half->in_pipe -= (size_t)sent;
    }
    return true;
}

/* From the source. False when it has no more now. */
static bool fill_half(struct proxy_tunnel *tunnel, struct half *half)
{
    ssize_t got = splice(tunnel->fds[half->source], NULL, half->pipe[1], NULL, STEP,
                         SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

    if (got < 0) {
        tunnel->broken = tunnel->broken || !would_block(got);
        return false;
    }
    if (got == 0) {
        half->ended = true;
        return false;
    }
    half->in_pipe = (size_t)got;
    return true;
}

static void advance_half(struct proxy_tunnel *tunnel, struct half *half)
{
    for (int step = 0; step < STEPS_PER_EVENT && !tunnel->broken; step++) {
        if (!drain_half(tunnel, half))
            return;
        if (half->ended || !fill_half(tunnel, half))
            break;
    }
    if (half->ended && !half->finished && !half->in_pipe && !half->first.len) {
        half->finished = true;
        (void)shutdown(tunnel->fds[half->sink], SHUT_WR);
    }
}

static void update(struct proxy_tunnel *tunnel)
{
    for (int i = 0; i < 2; i++) {
        const struct half *from = &tunnel->halves[i], *to = &tunnel->halves[1 - i];
        int mask = 0;

        if (!from->ended && !from->in_pipe && !from->first.len)
            mask |= UV_READABLE;
        if (to->in_pipe || to->first.len)
            mask |= UV_WRITABLE;
        if (mask == tunnel->masks[i])
            continue;
        tunnel->masks[i] = mask;
        if (mask)
            (void)uv_poll_start(&tunnel->polls[i], mask, on_ready);
        else
            (void)uv_poll_stop(&tunnel->polls[i]);
    }
}

static void advance(struct proxy_tunnel *tunnel)
{
    advance_half(tunnel, &tunnel->halves[0]);
    advance_half(tunnel, &tunnel->halves[1]);
    if (tunnel->broken || (tunnel->halves[0].finished && tunnel->halves[1].finished)) {
        for (int i = 0; i < 2; i++)
            (void)uv_poll_stop(&tunnel->polls[i]);
        tunnel->on_end(tunnel->arg);
        return;
    }
    update(tunnel);
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct proxy_tunnel *tunnel = poll->data;

    (void)events;
    if (tunnel->closed)
        return;
    if (status < 0)
        tunnel->broken = true;
    advance(tunnel);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct proxy_tunnel *tunnel = handle->data;

    if (--tunnel->open_handles == 0)
        free(tunnel);
}

void proxy_tunnel_free(struct proxy_tunnel *tunnel, bool reset)
{
    struct linger hard = {.l_onoff = 1, .l_linger = 0};

    if (!tunnel || tunnel->closed)
        return;
    tunnel->closed = true;
    for (int i = 0; i < 2; i++) {
        uv_close((uv_handle_t *)&tunnel->polls[i], on_handle_closed);
        if (reset || tunnel->broken)
            (void)setsockopt(tunnel->fds[i], SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
        close_fd(&tunnel->fds[i]);
        close_fd(&tunnel->halves[i].pipe[0]);
        close_fd(&tunnel->halves[i].pipe[1]);
        buf_done(&tunnel->halves[i].first);
    }
}

static bool init_half(struct half *half, int source, struct str first)
{
    half->source = source;
    half->sink = 1 - source;
    buf_init(&half->first, first.len);
    (void)buf_add_str(&half->first, first);
    return pipe2(half->pipe, O_CLOEXEC | O_NONBLOCK) == 0;
}

struct proxy_tunnel *proxy_tunnel_new(struct loop *loop, int client_fd_consume,
                                      int server_fd_consume, struct str to_client,
                                      struct str to_server, proxy_tunnel_fn *on_end, void *arg)
{
    struct proxy_tunnel *tunnel = xcalloc(1, sizeof(*tunnel));
    bool ok;

    tunnel->loop = loop;
    tunnel->on_end = on_end;
    tunnel->arg = arg;
    tunnel->fds[0] = client_fd_consume;
    tunnel->fds[1] = server_fd_consume;
    for (int i = 0; i < 2; i++)
        tunnel->halves[i].pipe[0] = tunnel->halves[i].pipe[1] = -1;
    ok = init_half(&tunnel->halves[0], 0, to_server) && init_half(&tunnel->halves[1], 1, to_client);
    for (int i = 0; i < 2; i++) {
        tunnel->polls[i].data = tunnel;
        if (uv_poll_init(loop_uv(loop), &tunnel->polls[i], tunnel->fds[i]) != 0)
            abort(); /* only for descriptors that epoll cannot watch */
        tunnel->open_handles++;
    }
    if (!ok) {
        proxy_tunnel_free(tunnel, true);
        return NULL;
    }
    update(tunnel);
    return tunnel;
}

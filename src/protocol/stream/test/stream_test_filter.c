/* On the wire: 'D' and two bytes of length, then so many masked bytes; 'C', a credit for CREDIT_FRAMES more
 * frames of the receiver of it, who needs none when the sender says no more; 'E', nothing follows. */
#include "protocol/stream/test/stream_test_filter.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/list.h"
#include "base/test.h"
#include "protocol/stream/stream_tunnel.h"

enum {
    FRAME_MAX = 1000,
    HEAD_SIZE = 3,
    CREDIT_FRAMES = 128,
    MASK = 0x5a,
    STALL_EVERY = 5, /* reads */
    BUFFER_MAX = 256 * 1024 * 1024,
};

struct filter {
    struct stream_filter base;
    struct buf raw;   /* from the socket, no whole frame */
    struct buf plain; /* for read() */
    struct buf out;   /* for the socket */
    size_t data_left; /* bytes of `out` that end a frame of data */
    size_t data_size; /* ... that stands for so many */
    size_t owed;      /* bytes whose frames went out, which write() has still to count */
    int credit, frames, reads;
    bool ended, shut;
    int errnum;
};

static struct filter *of(struct stream_filter *base)
{
    return container_of(base, struct filter, base);
}

/* False: not all could be sent. */
static bool flush(struct filter *filter, int fd)
{
    while (filter->out.len && !filter->errnum) {
        ssize_t sent = send(fd, filter->out.p, filter->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent < 0 && errno == EAGAIN)
            return false;
        if (sent < 0) {
            filter->errnum = errno;
            return false;
        }
        buf_drop(&filter->out, (size_t)sent);
        if (filter->data_left && (size_t)sent >= filter->data_left) {
            filter->owed += filter->data_size;
            filter->data_left = 0;
        } else if (filter->data_left) {
            filter->data_left -= (size_t)sent;
        }
    }
    return !filter->out.len;
}

/* One frame off `raw`. False when there is no whole one. */
static bool take_frame(struct filter *filter)
{
    const unsigned char *p = (const unsigned char *)filter->raw.p;
    size_t len = filter->raw.len, size;

    if (!len)
        return false;
    if (*p == 'C' || *p == 'E') {
        if (*p == 'C') {
            filter->credit += CREDIT_FRAMES;
            filter->base.write_needs = UV_WRITABLE;
        }
        filter->ended = filter->ended || *p == 'E';
        buf_drop(&filter->raw, 1);
        return true;
    }
    size = len >= HEAD_SIZE ? (size_t)p[1] << 8 | p[2] : 0;
    if (*p != 'D' || size > FRAME_MAX)
        filter->errnum = EPROTO;
    if (filter->errnum || len < HEAD_SIZE || len < HEAD_SIZE + size)
        return false;
    for (size_t i = 0; i < size; i++)
        (void)buf_add_char(&filter->plain, (char)(p[HEAD_SIZE + i] ^ MASK));
    buf_drop(&filter->raw, HEAD_SIZE + size);
    if (++filter->frames % CREDIT_FRAMES == 0 && !filter->shut)
        (void)buf_add_char(&filter->out, 'C');
    return true;
}

/* What the socket has. */
static void fill(struct filter *filter, int fd)
{
    while (!filter->ended && !filter->errnum) {
        char bytes[4096];
        ssize_t got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);

        if (got < 0 && errno == EAGAIN)
            break;
        if (got < 0)
            filter->errnum = errno;
        else if (got == 0 && filter->raw.len)
            filter->errnum = ECONNRESET;
        else if (got == 0)
            filter->ended = true;
        else
            (void)buf_add(&filter->raw, bytes, (size_t)got);
        while (!filter->errnum && take_frame(filter)) {
        }
    }
    (void)flush(filter, fd);
}

static ssize_t filter_read(struct stream_filter *base, int fd, void *p, size_t size)
{
    struct filter *filter = of(base);
    struct pollfd pfd = {.fd = fd, .events = POLLOUT};
    size_t len;

    base->read_needs = UV_READABLE;
    if (++filter->reads % STALL_EVERY == 0 && poll(&pfd, 1, 0) == 1 && pfd.revents == POLLOUT) {
        base->read_needs = UV_WRITABLE;
        return -EAGAIN;
    }
    if (filter->plain.len < size)
        fill(filter, fd);
    len = filter->plain.len < size ? filter->plain.len : size;
    if (!len && filter->errnum)
        return -filter->errnum;
    if (!len)
        return filter->ended ? 0 : -EAGAIN;
    memcpy(p, filter->plain.p, len);
    buf_drop(&filter->plain, len);
    return (ssize_t)len;
}

static void add_frame(struct filter *filter, const struct iovec *iov, size_t count, size_t skip)
{
    char frame[HEAD_SIZE + FRAME_MAX];
    size_t len = 0;

    for (size_t i = 0; i < count && len < FRAME_MAX; i++) {
        size_t from = skip < iov[i].iov_len ? skip : iov[i].iov_len;

        skip -= from;
        for (; from < iov[i].iov_len && len < FRAME_MAX; from++)
            frame[HEAD_SIZE + len++] = (char)(((const char *)iov[i].iov_base)[from] ^ MASK);
    }
    frame[0] = 'D';
    frame[1] = (char)(len >> 8);
    frame[2] = (char)len;
    (void)buf_add(&filter->out, frame, HEAD_SIZE + len);
    filter->data_left = filter->out.len;
    filter->data_size = len;
}

static ssize_t filter_write(struct stream_filter *base, int fd, const struct iovec *iov,
                            size_t count)
{
    struct filter *filter = of(base);
    size_t total = 0;

    for (size_t i = 0; i < count; i++)
        total += iov[i].iov_len;
    base->write_needs = UV_WRITABLE;
    while (flush(filter, fd) && filter->owed < total) {
        if (!filter->credit)
            fill(filter, fd);
        if (!filter->credit && !filter->ended) {
            base->write_needs = UV_READABLE;
            break;
        }
        if (filter->credit)
            filter->credit--;
        add_frame(filter, iov, count, filter->owed);
    }
    total = filter->owed;
    filter->owed = 0;
    if (total)
        return (ssize_t)total;
    return filter->errnum ? -filter->errnum : -EAGAIN;
}

static bool filter_has_input(const struct stream_filter *base)
{
    const struct filter *filter = (const struct filter *)(const void *)base; /* first member */

    return filter->plain.len || filter->ended || filter->errnum;
}

static void filter_shut(struct stream_filter *base, int fd)
{
    of(base)->shut = true;
    (void)buf_add_char(&of(base)->out, 'E');
    (void)flush(of(base), fd);
}

static void filter_free(struct stream_filter *base)
{
    buf_done(&of(base)->raw);
    buf_done(&of(base)->plain);
    buf_done(&of(base)->out);
    free(of(base));
}

struct stream_filter *stream_test_filter(void *unused)
{
    static const struct stream_filter_ops ops = {.read = filter_read,
                                                 .write = filter_write,
                                                 .has_input = filter_has_input,
                                                 .shut = filter_shut,
                                                 .free = filter_free};
    struct filter *filter = xcalloc(1, sizeof(*filter));

    (void)unused;
    filter->base.ops = &ops;
    filter->credit = CREDIT_FRAMES;
    buf_init(&filter->raw, BUFFER_MAX);
    buf_init(&filter->plain, BUFFER_MAX);
    buf_init(&filter->out, BUFFER_MAX);
    return &filter->base;
}

/* ---- relay ---- */

struct relay {
    struct loop_errand errand;
    int plain_fd, filtered_fd;
    struct stream_tunnel *tunnel;
};

static struct loop *relay_loop;

static void *run_relays(void *arg)
{
    loop_run(arg);
    return NULL;
}

static void on_relay_end(void *arg)
{
    struct relay *relay = arg;

    stream_tunnel_free(relay->tunnel, false);
    free(relay);
}

static void start_relay(struct loop_errand *errand)
{
    struct relay *relay = container_of(errand, struct relay, errand);
    struct stream *filtered = stream_new(relay_loop, relay->filtered_fd);

    stream_add_filter(filtered, stream_test_filter(NULL));
    relay->tunnel = stream_tunnel_new(relay_loop, stream_new(relay_loop, relay->plain_fd), filtered,
                                      STR_NONE, STR_NONE, on_relay_end, relay);
}

/* Of TCP, because only there a reset is more than an end. */
static void tcp_pair(int out[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(bind(fd, (struct sockaddr *)&address, size) == 0 && listen(fd, 1) == 0);
    CHECK_INT(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    out[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_INT(connect(out[0], (struct sockaddr *)&address, size), 0);
    out[1] = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    CHECK(out[1] >= 0);
    (void)close(fd);
}

int stream_test_relay(int fd_consume)
{
    struct relay *relay = xcalloc(1, sizeof(*relay));
    pthread_t thread;
    int pair[2];

    tcp_pair(pair);
    relay->filtered_fd = fd_consume;
    relay->plain_fd = pair[1];
    relay->errand.fn = start_relay;
    if (!relay_loop) {
        relay_loop = loop_new();
        CHECK_INT(pthread_create(&thread, NULL, run_relays, relay_loop), 0);
    }
    loop_post(relay_loop, &relay->errand);
    return pair[0];
}

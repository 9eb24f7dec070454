/* How it works
 *
 * A plain stream is its socket and a poll handle. A filter says after each call what it waits for, so the
 * poll mask is made of what the owner wants to do and what that needs of the socket. Bytes that a filter
 * holds are not seen by poll: as long as there are some and reading is wanted, a timer of no length calls
 * the owner in the next turn.
 *
 * A kernel that does the filter's work takes what it is given, makes records of it, and holds those that the socket has
 * no room for: they are lost when the socket is shut before there is some. So it is never given more than there is
 * room for, and what a caller was told to be sent is sent. */
#include "protocol/stream/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sock_diag.h>
#include <poll.h>
#include <sys/sendfile.h>

#include "base/alloc.h"
#include "base/cleanup.h"

enum { COPY_STEP = 64 * 1024 }; /* of a file that cannot be sent by sendfile */

struct stream {
    uv_poll_t poll;
    struct loop *loop;
    uint64_t number;
    int fd;
    int wanted, mask; /* by the owner; of the socket */
    stream_fn *fn;
    void *arg;
    struct stream_filter *filter;
    uv_timer_t *soon; /* only with a filter */
    int handles;
};

struct stream *stream_new(struct loop *loop, int fd_consume)
{
    struct stream *stream = xcalloc(1, sizeof(*stream));

    stream->loop = loop;
    stream->number = loop_number(loop);
    stream->fd = fd_consume;
    if (uv_poll_init(loop_uv(loop), &stream->poll, stream->fd) != 0) {
        close_fd(&stream->fd);
        free(stream);
        return NULL;
    }
    stream->poll.data = stream;
    stream->handles = 1;
    return stream;
}

uint64_t stream_number(const struct stream *stream)
{
    return stream->number;
}

void stream_add_filter(struct stream *stream, struct stream_filter *filter_consume)
{
    stream->filter = filter_consume;
    stream->filter->read_needs = UV_READABLE;
    stream->filter->write_needs = UV_WRITABLE;
    stream->soon = xcalloc(1, sizeof(*stream->soon));
    (void)uv_timer_init(loop_uv(stream->loop), stream->soon);
    stream->soon->data = stream;
    stream->handles++;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct stream *stream = handle->data;

    if (--stream->handles)
        return;
    if (stream->filter)
        stream->filter->ops->free(stream->filter);
    free(stream->soon);
    free(stream);
}

void stream_close(struct stream *stream, bool reset)
{
    struct linger hard = {.l_onoff = 1, .l_linger = 0};

    if (reset)
        (void)setsockopt(stream->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    else if (stream->filter)
        stream->filter->ops->shut(stream->filter, stream->fd);
    uv_close((uv_handle_t *)&stream->poll, on_handle_closed); /* forgets the descriptor at once */
    if (stream->soon)
        uv_close((uv_handle_t *)stream->soon, on_handle_closed);
    close_fd(&stream->fd);
}

/* ---- waiting ---- */

static bool hung_up(const struct stream *stream)
{
    struct pollfd pfd = {.fd = stream->fd};

    return poll(&pfd, 1, 0) == 1 && (pfd.revents & (POLLERR | POLLHUP));
}

/* What the owner may do when the socket is so. */
static int through_filter(const struct stream *stream, int events)
{
    int out = events & ~(UV_READABLE | UV_WRITABLE);

    if (events & stream->filter->read_needs)
        out |= stream->wanted & UV_READABLE;
    if (events & stream->filter->write_needs)
        out |= stream->wanted & UV_WRITABLE;
    return out;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct stream *stream = poll->data;

    if (status < 0)
        stream->mask = 0; /* libuv has stopped polling */
    if ((events & UV_PRIORITIZED) && !hung_up(stream)) {
        /* Urgent data would be reported again and again: nobody wants it. */
        (void)uv_poll_stop(poll);
        return;
    }
    if (stream->filter && status >= 0)
        events = through_filter(stream, events);
    stream->fn(stream, status, events, stream->arg);
}

static void on_soon(uv_timer_t *timer)
{
    struct stream *stream = timer->data;

    if (stream->wanted & UV_READABLE)
        stream->fn(stream, 0, UV_READABLE, stream->arg);
}

static int mask_through_filter(struct stream *stream)
{
    int mask = stream->wanted & ~(UV_READABLE | UV_WRITABLE);

    if (stream->wanted & UV_READABLE)
        mask |= stream->filter->read_needs;
    if (stream->wanted & UV_WRITABLE)
        mask |= stream->filter->write_needs;
    if (!(stream->wanted & UV_READABLE) || !stream->filter->ops->has_input(stream->filter))
        (void)uv_timer_stop(stream->soon);
    else if (!uv_is_active((uv_handle_t *)stream->soon))
        (void)uv_timer_start(stream->soon, on_soon, 0, 0);
    return mask;
}

static void arm(struct stream *stream)
{
    int mask = stream->filter ? mask_through_filter(stream) : stream->wanted;

    if (mask == stream->mask)
        return;
    stream->mask = mask;
    if (mask)
        (void)uv_poll_start(&stream->poll, mask, on_poll);
    else
        (void)uv_poll_stop(&stream->poll);
}

void stream_watch(struct stream *stream, int wanted, stream_fn *fn, void *arg)
{
    stream->wanted = wanted;
    stream->fn = fn;
    stream->arg = arg;
    arm(stream);
}

/* ---- reading and writing ---- */

ssize_t stream_read(struct stream *stream, void *p, size_t size)
{
    ssize_t got;

    if (stream->filter) {
        got = stream->filter->ops->read(stream->filter, stream->fd, p, size);
        arm(stream);
        return got;
    }
    got = recv(stream->fd, p, size, MSG_DONTWAIT);
    if (got >= 0)
        return got;
    return errno == EINTR ? -EAGAIN : -errno;
}

/* How much of `len` goes to the socket whole. */
static size_t room_for(const struct stream *stream, size_t len)
{
    uint32_t memory[SK_MEMINFO_VARS];
    socklen_t size = sizeof(memory);
    size_t all, used, room;

    if (!stream->filter || getsockopt(stream->fd, SOL_SOCKET, SO_MEMINFO, memory, &size) < 0)
        return len;
    all = memory[SK_MEMINFO_SNDBUF];
    used = memory[SK_MEMINFO_WMEM_QUEUED];
    room = all > used ? all - used : 0;
    if (room < used / 2)
        return 0;     /* as poll sees it: no room */
    room -= room / 4; /* what is around the bytes */
    return len < room ? len : room;
}

/* How many of the pieces have together at most so many bytes. */
static size_t fitting(const struct iovec *iov, size_t count, size_t max)
{
    size_t n = 0;

    for (; n < count && iov[n].iov_len <= max; n++)
        max -= iov[n].iov_len;
    return n;
}

static size_t length_of(const struct iovec *iov, size_t count)
{
    size_t len = 0;

    for (size_t i = 0; i < count; i++)
        len += iov[i].iov_len;
    return len;
}

/* Leaves of the message what there is room for; `part` is for a first piece that is longer. False when there is none. */
static bool limit(const struct stream *stream, struct msghdr *msg, struct iovec *part)
{
    size_t count = (size_t)msg->msg_iovlen, len = length_of(msg->msg_iov, count);
    size_t room = room_for(stream, len);

    msg->msg_iovlen = fitting(msg->msg_iov, count, room);
    if (room && !msg->msg_iovlen) {
        *part = (struct iovec){msg->msg_iov->iov_base, room};
        msg->msg_iov = part;
        msg->msg_iovlen = 1;
    }
    return room || !len;
}

ssize_t stream_write(struct stream *stream, const struct iovec *iov, size_t count, bool more)
{
    int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0);
    struct msghdr msg = {.msg_iovlen = count};
    struct iovec part;
    ssize_t sent;

    if (stream_sink_fd(stream) < 0) {
        sent = stream->filter->ops->write(stream->filter, stream->fd, iov, count);
        arm(stream);
        return sent;
    }
    memcpy(&msg.msg_iov, &iov, sizeof(iov)); /* not const, although nothing writes through it */
    if (stream->filter && !limit(stream, &msg, &part))
        return -EAGAIN;
    do
        sent = sendmsg(stream->fd, &msg, flags);
    while (sent < 0 && errno == EINTR);
    if (sent >= 0)
        return sent;
    return errno == ENOTCONN ? -EAGAIN : -errno; /* a Unix socket that is still connecting */
}

/* Through memory: for filters, and for files sendfile(2) refuses, such as those of /proc. */
static ssize_t copy_file(struct stream *stream, int fd, int64_t offset, size_t len)
{
    auto_free char *buffer = xmalloc(COPY_STEP);
    ssize_t got = pread(fd, buffer, len < COPY_STEP ? len : COPY_STEP, offset);
    struct iovec iov = {.iov_base = buffer};

    if (got <= 0)
        return got < 0 ? -errno : -EIO;
    iov.iov_len = (size_t)got;
    return stream_write(stream, &iov, 1, false);
}

ssize_t stream_send_file(struct stream *stream, int fd, int64_t offset, size_t len)
{
    off_t at = offset;
    ssize_t sent;

    if (stream_sink_fd(stream) < 0)
        return copy_file(stream, fd, offset, len);
    len = room_for(stream, len);
    if (!len)
        return -EAGAIN;
    sent = sendfile(stream->fd, fd, &at, len);
    if (sent == 0)
        return -EIO;
    if (sent < 0 && (errno == EINVAL || errno == ENOSYS))
        return copy_file(stream, fd, offset, len);
    if (sent < 0)
        return errno == EINTR ? -EAGAIN : -errno;
    return sent;
}

static ssize_t spliced(int from, int to, size_t len)
{
    ssize_t n = splice(from, NULL, to, NULL, len, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

    if (n >= 0)
        return n;
    return errno == EINTR ? -EAGAIN : -errno;
}

ssize_t stream_read_pipe(struct stream *stream, int pipe, size_t size)
{
    int fd = stream_source_fd(stream);
    ssize_t got = fd >= 0 ? spliced(fd, pipe, size) : -EOPNOTSUPP;

    return stream->filter && got <= 0 && got != -EAGAIN ? -EOPNOTSUPP : got;
}

ssize_t stream_write_pipe(struct stream *stream, int pipe, size_t len)
{
    int fd = stream_sink_fd(stream);

    if (fd < 0)
        return -EPROTO; /* the filter broke */
    len = room_for(stream, len);
    return len ? spliced(pipe, fd, len) : -EAGAIN;
}

int stream_peek(struct stream *stream)
{
    char byte;
    ssize_t got;

    if (stream->filter && stream->filter->ops->has_input(stream->filter))
        return 1;
    if (stream->filter && stream->filter->ops->peek) {
        int seen = stream->filter->ops->peek(stream->filter, stream->fd);

        arm(stream);
        return seen;
    }
    got = recv(stream->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got >= 0 ? (int)got : -errno;
}

void stream_shut(struct stream *stream, int how)
{
    if (stream->filter && how == SHUT_WR)
        stream->filter->ops->shut(stream->filter, stream->fd);
    (void)shutdown(stream->fd, how);
}

bool stream_opening(const struct stream *stream)
{
    return stream->filter && stream->filter->opening;
}

struct str stream_protocol(const struct stream *stream)
{
    return stream->filter ? stream->filter->protocol : STR("");
}

bool stream_filtered(const struct stream *stream)
{
    return stream->filter != NULL;
}

void stream_widen(struct stream *stream, int size)
{
    (void)setsockopt(stream->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

bool stream_peer(const struct stream *stream, struct sockaddr_storage *out)
{
    socklen_t size = sizeof(*out);

    return getpeername(stream->fd, (struct sockaddr *)out, &size) == 0;
}

int stream_source_fd(const struct stream *stream)
{
    const struct stream_filter *filter = stream->filter;

    return filter && (!filter->kernel_receives || filter->ops->has_input(filter)) ? -1 : stream->fd;
}

int stream_sink_fd(const struct stream *stream)
{
    return stream->filter && !stream->filter->kernel_sends ? -1 : stream->fd;
}

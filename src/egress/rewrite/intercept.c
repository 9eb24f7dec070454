/* How it works
 *
 * Reading takes bytes from below into `in`, has them changed into `out`, and gives those away. As long as the requests
 * have to wait for an answer nothing is read, and nothing is needed of the socket: the answer comes by write(). After
 * an upgrade bytes pass by without being touched. */
#include "egress/rewrite/intercept.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { IN_SIZE = 16 * 1024, OUT_MAX = 512 * 1024 };

struct intercept {
    struct stream_filter base, *inner;
    struct transform transform;
    struct buf in, out;
    bool failed, told, ended;
};

static struct intercept *intercept_of(struct stream_filter *base)
{
    return (struct intercept *)base;
}

/* ---- below ---- */

static ssize_t read_below(struct intercept *intercept, int fd, void *p, size_t size)
{
    ssize_t got;

    if (intercept->inner)
        return intercept->inner->ops->read(intercept->inner, fd, p, size);
    got = recv(fd, p, size, MSG_DONTWAIT);
    if (got >= 0)
        return got;
    return errno == EINTR ? -EAGAIN : -errno;
}

static ssize_t write_below(struct intercept *intercept, int fd, const struct iovec *iov,
                           size_t count)
{
    struct msghdr msg = {.msg_iovlen = count};
    ssize_t sent;

    if (intercept->inner)
        return intercept->inner->ops->write(intercept->inner, fd, iov, count);
    memcpy(&msg.msg_iov, &iov, sizeof(iov)); /* not const, although nothing writes through it */
    sent = sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0)
        return sent;
    return errno == EINTR ? -EAGAIN : -errno;
}

/* What the stream has to know of us. */
static void tell(struct intercept *intercept)
{
    const struct stream_filter *inner = intercept->inner;

    intercept->base.read_needs = inner ? inner->read_needs : UV_READABLE;
    intercept->base.write_needs = inner ? inner->write_needs : UV_WRITABLE;
    intercept->base.opening = inner && inner->opening;
    if (transform_waits(&intercept->transform) && !intercept->out.len)
        intercept->base.read_needs = 0;
}

/* ---- reading ---- */

static ssize_t give(struct intercept *intercept, void *p, size_t size)
{
    size_t len = intercept->out.len < size ? intercept->out.len : size;

    memcpy(p, intercept->out.p, len);
    buf_drop(&intercept->out, len);
    if (!intercept->out.len)
        buf_done(&intercept->out); /* it had secrets, and most connections are silent mostly */
    return (ssize_t)len;
}

static void change(struct intercept *intercept)
{
    struct str rest = buf_str(&intercept->in);

    if (!intercept->out.max)
        buf_init(&intercept->out, OUT_MAX);
    intercept->failed = !transform_request(&intercept->transform, &rest, &intercept->out);
    buf_drop(&intercept->in, intercept->in.len - rest.len);
}

/* False when there is nothing to change now: *result says why. */
static bool fill(struct intercept *intercept, int fd, ssize_t *result)
{
    char *room = buf_reserve(&intercept->in, IN_SIZE);

    *result = room ? read_below(intercept, fd, room, IN_SIZE) : -ENOMEM;
    if (*result <= 0) {
        intercept->ended = *result == 0;
        return false;
    }
    buf_grew(&intercept->in, (size_t)*result);
    return true;
}

/* Whoever reads on after a failure waits for the client's end. */
static ssize_t drop_rest(struct intercept *intercept, int fd, void *p, size_t size)
{
    ssize_t got;

    if (!intercept->told) {
        intercept->told = true;
        return -EACCES;
    }
    got = read_below(intercept, fd, p, size);
    return got > 0 ? -EAGAIN : got;
}

static ssize_t advance(struct intercept *intercept, int fd, void *p, size_t size)
{
    ssize_t result = 0;

    for (;;) {
        if (intercept->out.len)
            return give(intercept, p, size);
        if (intercept->failed)
            return drop_rest(intercept, fd, p, size);
        if (transform_waits(&intercept->transform))
            return -EAGAIN;
        if (intercept->transform.opaque && !intercept->in.len)
            return read_below(intercept, fd, p, size);
        if (!intercept->in.len && (intercept->ended || !fill(intercept, fd, &result)))
            return result;
        change(intercept);
    }
}

static ssize_t intercept_read(struct stream_filter *base, int fd, void *p, size_t size)
{
    struct intercept *intercept = intercept_of(base);
    ssize_t got = advance(intercept, fd, p, size);

    if (!intercept->in.len)
        buf_done(&intercept->in);
    tell(intercept);
    return got;
}

/* ---- writing ---- */

static void follow(struct intercept *intercept, const struct iovec *iov, size_t sent)
{
    for (size_t i = 0; sent; i++) {
        size_t len = iov[i].iov_len < sent ? iov[i].iov_len : sent;

        if (!transform_answer(&intercept->transform, str_n(iov[i].iov_base, len)))
            intercept->failed = true;
        sent -= len;
    }
}

static ssize_t intercept_write(struct stream_filter *base, int fd, const struct iovec *iov,
                               size_t count)
{
    struct intercept *intercept = intercept_of(base);
    ssize_t sent = write_below(intercept, fd, iov, count);

    if (sent > 0)
        follow(intercept, iov, (size_t)sent);
    tell(intercept);
    return sent;
}

static bool intercept_has_input(const struct stream_filter *base)
{
    const struct intercept *intercept = (const struct intercept *)base;

    if (intercept->out.len || (intercept->failed && !intercept->told))
        return true;
    if (transform_waits(&intercept->transform))
        return false;
    return (intercept->in.len && !intercept->failed) ||
           (intercept->inner && intercept->inner->ops->has_input(intercept->inner));
}

static void intercept_shut(struct stream_filter *base, int fd)
{
    struct intercept *intercept = intercept_of(base);

    if (intercept->inner)
        intercept->inner->ops->shut(intercept->inner, fd);
}

static void intercept_free(struct stream_filter *base)
{
    struct intercept *intercept = intercept_of(base);

    if (intercept->inner)
        intercept->inner->ops->free(intercept->inner);
    transform_done(&intercept->transform);
    buf_done(&intercept->in);
    buf_done(&intercept->out);
    free(intercept);
}

struct stream_filter *intercept_new(struct stream_filter *inner_consume, struct str first,
                                    transform_fn *fn, void *arg)
{
    static const struct stream_filter_ops ops = {
        .read = intercept_read,
        .write = intercept_write,
        .has_input = intercept_has_input,
        .shut = intercept_shut,
        .free = intercept_free,
    };
    struct intercept *intercept = xcalloc(1, sizeof(*intercept));

    intercept->base.ops = &ops;
    intercept->inner = inner_consume;
    if (inner_consume) {
        inner_consume->read_needs = UV_READABLE;
        inner_consume->write_needs = UV_WRITABLE;
    }
    transform_init(&intercept->transform, fn, arg);
    buf_init(&intercept->in, IN_SIZE + first.len);
    (void)buf_add_str(&intercept->in, first);
    tell(intercept);
    return &intercept->base;
}

const char *intercept_fault(const struct stream_filter *filter)
{
    return ((const struct intercept *)filter)->transform.fault;
}

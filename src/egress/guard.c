/* A connection of plain HTTP carries many requests, each with a host of its own. The first one opened the way; this
 * reads all that follow, as bytes pass by, and breaks the connection at the first one that may not. What follows an
 * upgrade that the server agreed to is not HTTP any more. */
#include <errno.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "egress/egress_internal.h"
#include "protocol/http/http_parser.h"

struct guard {
    struct stream_filter filter;
    struct http_parser parser;
    guard_fn *fn;
    void *arg;
    bool asked_upgrade, opaque;
};

static bool check_head(struct guard *guard)
{
    struct http_request request = {0};
    struct host_name host;

    http_parser_request(&guard->parser, &request);
    guard->asked_upgrade |= request.upgrade;
    return sniff_host(http_headers_get(&request.headers, "host"), &host) &&
           guard->fn(guard->arg, &host);
}

static bool check(struct guard *guard, struct str bytes)
{
    while (bytes.len && !guard->opaque) {
        switch (http_parser_feed(&guard->parser, &bytes)) {
        case HTTP_PARSE_HEAD:
            if (!check_head(guard))
                return false;
            break;
        case HTTP_PARSE_ERROR:
            return false;
        case HTTP_PARSE_DONE:
        case HTTP_PARSE_MORE:
        case HTTP_PARSE_PAUSED:
            break;
        }
        if (guard->parser.complete)
            http_parser_next(&guard->parser);
    }
    return true;
}

static ssize_t guard_read(struct stream_filter *filter, int fd, void *p, size_t size)
{
    struct guard *guard = container_of(filter, struct guard, filter);
    ssize_t got = recv(fd, p, size, MSG_DONTWAIT);

    if (got < 0)
        return errno == EINTR ? -EAGAIN : -errno;
    return check(guard, str_n(p, (size_t)got)) ? got : -EACCES;
}

/* The server's answer to the request that asked for an upgrade begins with what it is given first. */
static void watch_answer(struct guard *guard, const struct iovec *iov, size_t count)
{
    static const char agreed[] = "HTTP/1.1 101";

    if (!guard->asked_upgrade || guard->opaque || !count || iov[0].iov_len < sizeof(agreed) - 1)
        return;
    guard->opaque = memcmp(iov[0].iov_base, agreed, sizeof(agreed) - 1) == 0;
    guard->asked_upgrade = false;
}

static ssize_t guard_write(struct stream_filter *filter, int fd, const struct iovec *iov,
                           size_t count)
{
    struct guard *guard = container_of(filter, struct guard, filter);
    struct msghdr msg = {.msg_iovlen = count};
    ssize_t sent;

    watch_answer(guard, iov, count);
    memcpy(&msg.msg_iov, &iov, sizeof(iov)); /* not const, although nothing writes through it */
    sent = sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0)
        return sent;
    return errno == EINTR ? -EAGAIN : -errno;
}

static bool guard_has_input(const struct stream_filter *filter)
{
    (void)filter;
    return false;
}

static void guard_shut(struct stream_filter *filter, int fd)
{
    (void)filter;
    (void)fd;
}

static void guard_free(struct stream_filter *filter)
{
    struct guard *guard = container_of(filter, struct guard, filter);

    http_parser_done(&guard->parser);
    free(guard);
}

struct stream_filter *guard_new(struct str first, guard_fn *fn, void *arg)
{
    static const struct stream_filter_ops ops = {
        .read = guard_read,
        .write = guard_write,
        .has_input = guard_has_input,
        .shut = guard_shut,
        .free = guard_free,
    };
    struct guard *guard = xcalloc(1, sizeof(*guard));

    guard->filter.ops = &ops;
    guard->fn = fn;
    guard->arg = arg;
    http_parser_init(&guard->parser, true, NULL, NULL);
    if (check(guard, first))
        return &guard->filter;
    guard_free(&guard->filter);
    return NULL;
}

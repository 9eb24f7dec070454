/* A connection of plain HTTP carries many requests, each with a host of its own. The first one opened the way; this
 * reads all that follow, as bytes pass by, and breaks the connection at the first one that may not. What follows an
 * upgrade that the server agreed to is not HTTP any more; answers are followed to know that it did, and that it was that
 * request which it answered. An upgrade to another HTTP, whose requests would be out of our sight, is none. */
#include <errno.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "egress/process/egress_internal.h"
#include "egress/rewrite/asked.h"
#include "protocol/http/http_parser.h"

struct guard {
    struct stream_filter filter;
    struct http_parser parser, answer;
    guard_fn *fn;
    void *arg;
    struct asked_list asked;
    bool opaque; /* no HTTP any more */
    bool blind;  /* answers could not be followed: no upgrade is believed */
};

static enum asked kind_of(const struct http_request *request)
{
    if (str_is(request->method, "HEAD"))
        return ASKED_HEAD;
    return http_upgrades(request) ? ASKED_UPGRADE : ASKED_PLAIN;
}

static bool check_head(struct guard *guard)
{
    struct http_request request = {0};
    struct host_name host;

    http_parser_request(&guard->parser, &request);
    if (guard->asked.count == ASKED_MAX)
        guard->blind = true;
    else
        asked_push(&guard->asked, kind_of(&request));
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

/* The end of a head: 101 is meant for the only request that waits, or for none. */
static void take_status(struct guard *guard)
{
    if (guard->answer.ll.status_code != 101)
        return;
    guard->opaque = guard->asked.count == 1 && asked_oldest(&guard->asked) == ASKED_UPGRADE;
    guard->blind = !guard->opaque;
}

static void watch_answer(struct guard *guard, struct str bytes)
{
    while (bytes.len && !guard->opaque && !guard->blind) {
        if (!guard->answer.head_done)
            guard->answer.head_only = asked_oldest(&guard->asked) == ASKED_HEAD;
        switch (http_parser_feed(&guard->answer, &bytes)) {
        case HTTP_PARSE_HEAD:
            take_status(guard);
            break;
        case HTTP_PARSE_ERROR:
            guard->blind = true;
            break;
        case HTTP_PARSE_DONE:
        case HTTP_PARSE_MORE:
        case HTTP_PARSE_PAUSED:
            break;
        }
        if (guard->answer.complete && !guard->opaque && !guard->blind) {
            if (guard->answer.ll.status_code >= 200)
                asked_pop(&guard->asked);
            http_parser_next(&guard->answer);
        }
    }
}

/* What was sent of them. */
static void watch_answers(struct guard *guard, const struct iovec *iov, size_t count, size_t sent)
{
    for (size_t i = 0; i < count && sent; i++) {
        size_t len = iov[i].iov_len < sent ? iov[i].iov_len : sent;

        watch_answer(guard, str_n(iov[i].iov_base, len));
        sent -= len;
    }
}

static ssize_t guard_write(struct stream_filter *filter, int fd, const struct iovec *iov,
                           size_t count)
{
    struct guard *guard = container_of(filter, struct guard, filter);
    struct msghdr msg = {.msg_iovlen = count};
    ssize_t sent;

    memcpy(&msg.msg_iov, &iov, sizeof(iov)); /* not const, although nothing writes through it */
    sent = sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0)
        return errno == EINTR ? -EAGAIN : -errno;
    watch_answers(guard, iov, count, (size_t)sent);
    return sent;
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
    http_parser_done(&guard->answer);
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
    http_parser_init(&guard->answer, false, NULL, NULL);
    if (check(guard, first))
        return &guard->filter;
    guard_free(&guard->filter);
    return NULL;
}

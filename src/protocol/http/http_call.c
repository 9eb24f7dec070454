/* A blocking call on a non-blocking socket: every wait is a poll(2) with what is left of the
 * deadline, so a peer that trickles cannot hold a worker longer than asked for. Writing ends early
 * when the peer has closed: it may have answered already. */
#include "protocol/http/http_call.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "protocol/http/http_outq.h"
#include "protocol/http/http_parser.h"

enum { READ_SIZE = 64 * 1024, RETRY_MS = 5 };

struct response {
    struct buf *body;
    size_t max;
    bool too_large;
};

static int wait_for(int fd, short events, int64_t deadline_ms, struct error *err)
{
    struct pollfd pfd = {.fd = fd, .events = events};

    for (;;) {
        int64_t left = deadline_ms - clock_mono_ms();
        int ready;

        if (left <= 0)
            return error_set(err, ERROR_TIMEOUT, "no answer in time");
        ready = poll(&pfd, 1, left > INT32_MAX ? INT32_MAX : (int)left);
        if (ready > 0)
            return 0;
        if (ready < 0 && errno != EINTR)
            return error_set_errno(err, errno, "poll");
    }
}

static int unavailable(struct error *err, int errnum, const char *what)
{
    (void)error_set_errno(err, errnum, "%s", what);
    err->code = ERROR_UNAVAILABLE;
    return -1;
}

static int connect_unix(const char *path, int64_t deadline_ms, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    auto_close int fd = -1;

    if (!str_copy(str_of(path), address.sun_path, sizeof(address.sun_path)))
        return error_set(err, ERROR_INVALID, "socket path '%s' is too long", path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set_errno(err, errno, "socket");
    while (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        if (errno != EAGAIN && errno != EINTR)
            return unavailable(err, errno, "connect");
        /* The listener's queue is full; there is nothing to poll for. */
        if (clock_mono_ms() + RETRY_MS >= deadline_ms)
            return error_set(err, ERROR_TIMEOUT, "connect: no answer in time");
        (void)poll(NULL, 0, RETRY_MS);
    }
    return take_fd(&fd);
}

static int connect_address(const struct addrinfo *address, int64_t deadline_ms, struct error *err)
{
    auto_close int fd = -1;
    socklen_t size = sizeof(int);
    int one = 1, errnum = 0;

    fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set_errno(err, errno, "socket");
    if (connect(fd, address->ai_addr, address->ai_addrlen) < 0) {
        if (errno != EINPROGRESS)
            return unavailable(err, errno, "connect");
        if (wait_for(fd, POLLOUT, deadline_ms, err) < 0)
            return error_prefix(err, "connect");
        (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &errnum, &size);
        if (errnum)
            return unavailable(err, errnum, "connect");
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return take_fd(&fd);
}

static int connect_host(const char *host, uint16_t port, int64_t deadline_ms, struct error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    char service[8];
    int result, fd = -1;

    (void)snprintf(service, sizeof(service), "%u", port);
    result = getaddrinfo(host, service, &hints, &list);
    if (result != 0)
        return error_set(err, ERROR_UNAVAILABLE, "cannot resolve '%s': %s", host,
                         gai_strerror(result));
    for (struct addrinfo *at = list; at && fd < 0; at = at->ai_next)
        fd = connect_address(at, deadline_ms, err);
    freeaddrinfo(list);
    return fd;
}

static bool is_clean(struct str s)
{
    return str_find(s, '\r') < 0 && str_find(s, '\n') < 0 && str_find(s, '\0') < 0;
}

static int make_head(const struct http_call *call, bool keep, struct buf *head, struct error *err)
{
    struct str method = str_of(call->method), target = str_of(call->target);
    bool sends = call->body.len || str_is(method, "POST") || str_is(method, "PUT") ||
                 str_is(method, "PATCH");

    if (!is_clean(method) || !is_clean(target) || str_find(target, ' ') >= 0 || !target.len)
        return error_set(err, ERROR_INVALID, "bad request target");
    (void)buf_printf(head, "%s %s HTTP/1.1\r\n", call->method, call->target);
    if (call->host && strchr(call->host, ':'))
        (void)buf_printf(head, "Host: [%s]:%u\r\n", call->host, call->port);
    else if (call->host)
        (void)buf_printf(head, "Host: %s:%u\r\n", call->host, call->port);
    else
        (void)buf_add_str(head, STR("Host: localhost\r\n"));
    for (size_t i = 0; i < call->header_count; i++) {
        const struct http_header *header = &call->headers[i];

        if (!is_clean(header->name) || !is_clean(header->value))
            return error_set(err, ERROR_INVALID, "bad header '%.*s'", STR_ARG(header->name));
        (void)buf_printf(head, "%.*s: %.*s\r\n", STR_ARG(header->name), STR_ARG(header->value));
    }
    if (sends)
        (void)buf_printf(head, "Content-Length: %zu\r\n", call->body.len);
    (void)buf_add_str(head, keep ? STR("\r\n") : STR("Connection: close\r\n\r\n"));
    if (head->overflowed)
        return error_set(err, ERROR_LIMIT, "request head is too large");
    return 0;
}

/* 0 also when the peer has closed its side: reading tells more. */
static int send_request(int fd, struct str head, struct str body, int64_t deadline_ms,
                        struct error *err)
{
    while (head.len || body.len) {
        struct iovec iov[2] = {http_iov(head.p, head.len), http_iov(body.p, body.len)};
        struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
        ssize_t sent = sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent >= 0) {
            size_t of_head = (size_t)sent < head.len ? (size_t)sent : head.len;

            head = str_skip(head, of_head);
            body = str_skip(body, (size_t)sent - of_head);
        } else if (errno == EAGAIN) {
            if (wait_for(fd, POLLOUT, deadline_ms, err) < 0)
                return error_prefix(err, "sending the request");
        } else if (errno == EPIPE || errno == ECONNRESET) {
            return 0;
        } else if (errno != EINTR) {
            return unavailable(err, errno, "sending the request");
        }
    }
    return 0;
}

static int on_payload(void *arg, struct str payload)
{
    struct response *response = arg;

    if (response->too_large || response->body->len + payload.len > response->max ||
        !buf_add_str(response->body, payload))
        response->too_large = true;
    return response->too_large;
}

/* Uses all of the input. 1 when the response is complete. */
static int take_input(struct http_parser *parser, struct response *response, struct str in,
                      bool head_only, struct error *err)
{
    while (in.len) {
        enum http_parse result = http_parser_feed(parser, &in);

        if (response->too_large)
            return error_set(err, ERROR_LIMIT, "the answer is larger than %zu bytes",
                             response->max);
        if (result == HTTP_PARSE_ERROR)
            return error_set(err, ERROR_UNAVAILABLE, "the peer does not speak HTTP");
        if (result == HTTP_PARSE_HEAD && parser->ll.status_code < 200) {
            if (parser->ll.status_code == 101)
                return 1;
            http_parser_next(parser);
            parser->head_only = head_only;
        } else if (parser->complete) {
            return 1;
        }
    }
    return 0;
}

static int read_response(int fd, struct http_parser *parser, struct response *response,
                         int64_t deadline_ms, struct error *err)
{
    auto_free char *buffer = xmalloc(READ_SIZE);
    bool head_only = parser->head_only;

    for (;;) {
        ssize_t got = recv(fd, buffer, READ_SIZE, MSG_DONTWAIT);
        int result;

        if (got == 0) {
            if (http_parser_finish(parser))
                return 0;
            return error_set(err, ERROR_UNAVAILABLE, "the connection was closed");
        }
        if (got < 0 && errno != EAGAIN && errno != EINTR)
            return unavailable(err, errno, "reading the answer");
        if (got < 0) {
            if (wait_for(fd, POLLIN, deadline_ms, err) < 0)
                return error_prefix(err, "reading the answer");
            continue;
        }
        result = take_input(parser, response, str_n(buffer, (size_t)got), head_only, err);
        if (result != 0)
            return result < 0 ? -1 : 0;
        if (clock_mono_ms() >= deadline_ms)
            return error_set(err, ERROR_TIMEOUT, "reading the answer: not complete in time");
    }
}

int http_call(const struct http_call *call, int *out_status, struct buf *out_body,
              struct error *err)
{
    int64_t deadline_ms = clock_mono_ms() + call->timeout_ms;
    struct response response = {.body = out_body, .max = call->response_max};
    bool keep = !call->unix_path && !call->host;
    struct http_parser parser;
    auto_buf struct buf head = {0};
    auto_close int own = -1;
    int fd = call->fd, result;

    buf_init(&head, HTTP_HEAD_MAX);
    if (make_head(call, keep, &head, err) < 0)
        return -1;
    if (!keep) {
        own = call->unix_path ? connect_unix(call->unix_path, deadline_ms, err)
                              : connect_host(call->host, call->port, deadline_ms, err);
        if (own < 0)
            return -1;
        fd = own;
    }
    if (send_request(fd, buf_str(&head), call->body, deadline_ms, err) < 0)
        return -1;
    http_parser_init(&parser, false, on_payload, &response);
    parser.head_only = strcmp(call->method, "HEAD") == 0;
    result = read_response(fd, &parser, &response, deadline_ms, err);
    if (result == 0)
        *out_status = parser.ll.status_code;
    http_parser_done(&parser);
    return result;
}

/* Every wait is a poll(2) with what is left of the limit, so a peer that trickles cannot hold a
 * worker longer than asked for. A peer that answers before it has read the whole body (a refusal) may
 * also close: sending then ends early, and reading tells more. */
#include "protocol/http/http_call.h"

#include <errno.h>
#include <poll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "protocol/http/http_dial.h"
#include "protocol/http/http_outq.h"

enum { READ_SIZE = 64 * 1024, FILE_STEP = 1024 * 1024 };

static int wait_for(const struct http_call *call, short events, struct error *err)
{
    int64_t end = call->step_ms ? clock_mono_ms() + call->step_ms : 0;

    if (call->deadline_ms && (!end || end > call->deadline_ms))
        end = call->deadline_ms;
    return http_dial_wait(call->fd, events, end, err);
}

static int broken(struct error *err, int errnum, const char *what)
{
    (void)error_set_errno(err, errnum, "%s", what);
    err->code = ERROR_UNAVAILABLE;
    return -1;
}

/* ---- sending ---- */

static bool is_clean(struct str s)
{
    return str_find(s, '\r') < 0 && str_find(s, '\n') < 0 && str_find(s, '\0') < 0;
}

static void add_framing(const struct http_call_request *request, struct buf *head)
{
    static const char *const connection[] = {
        [HTTP_AFTER_KEEP] = "",
        [HTTP_AFTER_CLOSE] = "Connection: close\r\n",
        [HTTP_AFTER_UPGRADE] = "Connection: Upgrade\r\n",
    };
    struct str method = str_of(request->method);

    (void)buf_add_str(head, str_of(connection[request->after]));
    if (request->more == HTTP_CALL_CHUNKED)
        (void)buf_add_str(head, STR("Transfer-Encoding: chunked\r\n"));
    else if (request->body.len || request->more || str_is(method, "POST") ||
             str_is(method, "PUT") || str_is(method, "PATCH"))
        (void)buf_printf(head, "Content-Length: %llu\r\n",
                         (unsigned long long)request->body.len + (uint64_t)request->more);
    (void)buf_add_str(head, STR("\r\n"));
}

static int make_head(const struct http_call_request *request, struct buf *head, struct error *err)
{
    struct str method = str_of(request->method), target = str_of(request->target);

    if (!is_clean(method) || !is_clean(target) || str_find(target, ' ') >= 0 || !target.len)
        return error_set(err, ERROR_INVALID, "bad request target");
    (void)buf_printf(head, "%s %s HTTP/1.1\r\nHost: %s\r\n", request->method, request->target,
                     request->host ? request->host : "localhost");
    for (size_t i = 0; i < request->header_count; i++) {
        const struct pair *header = &request->headers[i];

        if (!is_clean(header->name) || !is_clean(header->value))
            return error_set(err, ERROR_INVALID, "bad header '%.*s'", STR_ARG(header->name));
        (void)buf_printf(head, "%.*s: %.*s\r\n", STR_ARG(header->name), STR_ARG(header->value));
    }
    add_framing(request, head);
    if (head->overflowed)
        return error_set(err, ERROR_LIMIT, "request head is too large");
    return 0;
}

static ssize_t put(struct http_call *call, struct str first, struct str second)
{
    struct iovec iov[2] = {http_iov(first.p, first.len), http_iov(second.p, second.len)};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};

    if (call->carrier)
        return first.len ? call->carrier->send(call->carrier, first.p, first.len)
                         : call->carrier->send(call->carrier, second.p, second.len);
    return sendmsg(call->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* After a send that failed: 0 = try again, or the other side reads no more. */
static int send_failed(struct http_call *call, int errnum, struct error *err)
{
    if (errnum == EAGAIN)
        return wait_for(call, POLLOUT, err);
    call->cut = !call->raw && (errnum == EPIPE || errnum == ECONNRESET);
    return call->cut || errnum == EINTR ? 0 : broken(err, errnum, "sending the request");
}

/* Both in one system call where that is possible. */
static int send_two(struct http_call *call, struct str first, struct str second, struct error *err)
{
    while ((first.len || second.len) && !call->cut) {
        ssize_t sent = put(call, first, second);

        if (sent < 0) {
            if (send_failed(call, errno, err) < 0)
                return -1;
        } else {
            size_t of_first = (size_t)sent < first.len ? (size_t)sent : first.len;

            first = str_skip(first, of_first);
            second = str_skip(second, (size_t)sent - of_first);
        }
    }
    return 0;
}

static int on_payload(void *arg, struct str payload)
{
    struct http_call *call = arg;

    return !buf_add_str(&call->body, payload);
}

int http_call_start(struct http_call *call, const struct http_call_request *request,
                    struct error *err)
{
    auto_buf struct buf head = {0};

    call->chunked = request->more == HTTP_CALL_CHUNKED;
    call->upgrade = request->after == HTTP_AFTER_UPGRADE;
    call->head_only = strcmp(request->method, "HEAD") == 0;
    http_parser_init(&call->parser, false, on_payload, call);
    call->parser.head_only = call->head_only;
    buf_init(&call->body, call->max);
    buf_init(&head, HTTP_HEAD_MAX);
    if (make_head(request, &head, err) < 0)
        return -1;
    return send_two(call, buf_str(&head), request->body, err);
}

int http_call_send(struct http_call *call, struct str data, struct error *err)
{
    char size[24];
    int len;

    if (data.len == 0)
        return 0;
    if (!call->chunked || call->raw)
        return send_two(call, data, STR_NONE, err);
    len = snprintf(size, sizeof(size), "%zx\r\n", data.len);
    if (send_two(call, str_n(size, (size_t)len), data, err) < 0)
        return -1;
    return send_two(call, STR("\r\n"), STR_NONE, err);
}

int http_call_send_end(struct http_call *call, struct error *err)
{
    return call->chunked ? send_two(call, STR("0\r\n\r\n"), STR_NONE, err) : 0;
}

/* Through a carrier. */
static ssize_t copy_some(struct http_call *call, int fd, size_t len, struct error *err)
{
    auto_free char *bytes = xmalloc(READ_SIZE);
    ssize_t n = fd_read_full(fd, bytes, len < READ_SIZE ? len : READ_SIZE);

    if (n < 0)
        return error_set_errno(err, (int)-n, "reading the file");
    return send_two(call, str_n(bytes, (size_t)n), STR_NONE, err) < 0 ? -1 : n;
}

static ssize_t send_some(struct http_call *call, int fd, size_t len, struct error *err)
{
    for (;;) {
        ssize_t n = sendfile(call->fd, fd, NULL, len < FILE_STEP ? len : FILE_STEP);

        if (n >= 0)
            return n;
        if (send_failed(call, errno, err) < 0)
            return -1;
        if (call->cut)
            return (ssize_t)len;
    }
}

int http_call_send_file(struct http_call *call, int fd, int64_t length, struct error *err)
{
    while (length > 0 && !call->cut) {
        ssize_t n = call->carrier ? copy_some(call, fd, (size_t)length, err)
                                  : send_some(call, fd, (size_t)length, err);

        if (n < 0)
            return -1;
        if (n == 0)
            return error_set(err, ERROR_CONFLICT, "the file became shorter while it was sent");
        length -= n;
    }
    return 0;
}

/* ---- receiving ---- */

static void take_head(struct http_call *call)
{
    call->status = call->parser.ll.status_code;
    call->raw = call->status == 101 && call->upgrade;
    call->head_done = call->raw || call->status >= 200;
    if (call->head_done)
        return;
    http_parser_next(&call->parser); /* 100 Continue */
    call->parser.head_only = call->head_only;
}

static int feed(struct http_call *call, struct str in, struct error *err)
{
    while (in.len && !call->raw && !call->ended) {
        enum http_parse result = http_parser_feed(&call->parser, &in);

        if (result == HTTP_PARSE_HEAD)
            take_head(call);
        else if (result == HTTP_PARSE_ERROR)
            return error_set(err, ERROR_UNAVAILABLE, "the answer is not HTTP: %s",
                             call->parser.error_text);
        else if (call->body.overflowed)
            break;
        call->ended = call->head_done && !call->raw && call->parser.complete;
    }
    if (call->raw)
        (void)buf_add_str(&call->body, in);
    if (call->body.overflowed)
        return error_set(err, ERROR_LIMIT, "the answer is larger than %zu bytes", call->max);
    return 1;
}

int http_call_take(struct http_call *call, struct error *err)
{
    ssize_t n;

    if (call->ended)
        return 0;
    if (!call->bytes)
        call->bytes = xmalloc(READ_SIZE);
    n = call->carrier ? call->carrier->recv(call->carrier, call->bytes, READ_SIZE)
                      : recv(call->fd, call->bytes, READ_SIZE, MSG_DONTWAIT);
    if (n > 0)
        return feed(call, str_n(call->bytes, (size_t)n), err);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return HTTP_CALL_LATER;
    if (n < 0)
        return broken(err, errno, "reading the answer");
    call->ended = call->raw || http_parser_finish(&call->parser);
    return call->ended ? 0
                       : error_set(err, ERROR_UNAVAILABLE,
                                   "the connection was closed before the answer was complete");
}

int http_call_recv(struct http_call *call, struct error *err)
{
    int result;

    while ((result = http_call_take(call, err)) == HTTP_CALL_LATER)
        if (wait_for(call, POLLIN, err) < 0)
            return error_prefix(err, "reading the answer");
    if (result > 0 && !call->ended && call->deadline_ms && clock_mono_ms() >= call->deadline_ms)
        return error_set(err, ERROR_TIMEOUT, "reading the answer: not complete in time");
    return result;
}

int http_call_recv_head(struct http_call *call, struct error *err)
{
    while (!call->head_done)
        if (http_call_recv(call, err) < 0)
            return -1;
    return 0;
}

int http_call_recv_all(struct http_call *call, struct error *err)
{
    int result;

    do
        result = http_call_recv(call, err);
    while (result > 0);
    return result;
}

struct str http_call_header(const struct http_call *call, const char *name)
{
    struct http_headers headers = http_parser_headers(&call->parser);

    return http_headers_get(&headers, name);
}

void http_call_done(struct http_call *call)
{
    if (call->carrier)
        call->carrier->close(call->carrier);
    else
        close_fd(&call->fd);
    call->carrier = NULL;
    call->fd = -1;
    free(call->bytes);
    call->bytes = NULL;
    buf_done(&call->body);
    http_parser_done(&call->parser);
}

int http_call_whole(int fd, const struct http_call_request *request, uint32_t timeout_ms,
                    size_t max, int *out_status, struct buf *out_body, struct error *err)
{
    struct http_call call = {.fd = fd, .deadline_ms = clock_mono_ms() + timeout_ms, .max = max};
    int result = http_call_start(&call, request, err);

    if (result == 0)
        result = http_call_recv_all(&call, err);
    *out_status = call.status;
    *out_body = call.body;
    call.body = (struct buf){0};
    call.fd = -1;
    http_call_done(&call);
    return result < 0 ? -1 : 0;
}

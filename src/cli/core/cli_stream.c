/* Sockets are non-blocking and waited for with poll(), so that every step has its time limit. A peer
 * that answers before it has read the whole body (a refusal) may also close: a failed send therefore
 * looks for an answer first. */
#include "cli/core/cli_stream.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "cli/core/cli_tls.h"

enum { READ_SIZE = 256 * 1024, SEND_FILE_STEP = 1024 * 1024, HEADER_MAX = 8 * 1024 };

static int split_port(struct str *host, uint16_t *out_port)
{
    ptrdiff_t colon;
    uint64_t port;

    if (host->len && host->p[0] == '[') {
        ptrdiff_t end = str_find(*host, ']');
        struct str rest;

        if (end < 0)
            return -1;
        rest = str_skip(*host, (size_t)end + 1);
        *host = str_n(host->p + 1, (size_t)end - 1);
        if (rest.len == 0)
            return 0;
        if (rest.p[0] != ':' || !str_to_u64(str_skip(rest, 1), &port) || port < 1 || port > 65535)
            return -1;
        *out_port = (uint16_t)port;
        return 0;
    }
    colon = str_find(*host, ':');
    if (colon < 0)
        return 0;
    if (!str_to_u64(str_skip(*host, (size_t)colon + 1), &port) || port < 1 || port > 65535)
        return -1;
    *out_port = (uint16_t)port;
    host->len = (size_t)colon;
    return 0;
}

static bool host_valid(struct str host)
{
    for (size_t i = 0; i < host.len; i++) {
        char c = host.p[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '.' || c == '-' || c == '_' || c == ':'))
            return false;
    }
    return host.len > 0;
}

int cli_url_parse(const char *text, struct cli_url *out, struct error *err)
{
    struct str rest = str_of(text), host;

    out->tls = str_starts(rest, STR("https://"));
    if (!out->tls && !str_starts(rest, STR("http://")))
        return error_set(err, ERROR_INVALID, "'%.200s' is not a URL like http://127.0.0.1:3000",
                         text);
    rest = str_skip(rest, out->tls ? 8 : 7);
    host = str_split(&rest, '/');
    out->port = out->tls ? 443 : 80;
    if (rest.len)
        return error_set(err, ERROR_INVALID, "'%.200s': a server's URL has no path", text);
    if (split_port(&host, &out->port) < 0 || !host_valid(host) ||
        !str_copy(host, out->host, sizeof(out->host)))
        return error_set(err, ERROR_INVALID, "'%.200s' is not a URL like http://127.0.0.1:3000",
                         text);
    return 0;
}

/* ---- response parser ---- */

static int on_field(llhttp_t *parser, const char *p, size_t len)
{
    struct cli_stream *stream = parser->data;

    return buf_add(&stream->header_name, p, len) ? 0 : -1;
}

static int on_value(llhttp_t *parser, const char *p, size_t len)
{
    struct cli_stream *stream = parser->data;

    return buf_add(&stream->header_value, p, len) ? 0 : -1;
}

static int on_value_complete(llhttp_t *parser)
{
    struct cli_stream *stream = parser->data;
    struct str name = buf_str(&stream->header_name), value = buf_str(&stream->header_value);

    if (str_eq_nocase(name, STR("x-next-token"))) {
        buf_clear(&stream->next_token);
        (void)buf_add_str(&stream->next_token, value);
    } else if (str_eq_nocase(name, STR("content-length"))) {
        (void)str_to_i64(value, &stream->content_length);
    } else if (str_eq_nocase(name, STR("content-type"))) {
        stream->is_json = str_starts(value, STR("application/json"));
    }
    buf_clear(&stream->header_name);
    buf_clear(&stream->header_value);
    return 0;
}

static int on_headers_complete(llhttp_t *parser)
{
    struct cli_stream *stream = parser->data;

    if (parser->status_code >= 200 || (parser->status_code == 101 && stream->upgrade)) {
        stream->head_done = true;
        stream->status = parser->status_code;
    }
    return 0;
}

static int on_body(llhttp_t *parser, const char *p, size_t len)
{
    struct cli_stream *stream = parser->data;

    return buf_add(&stream->body, p, len) ? 0 : -1;
}

static int on_message_complete(llhttp_t *parser)
{
    struct cli_stream *stream = parser->data;

    if (!stream->head_done)
        return 0; /* 100 Continue */
    if (stream->status == 101)
        return 0; /* bytes of another protocol follow */
    stream->ended = true;
    return HPE_PAUSED;
}

static void init(struct cli_stream *stream, uint32_t timeout_ms, size_t max)
{
    *stream = (struct cli_stream){.fd = -1, .timeout_ms = timeout_ms, .content_length = -1};
    llhttp_settings_init(&stream->settings);
    stream->settings.on_header_field = on_field;
    stream->settings.on_header_value = on_value;
    stream->settings.on_header_value_complete = on_value_complete;
    stream->settings.on_headers_complete = on_headers_complete;
    stream->settings.on_body = on_body;
    stream->settings.on_message_complete = on_message_complete;
    llhttp_init(&stream->parser, HTTP_RESPONSE, &stream->settings);
    stream->parser.data = stream;
    stream->bytes = xmalloc(READ_SIZE);
    buf_init(&stream->body, max);
    buf_init(&stream->next_token, HEADER_MAX);
    buf_init(&stream->header_name, HEADER_MAX);
    buf_init(&stream->header_value, 64 * 1024);
}

void cli_stream_close(struct cli_stream *stream)
{
    if (!stream->settings.on_body)
        return;
    if (stream->tls)
        cli_tls_close(stream->tls);
    else
        close_fd(&stream->fd);
    stream->fd = -1;
    stream->tls = NULL;
    free(stream->bytes);
    buf_done(&stream->body);
    buf_done(&stream->next_token);
    buf_done(&stream->header_name);
    buf_done(&stream->header_value);
}

/* ---- socket ---- */

static int wait_for(const struct cli_stream *stream, short events, struct error *err)
{
    struct pollfd item = {.fd = stream->fd, .events = events};

    for (;;) {
        int n = poll(&item, 1, stream->timeout_ms ? (int)stream->timeout_ms : -1);

        if (n > 0)
            return 0;
        if (n == 0)
            return error_set(err, ERROR_TIMEOUT, "the server did not answer within %u s",
                             stream->timeout_ms / 1000);
        if (errno != EINTR)
            return error_set_errno(err, errno, "poll");
    }
}

static int connect_one(struct cli_stream *stream, const struct addrinfo *address, struct error *err)
{
    int one = 1, failure = 0;
    socklen_t size = sizeof(failure);

    stream->fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (stream->fd < 0)
        return error_set_errno(err, errno, "socket");
    (void)setsockopt(stream->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (connect(stream->fd, address->ai_addr, address->ai_addrlen) < 0) {
        if (errno != EINPROGRESS)
            return error_set(err, ERROR_UNAVAILABLE, "%s", strerror(errno));
        if (wait_for(stream, POLLOUT, err) < 0)
            return -1;
        (void)getsockopt(stream->fd, SOL_SOCKET, SO_ERROR, &failure, &size);
        if (failure)
            return error_set(err, ERROR_UNAVAILABLE, "%s", strerror(failure));
    }
    return 0;
}

static int dial(struct cli_stream *stream, const struct cli_url *url, struct error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *addresses = NULL;
    char port[8];
    int rc;

    if (url->tls)
        return cli_tls_open(url, stream->timeout_ms, &stream->tls, &stream->fd, err);
    (void)snprintf(port, sizeof(port), "%u", url->port);
    rc = getaddrinfo(url->host, port, &hints, &addresses);
    if (rc != 0)
        return error_set(err, ERROR_UNAVAILABLE, "cannot find the server '%s': %s", url->host,
                         gai_strerror(rc));
    rc = -1;
    for (struct addrinfo *a = addresses; a && rc < 0; a = a->ai_next) {
        close_fd(&stream->fd);
        rc = connect_one(stream, a, err);
    }
    freeaddrinfo(addresses);
    if (rc < 0)
        return error_prefix(err,
                            "no server answers at http://%s:%u (start it with 'quicksand "
                            "serve', or set QUICKSAND_URL)",
                            url->host, url->port);
    return 0;
}

/* A send failed because the peer has closed: its answer, when there is one, says why. */
static int broken_send(struct cli_stream *stream, int errnum, struct error *err)
{
    struct error ignored = {0};

    if (errnum == EPIPE || errnum == ECONNRESET)
        if (cli_stream_recv_all(stream, &ignored) == 0 && stream->head_done)
            return 1;
    return error_set(err, ERROR_UNAVAILABLE, "sending to the server: %s", strerror(errnum));
}

static int send_raw(struct cli_stream *stream, struct str data, struct error *err)
{
    while (data.len && (!stream->head_done || stream->raw)) {
        ssize_t n = stream->tls ? cli_tls_send(stream->tls, data.p, data.len)
                                : send(stream->fd, data.p, data.len, MSG_NOSIGNAL);

        if (n >= 0) {
            data = str_skip(data, (size_t)n);
            continue;
        }
        if (errno == EAGAIN) {
            if (wait_for(stream, POLLOUT, err) < 0)
                return -1;
        } else if (errno != EINTR) {
            return broken_send(stream, errno, err) < 0 ? -1 : 0;
        }
    }
    return 0;
}

int cli_stream_open(struct cli_stream *stream, const struct cli_url *url,
                    const struct cli_request *request, uint32_t timeout_ms, size_t max,
                    struct error *err)
{
    bool v6 = strchr(url->host, ':') != NULL;
    auto_buf struct buf head = {0};

    init(stream, timeout_ms, max);
    stream->chunked = request->length < 0;
    stream->upgrade = request->upgrade;
    if (dial(stream, url, err) < 0)
        return -1;
    buf_init(&head, HTTP_HEAD_MAX);
    (void)buf_printf(&head, "%s %s HTTP/1.1\r\nHost: %s%s%s:%u\r\nConnection: %s\r\n",
                     request->method, request->target, v6 ? "[" : "", url->host, v6 ? "]" : "",
                     url->port, request->upgrade ? "Upgrade" : "close");
    for (size_t i = 0; i < request->header_count; i++)
        (void)buf_printf(&head, "%.*s: %.*s\r\n", STR_ARG(request->headers[i].name),
                         STR_ARG(request->headers[i].value));
    if (stream->chunked)
        (void)buf_add_str(&head, STR("Transfer-Encoding: chunked\r\n\r\n"));
    else if (request->upgrade)
        (void)buf_add_str(&head, STR("\r\n"));
    else
        (void)buf_printf(&head, "Content-Length: %lld\r\n\r\n", (long long)request->length);
    if (head.overflowed)
        return error_set(err, ERROR_LIMIT, "the request's head is too long");
    return send_raw(stream, buf_str(&head), err);
}

int cli_stream_send(struct cli_stream *stream, struct str data, struct error *err)
{
    char size[24];
    int len;

    if (data.len == 0)
        return 0;
    if (!stream->chunked)
        return send_raw(stream, data, err);
    len = snprintf(size, sizeof(size), "%zx\r\n", data.len);
    if (send_raw(stream, str_n(size, (size_t)len), err) < 0 || send_raw(stream, data, err) < 0)
        return -1;
    return send_raw(stream, STR("\r\n"), err);
}

int cli_stream_send_raw(struct cli_stream *stream, struct str data, struct error *err)
{
    return send_raw(stream, data, err);
}

/* TLS has no sendfile(). */
static int copy_file(struct cli_stream *stream, int fd, int64_t length, struct error *err)
{
    auto_free char *bytes = xmalloc(READ_SIZE);

    while (length > 0 && !stream->head_done) {
        ssize_t n = fd_read_full(fd, bytes, length < READ_SIZE ? (size_t)length : READ_SIZE);

        if (n < 0)
            return error_set_errno(err, (int)-n, "reading the file");
        if (n == 0)
            return error_set(err, ERROR_CONFLICT, "the file became shorter while it was sent");
        if (send_raw(stream, str_n(bytes, (size_t)n), err) < 0)
            return -1;
        length -= n;
    }
    return 0;
}

int cli_stream_send_file(struct cli_stream *stream, int fd, int64_t length, struct error *err)
{
    if (stream->tls)
        return copy_file(stream, fd, length, err);
    while (length > 0 && !stream->head_done) {
        size_t step = length < SEND_FILE_STEP ? (size_t)length : SEND_FILE_STEP;
        ssize_t n = sendfile(stream->fd, fd, NULL, step);

        if (n > 0) {
            length -= n;
        } else if (n == 0) {
            return error_set(err, ERROR_CONFLICT, "the file became shorter while it was sent");
        } else if (errno == EAGAIN) {
            if (wait_for(stream, POLLOUT, err) < 0)
                return -1;
        } else if (errno != EINTR) {
            return broken_send(stream, errno, err) < 0 ? -1 : 0;
        }
    }
    return 0;
}

int cli_stream_send_end(struct cli_stream *stream, struct error *err)
{
    return stream->chunked ? send_raw(stream, STR("0\r\n\r\n"), err) : 0;
}

static int feed(struct cli_stream *stream, const char *p, size_t len, struct error *err)
{
    enum llhttp_errno rc;

    if (stream->raw) {
        if (!buf_add(&stream->body, p, len))
            return error_set(err, ERROR_LIMIT, "the server sends too much at once");
        return 1;
    }
    rc = llhttp_execute(&stream->parser, p, len);
    if (rc == HPE_PAUSED_UPGRADE && stream->upgrade && stream->status == 101) {
        const char *rest = llhttp_get_error_pos(&stream->parser);

        stream->raw = true;
        return feed(stream, rest, (size_t)(p + len - rest), err);
    }
    if (rc == HPE_OK || (rc == HPE_PAUSED && stream->ended))
        return 1;
    if (stream->body.overflowed)
        return error_set(err, ERROR_LIMIT, "the server's answer is too long");
    return error_set(err, ERROR_UNAVAILABLE, "the server's answer is not HTTP: %s",
                     llhttp_get_error_reason(&stream->parser));
}

int cli_stream_take(struct cli_stream *stream, struct error *err)
{
    ssize_t n;

    if (stream->ended)
        return 0;
    n = stream->tls ? cli_tls_recv(stream->tls, stream->bytes, READ_SIZE)
                    : recv(stream->fd, stream->bytes, READ_SIZE, 0);
    if (n > 0)
        return feed(stream, stream->bytes, (size_t)n, err);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return CLI_STREAM_LATER;
    if (n < 0)
        return error_set(err, ERROR_UNAVAILABLE, "the connection to the server broke: %s",
                         strerror(errno));
    if (stream->raw) {
        stream->ended = true;
        return 0;
    }
    if (llhttp_finish(&stream->parser) != HPE_OK || !stream->head_done)
        return error_set(err, ERROR_UNAVAILABLE,
                         "the server closed the connection in the middle "
                         "of its answer");
    stream->ended = true;
    return 0;
}

int cli_stream_recv(struct cli_stream *stream, struct error *err)
{
    int rc;

    while ((rc = cli_stream_take(stream, err)) == CLI_STREAM_LATER)
        if (wait_for(stream, POLLIN, err) < 0)
            return -1;
    return rc;
}

int cli_stream_recv_head(struct cli_stream *stream, struct error *err)
{
    while (!stream->head_done) {
        int rc = cli_stream_recv(stream, err);

        if (rc < 0)
            return -1;
        if (rc == 0 && !stream->head_done)
            return error_set(err, ERROR_UNAVAILABLE, "the server did not answer");
    }
    return 0;
}

int cli_stream_recv_all(struct cli_stream *stream, struct error *err)
{
    int rc;

    do
        rc = cli_stream_recv(stream, err);
    while (rc > 0);
    return rc;
}

/* A blocking HTTP/1.1 client for one request, with or without TLS. Only the status line of the answer
 * is looked at. Addresses are checked after the name was resolved, and it is the checked address that
 * is connected to, so a name that changes in between leads nowhere else. */
#include "sandbox/webhook_send.h"

#include <errno.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "http/http_address.h"

enum { TIMEOUT_S = 10, HEAD_MAX = 8192, ANSWER_MAX = 4096 };

static bool host_ok(struct str host)
{
    for (size_t i = 0; i < host.len; i++) {
        char c = host.p[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '.' || c == '-' || c == '_' || c == ':'))
            return false;
    }
    return host.len > 0;
}

static bool target_ok(struct str target)
{
    for (size_t i = 0; i < target.len; i++)
        if ((unsigned char)target.p[i] <= 0x20 || (unsigned char)target.p[i] >= 0x7f)
            return false;
    return true;
}

/* "host", "host:port", "[v6]", "[v6]:port" */
static bool read_authority(struct str text, struct webhook_url *out)
{
    struct str host, port = STR_NONE;
    uint64_t number;

    if (text.len && text.p[0] == '[') {
        text = str_skip(text, 1);
        host = str_split(&text, ']');
        if (!text.p || (text.len && text.p[0] != ':'))
            return false;
        port = text.len ? str_skip(text, 1) : STR_NONE;
    } else {
        host = str_split(&text, ':');
        port = text;
    }
    if (port.p && (!str_to_u64(port, &number) || number < 1 || number > 65535))
        return false;
    return host_ok(host) && str_copy(host, out->host, sizeof(out->host)) &&
           str_copy(port.p     ? port
                    : out->tls ? STR("443")
                               : STR("80"),
                    out->port, sizeof(out->port));
}

bool webhook_url_parse(struct str text, struct webhook_url *out)
{
    struct str authority, target;
    size_t end;

    *out = (struct webhook_url){.tls = str_starts(text, STR("https://"))};
    if (!out->tls && !str_starts(text, STR("http://")))
        return false;
    text = str_skip(text, out->tls ? 8 : 7);
    for (end = 0; end < text.len && text.p[end] != '/' && text.p[end] != '?'; end++)
        ;
    authority = str_n(text.p, end);
    target = str_skip(text, end);
    if (str_find(target, '#') >= 0)
        target.len = (size_t)str_find(target, '#');
    if (!read_authority(authority, out) || !target_ok(target) ||
        target.len + 2 > sizeof(out->target))
        return false;
    (void)snprintf(out->target, sizeof(out->target), "%s%.*s",
                   target.len && target.p[0] == '/' ? "" : "/", STR_ARG(target));
    return true;
}

static int dial_one(const struct addrinfo *info)
{
    struct timeval timeout = {.tv_sec = TIMEOUT_S};
    auto_close int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    if (connect(fd, info->ai_addr, info->ai_addrlen) < 0)
        return -1;
    return take_fd(&fd);
}

static int dial(const struct webhook_post *post, struct error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    bool refused = false;
    int r = getaddrinfo(post->url.host, post->url.port, &hints, &found), fd = -1;

    if (r != 0)
        return error_set(err, ERROR_UNAVAILABLE, "'%s': %s", post->url.host, gai_strerror(r));
    for (const struct addrinfo *info = found; info && fd < 0; info = info->ai_next) {
        if (post->public_only && !http_address_public(info->ai_addr))
            refused = true;
        else
            fd = dial_one(info);
    }
    freeaddrinfo(found);
    if (fd >= 0)
        return fd;
    if (refused)
        return error_set(err, ERROR_FORBIDDEN, "'%s' is not a public address", post->url.host);
    return error_set(err, ERROR_UNAVAILABLE, "connect to '%s': %s", post->url.host,
                     strerrorname_np(errno));
}

struct line {
    int fd;
    SSL *ssl; /* NULL = plain */
};

static bool send_all(struct line *line, struct str data)
{
    while (data.len) {
        ssize_t n = line->ssl ? SSL_write(line->ssl, data.p, (int)data.len)
                              : send(line->fd, data.p, data.len, MSG_NOSIGNAL);

        if (n <= 0)
            return false;
        data = str_skip(data, (size_t)n);
    }
    return true;
}

static ssize_t receive(struct line *line, char *out, size_t size)
{
    return line->ssl ? SSL_read(line->ssl, out, (int)size) : recv(line->fd, out, size, 0);
}

/* "HTTP/1.1 204 ..." */
static int read_status(struct line *line, struct error *err)
{
    char answer[ANSWER_MAX];
    size_t len = 0;
    uint64_t status = 0;

    while (len < 12) {
        ssize_t n = receive(line, answer + len, sizeof(answer) - len);

        if (n <= 0)
            return error_set(err, ERROR_UNAVAILABLE, "no answer");
        len += (size_t)n;
    }
    if (memcmp(answer, "HTTP/1.", 7) != 0 || !str_to_u64(str_n(answer + 9, 3), &status))
        return error_set(err, ERROR_UNAVAILABLE, "the answer is not HTTP");
    if (status < 200 || status > 299)
        return error_set(err, ERROR_UNAVAILABLE, "answered %d", (int)status);
    return 0;
}

static int exchange(struct line *line, const struct webhook_post *post, struct error *err)
{
    auto_buf struct buf head = {0};
    bool v6 = strchr(post->url.host, ':') != NULL;

    buf_init(&head, HEAD_MAX);
    (void)buf_printf(&head,
                     "POST %s HTTP/1.1\r\nHost: %s%s%s:%s\r\nConnection: close\r\n"
                     "Content-Type: application/json\r\nContent-Length: %zu\r\n%.*s\r\n",
                     post->url.target, v6 ? "[" : "", post->url.host, v6 ? "]" : "", post->url.port,
                     post->body.len, STR_ARG(post->headers));
    if (head.overflowed)
        return error_set(err, ERROR_INVALID, "the request is too large");
    if (!send_all(line, buf_str(&head)) || !send_all(line, post->body))
        return error_set(err, ERROR_UNAVAILABLE, "the connection broke");
    return read_status(line, err);
}

static SSL_CTX *tls_context;

int webhook_tls_open(const char *ca_file, struct error *err)
{
    if (!tls_context)
        tls_context = SSL_CTX_new(TLS_client_method());
    if (!tls_context)
        return error_set(err, ERROR_INTERNAL, "TLS cannot be used");
    (void)SSL_CTX_set_min_proto_version(tls_context, TLS1_2_VERSION);
    (void)SSL_CTX_set_default_verify_paths(tls_context);
    SSL_CTX_set_verify(tls_context, SSL_VERIFY_PEER, NULL);
    if (ca_file && ca_file[0] && SSL_CTX_load_verify_file(tls_context, ca_file) != 1) {
        ERR_clear_error();
        return error_set(err, ERROR_INVALID,
                         "webhook-ca: '%s' cannot be read by the server, or has no certificates in "
                         "PEM form",
                         ca_file);
    }
    return 0;
}

static int exchange_tls(int fd, const struct webhook_post *post, struct error *err)
{
    struct line line = {.fd = fd};
    int result;

    line.ssl = tls_context ? SSL_new(tls_context) : NULL;
    if (!line.ssl)
        return error_set(err, ERROR_INTERNAL, "TLS cannot be used");
    (void)SSL_set_tlsext_host_name(line.ssl, post->url.host);
    if (SSL_set1_host(line.ssl, post->url.host) != 1 || SSL_set_fd(line.ssl, fd) != 1 ||
        SSL_connect(line.ssl) != 1) {
        long verify = SSL_get_verify_result(line.ssl);

        result = error_set(err, ERROR_UNAVAILABLE, "TLS with '%s': %s", post->url.host,
                           verify == X509_V_OK ? "the handshake failed"
                                               : X509_verify_cert_error_string(verify));
    } else {
        result = exchange(&line, post, err);
    }
    SSL_free(line.ssl);
    ERR_clear_error();
    return result;
}

int webhook_send(const struct webhook_post *post, struct error *err)
{
    auto_close int fd = dial(post, err);
    struct line line = {.fd = fd};

    if (fd < 0)
        return -1;
    return post->url.tls ? exchange_tls(fd, post, err) : exchange(&line, post, err);
}

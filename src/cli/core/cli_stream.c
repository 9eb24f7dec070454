#include "cli/core/cli_stream.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/core/cli_tls.h"
#include "protocol/http/http_dial.h"

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

static int dial(struct http_call *stream, const struct cli_url *url, struct error *err)
{
    char port[8];

    if (url->tls)
        return cli_tls_open(url, stream->step_ms, &stream->carrier, &stream->fd, err);
    (void)snprintf(port, sizeof(port), "%u", url->port);
    stream->fd = http_dial_host(url->host, port,
                                stream->step_ms ? clock_mono_ms() + stream->step_ms : 0, err);
    if (stream->fd < 0)
        return error_prefix(err,
                            "no server answers at http://%s:%u (start it with 'quicksand "
                            "serve', or set QUICKSAND_URL)",
                            url->host, url->port);
    return 0;
}

int cli_stream_open(struct http_call *stream, const struct cli_url *url,
                    const struct http_call_request *request, uint32_t timeout_ms, size_t max,
                    struct error *err)
{
    struct http_call_request whole = *request;
    bool v6 = strchr(url->host, ':') != NULL;
    char host[sizeof(url->host) + 16];

    (void)snprintf(host, sizeof(host), "%s%s%s:%u", v6 ? "[" : "", url->host, v6 ? "]" : "",
                   url->port);
    whole.host = host;
    if (whole.after == HTTP_AFTER_KEEP)
        whole.after = HTTP_AFTER_CLOSE;
    *stream = (struct http_call){.fd = -1, .step_ms = timeout_ms, .max = max};
    return dial(stream, url, err) < 0 ? -1 : http_call_start(stream, &whole, err);
}

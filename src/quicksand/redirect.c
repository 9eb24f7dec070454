/* See redirect.h. 308: the method and the body stay. */
#include "quicksand/redirect.h"

#include <stdio.h>

#include "protocol/http/http_server.h"

enum { HOST_MAX = 255 };

static bool is_near(struct http_exchange *ex)
{
    char peer[HTTP_PEER_SIZE];
    struct str text;

    http_peer(ex, peer);
    text = str_of(peer);
    return !text.len || str_starts(text, STR("127.")) || str_is(text, "::1") ||
           str_starts(text, STR("::ffff:127."));
}

/* A name or an address without its port; empty when it is neither. */
static struct str host_of(struct str text)
{
    bool v6 = text.len && text.p[0] == '[';
    ptrdiff_t end = v6 ? str_find(text, ']') + 1 : str_find(text, ':');
    struct str host = end > 0 ? str_n(text.p, (size_t)end) : text;

    for (size_t i = 0; i < host.len; i++) {
        char c = host.p[i];
        bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '.' || c == '_' || (v6 && (c == '[' || c == ']' || c == ':'));

        if (!ok || host.len > HOST_MAX)
            return STR("");
    }
    return host;
}

bool redirect_handle(struct http_exchange *ex, uint16_t tls_port)
{
    const struct http_request *request = http_request(ex);
    struct str host = host_of(http_header(ex, "host"));
    char port[8] = "";
    struct pair location = {.name = STR("Location")};

    if (is_near(ex))
        return false;
    if (!host.len || !request->target.len || request->target.p[0] != '/') {
        http_reply(ex, 400, NULL, 0, STR("{\"code\":400,\"message\":\"Use HTTPS\"}"));
        return true;
    }
    if (tls_port != 443)
        (void)snprintf(port, sizeof(port), ":%u", tls_port);
    location.value = str_of(arena_printf(http_arena(ex), "https://%.*s%s%.*s", STR_ARG(host), port,
                                         STR_ARG(request->target)));
    http_reply(ex, 308, &location, 1, STR(""));
    return true;
}

/* Constant bytes with a tag each, so that a browser asks for them once. Nothing here needs a key: the
 * pages hold nothing, they ask the API for it with the key that their user gives. */
#include "edge/ui/ui.h"

#include "edge/ui/ui_assets.h"
#include "protocol/http/http_server.h"

#define HTML "text/html; charset=utf-8"
#define JS   "text/javascript; charset=utf-8"
#define CSS  "text/css; charset=utf-8"
/* One array of bytes; embed.py ends it with a NUL that is not part of the file. */
#define ASSET(path, type, bytes)                                \
    {                                                           \
        (path), (type), (bytes), sizeof(bytes) - 1, bytes##_tag \
    }

static const struct asset {
    const char *path, *type;
    const unsigned char *bytes;
    size_t size;
    const char *tag;
} assets[] = {
    ASSET("/ui/", HTML, ui_index),
    ASSET("/ui/index.js", JS, ui_index_js),
    ASSET("/ui/terminal", HTML, ui_terminal),
    ASSET("/ui/terminal.js", JS, ui_terminal_js),
    ASSET("/ui/key.js", JS, ui_key_js),
    ASSET("/ui/style.css", CSS, ui_style),
    ASSET("/ui/xterm.js", JS, ui_xterm),
    ASSET("/ui/xterm.css", CSS, ui_xterm_css),
    ASSET("/ui/fit.js", JS, ui_fit),
    ASSET("/ui/licenses.txt", "text/plain; charset=utf-8", ui_licenses),
};

static void answer(struct http_exchange *ex, const struct asset *asset)
{
    struct http_header headers[] = {
        {STR("Content-Type"), str_of(asset->type)},
        {STR("ETag"), str_of(asset->tag)},
        {STR("Cache-Control"), STR("no-cache")},
        /* xterm.js writes the colours of its theme into a style element. */
        {STR("Content-Security-Policy"),
         STR("default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
             "connect-src 'self'; img-src 'self' data:; font-src 'self'; base-uri 'none'; "
             "form-action 'none'; frame-ancestors 'none'")},
        {STR("X-Content-Type-Options"), STR("nosniff")},
        {STR("Referrer-Policy"), STR("no-referrer")},
    };
    size_t count = sizeof(headers) / sizeof(headers[0]);

    if (http_headers_has_token(&http_request(ex)->headers, "If-None-Match", asset->tag))
        http_reply(ex, 304, headers, count, STR_NONE);
    else
        http_reply(ex, 200, headers, count, str_n(asset->bytes, asset->size));
}

bool ui_handle(struct http_exchange *ex)
{
    static const struct http_header home = {STR_INIT("Location"), STR_INIT("/ui/")};
    struct str path = http_request(ex)->path, method = http_request(ex)->method;

    if (!str_is(path, "/ui") && !str_starts(path, STR("/ui/")))
        return false;
    if (!str_is(method, "GET") && !str_is(method, "HEAD")) {
        http_reply(ex, 405, NULL, 0, STR_NONE);
        return true;
    }
    if (str_is(path, "/ui")) {
        http_reply(ex, 308, &home, 1, STR_NONE);
        return true;
    }
    for (size_t i = 0; i < sizeof(assets) / sizeof(assets[0]); i++)
        if (str_is(path, assets[i].path)) {
            answer(ex, &assets[i]);
            return true;
        }
    http_reply(ex, 404, NULL, 0, STR("there is no such page\n"));
    return true;
}

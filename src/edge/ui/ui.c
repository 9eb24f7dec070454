/* Constant bytes with a tag each, so that a browser asks for them once. Nothing here needs a key: the
 * pages hold nothing, they ask the APIs for it in the name of whoever is signed in. */
#include "edge/ui/ui.h"

#include "edge/ui/ui_assets.h"
#include "protocol/http/http_server.h"

static const struct file {
    const char *path, *type;
    const unsigned char *bytes; /* the tool ends them with a NUL that is not part of the file */
    size_t size;
    const unsigned char *packed; /* with gzip */
    size_t packed_size;
    const char *tag;
    bool lasts; /* its name changes with its content: nobody needs to ask again */
} files[] = {UI_FILES};

static const struct file *find(struct str path)
{
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (str_is(path, files[i].path))
            return &files[i];
    return NULL;
}

/* Pages of sandboxes are shown in frames that can do nothing to the page around them. */
#define POLICY                                                                               \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "          \
    "img-src 'self' data: blob:; font-src 'self'; frame-src http: https:; base-uri 'none'; " \
    "form-action 'none'; frame-ancestors 'none'"

static void answer(struct http_exchange *ex, const struct file *file)
{
    bool packed = http_headers_has_token(&http_request(ex)->headers, "Accept-Encoding", "gzip");
    struct pair headers[] = {
        {STR("Content-Type"), str_of(file->type)},
        {STR("ETag"), str_of(file->tag)},
        {STR("Cache-Control"),
         file->lasts ? STR("public, max-age=31536000, immutable") : STR("no-cache")},
        {STR("Vary"),
         file->lasts ? STR("Accept-Encoding") : STR("Accept-Encoding, Accept, Cookie")},
        {STR("Content-Security-Policy"), STR(POLICY)},
        {STR("X-Content-Type-Options"), STR("nosniff")},
        {STR("Referrer-Policy"), STR("no-referrer")},
        {STR("Cross-Origin-Opener-Policy"), STR("same-origin")},
        {STR("Cross-Origin-Resource-Policy"), STR("same-origin")},
        {STR("Content-Encoding"), STR("gzip")},
    };
    size_t count = sizeof(headers) / sizeof(headers[0]) - !packed;

    if (http_headers_has_token(&http_request(ex)->headers, "If-None-Match", file->tag))
        http_reply(ex, 304, headers, count - packed, STR_NONE);
    else if (packed)
        http_reply_static(ex, 200, headers, count, str_n(file->packed, file->packed_size));
    else
        http_reply_static(ex, 200, headers, count, str_n(file->bytes, file->size));
}

/* A browser that opens the address; programs that ask for "/" are told what it is not: an endpoint. */
static bool is_browser(struct http_exchange *ex)
{
    return str_find_str(http_header(ex, "Accept"), STR("text/html")) >= 0;
}

/* With the cookie of a browser that is signed in, by all that can be seen here: the page then has its frame before any script
 * has run. Whether the cookie counts is found out by what the page asks for. */
static const struct file *front(struct http_exchange *ex)
{
    const struct http_headers *headers = &http_request(ex)->headers;

    for (size_t i = 0; i < headers->count; i++)
        if (str_eq_nocase(headers->items[i].name, STR("Cookie")) &&
            str_find_str(headers->items[i].value, STR("quicksand=")) >= 0)
            return find(STR("/ui/signed.html"));
    return find(STR("/ui/index.html"));
}

/* What was a page of its own is a part of the dashboard. */
static bool is_old(struct str path)
{
    return str_is(path, "/ui/") || str_is(path, "/ui/terminal");
}

bool ui_handle(struct http_exchange *ex)
{
    static const struct pair home = {STR_INIT("Location"), STR_INIT("/")};
    struct str path = http_request(ex)->path, method = http_request(ex)->method;
    bool reads = str_is(method, "GET") || str_is(method, "HEAD");
    const struct file *file = find(path);

    if (str_is(path, "/") && reads && is_browser(ex)) {
        answer(ex, front(ex));
        return true;
    }
    if (!file && !str_is(path, "/ui") && !str_starts(path, STR("/ui/")))
        return false;
    if (!reads)
        http_reply(ex, 405, NULL, 0, STR_NONE);
    else if (str_is(path, "/ui"))
        http_reply(ex, 308, &home, 1, STR_NONE);
    else if (file || is_old(path))
        answer(ex, file ? file : front(ex));
    else
        http_reply_static(ex, 404, NULL, 0, STR("there is no such page\n"));
    return true;
}

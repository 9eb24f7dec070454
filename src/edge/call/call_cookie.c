/* The cookie of a browser that is signed in, and when it counts.
 *
 * A cookie comes along with requests that other pages make a browser send, and pages of sandboxes are of the same site
 * as ours when the server has a domain. So it counts only where nobody but our own pages can have asked: with a
 * header that other origins cannot set (nothing here allows it to them), for a GET of which the browser itself says that it is
 * of the same origin, and for a WebSocket whose Origin is our own address. With TLS the cookie's name is one that sandboxes
 * under the server's domain cannot give a value to. */
#include "edge/call/call.h"
#include "protocol/http/http_server.h"

#define PLAIN_NAME  "quicksand"
#define SECURE_NAME "__Host-quicksand"
#define PAGE_HEADER "X-Quicksand-Page"

bool call_is_secure(struct http_exchange *ex)
{
    return http_secure(ex) ||
           str_eq_nocase(str_trim(http_header(ex, "X-Forwarded-Proto")), STR("https"));
}

/* Origin is scheme://host[:port], Host the rest of it. */
static bool is_own_origin(struct http_exchange *ex)
{
    struct str origin = str_trim(http_header(ex, "Origin")), host = http_header(ex, "Host");
    ptrdiff_t at = str_find_str(origin, STR("://"));

    return at > 0 && host.len && str_eq_nocase(str_skip(origin, (size_t)at + 3), str_trim(host));
}

static bool is_own_page(struct http_exchange *ex)
{
    const struct http_request *request = http_request(ex);
    struct str site = str_trim(http_header(ex, "Sec-Fetch-Site"));
    bool same = str_is(site, "same-origin");

    if (request->upgrade)
        return is_own_origin(ex) && (!site.len || same);
    if (site.len && !same)
        return false;
    return http_header(ex, PAGE_HEADER).len ||
           (same && (str_is(request->method, "GET") || str_is(request->method, "HEAD")));
}

static struct str find_in(struct str list, struct str name)
{
    while (list.p) {
        struct str value = str_trim(str_split(&list, ';'));
        struct str key = str_split(&value, '=');

        if (str_eq(key, name))
            return value;
    }
    return STR_NONE;
}

struct str call_cookie(struct http_exchange *ex, struct arena *arena)
{
    const struct http_headers *headers = &http_request(ex)->headers;
    struct str name = call_is_secure(ex) ? STR(SECURE_NAME) : STR(PLAIN_NAME);

    if (!http_header(ex, "Cookie").len || !is_own_page(ex))
        return STR_NONE;
    /* HTTP/2 may bring each cookie in a header of its own. */
    for (size_t i = 0; i < headers->count; i++) {
        struct str value = STR_NONE;

        if (str_eq_nocase(headers->items[i].name, STR("Cookie")))
            value = find_in(headers->items[i].value, name);
        if (value.len)
            return arena_str(arena, value);
    }
    return STR_NONE;
}

struct str call_cookie_header(bool secure, struct str token, int64_t seconds, struct arena *arena)
{
    return str_of(arena_printf(arena, "%s=%.*s; Path=/; Max-Age=%lld; HttpOnly; SameSite=Strict%s",
                               secure ? SECURE_NAME : PLAIN_NAME, STR_ARG(token),
                               (long long)seconds, secure ? "; Secure" : ""));
}

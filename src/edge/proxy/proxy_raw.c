#include "edge/proxy/proxy_raw.h"

#include "base/buf.h"
#include "base/encode.h"
#include "edge/proxy/proxy_guard.h"

enum { BASIC_MAX = 256 };

enum proxy_raw proxy_raw_of(const struct http_request *request)
{
    struct str protocol = http_headers_get(&request->headers, "upgrade");

    if (str_is(request->method, "CONNECT"))
        return PROXY_RAW_CONNECT;
    if (!request->upgrade || request->chunked || request->content_length > 0)
        return PROXY_RAW_NONE;
    if (str_eq_nocase(protocol, STR(PROXY_RAW_UDP)))
        return PROXY_RAW_DATAGRAMS;
    return str_eq_nocase(protocol, STR(PROXY_RAW_TCP)) ? PROXY_RAW_UPGRADE : PROXY_RAW_NONE;
}

/* "Basic base64(anybody:TOKEN)" */
static bool is_password(struct str header, const char *secret)
{
    auto_buf struct buf pair = {0};
    struct str rest;

    buf_init(&pair, BASIC_MAX);
    if (header.len < 6 || !str_eq_nocase(str_n(header.p, 6), STR("Basic ")) ||
        !base64_decode(str_trim(str_skip(header, 6)), &pair))
        return false;
    rest = buf_str(&pair);
    (void)str_split(&rest, ':');
    return proxy_guard_secret(rest, secret);
}

bool proxy_raw_is_owner(const struct route *route, const struct http_request *request)
{
    if (!route->access_token[0])
        return !route->traffic_token[0];
    return proxy_guard_secret(http_headers_get(&request->headers, "x-access-token"),
                              route->access_token) ||
           is_password(http_headers_get(&request->headers, "proxy-authorization"),
                       route->access_token);
}

struct str proxy_raw_head(enum proxy_raw raw)
{
    if (raw == PROXY_RAW_CONNECT)
        return STR("HTTP/1.1 200 Connection established\r\n\r\n");
    return raw == PROXY_RAW_DATAGRAMS
               ? STR("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
                     "Upgrade: " PROXY_RAW_UDP "\r\n\r\n")
               : STR("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
                     "Upgrade: " PROXY_RAW_TCP "\r\n\r\n");
}

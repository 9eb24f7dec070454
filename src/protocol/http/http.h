/* What an HTTP message is made of. All strings are borrowed from the connection's memory and stay
 * valid until the exchange ends. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pair.h"
#include "base/str.h"

/* Limits that hold everywhere. */
enum {
    HTTP_HEAD_MAX = 64 * 1024, /* request or status line and all headers */
    HTTP_HEADER_COUNT_MAX = 100,
    HTTP_URL_MAX = 16 * 1024,
};

struct http_headers {
    struct pair *items;
    size_t count;
};

/* First value of a header (names compare without case), or STR_NONE. */
struct str http_headers_get(const struct http_headers *headers, const char *name);
/* Does a comma-separated header list contain the token (without case)? */
bool http_headers_has_token(const struct http_headers *headers, const char *name,
                            const char *token);

struct http_request {
    struct str method; /* "GET" */
    struct str target; /* as on the wire */
    struct str path;   /* target up to '?', not decoded */
    struct str query;  /* behind '?', or STR_NONE */
    struct http_headers headers;
    int64_t content_length; /* -1 when chunked or absent */
    bool chunked;
    bool upgrade; /* Connection: upgrade with an Upgrade header */
    int minor;    /* HTTP/1.minor; 1 for HTTP/2 */
    bool http2;   /* came as a stream of HTTP/2: there is no connection to take over */
};

/* Does it ask for a protocol that it may be given: one without further requests in it, in place of a body? */
bool http_upgrades(const struct http_request *request);

/* How the end of a body is found. */
enum http_body_kind {
    HTTP_BODY_NONE,
    HTTP_BODY_LENGTH,
    HTTP_BODY_CHUNKED,
    HTTP_BODY_UNTIL_CLOSE,
};

/* What the parser of a response has decided about its body: whoever passes the response on says just
 * that, whatever the headers said. */
struct http_framing {
    enum http_body_kind kind;
    int64_t length; /* Content-Length, also where no body follows (HEAD, 304); -1 without one */
};

/* Standard reason phrase. */
const char *http_reason(int status);

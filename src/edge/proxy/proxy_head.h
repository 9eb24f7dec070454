/* Heads on their way through: what belongs to one connection only is taken out. */
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "edge/proxy/proxy_host.h"
#include "protocol/http/http.h"

struct proxy_head_origin {
    bool secure;      /* came by HTTPS */
    const char *peer; /* the client's address or "" */
    const char *mask; /* stands for Host; "" = as it came */
    struct str path;  /* asked for instead of the request's, without what admitted it; STR_NONE */
    bool envd;        /* to envd: no X-Forwarded-*, no mask */
    bool keeps;       /* the connection may be kept */
};

/* May the connection to a user's server that carries this serve other clients after it? Only what may be asked twice, has
 * no body that two parsers could see differently, and does not sign in the connection itself. */
bool proxy_head_keeps(const struct http_request *request);
/* Does the header name a way to sign in that holds for the connection, not for the request? */
bool proxy_head_binds(const struct http_headers *headers, const char *name);

/* Is the 101 for what was asked? */
bool proxy_head_switches(const struct http_request *request, const struct http_headers *answer);
/* A complete request head for the server inside. */
void proxy_head_request(const struct http_request *request, const struct proxy_head_origin *origin,
                        struct buf *out);
/* Headers for the client; the array is in the arena. On the control plane's host nothing of it may act
 * in the name of that origin: no cookies, scripts in a sandbox without an origin, and what a link
 * leads to is a file to be saved. */
struct http_headers proxy_head_response(const struct http_headers *headers, enum proxy_place place,
                                        struct arena *arena);
/* Those of a message's trailers that may go on, in either direction; the array is in the arena. */
struct http_headers proxy_head_trailers(const struct http_headers *trailers, enum proxy_place place,
                                        struct arena *arena);
/* The end of a body of chunks, with its trailers. */
void proxy_head_chunks_end(const struct http_headers *trailers, struct buf *out);
/* A complete 101 head with the upgrade headers in it. */
void proxy_head_switching(struct str reason, const struct http_headers *headers,
                          enum proxy_place place, struct buf *out);

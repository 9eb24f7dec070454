/* One request over HTTP/2 on a connection of its own, by prior knowledge, on a loop: for the proxy to servers that
 * speak nothing else (gRPC). Bodies go both ways at the same time, trailers too. All calls on the loop's thread;
 * callbacks may free the client. */
#pragma once

#include "protocol/http/http.h"
#include "protocol/loop/loop.h"
#include "protocol/stream/stream.h"

struct http2_client;

struct http2_client_events {
    /* Final head (1xx are swallowed). bare: neither body nor trailers follow, but on_end. */
    void (*on_head)(struct http2_client *client, int status, const struct http_headers *headers,
                    bool bare, void *arg);
    /* May call http2_client_pause(): what is under way already still comes, up to a window. */
    void (*on_data)(struct http2_client *client, struct str data, void *arg);
    void (*on_end)(struct http2_client *client, const struct http_headers *trailers, void *arg);
    /* Connection failed or broke, the stream was reset, or the peer spoke garbage (EPROTO). Nothing follows. */
    void (*on_error)(struct http2_client *client, int errnum, void *arg);
    /* The write queue fell below HTTP_LOW_WATER. */
    void (*on_drain)(struct http2_client *client, void *arg);
};

/* Takes a stream that is connected or connecting. headers: the pseudo fields, then all others, in lower case; they
 * are copied. has_body: http2_client_end() will follow. NULL (closed): out of memory. */
struct http2_client *http2_client_new(struct loop *loop, struct stream *stream_consume,
                                      const struct http_headers *headers, bool has_body,
                                      const struct http2_client_events *events, void *arg);
/* Bytes of the body; returns how many wait. */
size_t http2_client_write(struct http2_client *client, const void *p, size_t len);
/* The body's end; trailers may be empty and are copied. */
void http2_client_end(struct http2_client *client, const struct http_headers *trailers);
void http2_client_pause(struct http2_client *client);
void http2_client_resume(struct http2_client *client);
/* Closes; no callback after this returns. */
void http2_client_free(struct http2_client *client);

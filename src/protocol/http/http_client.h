/* Asynchronous upstream side of the proxy: one connected stream, requests one after the other.
 * Response body bytes are passed on as they came, chunk framing included; the parser only watches for
 * the end and keeps trailers to itself. All calls on the loop's thread. */
#pragma once

#include "base/buf.h"
#include "protocol/http/http.h"
#include "protocol/loop/loop.h"
#include "protocol/stream/stream.h"

struct http_client;

struct http_client_events {
    /* Final response head (1xx other than 101 are swallowed). For 101 nothing follows: detach. */
    void (*on_head)(struct http_client *client, int status, struct str reason,
                    const struct http_headers *headers, const struct http_framing *framing,
                    void *arg);
    /* Raw body bytes (chunks' framing included). Where there are trailers, they and the blank line behind them are
     * missing. May call http_client_pause(). */
    void (*on_data)(struct http_client *client, struct str raw, void *arg);
    /* Response complete. reusable: another http_client_start() may follow on this connection. */
    void (*on_end)(struct http_client *client, bool reusable, void *arg);
    /* Connection failed, broke or spoke garbage (errnum; EPROTO for garbage). After on_end of an
     * idle connection it means: gone. Nothing follows. */
    void (*on_error)(struct http_client *client, int errnum, void *arg);
    /* The write queue fell below HTTP_LOW_WATER. */
    void (*on_drain)(struct http_client *client, void *arg);
};

/* Takes a stream that is connected or connecting. */
struct http_client *http_client_new(struct loop *loop, struct stream *stream_consume);
/* Begins a request: sends head as given (a complete head, blank line included). head_only: the
 * request method was HEAD. */
void http_client_start(struct http_client *client, const struct http_client_events *events,
                       void *arg, struct str head, bool head_only);
/* Between requests: who is told (on_error) when the idle connection goes away. */
void http_client_watch(struct http_client *client, const struct http_client_events *events,
                       void *arg);
/* Body bytes as they go on the wire; returns bytes waiting. */
size_t http_client_write(struct http_client *client, const void *p, size_t len);
/* The same as one chunk of a chunked body; len is not 0. */
size_t http_client_write_chunk(struct http_client *client, const void *p, size_t len);
/* In on_end: what followed the last chunk. */
const struct http_headers *http_client_trailers(const struct http_client *client);
/* Is an idle connection still there, as far as can be known without waiting? */
bool http_client_alive(const struct http_client *client);
void http_client_pause(struct http_client *client);
void http_client_resume(struct http_client *client);
struct stream *http_client_detach(struct http_client *client, struct buf *rest); /* then freed */
/* Closes; no callback after this returns. */
void http_client_free(struct http_client *client);

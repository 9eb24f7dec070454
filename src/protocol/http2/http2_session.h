/* A connection of HTTP/2 and its streams, shared by http2_session.c (frames in and out, floods, end),
 * http2_head.c (from header fields to a request) and http2_stream.c (the exchange on a stream). Private to
 * src/http2. */
#pragma once

#include <nghttp2/nghttp2.h>

#include "protocol/http/http_conn.h"
#include "protocol/http2/http2.h"

struct http2_stream {
    struct http_exchange ex;
    struct http2_session *session;
    int32_t id;
    struct list all, todo;
    struct list sent; /* its last frame is among what is being sent */
    struct list unsettled;
    struct http_hold hold;
    struct conn_timer_link read_timer, write_timer;
    struct http_outq out;
    struct buf in;         /* came before the handler wanted it */
    struct http_body body; /* of an answer that is passed on with the framing of HTTP/1 */
    bool unframe;
    bool ended;             /* the peer sends no more */
    bool end_made;          /* our last frame was made */
    bool end_sent;          /* ... and is with the kernel */
    bool closed;            /* nghttp2 knows it no more */
    bool aborted;           /* to be reset */
    bool unread;            /* ... because its peer does not take the answer */
    bool over;              /* no exchange any more; what still comes is dropped */
    bool wide;              /* has one of the large windows */
    bool restart, progress; /* of the timers */
    size_t skipped;
    const struct pair *end_trailers; /* of the answer */
    size_t end_trailer_count;
};

/* The fields of the one head that is being received. */
struct http2_head {
    struct http2_stream *stream; /* NULL: nobody's, to be dropped */
    struct str method, path, authority, scheme;
    struct pair items[HTTP_HEADER_COUNT_MAX + 1];
    size_t count, fields, bytes, cookies;
    bool trailers;
    int refusal; /* status */
    const char *refusal_text;
};

struct http2_session {
    struct http_conn *conn;
    nghttp2_session *ng;
    struct list streams, todo, sent;
    struct list unsettled; /* streams whose queues changed since they were counted */
    size_t count;          /* streams with an exchange; the server counts all but one */
    size_t wide;
    struct http2_head head;
    bool in_head;
    bool closed;
    bool noticed, knows,
        left;  /* draining: the peer was told, has confirmed, gets no further stream */
    bool full; /* the batch is */
    int credit;
    uint64_t credit_ms;
};

/* http2_session.c */
/* Takes from what the peer may do for nothing; ends the connection when it is used up. */
void http2_session_charge(struct http2_session *session, int cost);

/* http2_head.c */
void http2_head_begin(struct http2_session *session, struct http2_stream *stream, bool trailers);
/* 0, or an error of nghttp2 for the callback to return. */
int http2_head_field(struct http2_session *session, struct str name, struct str value);
/* Makes the request of what came. False: the stream's peer gets head->refusal. */
bool http2_head_request(struct http2_session *session, bool has_body);
void http2_head_trailers(struct http2_session *session);

/* http2_stream.c */
/* NULL: refused, and nothing was made. */
struct http2_stream *http2_stream_open(struct http2_session *session, int32_t id);
/* The head is complete: asks the server's handler. */
void http2_stream_start(struct http2_stream *stream, bool has_body);
/* Body bytes have come. */
void http2_stream_data(struct http2_stream *stream, struct str data);
void http2_stream_end(struct http2_stream *stream);
/* nghttp2 has closed it. */
void http2_stream_closed(struct http2_stream *stream);
/* The frame with our last bytes was made. */
void http2_stream_end_made(struct http2_stream *stream);
/* ... and everything made so far is with the kernel. */
void http2_stream_end_sent(struct http2_stream *stream);
void http2_stream_touch(struct http2_stream *stream);
/* Its queue has changed: it is counted again at the end of the connection's turn. */
void http2_stream_unsettle(struct http2_stream *stream);
void http2_stream_settle(struct http2_stream *stream);
/* Does whatever the state allows; calls handlers. The stream may be gone afterwards. */
void http2_stream_advance(struct http2_stream *stream);
/* The connection is gone: ends the exchange. */
void http2_stream_drop(struct http2_stream *stream);
void http2_stream_free(struct http2_stream *stream);

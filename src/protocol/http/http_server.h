/* HTTP server side on a loop: accepts connections from a listening socket, parses requests and
 * hands each to on_request() as an exchange. HTTP/1 has one exchange at a time per connection, pipelined
 * requests wait in the socket; with HTTP/2 each stream is one. All calls are on the loop's thread.
 *
 * Inside on_request() (or later, the exchange waits) the handler does one of:
 *  - answer: http_reply(), or http_begin()/http_write()/http_end();
 *  - ask for the body first: http_read_all() or http_read_stream();
 *  - take the connection over: http_detach() (upgrades).
 * A body nobody asked for is read and dropped up to a limit; past it the connection closes after
 * the answer. "Expect: 100-continue" is answered when the body is asked for, never before.
 *
 * Protocol errors (bad syntax, head too large, both Content-Length and Transfer-Encoding, ...) are
 * answered by the server itself as {"code":STATUS,"message":"..."} and never reach a handler. */
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "protocol/http/http.h"
#include "protocol/loop/loop.h"

struct http_server;
struct http_exchange;
struct shares;
struct stream;
struct stream_filter;
struct http_protocol;
struct http_budget;

typedef void http_exchange_fn(struct http_exchange *ex, void *arg);

struct http_server_config {
    http_exchange_fn *on_request;
    void *arg;
    /* What stands between each socket and the parser, as a new one per connection; NULL = nothing. */
    struct stream_filter *(*filter)(void *arg);
    struct pair extra; /* goes with every answer; no name = nothing does */
    bool connects; /* CONNECT reaches on_request: the target is no path then; else it is refused */
    /* &http2_protocol (src/protocol/http2): spoken with peers that begin with its preface; NULL = HTTP/1 only. */
    const struct http_protocol *http2;
    size_t
        max_connections; /* a further one takes the place of one that waits, or is answered 503 */
    struct shares
        *addresses; /* how many an address may have, counted here; NULL = as many as it likes */
    struct http_budget
        *budget;              /* memory that unsent answers may hold; NULL = as much as they like */
    uint32_t head_timeout_ms; /* from first byte to end of head: 408 */
    uint32_t idle_timeout_ms; /* between requests: silent close */
    uint32_t body_timeout_ms; /* no request body byte for so long while we want one: 408 */
    uint32_t
        whole_timeout_ms; /* from http_read_all() to the body's end: 408; 0 = body_timeout_ms */
    uint32_t
        write_timeout_ms; /* the peer takes nothing for so long: connection dropped; 0 = never */
};

struct http_server *http_server_new(struct loop *loop, const struct http_server_config *config);
/* Takes a listening TCP or Unix socket; may be called several times. 0 or -errno. */
int http_server_listen(struct http_server *server, int listen_fd_consume);
/* Stops accepting; idle connections close, others after their answer ("Connection: close").
 * on_idle (may be NULL) is called once when none is left. */
void http_server_drain(struct http_server *server, void (*on_idle)(void *arg), void *arg);
/* Closes everything at once; the memory goes when the loop has closed the handles. */
void http_server_free(struct http_server *server);
size_t http_server_connections(const struct http_server *server);

/* ---- the exchange ---- */

const struct http_request *http_request(const struct http_exchange *ex);
struct str http_header(const struct http_exchange *ex, const char *name); /* of the request */
struct arena *http_arena(struct http_exchange *ex); /* lives as long as the exchange */
struct loop *http_loop(struct http_exchange *ex);
/* The client's address as text; "" when it came over a Unix socket. */
enum { HTTP_PEER_SIZE = 46 };
void http_peer(struct http_exchange *ex, char out[HTTP_PEER_SIZE]);
/* Which of its loop's connections it came by: no other ever has this number. 0 when it was taken over. */
uint64_t http_connection(const struct http_exchange *ex);
/* Nobody on the way read along: there is a filter. */
bool http_secure(struct http_exchange *ex);
/* Whose request it is (a team): what it has not taken of its answers counts for it (http_budget.h). False: that is so
 * much that nothing should be begun for it now. */
bool http_set_owner(struct http_exchange *ex, struct str owner);
/* Asks again, after waiting for a turn. */
bool http_owner_has_room(struct http_exchange *ex);
/* The handler's own object for this exchange. */
void http_set_user(struct http_exchange *ex, void *user);
void *http_user(const struct http_exchange *ex);
/* Called once when the exchange is over: answered completely, or the connection is gone, which
 * http_finished() tells apart. After it returns the exchange must not be touched. */
void http_on_done(struct http_exchange *ex, http_exchange_fn *fn, void *arg);
/* True when the whole answer was handed to the kernel. */
bool http_finished(const struct http_exchange *ex);

/* Asks the socket. True when the connection is gone, or the client has closed its side of it: nearly always it
 * closed all of it, which cannot be told apart before something is sent. */
bool http_client_left(struct http_exchange *ex);

/* From here on a client that closes its side of the connection has left, also before the answer has begun: for what
 * costs something as long as it is waited for. */
void http_leave_at_end(struct http_exchange *ex);

/* Request body: whole, or STR("") when there is none. Longer than max: answered 413 by the server,
 * on_body is not called. */
void http_read_all(struct http_exchange *ex, size_t max,
                   void (*on_body)(struct http_exchange *ex, struct str body, void *arg),
                   void *arg);
/* In on_body: the body's memory is the caller's from here on; buf_done(). */
struct buf http_take_body(struct http_exchange *ex);
/* Request body in pieces. on_data may call http_pause(); no on_data comes until http_resume().
 * data is valid only during the call. on_end: body complete. A connection that breaks inside the
 * body calls neither: on_done tells. */
void http_read_stream(struct http_exchange *ex,
                      void (*on_data)(struct http_exchange *ex, struct str data, void *arg),
                      http_exchange_fn *on_end, void *arg);
/* Behind the end of the body: what followed it. */
const struct http_headers *http_trailers(const struct http_exchange *ex);
void http_pause(struct http_exchange *ex);
void http_resume(struct http_exchange *ex);

/* Whole answer. Content-Length is added; body bytes are copied. HEAD and 204/304 send no body. */
void http_reply(struct http_exchange *ex, int status, const struct pair *headers, size_t count,
                struct str body);
/* The same without a copy of the body: bytes that are there for ever. */
void http_reply_static(struct http_exchange *ex, int status, const struct pair *headers,
                       size_t count, struct str body);
/* The same for malloc()ed bytes, which are freed when they are sent or nobody wants them. */
void http_reply_owned(struct http_exchange *ex, int status, const struct pair *headers,
                      size_t count, char *body_consume, size_t len);
/* Answer in pieces. length >= 0 sends Content-Length, -1 chunked (or close-delimited for 1.0). */
void http_begin(struct http_exchange *ex, int status, const struct pair *headers, size_t count,
                int64_t length);
/* Same, but http_write() sends bytes as they are (for proxies that pass a body's own framing through):
 * framing says how the body ends, Content-Length and Transfer-Encoding among `headers` do not count. */
void http_begin_raw(struct http_exchange *ex, int status, struct str reason,
                    const struct pair *headers, size_t count, const struct http_framing *framing);
/* Copies or sends at once. Returns how many bytes wait to be sent. A producer stops when that is
 * above HTTP_HIGH_WATER and goes on in on_drain, called when it has fallen below HTTP_LOW_WATER. */
enum { HTTP_HIGH_WATER = 256 * 1024, HTTP_LOW_WATER = 64 * 1024 };
size_t http_write(struct http_exchange *ex, const void *p, size_t len);
size_t http_pending(const struct http_exchange *ex);
/* For an answer that is long: the system may hold so many bytes that the client has not taken yet. */
void http_widen(struct http_exchange *ex, int size);
void http_on_drain(struct http_exchange *ex, http_exchange_fn *fn, void *arg);
/* File content with sendfile(2): `len` bytes from offset; consumes the fd. Only between
 * http_begin() with a length and http_end(). */
void http_write_file(struct http_exchange *ex, int fd_consume, int64_t offset, int64_t len);
void http_end(struct http_exchange *ex);
/* The same with trailers, where the answer's framing can carry them; else they are left out. Chunks that are passed on
 * (http_begin_raw()) end with them instead of with their blank line. */
void http_end_trailers(struct http_exchange *ex, const struct pair *trailers, size_t count);
/* Cuts the connection without finishing the answer: the client must see a broken body. */
void http_abort(struct http_exchange *ex);
/* Takes the connection over: returns its stream, which nobody watches, and in *rest the bytes that were
 * read behind the head. No more callbacks except on_done. Only before an answer has begun: else NULL. */
struct stream *http_detach(struct http_exchange *ex, struct buf *rest);

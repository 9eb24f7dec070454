/* A server connection and the exchange on it, shared by http_server.c (listening, timers),
 * http_conn.c (state machine) and http_exchange.c (what handlers call). Private to src/http. */
#pragma once

#include "base/list.h"
#include "protocol/http/http_outq.h"
#include "protocol/http/http_parser.h"
#include "protocol/http/http_server.h"

enum {
    CONN_SKIP_MAX = 256 * 1024, /* unwanted body bytes read to keep a connection */
    CONN_LINGER_MS = 10000,
};

enum conn_state {
    CONN_HEAD,     /* between requests or inside a head; no exchange */
    CONN_EXCHANGE, /* a request is with the handler, or its answer is being sent */
    CONN_SKIP,     /* answered; the rest of the request's body is read and dropped */
    CONN_LINGER,   /* answered, our side shut: reading until the peer closes, because closing with
                    * unread input would reset the connection and could destroy the answer */
    CONN_CLOSED,   /* its memory goes at the end of the turn */
};

/* Whose connection it is: an IPv4 address or the network of an IPv6 one; empty for loopback and Unix
 * sockets, which are not counted. */
struct http_address {
    uint8_t len;
    char bytes[8];
};

enum conn_timer {
    CONN_TIMER_NONE,
    CONN_TIMER_IDLE,
    CONN_TIMER_HEAD,
    CONN_TIMER_BODY,  /* from the last byte */
    CONN_TIMER_WHOLE, /* from the first one */
    CONN_TIMER_LINGER,
    CONN_TIMER_WRITE,
    CONN_TIMER_COUNT,
};

enum body_mode {
    BODY_UNASKED,
    BODY_ALL,       /* collected in ex->body */
    BODY_STREAM,    /* passed to on_data */
    BODY_DELIVERED, /* the handler knows the end */
};

enum answer_state { ANSWER_NONE, ANSWER_OPEN, ANSWER_ENDED };
enum answer_framing { FRAMING_LENGTH, FRAMING_CHUNKED, FRAMING_RAW };

struct http_exchange {
    struct http_request request;
    struct arena arena;
    void *user;
    http_exchange_fn *on_done, *on_drain;
    void *done_arg, *drain_arg;
    bool finished;
    bool drain_due; /* pending was high; on_drain is owed */

    enum body_mode mode;
    bool paused;
    bool too_large;
    size_t body_max;
    struct buf body;
    void (*on_body)(struct http_exchange *ex, struct str body, void *arg);
    void (*on_data)(struct http_exchange *ex, struct str data, void *arg);
    http_exchange_fn *on_end;
    void *body_arg;
    bool continue_due; /* Expect: 100-continue not answered yet */

    enum answer_state answer;
    enum answer_framing framing;
    bool no_payload; /* HEAD, 204, 304: body bytes are counted but not sent */
    int64_t left;    /* FRAMING_LENGTH: still to be written */
};

struct conn_timer_link {
    struct list link;
    uint64_t since;
    enum conn_timer kind;
};

struct http_conn {
    struct http_exchange ex;
    struct http_server *server;
    struct stream *stream; /* NULL: the handler has it */
    enum conn_state state;
    bool eof;         /* the peer sends no more */
    bool broken;      /* to be closed at once */
    bool reset;       /* ... with a reset */
    bool send_failed; /* not all that was to be sent is with the kernel */
    bool close_after; /* no further request on this connection */
    bool busy;        /* http_conn_advance() is on the stack */
    bool restart;     /* the read timer starts again */
    bool progress;    /* the peer took bytes since the write timer started */
    struct list all, todo;
    struct conn_timer_link read_timer, write_timer;
    struct http_parser parser;
    struct http_outq out;
    struct str in; /* unparsed input: in the loop's read buffer or in `rest` */
    struct buf rest;
    bool in_rest;
    size_t skipped;
    struct http_address address; /* counted for it while it is open */
};

struct http_listener {
    uv_poll_t poll;
    struct http_server *server;
    struct list all;
    int fd;
};

struct http_server {
    struct http_server_config config;
    struct loop *loop;
    uv_prepare_t prepare;
    uv_timer_t timer;
    size_t handles; /* open libuv handles and connections that point here */
    size_t conn_count;
    struct list conns, listeners, todo;
    struct list timers[CONN_TIMER_COUNT];
    uint64_t timeouts[CONN_TIMER_COUNT];
    bool draining, freed;
    void (*on_idle)(void *arg);
    void *idle_arg;
    int spare_fd;    /* given up for a moment to refuse connections when descriptors run out */
    struct buf head; /* scratch for answer heads */
    long date_second;
    char date[40];
};

static inline struct http_conn *conn_of(struct http_exchange *ex)
{
    return container_of(ex, struct http_conn, ex);
}

/* http_server.c */
void http_server_set_timer(struct http_conn *conn, struct conn_timer_link *link,
                           enum conn_timer kind, bool restart);
void http_server_conn_closed(struct http_conn *conn);
/* Counts one connection less. */
void http_server_forget(struct http_server *server, struct http_address *address);
void http_server_unref(struct http_server *server);
struct str http_server_date(struct http_server *server);

/* http_conn.c */
/* refusal: NULL, or what it is told before it is closed, with 503. */
void http_conn_open(struct http_server *server, int fd_consume, const struct http_address *address,
                    const char *refusal);
/* Does whatever the state allows; calls handlers. */
void http_conn_advance(struct http_conn *conn);
/* Have http_conn_advance() called before the loop waits again, unless it is running already. */
void http_conn_touch(struct http_conn *conn);
void http_conn_close(struct http_conn *conn);
void http_conn_timed_out(struct http_conn *conn, enum conn_timer kind);
/* Answers in the server's own name and ends the connection. */
void http_conn_fail(struct http_conn *conn, int status, const char *text);
/* Sends or queues; a failure marks the connection broken. */
void http_conn_send(struct http_conn *conn, const struct iovec *iov, size_t count);

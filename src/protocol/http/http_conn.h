/* A server connection and the exchange on it, shared by http_server.c (listening, timers), http_conn.c (state
 * machine) and http_conn_ops.c (answers), and with the protocol that may take the connection over. Private to
 * src/http and src/http2. */
#pragma once

#include <stdatomic.h>

#include "base/list.h"
#include "protocol/http/http_budget.h"
#include "protocol/http/http_exchange.h"
#include "protocol/http/http_outq.h"
#include "protocol/http/http_parser.h"

enum {
    CONN_SKIP_MAX = 256 * 1024, /* unwanted body bytes read to keep a connection */
    CONN_LINGER_MS = 10000,
    CONN_BATCH_MAX = 128 * 1024,
};

enum conn_state {
    CONN_HEAD,     /* between requests or inside a head; no exchange */
    CONN_EXCHANGE, /* a request is with the handler, or its answer is being sent */
    CONN_SKIP,     /* answered; the rest of the request's body is read and dropped */
    CONN_LINGER,   /* answered, our side shut: reading until the peer closes, because closing with
                    * unread input would reset the connection and could destroy the answer */
    CONN_STREAMS,  /* its peer speaks HTTP/2: streams carry the exchanges */
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

/* Bytes that unsent answers hold, and how many answers these are. */
struct http_load {
    atomic_size_t held, holders;
    size_t max;
};

struct http_account; /* the load of an address or an owner */

/* What one unsent answer holds, and for whom it is counted besides its connection. */
struct http_hold {
    struct http_conn *conn;
    const struct http_exchange *ex; /* whose owner it is counted for; NULL = nobody's */
    struct http_account *owner;
    size_t bytes;
    bool secure; /* with a filter's buffers */
};

struct conn_timer_link {
    struct list link;
    struct http_conn *conn; /* of a connection's read timer; NULL: it is a stream's */
    struct http_hold *hold; /* of a write timer: what ends with it */
    uint64_t since;
    enum conn_timer kind;
    void (*expired)(struct conn_timer_link *link, enum conn_timer kind);
};

struct http_conn;

/* Takes connections over whose peers begin with `preface`. The connection still reads, writes and has the
 * timers; a session tells it what. */
struct http_protocol {
    struct str preface;
    /* NULL: out of memory. */
    void *(*open)(struct http_conn *conn);
    /* Uses all of it. */
    void (*input)(void *session, struct str in);
    /* Does whatever is possible; calls handlers. True when something changed. */
    bool (*advance)(void *session);
    /* CONN_TIMER_HEAD, CONN_TIMER_IDLE (no stream is open) or CONN_TIMER_NONE. */
    enum conn_timer (*timer)(const void *session);
    void (*timed_out)(void *session);
    /* Counts what its streams have not sent (http_hold_set()). */
    void (*settle)(void *session);
    /* The connection is gone, or about to be: ends all exchanges. More than once does nothing. */
    void (*close)(void *session);
    void (*free)(void *session);
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
    bool more;        /* the session has more to send when the others had their turn */
    bool sniffed;     /* which protocol it is has been decided */
    size_t preface;   /* bytes that came and are those of the other protocol's preface */
    void *session;    /* of that protocol */
    struct list all, todo;
    struct list opening; /* in the server's list of handshakes */
    bool refused;        /* it is only told so */
    struct conn_timer_link read_timer, write_timer;
    struct http_parser parser;
    struct http_outq out;
    struct str in; /* unparsed input: in the loop's read buffer or in `rest` */
    struct buf rest;
    bool in_rest;
    size_t skipped;
    struct http_address address;  /* counted for it while it is open */
    struct http_account *account; /* the same for unsent bytes */
    struct http_load load;        /* of all its exchanges */
    struct http_hold hold;
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
    size_t refused;       /* of these, the ones that are only told that there are too many */
    struct list openings; /* connections whose handshake (TLS) is not over, the oldest first */
    size_t opening_count;
    struct list conns, listeners, todo;
    struct list timers[CONN_TIMER_COUNT];
    uint64_t timeouts[CONN_TIMER_COUNT];
    bool draining, freed;
    void (*on_idle)(void *arg);
    void *idle_arg;
    int spare_fd;     /* given up for a moment to refuse connections when descriptors run out */
    struct buf head;  /* scratch for answer heads */
    struct buf batch; /* scratch for what a session sends at once */
    struct list budget_link;
    struct loop_errand relieve_errand; /* answers are to be ended, for those of other loops */
    atomic_bool relieve_posted;
    unsigned quiet_ticks;
    uint64_t told_ms; /* when the log was told last that answers are ended */
    size_t carried;   /* exchanges beside the first of their connection */
    long date_second;
    char date[40];
};

static inline void conn_timer_init(struct conn_timer_link *link,
                                   void (*expired)(struct conn_timer_link *link,
                                                   enum conn_timer kind))
{
    list_init(&link->link);
    link->expired = expired;
}

static inline struct http_conn *conn_of(struct http_exchange *ex)
{
    return container_of(ex, struct http_conn, ex);
}

static inline const struct http_conn *conn_of_const(const struct http_exchange *ex)
{
    return (const struct http_conn *)(const void *)ex; /* first member */
}

/* http_server.c */
void http_server_set_timer(struct http_server *server, struct conn_timer_link *link,
                           enum conn_timer kind, bool restart);
void http_server_conn_closed(struct http_conn *conn);
/* A handshake has begun, or is over. The first may end another one, when there are too many. */
void http_server_opening(struct http_conn *conn);
void http_server_opened(struct http_conn *conn);
/* Counts one connection less. */
void http_server_forget(struct http_server *server, struct http_address *address);
void http_server_unref(struct http_server *server);
/* One more exchange on a connection that has one already: counted like a connection, for the server and for the
 * address. False when there may be no more. */
bool http_server_carry(struct http_server *server, struct http_address address);
/* One less. */
void http_server_carried(struct http_server *server, struct http_address address);
struct str http_server_date(struct http_server *server);
/* Ends what a write timer stands for, as if its time were over. */
void http_server_end_waiting(struct conn_timer_link *link);

/* http_budget.c; all do nothing without a budget */
void http_budget_add_server(struct http_server *server);
void http_budget_remove_server(struct http_server *server);
/* The connection is counted for its address from now on. */
void http_budget_join(struct http_conn *conn);
void http_account_drop(struct http_server *server, struct http_account **account_ref);
void http_hold_update(struct http_hold *hold, size_t memory);
void http_hold_release(struct http_hold *hold);
/* So many bytes of memory wait now. Ends other answers, or this one, when they are too many. */
static inline void http_hold_set(struct http_hold *hold, size_t memory)
{
    if ((memory || hold->bytes) && hold->conn->server->config.budget)
        http_hold_update(hold, memory);
}
/* Much memory was taken by something that is not counted here, and is to be given back once it is over. */
void http_budget_flooded(struct http_server *server);
/* A body of so many bytes was made, whether or not it ever waits. */
void http_budget_made(struct http_server *server, size_t bytes);
/* A few times per timeout: gives memory back when a flood is over. True while that is to be done. */
bool http_budget_tick(struct http_server *server);
/* May a handler be started for a request on it? */
bool http_budget_admits(struct http_conn *conn);
/* Should a producer that has more than HTTP_LOW_WATER queued wait? */
bool http_budget_tight(struct http_exchange *ex);

/* http_conn_ops.c */
extern const struct http_exchange_ops http_conn_ops;

/* http_conn.c */
/* refusal: NULL, or what it is told before it is closed, with 503. */
void http_conn_open(struct http_server *server, int fd_consume, const struct http_address *address,
                    const char *refusal);
/* Does whatever the state allows; calls handlers. */
void http_conn_advance(struct http_conn *conn);
/* Have http_conn_advance() called before the loop waits again, unless it is running already. */
void http_conn_touch(struct http_conn *conn);
void http_conn_close(struct http_conn *conn);
/* All was said: shuts our side and reads until the peer has closed its own. */
void http_conn_linger(struct http_conn *conn);
/* Answers in the server's own name and ends the connection. */
void http_conn_fail(struct http_conn *conn, int status, const char *text);
/* A head and a whole body. */
void http_conn_send_body(struct http_conn *conn, struct str head, struct str body,
                         enum http_memory memory);
/* Sends or queues; a failure marks the connection broken. */
void http_conn_send(struct http_conn *conn, const struct iovec *iov, size_t count);

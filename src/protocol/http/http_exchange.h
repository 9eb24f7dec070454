/* The exchange, and what it asks of its carrier: a connection of HTTP/1 (http_conn_ops.c) or a stream of
 * HTTP/2 (src/protocol/http2). Handlers see the exchange only (http_server.h); whatever is the same for
 * all carriers is in http_exchange.c and http_exchange_steps.c. Private to src/http and src/http2. */
#pragma once

#include "protocol/http/http_outq.h"
#include "protocol/http/http_server.h"

struct http_account;
struct http_conn;

enum body_mode {
    BODY_UNASKED,
    BODY_ALL,       /* collected in ex->body */
    BODY_STREAM,    /* passed to on_data */
    BODY_DELIVERED, /* the handler knows the end */
};

enum answer_state { ANSWER_NONE, ANSWER_OPEN, ANSWER_ENDED };
enum answer_framing { FRAMING_LENGTH, FRAMING_CHUNKED, FRAMING_RAW };

/* The head of an answer. `framing` says how the body ends; no header among `headers` does. */
struct http_head {
    int status;
    struct str reason;
    const struct pair *headers;
    size_t count;
    struct http_framing framing;
    bool
        passed_on; /* somebody else's answer: its bytes come with their framing, its date is in it */
};

/* All calls are for an exchange that is open; none of them calls a handler. */
struct http_exchange_ops {
    /* The connection; NULL when it was taken over. */
    struct stream *(*stream)(const struct http_exchange *ex);
    struct http_conn *(*conn)(struct http_exchange *ex);
    bool (*client_left)(struct http_exchange *ex);
    /* The handler has changed what it wants. restart: it reads on, so the peer's time begins anew. */
    void (*touch)(struct http_exchange *ex, bool restart);
    void (*send_continue)(struct http_exchange *ex);
    /* Before the head: may change how this one frames the body (ex->framing). `body` is all of it when the
     * answer has ended already; else STR_NONE. A body that is HTTP_OWNED is the carrier's from here on. */
    void (*head)(struct http_exchange *ex, const struct http_head *head, struct str body,
                 enum http_memory memory);
    void (*write)(struct http_exchange *ex, const void *p, size_t len);
    void (*write_file)(struct http_exchange *ex, int fd_consume, int64_t offset, int64_t len);
    void (*end)(struct http_exchange *ex, const struct pair *trailers, size_t count);
    /* The client must see a break. */
    void (*abort)(struct http_exchange *ex);
    /* Answers in the server's own name, if there is no answer yet; else a break. */
    void (*fail)(struct http_exchange *ex, int status, const char *text);
    /* Bytes that wait to be sent; more than HTTP_HIGH_WATER when nothing will be. */
    size_t (*pending)(const struct http_exchange *ex);
    struct stream *(*detach)(struct http_exchange *ex, struct buf *rest); /* NULL: it cannot */
};

struct http_exchange {
    const struct http_exchange_ops *ops;
    struct http_server *server;
    bool open; /* it may be answered: begun, and not over */
    struct http_request request;
    struct arena arena;
    void *user;
    struct http_account *owner; /* whose unsent bytes its answer's are; NULL = nobody's */
    http_exchange_fn *on_done, *on_drain;
    void *done_arg, *drain_arg;
    bool finished;
    bool drain_due;     /* pending was high; on_drain is owed */
    bool leaves_at_end; /* http_leave_at_end() */

    enum body_mode mode;
    bool paused;
    bool too_large;
    size_t body_max;
    struct buf body;
    struct http_headers trailers; /* of the request; they live as long as its headers */
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

/* Why nothing is begun for a client that reads too little (http_budget.h). */
#define HTTP_UNREAD_TEXT "too many unread responses are waiting for your address; read them first"

void http_exchange_init(struct http_exchange *ex, struct http_server *server,
                        const struct http_exchange_ops *ops);
/* Tells the handler (on_done), gives the memory back, and makes it ready for the next one. */
void http_exchange_done(struct http_exchange *ex);
/* Does the handler want body bytes now? */
bool http_exchange_reads(const struct http_exchange *ex);
/* Body bytes for the handler. False when it wants no more of them now, or they are too many. */
bool http_exchange_data(struct http_exchange *ex, struct str data);
/* All of the body was given. */
void http_exchange_data_end(struct http_exchange *ex);
/* Calls on_drain when it is owed. False when it was not. */
bool http_exchange_drained(struct http_exchange *ex);
/* Answers {"code":STATUS,"message":"TEXT"} instead of whatever the handler was doing. */
void http_exchange_fail(struct http_exchange *ex, int status, const char *text);

/* A line end inside a name or value would let its writer invent headers. */
void http_add_clean(struct buf *out, struct str s);
/* Does a status have a body, and say how long it is? */
bool http_status_has_payload(int status);

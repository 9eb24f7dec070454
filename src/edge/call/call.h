/* The way of a request from an exchange on a loop to a handler on a worker and back, once for all APIs.
 *
 * `state` (enum call_state) says where a call is and who owns it. Only the loop's thread changes it, by
 * call_set_state(), and only along call_state.c's table; any thread may read it. A call leaves the loop in ASKING,
 * RUNNING and UNDOING and comes back by the completion of its work, so nothing of it needs a lock. `ex` is NULL in
 * ORPHANED and OVER, set in all other states, and touched by the loop only.
 *
 * A handler that has begun finishes even when its client has gone, unless it only produces something for that client
 * (`cancels`). A sandbox made for a client that left before all of the response was with the kernel ends again, unless
 * it has a name by which it can be found (`made`).
 *
 * An API's own call begins with CALL_EXTENDS, which makes the members below its own. */
#pragma once

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"
#include "domain/account/api_key.h"
#include "protocol/http/http_answer.h"
#include "protocol/http/http_file.h"
#include "protocol/http/http_limits.h"
#include "protocol/http/http_path.h"
#include "protocol/loop/share.h"
#include "protocol/loop/workers.h"

struct call;
struct call_endpoint;
struct store;

/* Part of a handler, on a worker. 0 with an answer or after call_move(), or -1 with err. */
typedef int call_step_fn(struct call *call, struct error *err);

enum {
    CALL_PARAMS_MAX = 2,
    CALL_REQUEST_ID_SIZE = 17,
    CALL_TRACE_ID_SIZE = 33,
    CALL_LANES_MAX = 6
};

/* Whose API key is enough, by its role. */
enum call_need {
    CALL_CHANGES,  /* one that may change things, or learn secrets */
    CALL_READS,    /* also a viewer's */
    CALL_MEASURES, /* also one for /metrics, but no viewer's */
    CALL_ANY_ROLE,
};

/* Owner: who may read and write the call. From -> to, and why: the table in call_state.c. */
enum call_state {
    CALL_OPENED, /* loop: the API reads the head, until call_start() */
    CALL_ASKING, /* a thread at the door writes `who` and `who_err`: memory does not know the key */
    CALL_READING,   /* loop: the exchange delivers the body, to memory or to a file */
    CALL_WAITING,   /* loop: the team's line for a worker of the lane */
    CALL_RUNNING,   /* worker: the handler, or the step that it named by call_move() */
    CALL_MOVING,    /* loop: the team's line again, on the lane of that step */
    CALL_UNDOING,   /* worker: ends the sandbox that was made, since the client closed its side */
    CALL_ANSWERING, /* loop: the exchange has the response, or the part of it that there is */
    CALL_ORPHANED,  /* the client has gone, and a thread or an errand still has the call */
    CALL_OVER,      /* loop: logged and freed */
    CALL_STATES
};

enum call_end {
    CALL_REPLY, /* with status, headers and text */
    CALL_SENT,  /* it is being answered already */
    CALL_TAKEN, /* somebody else has the exchange now */
};

/* What differs between APIs. May be NULL but for handle, fail and kill. */
struct call_ops {
    const char *name;      /* in the log */
    const char *keep_hint; /* how a client that leaves keeps its sandbox */
    int (*admit)(struct call *call, struct error *err); /* loop: before it waits for a worker */
    /* any thread, once for each that was admitted: it has run, or will not */
    void (*leave)(struct call *call);
    call_step_fn *handle; /* worker: its team is known */
    void (*fail)(struct call *call, const struct error *err);
    int (*kill)(struct call *call, struct error *err); /* worker: ends `made` */
    void (*gone)(struct call *call);                   /* loop: the exchange is over */
    enum call_end (*finish)(struct call *call); /* loop: the handler is done; ex may be NULL */
    void (*count)(struct call *call);           /* one more was answered */
    void (*done)(struct call *call);            /* frees the API's own members */
};

/* What the calls of one API share. All borrowed. */
struct call_desk {
    const struct call_ops *ops;
    struct api_keys *keys;
    struct http_limits *limits;
    struct store *store;        /* the audit log; NULL = none is kept */
    const char *file_directory; /* where bodies go that go to files */
    struct spool *spool;        /* counts them; NULL = nobody does */
    struct {
        struct workers *workers;
        struct shares *shares; /* of each team; NULL = no limit */
    } lanes[CALL_LANES_MAX];
    unsigned work_lane;   /* for what comes afterwards */
    atomic_bool stopping; /* the server ends: calls that can be cancelled are */
};

struct call {
    struct work work;
    struct call_desk *desk;
    struct http_exchange *ex; /* NULL when the client has gone; only for the loop's thread */
    struct loop *loop;
    _Atomic enum call_state state;
    struct arena arena;
    int64_t started_us;
    char request_id[CALL_REQUEST_ID_SIZE];
    char trace_id[CALL_TRACE_ID_SIZE]; /* of the caller's trace (traceparent); "" = none */
    const struct call_endpoint *row;   /* by the API, when it was found */

    /* by the API, before call_start() */
    unsigned lane;
    size_t body_max;
    bool public;      /* needs no API key */
    bool vouched;     /* a signed link says who this is: `who` is filled, and there is no API key */
    bool no_body;     /* the handler reads it, or there is none */
    int64_t file_max; /* the body goes to a file, of at most so many bytes; 0 = it does not */
    bool file_kept;   /* that file will stay */
    bool quiet;       /* not for the audit log */
    bool cancels;     /* only its client needs the result: ended early when call_unwanted() */
    bool only_for_client; /* not begun when its client has left; also by ops->admit */
    enum call_need need;
    bool by_cookie; /* the key is a browser's token, which its pages must not learn */

    struct http_door door; /* while it is asked who this is */
    struct api_key_owner who;
    struct error who_err;   /* code 0: `who` is known */
    struct share_seat seat; /* in the team's line for the lane's workers */
    call_step_fn *step;     /* what the next worker runs; NULL = the API's handler */
    unsigned step_lane;     /* where */
    struct str made;        /* the sandbox it made, which is taken back when its client has left */
    struct http_room room;  /* for the body */
    struct buf body_memory;
    struct http_making making; /* memory for the answer */
    struct http_file *file;
    int body_fd; /* a body in a file, at its begin; -1 = none */
    int64_t body_length;

    struct str method, path, query, body, key;
    struct str params[CALL_PARAMS_MAX];   /* the {...} parts of the path, decoded */
    struct str team_id, key_id, key_name; /* of the key */
    struct str key_agent, key_sandbox;    /* what the key is bound to; STR_NONE = nothing */
    struct str agent_id;                  /* in whose name, for log and audit */
    enum api_role role;                   /* of the key */

    int status;
    char *text;       /* malloc()ed; NULL = no body */
    struct str fixed; /* the body is this text instead, which is there for ever */
    int reply_fd;     /* the body is this file instead, from its begin; -1 = none */
    int64_t reply_length;
    struct spool_charge reply_charge; /* for that file, when it is on the disk */
    const char *content_type;         /* NULL = JSON */
    struct pair headers[HTTP_ANSWER_HEADERS_MAX];
    size_t header_count;
};

#define CALL_EXTENDS      \
    union {               \
        struct call;      \
        struct call call; \
    }

/* ---- on the loop ---- */

/* call: zeroed, malloc()ed, with the API's own part. */
void call_begin(struct call *call, struct call_desk *desk, struct http_exchange *ex);
/* From here on it is answered, whatever happens. */
void call_start(struct call *call);
/* Ends it without a worker. Last use of the call. */
void call_refuse(struct call *call, enum error_code code, const char *message);
/* Last use of the call: its exchange may end, and free it, inside. */
void call_reply(struct call *call);

/* ---- call_cookie.c, on the loop ---- */

/* The token of a browser that is signed in, when one of our own pages asks; else STR_NONE. In the arena. */
struct str call_cookie(struct http_exchange *ex, struct arena *arena);
/* The header that gives it the token for so many seconds, or takes it away (0). In the arena. */
struct str call_cookie_header(bool secure, struct str token, int64_t seconds, struct arena *arena);
/* Whether the browser's side of the connection has TLS, as far as can be known. */
bool call_is_secure(struct http_exchange *ex);

/* ---- joining, on the loop ---- */

/* A WebSocket that is handed on to a server in a sandbox of this host: where it goes. `ended` (or NULL) comes once, on
 * the loop, when it is over. */
struct call_join {
    struct str sandbox_id, path; /* the engine's id */
    unsigned short port;
    void (*ended)(void *arg);
    void *arg;
};
/* Takes the exchange over. */
typedef void call_join_fn(void *arg, struct loop *loop, struct http_exchange *ex,
                          const struct call_join *join);

/* ---- anywhere ---- */

/* Takes the JSON (may be NULL for an answer without a body). */
void call_answer(struct call *call, int status, json_t *json_consume);
/* The same of text that is JSON already. */
void call_answer_text(struct call *call, int status, char *text_consume);
/* The same of text that is there for ever: it is not copied. */
void call_answer_static(struct call *call, int status, struct str text);
/* Takes the file, whose first bytes are the body. It is on a disk: a memfd would be memory that nobody counts. */
void call_answer_file(struct call *call, int status, const char *content_type, int fd_consume,
                      int64_t length);
/* call_bytes.c, on a worker: the bytes as a file on the disk, charged to the team until they are sent. */
int call_answer_bytes(struct call *call, int status, const char *content_type, struct str bytes,
                      struct error *err);
/* The same in pieces, for what may be large: either answered or dropped. */
int call_file_open(struct call *call, struct error *err);
int call_file_add(struct call *call, struct str data, struct error *err);
void call_file_answer(struct call *call, int status, const char *content_type);
void call_file_drop(struct call *call);
/* name must be static, value in the call's arena or static. */
void call_header(struct call *call, const char *name, struct str value);
/* What succeeded, but not as the caller may expect. Beside the body, since that of E2B's API has no place for it. */
#define CALL_WARNING "Quicksand-Warning"

/* call_fault.c: the body as an object of JSON: {} when there is none. The caller's, also when it fails. */
int call_json(const struct call *call, json_t **out, struct error *err);
/* Answers with a failure; write: its body in the API's own words, malloc()ed. */
void call_fault(struct call *call, const struct error *err,
                char *(*write)(int status, const char *message));

/* call_count.c: one more was answered. */
void call_count(const struct call *call);
/* For /metrics: of all APIs. */
void call_counts_write(struct buf *out);
/* call_trace.c: the trace of a header "traceparent", or "". */
void call_trace(struct str given, char out[CALL_TRACE_ID_SIZE]);

/* Whether a call that cancels may stop: its client has left, or the server ends. Any thread; takes a struct call, so that
 * it can be handed to whatever works for the call. */
bool call_unwanted(void *call);
/* The error of a call that stopped for that reason; -1. */
int call_set_unwanted(const struct call *call, struct error *err);

/* On the worker, in the handler: when it has returned 0, the call goes on with `step` on a worker of another lane, and
 * what it has found out stays with it. */
void call_move(struct call *call, unsigned lane, call_step_fn *step);

/* ---- call_endpoint.c ---- */

/* The first member of an API's row. */
struct call_endpoint {
    const char *method;
    const char *pattern; /* "{x}" stands for one segment that is not empty */
    bool no_head;        /* its answer has no end known beforehand */
};

enum call_match { CALL_FOUND, CALL_NO_PATH, CALL_NO_METHOD };

/* Finds the row in a table that ends with method NULL; the first match wins. HEAD is matched as GET. For
 * CALL_NO_METHOD allow gets the methods there are, as in an Allow header. Paths are compared as they came:
 * nothing is normalised, so ".." or an escaped slash can only ever be (part of) a parameter. The params are
 * decoded into the arena, and are text. */
enum call_match call_endpoint_find(const struct call_endpoint *rows, size_t row_size,
                                   struct str method, struct str path, struct arena *arena,
                                   const struct call_endpoint **out,
                                   struct str params[CALL_PARAMS_MAX], char allow[HTTP_ALLOW_SIZE]);

/* ---- call_state.c ---- */

/* Whether the table has this transition. */
bool call_state_may(enum call_state from, enum call_state to);
/* On the loop. Aborts when the table does not have it: somebody would use a call that is not theirs. */
void call_set_state(struct call *call, enum call_state to);

/* ---- call_lane.c and call.c, for each other ---- */

/* On the loop, once the body is there: the call is run in its turn, and answered. */
void call_enter(struct call *call);
/* On the loop, when its client has gone while it is in a line. False: its turn had come already, and call_lane.c frees
 * it there. */
bool call_leave(struct call *call);
/* On the loop: a sandbox that was made for nobody ends. True: it is with a worker for that, and is answered or freed
 * afterwards. */
bool call_take_back(struct call *call);
/* The error when a team's clients leave too many bytes of earlier answers unread. */
void call_unread(struct error *err);
/* The worker's part: the next step. */
void call_run(struct call *call);
/* On the loop: it is answered, or freed when nobody waits for an answer. */
void call_finish(struct call *call);
/* On the loop: it is logged with the note, and freed. */
void call_close(struct call *call, const char *note);

/* Shared by the files of this folder. */
#pragma once

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/list.h"
#include "base/str.h"
#include "edge/api_runtime/v1.h"
#include "edge/call/call.h"
#include "edge/call/call_pipe.h"
#include "runtime/core/runtime.h"
#include "runtime/run/run.h"

enum {
    V1_BODY_MAX = 1024 * 1024,
    V1_AGENT_ID_MAX = 256,
    V1_TEAM_STREAMS_MAX = 4096,
    V1_TEAM_WAITING_MAX = 1024, /* requests that wait for a worker */
};

struct v1 {
    struct v1_config config;
    struct call_desk desk;
    atomic_bool draining;
    pthread_mutex_t lock;         /* guards what follows */
    struct list streams;          /* struct v1_stream, of all loops */
    struct shares *stream_shares; /* of each team; with a lock of its own */
};

/* Something on a loop that lives until its client goes, or until the server drains. */
struct v1_stream {
    struct list link;
    struct loop *loop;
    void (*end)(struct v1_stream *stream); /* on its loop; may remove it from the list */
};
void v1_stream_add(struct v1 *v1, struct v1_stream *stream);
void v1_stream_remove(struct v1 *v1, struct v1_stream *stream);

struct v1_call;
/* May it see what all teams have, and the server itself? */
bool v1_operates(const struct v1_call *call);

/* One request. Everything it refers to is in its own arena, because the exchange may end before the
 * operation does. */
struct v1_call {
    CALL_EXTENDS;
    struct v1 *v1;
    const struct v1_endpoint *endpoint;
    bool offers_protocol;   /* "quicksand", as a WebSocket's */
    int64_t content_length; /* -1 when it is not known */
    struct str agent_header, accept, last_event_id, websocket_key;
    struct str signin_link;
    bool secure; /* the client's side has TLS */
    struct runtime_caller caller;
    json_t *json; /* the body, when the endpoint takes one; {} when it was empty */

    struct call_pipe pipe; /* of a streamed body or answer */
    /* On the loop, instead of an answer: takes the exchange over. call goes on to exist until it
     * returns. */
    void (*take_over)(struct v1_call *call);
    void *taken;                 /* for take_over() ... */
    void (*forget)(void *taken); /* ... or, when it comes to no take_over(), for this */
};

/* 0 with call->status (and text) set by call_answer(), or -1 with err. */
typedef int v1_handler_fn(struct v1_call *call, struct error *err);

enum v1_endpoint_flag {
    V1_PUBLIC = 1,     /* needs no key */
    V1_RAW = 2,        /* the body is not JSON: read by call_pipe_read() */
    V1_UPGRADE = 4,    /* a WebSocket */
    V1_STREAM = 8,     /* the answer has no end known beforehand: no HEAD */
    V1_QUIET = 16,     /* part of something else that is in the audit log: not there itself */
    V1_TEAM = 32,      /* of the whole team: not with a key that is bound to an agent */
    V1_BOX = 64,       /* about one sandbox, {id}: also with a key for just that one */
    V1_SCOPED = 128,   /* also with a key for one sandbox: the handler sees to it */
    V1_REVEALS = 256,  /* tells a secret: not to viewers */
    V1_ANY_ROLE = 512, /* whatever the key's role is */
    V1_CONTROL = 1024, /* of the control lane */
};

struct v1_endpoint {
    struct call_endpoint is; /* its pattern: behind /api/v1 */
    v1_handler_fn *handler;
    unsigned flags;
    const char *const *members; /* of the body, besides agent_id (v1_members.h); NULL = none */
    /* A raw body whose length is not told goes to a file first, of at most so many bytes; 0 = it does not. */
    int64_t file_max;
};

#define V1_FILE_MAX (16 * INT64_C(1024) * 1024 * 1024)

extern const struct v1_endpoint v1_endpoints[]; /* ends with method NULL */

enum v1_lane v1_lane_of(const struct v1_endpoint *endpoint);
/* As docs/internals/lanes.md calls it. */
const char *v1_lane_name(enum v1_lane lane);

/* path: behind /api/v1. */
enum call_match v1_endpoints_find(struct str method, struct str path, struct arena *arena,
                                  const struct v1_endpoint **out,
                                  struct str params[CALL_PARAMS_MAX], char allow[HTTP_ALLOW_SIZE]);

/* ---- v1_auth.c ---- */

/* X-API-KEY, Authorization: Bearer, the WebSocket protocol "key.BASE64URL", or the query's
 * access_token or api_key. In the arena, or STR_NONE. */
struct str v1_auth_key(const struct http_request *request, struct arena *arena);
/* When the key's owner and the caller's agent are known: may this key do that? ERROR_FORBIDDEN, or ERROR_NOT_FOUND for
 * sandboxes that a key for one sandbox is not for. The sandbox of the path gets its id. */
int v1_scope(struct v1_call *call, struct error *err);
/* With a key that acts as an agent: a snapshot of that name is replaced or removed only when it came from
 * the agent's own sandbox. None of that name is fine. ERROR_FORBIDDEN. */
int v1_scope_snapshot(struct v1_call *call, struct str name, struct error *err);

/* ---- v1_share.c ---- */

/* One more event stream or terminal. ERROR_QUOTA. */
int v1_share_stream(struct v1 *v1, struct str team_id, struct error *err);
void v1_share_stream_end(struct v1 *v1, struct str team_id);

/* ---- v1_errors.c ---- */

/* {"error":{"code","message","retryable","details"}}, malloc()ed. details: borrowed, or NULL. */
char *v1_error_text(const char *code, const char *message, bool retryable, json_t *details);
/* Turns a failed operation into an answer. What is our fault is logged in full and told in general
 * words with the request's id. */
void v1_fail(struct v1_call *call, const struct error *err);
/* The same as a text, for an answer that has begun already. malloc()ed. */
char *v1_fail_text(struct v1_call *call, const struct error *err);
/* An answer that no error code stands for. */
void v1_refuse(struct v1_call *call, int status, const char *code, const char *message,
               json_t *details);

/* Bytes at the end that begin a character but do not end it. */
size_t v1_logs_begun(struct str data);
/* execute, told as it happens. encoded: output in base64. The command is complete but for its
 * callbacks. */
struct runtime_command;
int v1_execute_stream(struct v1_call *call, struct runtime_command *command, bool encoded,
                      struct error *err);
/* The process of the path, in the sandbox of the path. */
struct job;
int v1_processes_find(struct v1_call *call, struct job *out, struct error *err);

/* ---- handlers ---- */

v1_handler_fn v1_health, v1_openapi, v1_stats, v1_prune;
v1_handler_fn v1_history, v1_settings, v1_usage;
v1_handler_fn v1_signin_open, v1_signin_redeem, v1_signin_show, v1_signin_end, v1_signin_link;
v1_handler_fn v1_providers_list, v1_providers_get, v1_providers_register, v1_providers_heartbeat;
v1_handler_fn v1_providers_remove;
v1_handler_fn v1_profiles_list, v1_profiles_get, v1_profiles_put, v1_profiles_delete;
v1_handler_fn v1_profiles_validate;
v1_handler_fn v1_sandboxes_create, v1_sandboxes_list, v1_sandboxes_get, v1_sandboxes_delete;
v1_handler_fn v1_sandboxes_pause, v1_sandboxes_resume, v1_sandboxes_port, v1_sandboxes_key,
    v1_sandboxes_network, v1_sandboxes_metrics;
v1_handler_fn v1_snapshots_create, v1_snapshots_of, v1_snapshots_list, v1_snapshots_get;
v1_handler_fn v1_snapshots_delete;
v1_handler_fn v1_execute, v1_processes_list, v1_processes_get, v1_processes_logs;
v1_handler_fn v1_processes_input, v1_processes_stdin, v1_processes_signal, v1_processes_stop;
v1_handler_fn v1_executions_list, v1_executions_get;
v1_handler_fn v1_files_get, v1_files_put, v1_files_delete;
v1_handler_fn v1_sessions_create, v1_sessions_list, v1_sessions_get, v1_sessions_delete;
v1_handler_fn v1_sessions_message, v1_sessions_pause, v1_sessions_resume, v1_sessions_interrupt;
v1_handler_fn v1_sessions_cancel, v1_sessions_snapshot, v1_sessions_approve, v1_sessions_push,
    v1_sessions_history;
v1_handler_fn v1_sessions_changes, v1_sessions_events;
v1_handler_fn v1_events, v1_events_recent, v1_events_session;
v1_handler_fn v1_terminal_sandbox, v1_terminal_session;

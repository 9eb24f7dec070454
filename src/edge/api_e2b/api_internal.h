/* Shared by the files of this folder. */
#pragma once

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include "domain/account/api_key.h"
#include "edge/api_e2b/api.h"
#include "protocol/http/http_answer.h"
#include "protocol/http/http_limits.h"
#include "protocol/http/http_path.h"
#include "protocol/loop/share.h"
#include "protocol/loop/workers.h"

/* The label that says whose sandbox it is: from keys that act as an agent, and from the runtime. */
#define API_AGENT_LABEL "quicksand.agent"

enum {
    API_BODY_MAX = 1024 * 1024,
    API_PARAMS_MAX = 2,
    API_REQUEST_ID_SIZE = 17,
    API_TEAM_WAITING_MAX = 1024, /* requests of one team that wait for a worker of one lane */
};

struct api {
    struct api_config config;
    struct shares *lanes[API_LANE_COUNT]; /* workers held by each team */
    struct shares *creates;               /* under way */
    atomic_uint_fast64_t creates_refused;
    atomic_uint_fast64_t requests[6]; /* by the first digit of the status */
    atomic_uint_fast64_t request_us;  /* all together */
};

/* One request that needs a worker. Everything it refers to is in its own arena, because the
 * exchange may end before the operation does. */
struct api_call {
    struct work work;
    struct api *api;
    struct http_exchange *ex; /* NULL when the client has gone; only for the loop's thread */
    bool working;             /* a worker owns the fields below */
    struct arena arena;
    const struct api_endpoint *endpoint;
    int64_t started_us;
    char request_id[API_REQUEST_ID_SIZE];

    struct http_door door; /* while it is asked who this is */
    struct api_key_owner who;
    struct error who_err; /* code 0: `who` is known */
    enum api_lane lane;
    struct share_seat seat; /* in the team's line for the lane's workers */
    bool has_worker;        /* its share of them is taken */
    bool again;             /* the handler moved it to another lane */
    bool admitted;          /* a create that is counted */
    struct str made;        /* the sandbox it made, which is taken back when its client has left */
    struct http_room room;  /* for the body */
    struct buf body_memory;

    struct str method, path, query, body, key, idempotency_key;
    struct str domain;                    /* "localhost:PORT" for a client on this host */
    struct str params[API_PARAMS_MAX];    /* the {...} parts of the path, decoded */
    struct str team_id, key_id, key_name; /* set by api_auth() */
    struct str key_agent, key_sandbox;    /* what the key is bound to; STR_NONE = nothing */

    int status;
    char *text;               /* malloc()ed; NULL = no body */
    const char *content_type; /* NULL = JSON */
    struct http_header headers[HTTP_ANSWER_HEADERS_MAX];
    size_t header_count;
};

/* 0 with call->status (and text) set by api_answer(), or -1 with err. */
typedef int api_handler_fn(struct api_call *call, struct error *err);

/* API_AUTH_OPERATOR: a key of the default team. */
enum api_auth_kind { API_AUTH_KEY, API_AUTH_OPERATOR };

/* Who may use a endpoint besides keys of the whole team. */
enum api_scope {
    API_SCOPE_TEAM,  /* nobody */
    API_SCOPE_AGENT, /* keys that act as an agent; the handler keeps to what is that agent's */
    API_SCOPE_OWN,   /* keys that act as an agent, for its own sandbox {id} */
    API_SCOPE_BOX,   /* those, and keys for one sandbox: of {id}, when it is theirs */
    API_SCOPE_ANY,   /* every key */
};

struct api_endpoint {
    enum api_lane lane;
    const char *method;
    const char *pattern; /* "{x}" stands for one segment that is not empty */
    api_handler_fn *handler;
    enum api_auth_kind auth;
    enum api_scope scope;
    size_t body_max;
    const char *feature; /* for api_unsupported(): what is missing */
};

extern const struct api_endpoint api_endpoints[]; /* ends with method NULL */

enum api_match { API_MATCH_FOUND, API_MATCH_NO_PATH, API_MATCH_NO_METHOD };

/* Finds the row. HEAD is matched as GET. For API_MATCH_NO_METHOD allow gets the methods there are,
 * as in an Allow header. The params are decoded into the arena. */
enum api_match api_endpoints_find(struct str method, struct str path, struct arena *arena,
                                  const struct api_endpoint **out,
                                  struct str params[API_PARAMS_MAX], char allow[HTTP_ALLOW_SIZE]);

/* ---- api_lane.c ---- */

void api_lanes_open(struct api *api);
/* On the loop, once the body is there: the call is run in its turn, and answered. */
void api_lane_enter(struct api_call *call);
/* On the loop, when its client has gone while it was not with a worker. False: it is on its way to one, and is
 * freed there. */
bool api_lane_leave(struct api_call *call);
/* On the loop, when the call is not with a worker: a sandbox that was made for nobody ends. True: it is with a
 * worker for that, and is answered or freed afterwards. */
bool api_take_back(struct api_call *call);
/* One more create under way. ERROR_QUOTA when there are as many as may be; else to be ended. */
int api_create_begin(struct api *api, struct str team_id, struct error *err);
void api_create_end(struct api *api, struct str team_id);

/* ---- api.c, for api_lane.c ---- */

/* The worker's part, and the loop's. */
void api_call_run(struct api_call *call);
void api_call_done(struct api_call *call);

/* Finds the team of call->key. ERROR_UNAUTHORIZED when there is none, ERROR_FORBIDDEN when it may
 * not do this. */
int api_auth(struct api_call *call, struct error *err);

/* {"code":STATUS,"message":"..."}, malloc()ed. */
char *api_error_text(int status, const char *message);
/* Turns a failed operation into an answer; what is our fault is logged in full and told in general
 * words with the request's id. */
void api_fail(struct api_call *call, const struct error *err);

/* Takes the JSON (may be NULL for an answer without a body). */
void api_answer(struct api_call *call, int status, json_t *json_consume);
/* name must be static, value in the call's arena or static. */
void api_answer_header(struct api_call *call, const char *name, struct str value);

/* Remembers who did what, when it was a change. */
void api_audit(struct api_call *call);

/* One more request was answered. */
void api_monitor_count(struct api *api, int status, int64_t us);

/* handlers */
api_handler_fn api_monitor;
api_handler_fn api_webhooks_create, api_webhooks_list, api_webhooks_get, api_webhooks_change;
api_handler_fn api_webhooks_delete;
api_handler_fn api_teams_list, api_keys_list, api_keys_create, api_keys_rename, api_keys_delete;
api_handler_fn api_tokens_create, api_tokens_delete, api_audit_list;
api_handler_fn api_volumes_create, api_volumes_list, api_volumes_get, api_volumes_delete;
api_handler_fn api_admin_teams, api_admin_team_create, api_admin_team_change, api_admin_key_create;
api_handler_fn api_unsupported;
api_handler_fn api_sandboxes_create, api_sandboxes_create_v2;
api_handler_fn api_sandboxes_list, api_sandboxes_list_v2;
api_handler_fn api_sandboxes_get, api_sandboxes_kill, api_sandboxes_network;
api_handler_fn api_sandboxes_timeout, api_sandboxes_refresh;
api_handler_fn api_sandboxes_pause, api_sandboxes_resume;
api_handler_fn api_sandboxes_connect, api_sandboxes_connect_v2;
api_handler_fn api_metrics_sandbox, api_metrics_sandboxes, api_metrics_team, api_metrics_team_max;
api_handler_fn api_history_logs, api_history_logs_v2;
api_handler_fn api_history_events, api_history_sandbox_events;
api_handler_fn api_sandboxes_fork, api_snapshots_create, api_snapshots_list;
api_handler_fn api_templates_list, api_templates_alias, api_templates_build, api_templates_delete;

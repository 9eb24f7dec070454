/* Shared by the files of this folder. */
#pragma once

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include "edge/api_e2b/api.h"
#include "edge/call/call.h"

/* The label that says whose sandbox it is: from keys that act as an agent, and from the runtime. */
#define API_AGENT_LABEL "quicksand.agent"

enum {
    API_BODY_MAX = 1024 * 1024,
    API_TEAM_WAITING_MAX = 1024, /* requests of one team that wait for a worker of one lane */
};

struct api {
    struct api_config config;
    struct call_desk desk;
    atomic_uint_fast64_t requests[6]; /* by the first digit of the status */
    atomic_uint_fast64_t request_us;  /* all together */
};

/* One request. Everything it refers to is in its own arena, because the exchange may end before the
 * operation does. */
struct api_call {
    CALL_EXTENDS;
    struct api *api;
    const struct api_endpoint *endpoint;
    struct str idempotency_key;
    struct str domain; /* "localhost:PORT" for a client on this host */
    struct str host, forwarded_proto;
    int64_t upload_length; /* as it was told; -1 = it was not */
    json_t *json;          /* keeps the strings of `parsed`, where that refers to them */
    void *parsed;          /* what the handler read, for its step on another lane; in the arena */
};

/* 0 with call->status (and text) set by call_answer(), or -1 with err. */
typedef int api_handler_fn(struct api_call *call, struct error *err);

/* API_AUTH_OPERATOR: a key of the default team. API_AUTH_LINK: a signed link, and no key. */
enum api_auth_kind { API_AUTH_KEY, API_AUTH_OPERATOR, API_AUTH_LINK };

/* Who may use an endpoint besides keys of the whole team. */
enum api_scope {
    API_SCOPE_TEAM,  /* nobody */
    API_SCOPE_AGENT, /* keys that act as an agent; the handler keeps to what is that agent's */
    API_SCOPE_OWN,   /* keys that act as an agent, for its own sandbox {id} */
    API_SCOPE_BOX,   /* those, and keys for one sandbox: of {id}, when it is theirs */
    API_SCOPE_ANY,   /* every key */
};

struct api_endpoint {
    struct call_endpoint is;
    enum api_lane lane;
    api_handler_fn *handler;
    enum api_auth_kind auth;
    enum api_scope scope;
    size_t body_max;
    bool reveals; /* a GET that tells a secret: not to viewers */
    bool creates; /* counts as a create */
    bool cancels; /* ends when its client leaves, or the server stops */
};

extern const struct api_endpoint api_endpoints[]; /* ends with method NULL */
/* As docs/internals/lanes.md calls it. */
const char *api_lane_name(enum api_lane lane);

enum call_match api_endpoints_find(struct str method, struct str path, struct arena *arena,
                                   const struct api_endpoint **out,
                                   struct str params[CALL_PARAMS_MAX], char allow[HTTP_ALLOW_SIZE]);

/* ---- api.c, for tests ---- */

void api_init(struct api *api, const struct api_config *config);
void api_done(struct api *api);

/* When the key's owner is known: may this key do that? ERROR_FORBIDDEN, ERROR_NOT_FOUND. */
int api_scope_check(struct api_call *call, struct error *err);

/* {"code":STATUS,"message":"..."}, malloc()ed. */
char *api_error_text(int status, const char *message);
/* Turns a failed operation into an answer; what is our fault is logged in full and told in general
 * words with the request's id. */
void api_fail(struct api_call *call, const struct error *err);

/* One more request was answered. */
void api_monitor_count(struct api *api, int status, int64_t us);

/* handlers */
api_handler_fn api_monitor;
api_handler_fn api_webhooks_create, api_webhooks_list, api_webhooks_get, api_webhooks_change;
api_handler_fn api_webhooks_delete, api_webhooks_deliveries, api_webhooks_test;
api_handler_fn api_teams_list, api_keys_list, api_keys_create, api_keys_rename, api_keys_delete;
api_handler_fn api_tokens_create, api_tokens_delete, api_audit_list;
api_handler_fn api_volumes_create, api_volumes_list, api_volumes_get, api_volumes_delete;
api_handler_fn api_volumes_usage;
api_handler_fn api_admin_teams, api_admin_team_create, api_admin_team_change, api_admin_key_create;
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
api_handler_fn api_templates_list, api_templates_list_v2, api_templates_alias, api_templates_get;
api_handler_fn api_templates_settings, api_templates_layer;
api_handler_fn api_templates_change, api_templates_change_v2, api_templates_delete;
api_handler_fn api_tags_assign, api_tags_delete, api_tags_list;
api_handler_fn api_builds_create, api_builds_old, api_builds_start, api_builds_cancel;
api_handler_fn api_builds_status, api_builds_logs;
api_handler_fn api_build_files_link, api_build_files_upload;
api_handler_fn api_secrets_list, api_secrets_create, api_secrets_get, api_secrets_change;
api_handler_fn api_secrets_delete;
api_handler_fn api_registries_list, api_registries_put, api_registries_delete;

/* On the loop: whose the link of an upload is. length -1: not told. 0; -1, or another status than the error's (411), with err. */
int api_build_files_admit(struct api_call *call, int64_t length, struct error *err);

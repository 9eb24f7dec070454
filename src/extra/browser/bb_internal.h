/* Shared by the files of this folder. */
#pragma once

#include <jansson.h>

#include "edge/call/call.h"
#include "extra/browser/bb.h"
#include "extra/browser/browser.h"

enum {
    BB_BODY_MAX = 1 << 20,
    BB_FILE_MAX = 32 << 20,     /* of an upload */
    BB_TEAM_WAITING_MAX = 1024, /* requests that wait for a worker of one lane */
};

struct bb {
    struct bb_config config;
    struct call_desk desk;
};

struct bb_call {
    CALL_EXTENDS;
    struct bb *bb;
    const struct bb_endpoint *endpoint;
    struct str origin;    /* "http://host" as the client knows us */
    struct str body_type; /* of the request */
    json_t *json;         /* the body */
    bool upgrade;
    bool joins;           /* it is to be joined to a browser, */
    struct bb_left *left; /* whose client this is; NULL = somebody who looks */
    struct call_join join;
};

/* 0 with an answer, or -1 with err. */
typedef int bb_handler_fn(struct bb_call *call, struct error *err);

enum {
    BB_SIGNED = 1, /* no API key: the link is signed */
    BB_FILE = 2,   /* the body is a form with a file */
    BB_WAITS = 4,  /* of the wait lane; the others are of the control lane */
};

struct bb_endpoint {
    struct call_endpoint is;
    bb_handler_fn *handler;
    unsigned flags;
};

extern const struct bb_endpoint bb_endpoints[]; /* ends with method NULL */

enum bb_lane bb_lane_of(const struct bb_endpoint *endpoint);
/* As docs/internals/lanes.md calls it. */
const char *bb_lane_name(enum bb_lane lane);

/* {"statusCode","error","message"}, malloc()ed. */
char *bb_error_text(int status, const char *message);
void bb_fail(struct bb_call *call, const struct error *err);

/* A parameter of the query, decoded; STR_NONE when it is absent or empty. */
struct str bb_query(struct bb_call *call, const char *name);
json_t *bb_time(int64_t us);
/* A project that is named must be the team's. */
int bb_check_project(struct bb_call *call, const json_t *body, struct error *err);
/* The first file of the form in the body, as part of the body's memory or in the arena. */
int bb_read_file(struct bb_call *call, struct str *name, struct buf *data, struct error *err);

/* The one that the path names, which runs. */
int bb_running_session(struct bb_call *call, struct store_browser_session *out, struct error *err);

/* On the loop: false when it asks for no part of the live view's page. */
bool bb_live_handle(struct http_exchange *ex);

/* On the loop, when the handler of a connection is done. */
void bb_take_over(struct bb_call *call);
void bb_forget(struct bb_call *call);

bb_handler_fn bb_projects_list, bb_projects_get, bb_projects_usage;
bb_handler_fn bb_sessions_create, bb_sessions_list, bb_sessions_get, bb_sessions_update;
bb_handler_fn bb_sessions_logs, bb_sessions_recording, bb_sessions_debug, bb_sessions_upload,
    bb_sessions_downloads, bb_connect;
bb_handler_fn bb_contexts_create, bb_contexts_get, bb_contexts_delete;
bb_handler_fn bb_extensions_create, bb_extensions_get, bb_extensions_delete;
bb_handler_fn bb_unsupported;

/* Browserbase's API, served here: /v1/projects, /v1/sessions, /v1/contexts, by the header X-BB-API-Key, which has an API key of ours.
 *
 * /v1/connect/{session} is the WebSocket that clients are given as connectUrl: whoever has it needs no API key, its signature says
 * which session it is for. It is joined to the browser's own WebSocket in the sandbox; its bytes are never looked at here. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"
#include "edge/call/call.h"

struct api_keys;
struct bb;
struct browsers;
struct http_exchange;
struct http_limits;
struct loop;
struct spool;
struct store;
struct workers;

/* docs/internals/lanes.md lists the lane of each endpoint. */
enum bb_lane {
    BB_LANE_CONTROL, /* asks the store, or ends a session */
    BB_LANE_WAIT,    /* makes a session, moves data, or waits for what runs in one */
    BB_LANE_COUNT,
};

/* All borrowed. */
struct bb_config {
    struct browsers *browsers;
    struct api_keys *keys;
    struct store *store; /* teams, and the audit log */
    struct {
        struct workers *workers; /* elastic */
        size_t team_max;         /* of them for one team at the same time; 0 = all */
    } lanes[BB_LANE_COUNT];
    struct http_limits *limits;
    const char *file_directory; /* where downloads wait for their clients */
    struct spool *spool;        /* counts them; NULL = nobody does */
    const char *url;            /* of this server, for clients that do not say what they call it */
    call_join_fn *join;
    void *join_arg;
};

struct bb *bb_new(const struct bb_config *config);
/* After the loops and workers have ended. */
void bb_free(struct bb *bb);
/* On any edge loop. False: the path is not ours. */
bool bb_handle(struct bb *bb, struct http_exchange *ex);

/* The agent runtime on the wire: everything under /api/v1, and the dashboard.
 *
 * As in the E2B API a request runs from start to end on a worker of its lane; those of the work lane are many, because
 * a command may take minutes. Streams (events, logs, terminals) live on the edge loops. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "edge/call/call.h"

struct runtime;
struct api_keys;
struct history;
struct http_exchange;
struct http_limits;
struct loop;
struct store;
struct v1;
struct workers;

/* Kinds of workers, so that none waits behind another. docs/internals/lanes.md lists the lane of each endpoint. */
enum v1_lane {
    V1_LANE_WORK,    /* takes as long as a command, an upload or a create */
    V1_LANE_CONTROL, /* asks the store, or one bounded thing of a provider */
    V1_LANE_PUBLIC,  /* needs no key, so no team has a share of it */
    V1_LANE_COUNT,
};

struct v1_config {
    struct runtime *runtime;
    struct api_keys *keys;
    struct store *store; /* the audit log; NULL = none is kept */
    struct {
        struct workers *workers;
        size_t team_max; /* of them for one team at the same time; 0 = all */
    } lanes[V1_LANE_COUNT];
    struct history *history; /* NULL = none is kept */
    struct http_limits *limits;
    const char *file_directory; /* where bodies go that are kept in files meanwhile */
    struct spool *spool;        /* counts them; NULL = nobody does */
    uint32_t heartbeat_ms;      /* of event streams; 0 = 30 s */
    call_join_fn *join;         /* to what runs in sandboxes of this host; NULL = there are none */
    void *join_arg;
    /* The settings in force: an array of {key, value, default, help, reload}. NULL = none are told. */
    json_t *(*settings)(void *arg);
    void *settings_arg;
};

/* Adds endpoints of an extra (edge/api_runtime/v1_types.h), ended by one without a method; before the first request. */
struct v1_endpoint;
void v1_endpoints_add(const struct v1_endpoint *rows);

struct v1 *v1_new(const struct v1_config *config);
/* After the loops and workers have ended. */
void v1_free(struct v1 *v1);
/* On any edge loop. False: the path is not ours. */
bool v1_handle(struct v1 *v1, struct http_exchange *ex);
/* On that loop: ends its event streams, logs and terminals, which would never end by themselves.
 * New ones end at once. */
void v1_drain(struct v1 *v1, struct loop *loop);

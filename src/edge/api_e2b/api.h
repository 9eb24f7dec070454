/* The control plane on the wire: every request that is not for a sandbox.
 *
 * A request is matched, its key known and its body read, in this order, on the edge loop; the operation runs from start to end on
 * a worker; the answer goes back through the loop. An operation that has begun finishes even when
 * its client has gone, unless it only makes something for that client; a sandbox that was made without an idempotency key for a client that left before the
 * answer was with the kernel as a whole ends again. */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

struct api;
struct api_keys;
struct builds;
struct http_exchange;
struct http_limits;
struct sandbox_creates;
struct sandboxes;
struct volumes;
struct webhooks;
struct secrets;
struct store;
struct workers;

/* Kinds of workers, so that none waits behind another. docs/internals/lanes.md lists the lane of each endpoint. */
enum api_lane {
    API_LANE_QUICK,   /* asks memory and the store only: templates, keys, events */
    API_LANE_LIST,    /* the same, and nothing but lists of sandboxes and what one is */
    API_LANE_CONTROL, /* changes or looks into one sandbox: may wait for the engine or an envd */
    API_LANE_CREATE,  /* makes sandboxes */
    API_LANE_WAIT,    /* makes or resumes one, and waits for the programs of its template */
    API_LANE_LONG,    /* takes as long as the data it moves, or as somebody else's server */
    API_LANE_COUNT,
};

struct api_config {
    struct sandboxes *sandboxes;
    struct volumes *volumes;
    struct webhooks *webhooks;
    struct builds *builds;
    struct store *store;
    struct api_keys *keys;
    struct {
        struct workers *workers;
        size_t team_max; /* of them for one team at the same time; 0 = all */
    } lanes[API_LANE_COUNT];
    struct sandbox_creates *creates; /* creates that run or wait are counted */
    struct http_limits *limits;
    struct secrets *secrets;
    const char *file_directory;                  /* where bodies go that go to files */
    struct spool *spool;                         /* counts them; NULL = nobody does */
    int64_t upload_max;                          /* bytes of one */
    void (*monitor)(void *arg, struct buf *out); /* adds to /metrics; or NULL */
    void *monitor_arg;
    const char *url; /* for links, where a client does not say how it reached us */
};

/* All borrowed; they must outlive the api. */
struct api *api_new(const struct api_config *config);
/* On any edge loop. Always answers. */
void api_handle(struct api *api, struct http_exchange *ex);
/* The server ends: operations that only make something for their client stop. Any thread. */
void api_stop(struct api *api);

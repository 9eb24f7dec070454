/* The control plane on the wire: every request that is not for a sandbox.
 *
 * A request is matched, its key known and its body read, in this order, on the edge loop; the operation runs from start to end on
 * a worker; the answer goes back through the loop. An operation that has begun finishes even when
 * its client has gone; a sandbox that was made without an idempotency key for a client that left before the
 * answer was with the kernel as a whole ends again. */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

struct api;
struct api_keys;
struct http_exchange;
struct http_limits;
struct sandboxes;
struct store;
struct workers;

/* Three kinds of workers, so that none waits behind another. */
enum api_lane {
    API_LANE_QUICK,  /* asks memory and the store only: lists, status, keys */
    API_LANE_WORK,   /* may wait for the engine or for a sandbox's agent */
    API_LANE_CREATE, /* makes sandboxes */
    API_LANE_COUNT,
};

struct api_config {
    struct sandboxes *sandboxes;
    struct store *store;
    struct api_keys *keys;
    struct {
        struct workers *workers;
        size_t team_max; /* of them for one team at the same time; 0 = all */
    } lanes[API_LANE_COUNT];
    size_t
        create_max; /* creates that run or wait; one team may have three quarters; 0 = no limit */
    struct http_limits *limits;
    int64_t max_timeout_s; /* longest life a client may ask for; 0 = 24 h */
};

/* All borrowed; they must outlive the api. */
struct api *api_new(const struct api_config *config);
/* On any edge loop. Always answers. */
void api_handle(struct api *api, struct http_exchange *ex);

/* One request from inside this process, in the name of a team, run on the calling thread. Operators'
 * endpoints are refused. A status of 400 and above is an answer, not a failure. out_body: appended to. */
struct api_local {
    struct str team_id;
    const char *method, *target;
    struct str body;
};
int api_local(struct api *api, const struct api_local *request, int *out_status,
              struct buf *out_body, struct error *err);

/* The way from here to where a connection was going: by TCP, through the user's own proxy where the policy has one, by
 * TLS where requests are changed on the way. Something comes of it within a time limit. */
#pragma once

#include "egress/process/egress_internal.h"

struct upstream;

struct upstream_target {
    const struct host_name *name; /* or of length 0 */
    uint32_t address;
    uint16_t port;
    bool tls; /* the name has to be the server's */
};

struct upstream_result {
    struct stream *stream; /* NULL: there is none, and fault says why, for people */
    int fd;                /* of the stream, for counts */
    struct str early;      /* what came already */
    const char *fault;
};

/* Called once, unless it is freed before; never by upstream_new(). The upstream is gone then. */
typedef void upstream_fn(void *arg, const struct upstream_result *result);

/* NULL when it fails at once, as without descriptors; *out_fault says why. The target's name has to stay. */
struct upstream *upstream_new(struct egress *egress, struct box *box,
                              const struct upstream_target *target, upstream_fn *fn, void *arg,
                              const char **out_fault);
void upstream_free(struct upstream *upstream); /* or NULL */

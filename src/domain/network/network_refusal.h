/* A packet that the gateway's rules refused, as the egress process passes it on, and what the sandbox's log says of it. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "host/engine/box_network.h"

struct network_refusal {
    uint32_t source, address; /* host byte order; 0: unknown */
    struct str address_text, protocol, why;
    int64_t time, port;
};

/* -1 when it is none. The texts are those of json. */
int network_refusal_read(const json_t *json, struct network_refusal *out);
/* The record of the log. denied: the ranges of the sandbox's policy, of which one may be the rule. */
json_t *network_refusal_line(const struct network_refusal *refusal, const char *sandbox_id,
                             const struct box_range *denied, size_t count);

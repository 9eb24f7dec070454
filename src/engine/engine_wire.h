/* What the server and the warden say to each other: one fixed-size request, one fixed-size reply,
 * on a SEQPACKET socket whose two ends were made by the warden. Descriptors travel beside replies.
 * Both ends are the same build, so there is no version; the warden still checks every field, because
 * the server is the part that parses hostile bytes. */
#pragma once

#include <stdint.h>

#include "engine/engine.h"

enum engine_op {
    ENGINE_OP_START = 1,
    ENGINE_OP_KILL,
    ENGINE_OP_LIMIT,
    ENGINE_OP_LIST,
    ENGINE_OP_FREEZE,
    ENGINE_OP_DIAL, /* only on dial channels; the reply carries the socket */
};

struct engine_request {
    uint32_t op;
    uint32_t port;   /* DIAL */
    uint64_t serial; /* echoed; tells replies of one dial channel apart */
    uint32_t offset; /* LIST: how many entries to skip */
    uint8_t v6;      /* DIAL */
    uint8_t frozen;  /* FREEZE */
    uint8_t reserved[2];
    struct box_spec spec; /* START; other operations use spec.id, LIMIT also limits and internet */
};

enum { ENGINE_LIST_PAGE = 64 };

struct engine_reply {
    uint64_t serial;
    int32_t status; /* 0 or -1 with err */
    uint32_t count; /* LIST: entries in this page; a full page means ask again */
    struct error err;
    struct box_info boxes[ENGINE_LIST_PAGE]; /* START: the first */
};

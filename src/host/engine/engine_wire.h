/* What the server and the warden say to each other: one request, which ends behind the last range of its spec's network,
 * one fixed-size reply, on a SEQPACKET socket whose two ends were made by the warden. Descriptors travel beside replies.
 * Both ends are the same build, so there is no version; the warden still checks every field, because
 * the server is the part that parses hostile bytes. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "host/engine/engine.h"

enum engine_op {
    ENGINE_OP_START = 1,
    ENGINE_OP_CLAIM,
    ENGINE_OP_KILL,
    ENGINE_OP_LIMIT,
    ENGINE_OP_LIST,
    ENGINE_OP_FREEZE,
    ENGINE_OP_STOP,
    ENGINE_OP_SNAPSHOT,
    ENGINE_OP_LAYER_DELETE,
    ENGINE_OP_LAYER_LIST,
    ENGINE_OP_USAGE,
    ENGINE_OP_VOLUME_CREATE,
    ENGINE_OP_VOLUME_DELETE,
    ENGINE_OP_VOLUME_USAGE,
    ENGINE_OP_SPACE,
    ENGINE_OP_NETWORK,
    ENGINE_OP_LAYER_SEAL,
    ENGINE_OP_LAYER_PUBLISH,
    ENGINE_OP_LAYER_CHECK,
};

struct engine_request {
    uint32_t op;
    uint32_t offset; /* LIST: how many entries to skip */
    uint64_t serial; /* echoed; tells the answer from one to an earlier, given up request */
    uint8_t frozen;  /* FREEZE */
    uint8_t reserved[7];
    char name[LAYER_NAME_SIZE]; /* layer or volume; LAYER_LIST: the last one seen, "" at first */
    struct box_spec
        spec; /* START, CLAIM; other operations use spec.id, LIMIT also limits, NETWORK network,
                             VOLUME_CREATE limits.disk_bytes, LAYER_PUBLISH layers[0] (the snapshot) and limits.disk_bytes */
};

/* How many bytes of it are sent; of one with more ranges than there can be, all. */
static inline size_t engine_request_size(const struct engine_request *request)
{
    const struct box_network *network = &request->spec.network;
    uint64_t ranges = (uint64_t)network->allow_count + network->deny_count;

    if (ranges > BOX_RANGES_MAX)
        ranges = BOX_RANGES_MAX;
    return offsetof(struct engine_request, spec.network.ranges) +
           ranges * sizeof(network->ranges[0]);
}

enum { ENGINE_LIST_PAGE = 64 };

struct engine_reply {
    uint64_t serial;
    int32_t status; /* 0 or -1 with err */
    uint32_t count; /* LIST, LAYER_LIST: entries in this page; a full page means ask again */
    struct error err;
    union {
        struct box_info boxes[ENGINE_LIST_PAGE]; /* LIST; START, CLAIM: the first */
        struct layer_info layers
            [ENGINE_LIST_PAGE]; /* LAYER_LIST; SNAPSHOT, LAYER_SEAL, LAYER_PUBLISH: the first */
        struct box_usage usage;
        struct engine_space space;
        uint64_t bytes; /* VOLUME_USAGE */
    };
};

/* Where envd of a box listens: RUN_DIR/<id>.sock. The warden makes it, the server connects to it. */
enum { ENGINE_SOCKET_PATH_SIZE = 108 };
int engine_socket_path(const char *run_dir, const char *id, char out[ENGINE_SOCKET_PATH_SIZE]);
/* As engine_ops.connect_envd. */
int engine_socket_connect(const char *run_dir, const char *id);

/* On dial channels, where nothing else is allowed; the reply carries the socket. */
struct engine_dial_request {
    uint64_t serial;
    uint32_t port;
    uint8_t kind; /* enum engine_dial_kind */
    char id[ID_SIZE];
};

struct engine_dial_reply {
    uint64_t serial;
    int32_t status;
    int32_t errnum; /* when it failed; 0 = not known */
};

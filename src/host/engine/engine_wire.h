/* Messages between the server and the warden: one request, as long as its operation needs (engine_request_size()),
 * one fixed-size reply, on a SEQPACKET socket whose two ends were made by the warden. Descriptors travel beside replies.
 * Both ends are the same build, so there is no version; the warden still checks every field, because
 * the server is the part that parses hostile bytes. */
#pragma once

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
    ENGINE_OP_PORTS,
};

struct engine_request {
    uint32_t op; /* enum engine_op: names the member of the union */
    uint32_t reserved;
    uint64_t serial; /* echoed; tells the answer from one to an earlier, given up request */
    union {
        struct box_spec spec; /* START, CLAIM */
        /* KILL, STOP, USAGE, PORTS. All operations on a box begin with its id, so this member reads the id of each. */
        struct {
            char id[ID_SIZE];
        } box;
        struct {
            char id[ID_SIZE];
            struct box_limits limits;
        } limit;
        struct {
            char id[ID_SIZE];
            struct box_network network;
        } network;
        struct {
            char id[ID_SIZE];
            uint8_t frozen;
        } freeze;
        struct {
            char id[ID_SIZE];
            char layer[LAYER_NAME_SIZE];
        } snapshot;
        struct {
            uint32_t offset; /* how many entries to skip */
        } list;
        struct {
            char after[LAYER_NAME_SIZE]; /* the last one seen, "" at first */
        } layer_list;
        struct { /* LAYER_DELETE, LAYER_SEAL, LAYER_CHECK, VOLUME_DELETE, VOLUME_USAGE */
            char name[LAYER_NAME_SIZE];
        } named;
        struct {
            char layer[LAYER_NAME_SIZE], snapshot[LAYER_NAME_SIZE];
            uint64_t limit_bytes;
        } layer_publish;
        struct {
            char name[LAYER_NAME_SIZE];
            uint64_t disk_bytes;
        } volume_create;
    };
};

/* How many bytes of it are sent: those of its member, and of the ranges of a network those that there are (of one with
 * more than there can be, all). */
size_t engine_request_size(const struct engine_request *request);

enum { ENGINE_LIST_PAGE = 64 };

struct engine_reply {
    uint64_t serial;
    int32_t status; /* 0 or -1 with err */
    uint32_t count; /* LIST, LAYER_LIST: entries in this page; a full page means ask again */
    struct error err;
    union {
        struct box_info box;                        /* START, CLAIM */
        struct layer_info layer;                    /* SNAPSHOT, LAYER_SEAL, LAYER_PUBLISH */
        struct box_info boxes[ENGINE_LIST_PAGE];    /* LIST */
        struct layer_info layers[ENGINE_LIST_PAGE]; /* LAYER_LIST */
        struct box_usage usage;
        struct box_ports ports;
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

/* How a sandbox runs: the seam between the domain and whatever runs boxes.
 *
 * Plain data and descriptors only, because the native engine lives in another process: the warden,
 * a small root process that parses no network bytes. `engine_warden` speaks to it over sockets;
 * `engine_fake` (tests) keeps everything in memory. All calls block and may be made from any worker
 * thread; every operation is idempotent where it can be. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "base/id.h"
#include "host/engine/box_network.h"

enum {
    BOX_LAYERS_MAX = 32,
    LAYER_NAME_SIZE =
        32, /* [a-z0-9]{1,31}; "tree…" and "snap…" tell the kinds that are made here */
    BOX_VOLUMES_MAX = 8,
    VOLUME_PATH_SIZE = 256,
};

#define LAYER_TREE_PREFIX "tree"

static inline bool layer_is_tree(const char *name)
{
    return strncmp(name, LAYER_TREE_PREFIX, sizeof(LAYER_TREE_PREFIX) - 1) == 0;
}

enum engine_kind {                    /* which engine a box is of */
                   ENGINE_NATIVE = 1, /* namespaces and overlay (host/native) */
};

struct box_limits {
    uint64_t mem_bytes;
    uint64_t disk_bytes;
    uint32_t cpu_count;
    uint32_t pids_max;
    bool yields; /* where processors are short, others go first */
};

static inline bool box_limits_equal(const struct box_limits *a, const struct box_limits *b)
{
    return a->mem_bytes == b->mem_bytes && a->disk_bytes == b->disk_bytes &&
           a->cpu_count == b->cpu_count && a->pids_max == b->pids_max && a->yields == b->yields;
}

struct box_spec {
    char id[ID_SIZE];
    uint32_t engine; /* enum engine_kind */
    struct box_limits limits;
    /* Lowest first: those the operator installed and trees ("tree…"), then snapshots ("snap…"). A snapshot holds all that was in the
     * snapshots below it, so only the last one is read and the others need not be named (or exist). */
    uint32_t layer_count;
    char layers[BOX_LAYERS_MAX][LAYER_NAME_SIZE];
    bool background; /* nobody waits for it: give way to everything else */
    /* Started from nothing yet: no layers, no disk, no volumes. claim() makes it what another spec says, whose
     * limits are best the same. */
    bool blank;
    /* Of a blank one: it is to have volumes, or to fill a tree, which need another filter of system calls. Only such a one is
     * claimed for those, and for nothing else. */
    bool refuse_clones;
    bool keep_disk; /* go on with the writable layer that a stopped box of this id left */
    /* claim() with keep_disk: the blank box that the stopped one goes on in. Else "". */
    char blank_id[ID_SIZE];
    /* Begin with a copy of this box's writable layer as it is at one moment ("" = do not). It stands
     * still for that moment; the layers must be those it was started with. */
    char source[ID_SIZE];
    /* DATA/feeds/<id>, which the server filled before, is there read-only as /run/feed. */
    bool feed;
    /* A new tree layer of this name is there as /run/layer, writable by root inside; layer_seal() makes it a
     * layer when the box has ended, layer_delete() removes it. "" = none. */
    char fill[LAYER_NAME_SIZE];
    uint32_t volume_count;
    struct box_volume {
        char name[LAYER_NAME_SIZE];  /* as in volume_create */
        char path[VOLUME_PATH_SIZE]; /* absolute, where it appears inside */
    } volumes[BOX_VOLUMES_MAX];
    /* The last member: of its ranges only those that there are go over the wire. */
    struct box_network network;
};

static inline bool box_spec_refuses_clones(const struct box_spec *spec)
{
    return spec->volume_count || spec->fill[0];
}

/* What went through a box's network link since it started; none where there is no network. */
struct box_traffic {
    uint64_t sent_bytes, received_bytes, sent_packets, received_packets;
    uint64_t
        connections;  /* that were let out, or to the egress process: TCP, UDP and echo requests */
    uint64_t refused; /* packets */
};

struct box_usage {
    uint64_t cpu_us;
    uint64_t mem_bytes, mem_cache_bytes; /* the first without the second */
    uint64_t disk_bytes;                 /* written by it, since it came into being */
    uint32_t pids;
    bool frozen;
    struct box_traffic network;
};

enum { BOX_PORTS_MAX = 128 };

/* The TCP ports that processes of a box listen on, in ascending order; the first BOX_PORTS_MAX found. */
struct box_ports {
    uint32_t count;
    struct box_port {
        uint16_t number;
        bool loopback; /* on the box's loopback interface only */
    } at[BOX_PORTS_MAX];
};

struct layer_info {
    char name[LAYER_NAME_SIZE];
    uint64_t bytes;     /* of its own */
    uint64_t frozen_us; /* how long its box stood still */
};

struct engine_space {
    uint64_t pool_bytes, pool_free;            /* where the writable layers are */
    uint64_t host_bytes, host_used, host_free; /* the file system below it, as df has them */
    bool held;                                 /* that is full, and the pool cannot grow */
    bool full;                                 /* too little in the pool for another box */
};

enum box_end { /* why a box ended */
               BOX_END_NONE = 0,
               BOX_END_KILLED,
               BOX_END_EXITED, /* its first process ended by itself */
               BOX_END_OOM,
               BOX_END_HOST, /* the host restarted */
};

struct box_info {
    char id[ID_SIZE];
    bool running;
    /* It has no files that anybody could miss: nobody has claimed it yet, or it fills a layer. */
    bool scratch;
    enum box_end end; /* of one that does not run and was not stopped */
    /* By which its packets are known in the gateway, in host byte order; another box has it when this one is gone.
     * 0 = it does not run. */
    uint32_t address;
    uint32_t group; /* of its network, now; only list() tells it */
};

struct engine_event { /* a box's first process ended without engine_kill() */
    char id[ID_SIZE];
    enum box_end end;
};

struct engine;

/* Sockets into boxes, to their loopback: engine_dial.h. */
enum engine_dial_kind { ENGINE_DIAL_TCP4, ENGINE_DIAL_TCP6, ENGINE_DIAL_UDP };

struct engine_ops {
    /* Returns when envd's program runs (connect_envd works from then on). On failure
     * nothing is left. */
    int (*start)(struct engine *engine, const struct box_spec *spec, struct box_info *out,
                 struct error *err);
    /* A blank box of the spec's id (with keep_disk: of its blank_id, which is gone then) becomes what the spec says, in a part of the time that a start takes. On failure
     * nothing is left of it; a stopped box is as before. ERROR_NOT_FOUND when there is none, ERROR_UNSUPPORTED when it can be started only. */
    int (*claim)(struct engine *engine, const struct box_spec *spec, struct box_info *out,
                 struct error *err);
    /* Ends every process and removes every trace: files, cgroups, network. Unknown id is success.*/
    int (*kill)(struct engine *engine, const char *id, struct error *err);
    int (*limit)(struct engine *engine, const char *id, const struct box_limits *limits,
                 struct error *err);
    /* Of a running box, from now on; what is open and no longer allowed is cut. */
    int (*network)(struct engine *engine, const char *id, const struct box_network *network,
                   struct error *err);
    /* All boxes the engine knows or finds on the host, dead ones (running = false) included.
     * *out is malloc()ed. */
    int (*list)(struct engine *engine, struct box_info **out, size_t *out_count, struct error *err);
    /* Stops all processes where they are, and brings to disk what they wrote; thaw lets them go on. */
    int (*freeze)(struct engine *engine, const char *id, bool frozen, struct error *err);
    /* Ends the processes and everything but the writable layer; listed as not running from then on.
     * A stopped box is started again with keep_disk, or killed. Idempotent. */
    int (*stop)(struct engine *engine, const char *id, struct error *err);
    /* Seals the present state of the writable layer as a new read-only layer, of a running, frozen or
     * stopped box: syncs, freezes for the moment of the snapshot, thaws (unless it was frozen). */
    int (*snapshot)(struct engine *engine, const char *id, const char *layer,
                    struct layer_info *out, struct error *err);
    /* Missing is success. A layer that a box names, running or stopped, is ERROR_CONFLICT. */
    int (*layer_delete)(struct engine *engine, const char *layer, struct error *err);
    int (*layer_list)(struct engine *engine, struct layer_info **out, size_t *out_count,
                      struct error *err);
    /* What the box that filled it (and has ended) wrote is a layer from now on, and on disk. */
    int (*layer_seal)(struct engine *engine, const char *layer, struct layer_info *out,
                      struct error *err);
    /* Copies what a snapshot holds into a new tree layer, which boxes share: one page cache for all. May take
     * seconds; on disk when it returns. On failure nothing is left. A snapshot may share blocks among its files and a
     * tree does not: ERROR_LIMIT when it would be larger, 0 = no limit. */
    int (*layer_publish)(struct engine *engine, const char *snapshot, const char *layer,
                         uint64_t limit_bytes, struct layer_info *out, struct error *err);
    /* Is it there, with all that it had when it was made? ERROR_NOT_FOUND; ERROR_INTERNAL when it is damaged. */
    int (*layer_check)(struct engine *engine, const char *layer, struct error *err);
    /* A connection to the box's envd: a non-blocking socket, or -errno. Never waits, so a loop may call it: -EAGAIN
     * when envd has too many to take already. Other ports inside: engine_dial.h. */
    int (*connect_envd)(struct engine *engine, const char *id);
    /* A Unix socket's path by which a library that connects by itself does the same; 0 or -errno. */
    int (*find_envd)(struct engine *engine, const char *id, char *out, size_t size);
    int (*usage)(struct engine *engine, const char *id, struct box_usage *out, struct error *err);
    /* Of a running or frozen box. Asks the kernel, not the box: envd sees nothing of it. */
    int (*ports)(struct engine *engine, const char *id, struct box_ports *out, struct error *err);
    int (*space)(struct engine *engine, struct engine_space *out, struct error *err);
    /* Volumes: directories that outlive sandboxes and can be shared by several. Files in them have
     * the ids they have inside. disk_bytes: how much they may be, 0 = no limit. Creating one that exists and deleting one that does not are success;
     * deleting one that a running box uses is ERROR_CONFLICT. */
    int (*volume_create)(struct engine *engine, const char *name, uint64_t disk_bytes,
                         struct error *err);
    int (*volume_delete)(struct engine *engine, const char *name, struct error *err);
    /* How much is in it. */
    int (*volume_usage)(struct engine *engine, const char *name, uint64_t *out_bytes,
                        struct error *err);
    /* Waits for the next event; 0 got one, -1 with ERROR_TIMEOUT, or ERROR_UNAVAILABLE when the
     * engine is gone for good. */
    int (*next_event)(struct engine *engine, uint32_t timeout_ms, struct engine_event *out,
                      struct error *err);
    void (*close)(struct engine *engine);
};

struct engine {
    const struct engine_ops *ops;
};

static inline void engine_close(struct engine *engine)
{
    engine->ops->close(engine);
}

/* The real one. fds are connected SEQPACKET sockets to the warden: one call at a time on each. run_dir: the
 * warden's, where envds listen. */
struct engine *engine_warden_new(const int *control_fds, size_t count, int event_fd,
                                 const char *run_dir);
/* For tests: remembers boxes, can be told to fail the n-th call. */
struct engine *engine_fake_new(void);
void engine_fake_fail_at(struct engine *engine, int nth_call);
size_t engine_fake_boxes(const struct engine *engine);

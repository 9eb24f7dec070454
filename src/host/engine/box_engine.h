/* An engine in the root process: what the warden asks of it. Each kind fills one such table and is added to the
 * warden's by warden_engine_add(); `native` (host/native/native.c) is one. The warden has checked every field before it
 * calls; it finds the engine of a new box by the kind in its spec, that of any other by asking who has the id.
 *
 * All operations may be called by several threads at once. Those on boxes mean what they mean in engine.h. */
#pragma once

#include "host/engine/engine.h"

struct box_engine;

struct box_engine_ops {
    /* Is there anything of this box: running, stopped, dead, or being started or ended? */
    bool (*has)(struct box_engine *engine, const char *id);
    int (*start)(struct box_engine *engine, const struct box_spec *spec, struct box_info *out,
                 struct error *err);
    /* NULL: this engine has no blank boxes. */
    int (*claim)(struct box_engine *engine, const struct box_spec *spec, struct box_info *out,
                 struct error *err);
    int (*kill)(struct box_engine *engine, const char *id, struct error *err);
    int (*stop)(struct box_engine *engine, const char *id, struct error *err);
    int (*limit)(struct box_engine *engine, const char *id, const struct box_limits *limits,
                 struct error *err);
    int (*network)(struct box_engine *engine, const char *id, const struct box_network *network,
                   struct error *err);
    int (*freeze)(struct box_engine *engine, const char *id, bool frozen, struct error *err);
    int (*usage)(struct box_engine *engine, const char *id, struct box_usage *out,
                 struct error *err);
    int (*ports)(struct box_engine *engine, const char *id, struct box_ports *out,
                 struct error *err);
    int (*snapshot)(struct box_engine *engine, const char *id, const char *layer,
                    struct layer_info *out, struct error *err);
    /* A non-blocking socket inside the box, connecting to its loopback. */
    int (*dial)(struct box_engine *engine, const char *id, uint16_t port,
                enum engine_dial_kind kind, int *out_fd, struct error *err);
    /* Entries from offset on; returns how many were written. */
    size_t (*list)(struct box_engine *engine, size_t offset, struct box_info *out, size_t max);
    /* live: those that may have more than files on the host. */
    size_t (*count)(struct box_engine *engine, bool live);
    /* Does a box name the layer (running or not), the volume (only one that may have processes)? */
    bool (*uses_layer)(struct box_engine *engine, const char *layer);
    bool (*uses_volume)(struct box_engine *engine, const char *volume);
    /* The processes of the box that fills this tree are killed, and nobody waits for that: its end is an event. */
    void (*end_filler)(struct box_engine *engine, const char *layer);
    /* A box that ended by itself since the last call; false when there is none. */
    bool (*next_event)(struct box_engine *engine, struct engine_event *out);
    /* Ends all boxes, or only those that are dead already, but for their files. Returns how many are left, with
     * the first reason. */
    size_t (*end_all)(struct box_engine *engine, bool dead_only, struct error *err);
    /* First thing in each thread that starts boxes. */
    void (*enter_thread)(struct box_engine *engine);
    /* Now and then, while the disk has space. */
    void (*tend)(struct box_engine *engine);
};

struct box_engine {
    enum engine_kind kind;
    const struct box_engine_ops *ops;
    int event_fd; /* readable when next_event has one; -1 = never */
};

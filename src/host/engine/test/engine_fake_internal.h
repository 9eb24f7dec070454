/* Shared by the two halves of the fake engine: boxes and envds, and what stays on disk. */
#pragma once

#include <pthread.h>

#include "base/list.h"
#include "base/map.h"
#include "host/engine/engine_wire.h"
#include "host/engine/test/engine_fake.h"

struct fake_box {
    struct box_spec spec;
    bool running; /* else it is dead or stopped, and only its disk is there */
    bool frozen;
    enum box_end end; /* why it does not run */
    uint64_t disk;
    uint64_t cpu_us;
    uint32_t address;
    char socket_path[ENGINE_SOCKET_PATH_SIZE];
    int listener;
    struct list clients;
};

struct fake_client {
    struct list link;
    int fd;
    char *data;
    size_t len;
};

struct fake_layer {
    uint64_t disk;
    bool deleted, damaged;
    bool filling; /* a box fills it; not a layer yet */
};

struct fake_event {
    struct list link;
    struct engine_event event;
};

struct fake {
    struct engine engine;
    pthread_mutex_t lock;
    pthread_cond_t happened;
    struct map boxes;
    uint32_t started;
    struct map layers;  /* those made here; deleted ones are remembered */
    struct map volumes; /* values are the fake itself */
    struct list events;
    char *run_dir;
    char *last_request;
    size_t connects_failed;
    engine_fake_envd_fn *envd_fn;
    void *envd_arg;
    int calls, failures, waiting, taken, told, fail_at, fail_kills, fail_freezes, fail_stops,
        envd_status;
    int snapshot_ms, start_ms;
    bool full, hold_freezes;
    int epoll, wake;
    bool stopping;
    pthread_t thread;
};

static inline struct fake *fake_of(struct engine *engine)
{
    return container_of(engine, struct fake, engine);
}

static inline struct fake *fake_lock(struct engine *engine)
{
    struct fake *fake = fake_of(engine);

    (void)pthread_mutex_lock(&fake->lock);
    return fake;
}

static inline void fake_unlock(struct fake **fake)
{
    (void)pthread_mutex_unlock(&(*fake)->lock);
}
#define auto_unlock __attribute__((cleanup(fake_unlock)))

/* Without the lock. */
void fake_sleep(struct fake *fake, const int *ms);
bool fake_must_fail(struct fake *fake);
int fake_not_found(const char *id, struct error *err);
/* envd of a box is gone. */
void fake_silence(struct fake_box *box);

/* Are its layers and volumes there? */
int fake_check_layers(struct fake *fake, const struct box_spec *spec, struct error *err);
/* What is on its disk when it begins. */
uint64_t fake_new_disk(struct fake *fake, const struct box_spec *spec);

/* engine_fake_claim.c */
int fake_claim(struct engine *engine, const struct box_spec *spec, struct box_info *out,
               struct error *err);

/* engine_fake_disk.c */
int fake_stop(struct engine *engine, const char *id, struct error *err);
int fake_snapshot(struct engine *engine, const char *id, const char *name, struct layer_info *out,
                  struct error *err);
int fake_layer_delete(struct engine *engine, const char *name, struct error *err);
int fake_layer_list(struct engine *engine, struct layer_info **out, size_t *out_count,
                    struct error *err);
/* With the lock: a tree that a box fills. */
void fake_fill(struct fake *fake, const char *name);
int fake_layer_seal(struct engine *engine, const char *name, struct layer_info *out,
                    struct error *err);
int fake_layer_publish(struct engine *engine, const char *snapshot, const char *name,
                       uint64_t limit_bytes, struct layer_info *out, struct error *err);
int fake_layer_check(struct engine *engine, const char *name, struct error *err);
int fake_usage(struct engine *engine, const char *id, struct box_usage *out, struct error *err);
int fake_ports(struct engine *engine, const char *id, struct box_ports *out, struct error *err);
int fake_space(struct engine *engine, struct engine_space *out, struct error *err);
int fake_volume_create(struct engine *engine, const char *name, uint64_t disk_bytes,
                       struct error *err);
int fake_volume_delete(struct engine *engine, const char *name, struct error *err);
int fake_volume_usage(struct engine *engine, const char *name, uint64_t *out_bytes,
                      struct error *err);

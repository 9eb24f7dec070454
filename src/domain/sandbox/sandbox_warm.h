/* Boxes made ahead: the pools (sandbox_warm.c), what fills them (sandbox_fill.c), and the programs of templates that run in them
 * (sandbox_settle.c). Part of sandbox_internal.h. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "base/thread.h"
#include "domain/sandbox/sandbox_setup.h"
#include "host/engine/engine.h"

enum {
    WARM_TEMPLATES_MAX = 8,
    BLANK_POOLS = 2, /* for any, for boxes with volumes or trees */
    WARM_POOLS_MAX = WARM_TEMPLATES_MAX + BLANK_POOLS,
    WARM_THREADS = 2,           /* the second one works only while few boxes are left */
    WARM_PAUSE_US = 500 * 1000, /* after a failure, at first */
};

struct sandboxes;

/* A started box that belongs to nobody yet. No row, no route: after a crash it is a leftover. */
struct warm_box {
    struct list link;
    char id[ID_SIZE];
    struct box_limits limits;
    uint32_t address;     /* of its box */
    int envd_fd;          /* connection on which its envd answered, or -1 */
    bool blank;           /* not of any layers yet */
    bool refuses_clones;  /* a blank one, for boxes with volumes or trees */
    bool died;            /* while it was started */
    bool settled;         /* what its template wants to run runs */
    enum setup_port port; /* what became of the port it was to listen on */
};

struct warm_pool { /* boxes of the same layers, in which the same runs; or blank ones */
    struct box_spec spec;
    char *setup; /* JSON, as setup_key() has it */
    struct list boxes;
    size_t count;
    size_t uses;           /* how often they were asked for */
    int64_t used_at_us;    /* monotonic */
    unsigned failures;     /* of its programs, one after another */
    int64_t not_before_us; /* monotonic: they are not tried again before */
};

struct warm {
    uint32_t network_mode; /* of what is made ahead: enum network_mode */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct warm_pool pools[WARM_POOLS_MAX]; /* the first two: blank ones */
    size_t pool_count;
    struct list starting; /* of struct starting: what the threads are about to start */
    struct list settling; /* of struct settling: boxes in which programs are being started */
    size_t settling_count;
    int64_t quiet_until_us; /* a create is being answered; fill up later */
    atomic_bool stopping;
    pthread_cond_t scarce; /* one thread cannot follow */
    struct thread threads[WARM_THREADS];
};

int warm_start(struct sandboxes *all, struct error *err);
/* Ends the threads and the boxes. */
void warm_stop(struct sandboxes *all);
/* A box with the wanted layers (its limits may differ) in which the template's programs run, or NULL. Makes the
 * layers hot. */
struct warm_box *warm_take(struct sandboxes *all, const struct box_spec *spec,
                           const struct setup *setup);
/* A template was made, and somebody will ask for it: one of it is started ahead. */
void warm_expect(struct sandboxes *all, struct str team_id, struct str template_id);
/* There is one, for now. */
bool warm_has(struct sandboxes *all, const struct box_spec *spec, const struct setup *setup);
/* One that can become what the spec says, by the engine's claim(), or NULL. What yields leaves half of them to others. */
struct warm_box *warm_take_blank(struct sandboxes *all, const struct box_spec *spec);
/* Makes that box what the spec says: its id, or that of a spec which keeps its disk, is the box's then. *out_fd: a connection to its
 * envd. On failure it is thrown away. */
int warm_claim(struct sandboxes *all, struct warm_box *box_consume, struct box_spec *spec,
               struct box_info *out, int *out_fd, struct error *err);
/* setup: as setup_key() has it. */
void warm_put_back(struct sandboxes *all, const struct box_spec *spec, struct str setup,
                   struct warm_box *box);
/* The same for one whose programs failed. */
void warm_failed(struct sandboxes *all, const struct box_spec *spec, struct str setup,
                 struct warm_box *box);
void warm_box_free(struct warm_box *box);
/* Tells the thread that something changed (a create ended). */
void warm_kick(struct sandboxes *all);
/* A layer goes: no more boxes of it. */
void warm_drop_layer(struct sandboxes *all, const char *layer);
/* The box of this id ended. True when the pool takes care of it. */
bool warm_died(struct sandboxes *all, const char *id);
/* Of the same layers, in which the same runs. */
bool warm_same_kind(const struct box_spec *a, struct str a_setup, const struct box_spec *b,
                    struct str b_setup);
/* Throws away what is in the list. */
void warm_condemn(struct sandboxes *all, struct list *dropped);
/* How many boxes the pool has at most, however often they are asked for. */
size_t warm_target_of(const struct sandboxes *all, const struct warm_pool *pool);

/* ---- sandbox_fill.c ---- */

int fill_start(struct sandboxes *all, struct error *err);
void fill_stop(struct warm *warm);
/* With the lock: no thread is about to start it any more. */
void fill_started(struct warm *warm, const struct warm_box *box);
/* With the lock: the box of this id ended. True when a thread is about to start it, which takes care of it. */
bool fill_died(struct warm *warm, const char *id);

/* ---- sandbox_settle.c ---- */

/* Starts the programs in a box of the pool, by a thread of its own; then it is put back. */
void settle_box(struct sandboxes *all, const struct box_spec *spec, struct str setup,
                struct warm_box *box);
/* Waits for those threads. */
void settle_stop(struct warm *warm);
/* With the lock held: how many boxes of a kind are at it; one is no longer; the box of this id ended. */
size_t settle_count(const struct warm *warm, const struct box_spec *spec, struct str setup);
void settle_forget(struct warm *warm, const struct warm_box *box);
bool settle_died(struct warm *warm, const char *id);

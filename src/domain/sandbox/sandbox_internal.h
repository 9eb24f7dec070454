/* The state that the files of this folder share; what they do for each other is in a header for each concern.
 *
 * Ownership: a struct sandbox belongs to the table while RUNNING or PAUSED; a thread that moves it to
 * any other state owns it alone until it moves on, so nothing is reference-counted. Who waits for an
 * owner looks the id up again afterwards. An entry that waits for another attempt to tear it down is
 * KILLING and in the schedule; who takes it from there owns it.
 *
 * Locks: sandboxes.lock guards the table, the schedule and all fields of entries that are not owned;
 * warm.lock guards the warm pool. Never both, and nothing slow under either. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "base/cond.h"
#include "base/list.h"
#include "base/map.h"
#include "base/periodic.h"
#include "base/thread.h"
#include "domain/network/network_peers.h"
#include "domain/sandbox/sandbox.h"
#include "domain/sandbox/sandbox_history.h"
#include "domain/sandbox/sandbox_setup.h"
#include "domain/sandbox/sandbox_stats.h"
#include "domain/sandbox/sandbox_warm.h"
#include "host/engine/engine.h"

enum {
    EXPIRE_THREADS = 4,
};

#define NOT_SCHEDULED SIZE_MAX

struct sandbox {
    char id[ID_SIZE];
    char team_id[TEAM_ID_SIZE]; /* "" for leftovers */
    enum sandbox_state state;
    bool
        crashed; /* its box ended by itself and its files are wanted: to be paused; reason says why */
    bool died;   /* its box ended while it was owned, or is to be paused; reason says why */
    bool rebooted;   /* by us: an event may be about an earlier life of its box */
    bool auto_pause; /* at the end of its time */
    bool auto_pause_disk;
    bool cold; /* PAUSED, and only its files are there */
    bool counts_as_running;
    bool time_is_up; /* PAUSING or KILLING because of it */
    bool ending; /* PAUSED, and its processes were told to end but are there: stopped again soon */
    uint32_t cpu_count;
    int64_t mem_mb, disk_mb;
    int64_t paused_at_us;    /* monotonic; of the last pause by this process */
    enum sandbox_end reason; /* why it is KILLING, or died */
    bool lease_failed;       /* its envd does not know its end yet */
    bool condemned;          /* KILLING by table_condemn(), no attempt yet */
    unsigned attempts;       /* failed ones to tear it down */
    unsigned pause_failures; /* at the end of its time */
    int64_t revision;        /* of its end in the store */
    int64_t due_us;          /* wall time of its end (also while SEALING), or of the next attempt */
    size_t scheduled_at;     /* index in the schedule, or NOT_SCHEDULED */
};

struct layers {
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct map pins; /* name to struct pin */
};

/* The thread that does what has no hurry. */
struct keeper {
    struct periodic back_up, collect, prune, leases;
    int64_t pause_us; /* of collect: before the next try after a failure */
};

/* sandbox_stats.c */
struct stats {
    atomic_uint_fast64_t counters[STAT_COUNT];
    atomic_uint_fast64_t create_us[SANDBOX_BUCKETS + 1], create_sum_us;
    pthread_mutex_t lock;        /* guards what follows */
    struct map teams, templates; /* name to creates, as a pointer */
};

/* Who is told that something happened, and what rooms above do on our threads. */
struct watchers {
    pthread_rwlock_t lock; /* guards all; held for reading while they are called */
    struct watcher {
        sandboxes_watch_fn *fn;
        void *arg;
    } all[SANDBOXES_WATCHERS_MAX]; /* fn NULL: free */
    pthread_rwlock_t hooks_lock;   /* guards hooks, in the same way */
    struct sandboxes_hooks hooks;
};

struct idempotency {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    struct map under_way; /* "team/key" */
};

/* What the engine last said about its disk. */
struct space {
    pthread_mutex_t lock;
    int64_t asked_us; /* monotonic */
    struct engine_space last;
};

struct metrics {
    pthread_mutex_t lock;            /* guards the maps */
    struct map rings;                /* id to struct ring */
    struct map teams;                /* id to struct team_ring */
    struct box_traffic network_past; /* of sandboxes that are gone */
    atomic_bool stopping;
    struct periodic sample;
};

/* A setup whose programs listened on no port. */
struct silent_setup {
    uint64_t hash;
    int64_t until_us; /* of clock_mono_us(): then it is waited for again */
};

struct sandboxes {
    struct engine *engine;
    struct fetch *fetch;        /* to envds */
    struct egress_link *egress; /* or NULL */
    struct peer_networks *peers;
    const struct secrets *secrets;
    const struct egress_authority *authority; /* or NULL */
    atomic_uint_fast64_t secret_changes;
    const char *no_network; /* as of the config */
    struct sandbox_builder builder;
    bool team_rates;
    struct store *store;
    struct routes *routes;
    char *domain;
    size_t warm_target, blank_target, max_running;
    _Atomic int64_t max_timeout_s; /* as ready_s and volume_bytes: may change at any time */
    int64_t max_life_s, grace_s;
    int64_t sample_us;
    _Atomic uint64_t volume_bytes;
    _Atomic int64_t ready_s;
    int64_t idle_s;
    atomic_bool ending;                           /* nobody waits for programs any more */
    struct silent_setup silent[SETUP_SILENT_MAX]; /* a ring; under the lock */
    size_t silent_count;
    pthread_mutex_t
        room_lock; /* from the check of a team's disk to what uses it being in the store */
    atomic_uint_fast64_t generation; /* of the last route */
    atomic_uint creates;             /* running now */
    atomic_int_fast64_t clock_us;    /* wall time when the host booted */

    pthread_mutex_t lock;
    struct map table;
    struct map teams;          /* id to struct team_count */
    size_t live;               /* all but PAUSED and KILLING */
    size_t running;            /* RUNNING and SEALING */
    size_t condemned;          /* KILLING, first attempt not done yet */
    struct sandbox **schedule; /* heap by due_us */
    size_t schedule_len, schedule_cap;
    bool stopping;
    pthread_cond_t due;     /* the schedule changed */
    pthread_cond_t settled; /* condemned became 0 */
    pthread_cond_t moved;   /* some sandbox has no owner any more */
    struct thread expire_threads[EXPIRE_THREADS], event_thread;

    struct warm warm;
    struct layers layers;
    struct keeper keeper;
    struct metrics metrics;
    struct idempotency idempotency;
    struct watchers watchers;
    struct stats stats;
    struct space space;
};

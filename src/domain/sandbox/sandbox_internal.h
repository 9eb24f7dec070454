/* Shared by the files of this folder.
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
#include "domain/network/network_peers.h"
#include "domain/sandbox/sandbox.h"
#include "domain/sandbox/sandbox_history.h"
#include "domain/sandbox/sandbox_setup.h"
#include "domain/sandbox/sandbox_warm.h"
#include "host/engine/engine.h"
#include "store/core/store.h"

enum {
    TEAM_ID_SIZE = 64,
    TOKEN_SIZE = 72,
    EXPIRE_THREADS = 4,
    SANDBOX_PIDS_MAX = 4096,
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
    pthread_mutex_t lock;
    pthread_cond_t wanted;
    bool collect, lease, stopping, has_thread;
    pthread_t thread;
};

/* Counters since the process began. */
enum stats_counter {
    STAT_CREATED,
    STAT_CREATE_FAILED,
    STAT_PAUSED,
    STAT_RESUMED_MEMORY,
    STAT_RESUMED_DISK,
    STAT_SNAPSHOTS,
    STAT_ENDED,
    STAT_COUNT,
};
struct stats {
    atomic_uint_fast64_t counters[STAT_COUNT];
    atomic_uint_fast64_t create_us[SANDBOX_BUCKETS + 1], create_sum_us;
    pthread_mutex_t lock;        /* guards what follows */
    struct map teams, templates; /* name to creates, as a pointer */
};

/* Who is told that something happened. */
struct watcher {
    pthread_rwlock_t lock;
    sandboxes_watch_fn *fn;
    void *arg;
};

struct webhooks {
    struct sender *sender;
    atomic_bool any;
    char *ca_file; /* NULL = the system's certificates only */
    bool private_ok;
    int64_t first_pause_us;
    struct webhook_ring *tried;
    pthread_mutex_t probe_lock; /* guards what follows */
    pthread_cond_t probed;
    struct list probes;
    uint64_t probe_count;
};

struct idempotency {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    struct map under_way; /* "team/key" */
};

/* Boxes that serve the content of volumes. */
struct content_boxes {
    pthread_mutex_t lock; /* guards boxes and the entries */
    pthread_cond_t changed;
    struct map boxes; /* volume id to struct content */
};

/* What the engine last said about its disk. */
struct space {
    pthread_mutex_t lock;
    int64_t asked_us; /* monotonic */
    struct engine_space last;
};

struct metrics {
    pthread_mutex_t lock; /* guards the maps */
    pthread_cond_t wake;
    struct map rings;                /* id to struct ring */
    struct map teams;                /* id to struct team_ring */
    struct box_traffic network_past; /* of sandboxes that are gone */
    atomic_bool stopping;
    bool has_thread;
    pthread_t thread;
};

/* A setup whose programs listened on no port. */
struct silent_setup {
    uint64_t hash;
    int64_t until_us; /* of clock_mono_us(): then it is waited for again */
};

struct sandboxes {
    struct engine *engine;
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
    pthread_t expire_threads[EXPIRE_THREADS], event_thread;
    size_t expire_thread_count;
    bool has_event_thread;

    struct warm warm;
    struct layers layers;
    struct keeper keeper;
    struct metrics metrics;
    struct idempotency idempotency;
    struct webhooks webhooks;
    struct watcher watcher;
    struct content_boxes content;
    struct stats stats;
    struct space space;
};

/* ---- sandbox_room.c ---- */

void room_init(struct sandboxes *all);
void room_done(struct sandboxes *all);
/* What the team keeps beside its sandboxes; 0 when it has no limit of disk. */
int room_kept(struct sandboxes *all, struct str team_id, const struct store_limits *limits,
              int64_t *out_mb, struct error *err);
/* May the team keep so much more? When it may, what needs it is put into the store, then room_taken():
 * nobody else gets the same room meanwhile. ERROR_QUOTA. */
int room_take(struct sandboxes *all, struct str team_id, int64_t bytes, struct error *err);
void room_taken(struct sandboxes *all);

/* ---- sandbox_table.c ---- */

void table_init(struct sandboxes *all);
void table_done(struct sandboxes *all);
/* As CREATING, owned by the caller. ERROR_QUOTA, ERROR_EXISTS. */
struct table_new {
    const char *id;
    struct str team_id;
    int64_t cpu_count, mem_mb, disk_mb;
    int64_t kept_mb;                   /* room_kept() */
    const struct store_limits *limits; /* of the team; NULL = none */
};
int table_add(struct sandboxes *all, const struct table_new *wanted, struct sandbox **out,
              struct error *err);
/* One more create. ERROR_QUOTA when there were too many in the last minute. */
int table_rate(struct sandboxes *all, struct str team_id, const struct store_limits *limits,
               struct error *err);
/* What the team's sandboxes may write, in MB. */
int64_t table_disk_mb(struct sandboxes *all, struct str team_id);
/* As it counts against the limits, without what the team keeps beside its sandboxes. */
void table_team_use(struct sandboxes *all, struct str team_id, struct store_limits *out);
/* With the lock held: may the team have one more like this? */
int table_check_room(struct sandboxes *all, const struct table_new *wanted, struct error *err);
/* A new one as RUNNING or PAUSED, whatever the limit says. False when the team id is bad. */
struct table_adopt {
    const char *id;
    struct str team_id;
    bool paused, cold, ending;
    bool auto_pause, auto_pause_disk;
    int64_t cpu_count, mem_mb, disk_mb;
    int64_t end_at_us, revision;
};
bool table_adopt(struct sandboxes *all, const struct table_adopt *adopt);
/* CREATING, RESUMING or PAUSING to RUNNING. False when the box died meanwhile: then it is still the
 * caller's. */
bool table_run(struct sandboxes *all, struct sandbox *sandbox, int64_t end_at_us, int64_t revision);
/* PAUSING or RESUMING to PAUSED. cold: its processes are not there. When they are ending, pause_finish() is
 * called soon. */
void table_paused(struct sandboxes *all, struct sandbox *sandbox, bool cold);
/* SEALING to RUNNING. False when the box died meanwhile: then it is KILLING, and the caller's. */
bool table_sealed(struct sandboxes *all, struct sandbox *sandbox);
/* An owned one to KILLING. */
void table_fail(struct sandboxes *all, struct sandbox *sandbox, enum sandbox_end reason);
/* The same for one whose box died; why is known. */
void table_fail_died(struct sandboxes *all, struct sandbox *sandbox);
/* The first of the schedule, as KILLING or PAUSING, owned by the caller. With the lock held. */
struct sandbox *table_take_first(struct sandboxes *all);
/* Has the expiry threads tear down a box that is nobody's (any more), or a RUNNING sandbox whose
 * box ended. Does nothing when the id is KILLING already; an owned one is only marked; a PAUSED one
 * stays, because its files are there. */
void table_condemn(struct sandboxes *all, const char *id, enum sandbox_end reason);
bool table_has(struct sandboxes *all, const char *id);
struct table_shown {
    bool cold;   /* paused, and its processes are gone */
    bool paused; /* true even when the store could not be updated */
};
/* out may be NULL. */
bool table_visible(struct sandboxes *all, struct str team_id, struct str id,
                   struct table_shown *out);
/* RUNNING, but its time is up: an expiry thread is about to pause or end it. Its end is not moved any
 * more, because its envd may have ended its box already. With the lock held. */
bool table_awaits_end(const struct sandboxes *all, const struct sandbox *sandbox);
/* 0 when it runs; ERROR_CONFLICT when it is paused (or nearly), else ERROR_NOT_FOUND. */
int table_check_runs(struct sandboxes *all, struct str team_id, struct str id, struct error *err);
/* RUNNING, and its box was booted by us more than once. */
bool table_rebooted(struct sandboxes *all, const char *id);
/* False when it does not run (any more). An older revision than the one known changes nothing. */
bool table_set_end(struct sandboxes *all, struct str id, int64_t end_at_us, int64_t revision);
void table_retry_later(struct sandboxes *all, struct sandbox *sandbox);
/* Ends the entry. */
void table_remove(struct sandboxes *all, struct sandbox *sandbox);
/* All that run, and all teams; free()d by the caller. */
struct table_target {
    char id[ID_SIZE];
    uint32_t cpu_count;
};
size_t table_targets(struct sandboxes *all, struct table_target **out);
struct table_team {
    char id[TEAM_ID_SIZE];
    size_t running;
    uint64_t started; /* since the process began */
};
size_t table_teams(struct sandboxes *all, struct table_team **out);
/* With the lock held: what a team may see, and a move from one state to another. */
struct sandbox *table_find(struct sandboxes *all, struct str team_id, struct str id);
void table_move(struct sandboxes *all, struct sandbox *sandbox, enum sandbox_state to);
size_t table_running_of(struct sandboxes *all, struct str team_id);
int sandbox_not_found(struct str id, struct error *err);

/* ---- sandbox_clock.c ---- */

/* Wall time, but it does not jump: for everything that has to do with the end of a sandbox. */
int64_t now_us(const struct sandboxes *all);
/* Before anything is recovered. */
int clock_open(struct sandboxes *all, struct error *err);
/* With the lock held. When the clock was set, all ends move with it. */
void clock_follow(struct sandboxes *all);

/* ---- sandbox_claim.c ---- */

/* Moves a sandbox to PAUSING, RESUMING, SEALING or KILLING and makes the caller its owner; waits for
 * another owner where the outcome of that decides. *out is NULL on success when another caller did
 * meanwhile what was asked for. */
struct table_claim {
    enum sandbox_state to;
    int64_t asked_at_us;               /* monotonic; 0 = now */
    enum sandbox_end reason;           /* of KILLING */
    const struct store_limits *limits; /* RESUMING: of the team */
};
int table_claim(struct sandboxes *all, struct str team_id, struct str id,
                const struct table_claim *claim, struct sandbox **out, struct error *err);

/* ---- sandbox_expire.c: with sandboxes.lock held ---- */

void schedule_set(struct sandboxes *all, struct sandbox *sandbox, int64_t due_us);
void schedule_unset(struct sandboxes *all, struct sandbox *sandbox);
/* Without it. */
int expire_start(struct sandboxes *all, struct error *err);
void expire_stop(struct sandboxes *all);
void expire_wait_settled(struct sandboxes *all, int64_t timeout_us);

/* ---- the others ---- */

/* Consumes a KILLING sandbox the caller owns. On failure it stays KILLING and is tried again. */
int sandbox_teardown(struct sandboxes *all, struct sandbox *sandbox, struct error *err);

/* Ends a PAUSING that the caller owns: PAUSED, or RUNNING again with err. */
struct pause {
    bool disk_only;
    bool at_end; /* of its time: it does not run on */
};
int pause_owned(struct sandboxes *all, struct sandbox *sandbox, const struct pause *pause,
                struct error *err);
/* Ends what is left of the processes of one that the caller owns, and notes when they take their time. */
int pause_stop(struct sandboxes *all, struct sandbox *sandbox, struct error *err);
/* The same, again; consumes a PAUSING whose row says 'paused' already. */
void pause_finish(struct sandboxes *all, struct sandbox *sandbox);

/* ---- sandbox_plan.c ---- */

struct plan {
    struct str team_id;
    int64_t timeout_s;
    bool secure, internet, internet_given, auto_pause, auto_pause_disk, auto_resume;
    bool is_unique; /* nobody else will start from these layers, or with these limits */
    struct store_template template;
    struct setup setup;
    struct box_spec spec;     /* without id */
    struct sandboxes *pinned; /* the layers of spec are */
    bool is_private;          /* its ports need a token */
    char access_token[TOKEN_SIZE], traffic_token[TOKEN_SIZE];
    char ingress[INGRESS_TEXT_SIZE];
    char *metadata, *env;             /* JSON */
    struct arena arena;               /* of what follows */
    const struct sandbox_pair *pairs; /* of metadata */
    size_t pair_count;
    struct buf init_body;
    struct store_limits limits; /* of the team */
    int64_t kept_mb;            /* room_kept() */
    struct str idempotency_key, idempotency_hash;
    struct sandbox_joint *joint; /* of the request */
    struct str volumes, network; /* as in the store */
    struct network_peers peers;  /* of `network` */
    const char
        *not_built; /* the shipped recipe that a plan failed for; NULL = for another reason */
};
void plan_done(struct plan *plan);
/* Of JSON text; what is not a string is left out. */
size_t pairs_read(struct str text, struct arena *arena, struct sandbox_pair **out);
#define auto_plan __attribute__((cleanup(plan_done)))
int plan_from_request(struct sandboxes *all, const struct sandbox_new *request, struct arena *arena,
                      struct plan *plan, struct error *err);
/* Another one like a sandbox that is there, from other layers ("a,b"). */
int plan_from_row(struct sandboxes *all, const struct store_sandbox *row, struct str layers,
                  int64_t timeout_s, struct plan *plan, struct error *err);
int plan_run(struct sandboxes *all, const struct plan *plan, struct arena *arena,
             struct sandbox_view *out, struct error *err);

/* ---- sandbox_network.c ---- */

/* Can all of it be enforced here? ERROR_UNSUPPORTED. */
int network_check(const struct sandboxes *all, const struct network_policy *policy,
                  struct error *err);
/* For box_network. */
uint32_t network_team(const struct sandboxes *all, struct str team_id);
/* Can the host give it at all? */
int network_can(const struct sandboxes *all, const struct box_network *network, struct error *err);

/* ---- sandbox_peers.c ---- */

/* A fork is in its source's network, known by its id: the name is taken. */
int peers_of_fork(const struct store_sandbox *row, struct arena *arena, struct plan *plan,
                  struct error *err);
/* At start; group: that of its box, or 0. */
void peers_adopt(struct sandboxes *all, const struct store_sandbox *row, uint32_t group);
/* As the row says, after a change that failed. */
void peers_restore(struct sandboxes *all, const struct store_sandbox *row);
/* When its processes stand still, and before they go on. */
void peers_hide(struct sandboxes *all, const struct store_sandbox *row);
int peers_show(struct sandboxes *all, const struct store_sandbox *row, struct error *err);

/* ---- sandbox_egress.c ---- */

/* A sandbox has a box with that address; returns when its policy holds. */
int egress_join(struct sandboxes *all, struct str team_id, const char *id, uint32_t address,
                const struct box_network *network, struct str policy, struct error *err);
/* The same in two parts: the answer comes while the engine puts the box's rules in place. */
void egress_begin(struct sandboxes *all, struct str team_id, const char *id, uint32_t address,
                  const struct box_network *network, struct str policy);
int egress_end(struct sandboxes *all, struct str team_id, const char *id,
               const struct box_network *network, struct str policy, struct error *err);
/* When the box goes. */
void egress_leave(struct sandboxes *all, const char *id);
/* Another policy for a box that runs. */
int egress_change(struct sandboxes *all, struct str team_id, const char *id,
                  const struct box_network *network, struct str policy, struct error *err);
/* What it reached and what was refused: as lines of its log, the oldest first, at most NETWORK_LOG_LINES. */
size_t egress_lines(struct sandboxes *all, const struct event_filter *filter, struct arena *arena,
                    struct store_event *out);

/* ---- sandbox_secret.c ---- */

/* The text of a policy as it may be stored; ERROR_INVALID when it names secrets that are not there, or not for its hosts. */
int secret_policy(struct sandboxes *all, struct str team_id, const struct network_policy *policy,
                  struct arena *arena, struct str *out, struct error *err);
/* Tells the egress process a stored policy, with the secrets filled in. */
int secret_tell(struct sandboxes *all, struct str team_id, const char *id, struct str policy,
                uint32_t group, struct error *err);
/* Of a sandbox whose row was not there yet: when a secret changed since secret_seen(), it is told again. */
uint64_t secret_seen(struct sandboxes *all);
void secret_tell_again(struct sandboxes *all, struct str team_id, const char *id, struct str policy,
                       uint64_t seen);
/* What a sandbox with that policy is to trust, or NULL. */
const struct egress_authority *secret_authority(const struct sandboxes *all, struct str policy);

/* ---- sandbox_idempotency.c ---- */

void idempotency_init(struct sandboxes *all);
void idempotency_done(struct sandboxes *all);
int create_once(struct sandboxes *all, const struct sandbox_new *request, struct arena *arena,
                struct sandbox_view *out, struct error *err);
/* sandbox_create.c; hash: STR_NONE without a key */
int create_new(struct sandboxes *all, const struct sandbox_new *request, struct str hash,
               struct arena *arena, struct sandbox_view *out, struct error *err);

/* ---- sandbox_layers.c ---- */

void layers_init(struct sandboxes *all);
void layers_done(struct sandboxes *all);
/* What is pinned is not deleted. */
void layers_pin(struct sandboxes *all, const struct box_spec *spec);
void layers_unpin(struct sandboxes *all, const struct box_spec *spec);
/* Deletes what nobody uses. False when something is left that will have to be tried again. */
bool layers_collect(struct sandboxes *all);
/* Leftovers of a crash that the store does not know. */
void layers_recover(struct sandboxes *all);
/* Seals the files of a sandbox as a new layer, which is pinned on success. */
struct sealed {
    struct store_sandbox row;
    struct str layers;   /* the sandbox's and the new one */
    struct box_spec pin; /* of the new one alone */
    int64_t bytes;       /* that the new one holds */
};
int layers_seal(struct sandboxes *all, struct str team_id, struct str id, struct arena *arena,
                struct sealed *out, struct error *err);

/* ---- volume.c ---- */

struct volume_line {
    struct str id;
    struct volume_mount mount;
};
/* What a request asks for, checked, as it is kept in the store. */
int volumes_text(struct sandboxes *all, struct str team_id, const struct volume_mount *mounts,
                 size_t count, struct arena *arena, struct str *out, struct error *err);
size_t volumes_read(struct str text, struct volume_line out[BOX_VOLUMES_MAX]);
int volumes_to_spec(struct str text, struct box_spec *out, struct error *err);
/* Files of volumes that a crash left behind, or did not make. */
void volumes_recover(struct sandboxes *all);
/* Deletes those that could not be deleted before. False when some are left. */
bool volumes_collect(struct sandboxes *all);

/* ---- volume_content.c ---- */

void content_init(struct sandboxes *all);
/* Ends the boxes. */
void content_done(struct sandboxes *all);
/* Has a box serve the content of the volume with this token; blocks. ERROR_UNAUTHORIZED. */
int content_wake(struct sandboxes *all, struct str token, struct error *err);
/* Ends the box of a volume that is about to go. */
void content_close(struct sandboxes *all, struct str volume_id);
/* The box of this id ended. True when it was one of these. */
bool content_died(struct sandboxes *all, const char *box_id);
/* Ends those that were not used for a minute. */
void content_reap(struct sandboxes *all);

/* ---- sandbox_metrics.c ---- */

void metrics_init(struct sandboxes *all);
void metrics_done(struct sandboxes *all);
int metrics_start(struct sandboxes *all, struct error *err);
void metrics_stop(struct sandboxes *all);

/* ---- webhook.c ---- */

/* A file of certificates that is wrong is told at the start and not with each delivery. */
int webhooks_check(const struct sandboxes_config *config, struct error *err);
void webhooks_init(struct sandboxes *all, const struct sandboxes_config *config);
void webhooks_done(struct sandboxes *all);
int webhooks_start(struct sandboxes *all, struct error *err);
void webhooks_stop(struct sandboxes *all);
/* After something happened. */
void webhooks_kick(struct sandboxes *all);

/* ---- sandbox_stats.c ---- */

/* Counts, and tells the webhooks and the watcher. */
void stats_add(struct sandboxes *all, enum stats_counter stat);
void stats_init(struct sandboxes *all);
void stats_done(struct sandboxes *all);
void stats_create(struct sandboxes *all, const struct store_sandbox *row, int64_t us);

/* ---- sandbox_space.c ---- */

bool space_of(struct sandboxes *all, struct engine_space *out);
/* What it said last; never waits for it. */
bool space_last(struct sandboxes *all, struct engine_space *out);
/* ERROR_NO_SPACE when the disk has no room for one more. */
int space_check(struct sandboxes *all, struct error *err);
/* Adds to an ERROR_NO_SPACE of the engine what the user can do; leaves other errors alone. Returns -1. */
int space_explain(struct error *err);

/* ---- sandbox_keeper.c ---- */

int keeper_start(struct sandboxes *all, struct error *err);
void keeper_stop(struct sandboxes *all);
void layers_collect_soon(struct sandboxes *all);

/* ---- sandbox_list.c, sandbox_view.c ---- */

/* What stands for the pairs of metadata in the store. */
size_t tags_of(const struct sandbox_pair *metadata, size_t count, struct arena *arena,
               struct str **out);
/* Cursors of pages: base64url without padding of "<time in us>__<rest>". */
struct str cursor_encode(const char *text, struct arena *arena);
bool cursor_decode(struct str cursor, size_t max, struct arena *arena, int64_t *out_us,
                   struct str *out_rest);
/* Strings are copied into the arena. */
void view_copy(const struct sandbox_view *view, struct arena *arena, struct sandbox_view *out);

int events_start(struct sandboxes *all, struct error *err);
/* Why a sandbox ended, when its box did so by itself. */
enum sandbox_end reason_of_end(enum box_end end);
void events_stop(struct sandboxes *all);

int recover_all(struct sandboxes *all, struct error *err);
/* Makes the proxy know what the row says. */
void route_publish(struct sandboxes *all, const char *id, const struct store_sandbox *row,
                   bool running);

/* Returns when envd answered. *out_fd is the connection, kept open. */
int envd_ready(struct engine *engine, const char *id, int *out_fd, struct error *err);
/* A connection to the box's envd: a non-blocking socket. */
int envd_connect(struct engine *engine, const char *id, uint32_t timeout_ms, struct error *err);
/* The body of envd_init(). */
struct envd_facts {
    const char *env;          /* JSON text */
    const char *access_token; /* "" = none */
    struct str template_id;   /* as in the store */
    int64_t life_s;           /* when envd ends the sandbox by itself */
    int64_t disk_mb;
    const struct setup *setup;                /* user and working directory */
    const struct egress_authority *authority; /* to be trusted, or NULL */
};
/* The same of one that runs. */
int envd_trust(struct engine *engine, const char *id, const struct egress_authority *authority,
               struct error *err);
int envd_init_body(const struct envd_facts *facts, struct buf *out, struct error *err);
/* The same, changed. Of several, the one with the highest revision holds. */
int envd_lease(struct engine *engine, const char *id, int64_t seconds, int64_t revision,
               struct error *err);
/* sandbox_lease.c: how long envd is to wait for us, for an end at that time. */
int64_t lease_seconds(const struct sandboxes *all, int64_t end_at_us);
/* Tells envd of a running one; tried again by the keeper when that fails. */
void lease_tell(struct sandboxes *all, const char *id, int64_t end_at_us, int64_t revision);
/* Those that failed. True when some still do. */
bool lease_retry(struct sandboxes *all);
/* Hands over what the sandbox is. fd: a connection to try first, or -1; stays the caller's. */
int envd_init(struct engine *engine, const char *id, int fd, struct str body, struct error *err);

/* The lines that envd remembers, as JSON text. Inits out. */
int envd_journal(struct engine *engine, const char *id, struct str token, struct buf *out,
                 struct error *err);
/* GET of a path; true when it was answered with 2xx. */
bool envd_ask(struct engine *engine, const char *id, const char *target);

/* Is there a running box of this id? Yes, when it cannot be known. */
bool box_runs(struct sandboxes *all, const char *id);
/* end_at_us, or what max_life_s allows. */
int64_t end_within_life(const struct sandboxes *all, int64_t running_since_us, int64_t end_at_us);
int spec_set_network(struct sandboxes *all, const struct store_sandbox *row, struct box_spec *out,
                     struct error *err);
int spec_from_row(struct sandboxes *all, const struct store_sandbox *row, struct box_spec *out,
                  struct error *err);
/* Fills in the layers of "a,b". */
int spec_set_layers(struct str layers, struct box_spec *out, struct error *err);
int spec_from_template(const struct store_template *template, struct box_spec *out,
                       struct error *err);
void view_from_row(const struct sandboxes *all, const struct store_sandbox *row,
                   struct sandbox_view *out);
/* The same with what the table knows better. */
void view_shown(const struct sandboxes *all, struct store_sandbox *row,
                const struct table_shown *shown, struct sandbox_view *out);
int check_timeout_max(const struct sandboxes *all, int64_t timeout_s, struct error *err);

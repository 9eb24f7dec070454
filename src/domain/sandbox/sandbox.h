/* The life of sandboxes: rules, states and the order of steps. Combines engine, store, routes and
 * accounts; knows nothing of HTTP requests. All calls block and may come from any worker thread.
 *
 * A sandbox in a transitional state (CREATING, PAUSING, KILLING, ...) is owned by the thread that
 * moved it there: the state is the lock. A call that finds it so waits for the outcome where that
 * makes sense, else it is ERROR_CONFLICT. Ids are only visible to the team that owns them; for any
 * other team they are ERROR_NOT_FOUND. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/id.h"
#include "base/pair.h"
#include "base/spool.h"
#include "base/str.h"
#include "domain/route/ingress.h"
#include "host/engine/engine.h"
#include "store/core/sandbox_state.h"
#include "store/platform/store_team.h"

struct engine;
struct store;
struct routes;
struct egress_authority;
struct egress_link;
struct secrets;
struct store_limits;
struct sandboxes;

enum {
    TEAM_ID_SIZE = 64,
    TOKEN_SIZE = 72,
    SANDBOX_PIDS_MAX = 4096,
};

struct sandboxes_config {
    struct engine *engine;
    struct store *store;
    struct routes *routes;
    const char *domain;    /* returned to clients; NULL or "" = none */
    size_t warm;           /* ready boxes kept per hot template */
    size_t blank;          /* blank boxes kept */
    size_t max_running;    /* all teams together; 0 = no limit */
    int64_t max_timeout_s; /* 24 h; of one request */
    int64_t max_life_s;    /* without a pause, whatever was asked for; 0 = no limit */
    int64_t grace_s;       /* after its end, until a sandbox without a server ends itself; 0 = 60 */
    int64_t sample_ms;     /* how often metrics are taken; 0 = every 5 s */
    int64_t volume_mb;     /* how much a volume may hold; 0 = no limit */
    int64_t
        ready_s; /* how long the start command of a template may take until it is ready; 0 = 60 */
    struct egress_link *egress; /* NULL: policies with names are refused */
    const struct secrets *secrets;
    const struct egress_authority *authority; /* NULL: policies with rules are refused */
    bool team_rates;                          /* sandboxes of a team share some */
    const char *no_network; /* why the host can give sandboxes none; NULL: it can */
    int64_t
        idle_s; /* then programs that were started ahead and that nobody asks for end; 0 = 600 */
};

/* fn is called, on the thread that made the change, after the store has an event of a sandbox; it must be
 * quick. At most SANDBOXES_WATCHERS_MAX. Not called any more once sandboxes_unwatch() with its arg returned. */
enum { SANDBOXES_WATCHERS_MAX = 2 };
typedef void sandboxes_watch_fn(void *arg);
void sandboxes_watch(struct sandboxes *all, sandboxes_watch_fn *fn, void *arg);
void sandboxes_unwatch(struct sandboxes *all, const void *arg);

/* What the room above that has boxes without a row (domain/volume) does on threads of the sandboxes. Each may block, and calls
 * functions of the sandboxes freely, but not sandboxes_set_hooks(). Without hooks there are no such boxes. */
struct sandboxes_hooks {
    void *arg;
    /* The box of this id ended by itself. True: it was theirs, and all is done. */
    bool (*box_ended)(void *arg, const char *box_id);
};
/* NULL = none; returns when none of the earlier ones is being called. */
void sandboxes_set_hooks(struct sandboxes *all, const struct sandboxes_hooks *hooks);

struct network_policy;

struct volume_mount {
    struct str name; /* or id of the volume */
    struct str path; /* absolute, inside */
};

struct sandbox_view;
struct conn;

/* What is to be in the store exactly when a sandbox is: written in the transaction that makes the sandbox's row, when all else
 * about it is done. run() asks the store for nothing but by that connection. */
struct sandbox_joint {
    int (*run)(void *arg, const struct sandbox_view *view, struct conn *conn, struct error *err);
    void *arg;
    bool refused;   /* told: run() failed, so there is no sandbox */
    bool committed; /* told: both are in the store, even if the create failed after that */
};

struct sandbox_new {
    struct str team_id;
    struct str template_name; /* id, alias, or either with ":tag" */
    int64_t timeout_s;
    bool secure;
    bool internet;
    bool is_private; /* its ports need a token */
    struct ingress ingress;
    bool internet_given; /* allow_internet_access was in the request */
    /* What it may reach, when that is not all or nothing; it has a say in `internet` then. NULL = all or nothing. */
    const struct network_policy *network;
    bool auto_pause;      /* at the end of its time it is paused, not killed */
    bool auto_pause_disk; /* and then only its files are kept */
    bool auto_resume;     /* traffic resumes it */
    const struct volume_mount *volumes;
    size_t volume_count;
    /* A create that is repeated with the same key (and text) returns the first one's sandbox, for a
     * day. STR_NONE = none. */
    struct str idempotency_key, request_text;
    int64_t cpu_count, mem_mb, disk_mb; /* 0 = the template's */
    const struct pair *metadata, *env;
    size_t metadata_count, env_count;
    bool *waits;                 /* see sandbox_waits */
    struct sandbox_joint *joint; /* or NULL */
};

/* A copy for the caller; strings live in the arena given. */
struct sandbox_view {
    struct str id, team_id, template_id, alias, domain;
    struct str access_token;  /* STR_NONE when not secured */
    struct str traffic_token; /* STR_NONE when its ports are public */
    struct str ingress;       /* lines: domain/route/ingress.h */
    struct str metadata;      /* JSON text of an object */
    enum sandbox_state state;
    bool
        pausing; /* its time is up and its processes are being stopped: no command can be started */
    int64_t started_at_us, end_at_us;
    int64_t cpu_count, mem_mb, disk_mb;
    bool internet, internet_given;
    struct str network; /* the lists, as JSON: domain/network; "" = none */
    bool auto_pause, auto_resume;
    struct str volumes; /* lines "id name path"; see sandbox_view_volumes() */
    /* How the present or last pause ends or ended: with its processes, or by a boot from its files.
     * STR_NONE when it was never paused. */
    struct str paused_to, resumed_from; /* "memory", "disk" */
    struct str
        warning; /* of a create: shown to the client, for example that no port listens; or STR_NONE */
};

struct sandbox_pause {
    bool disk_only;      /* keep the files, end the processes */
    int64_t asked_at_us; /* monotonic time of the request; 0 = now */
};

struct sandbox_resume {
    int64_t timeout_s;
    bool disk_only; /* boot from the files even when the processes are there */
    bool auto_pause, auto_pause_given;
    bool *waits; /* see sandbox_waits */
};

struct sandbox_filter {
    struct str team_id;
    const struct pair *metadata; /* all must match */
    size_t metadata_count;
    bool running, paused;
    struct str template_name; /* STR_NONE = any */
    int64_t started_after_us; /* inclusive; 0 = any */
    bool ascending;
    size_t limit;      /* 1..100 */
    struct str cursor; /* from an earlier page, or STR_NONE */
};

struct sandbox_page {
    struct sandbox_view *items;
    size_t count;
    struct str next_cursor; /* STR_NONE on the last page */
    size_t total_running;
};

struct snapshot_view {
    struct str id; /* what a sandbox can be made from: "<template>:<tag>", "<team>/<name>:<tag>" */
    struct str name; /* "<team>/<name>"; STR_NONE = none */
    int64_t created_at_us;
    int64_t bytes, shared_bytes; /* in lists only: on disk, and what of it others use too */
    int64_t shared_with;         /* so many */
};

struct snapshot_filter {
    struct str team_id;
    struct str sandbox_id; /* STR_NONE = any */
    struct str name;       /* name, name:tag or id; STR_NONE = any */
    size_t limit;          /* 1..100 */
    struct str cursor;     /* from an earlier page, or STR_NONE */
};

struct snapshot_page {
    struct snapshot_view *items;
    size_t count;
    struct str next_cursor; /* STR_NONE on the last page */
};

enum { SANDBOX_FORKS_MAX = 100 };
struct sandbox_fork {
    size_t count;
    int64_t timeout_s;
    /* Over the labels of the source, of which a fork has all but the name. Of several forks with a name the first is
     * NAME-1. */
    const struct pair *metadata;
    size_t metadata_count;
};
struct fork_result {
    bool ok;
    struct sandbox_view view; /* ok */
    struct error err;         /* not ok */
};

/* Opens, then compares store, engine and host: running boxes whose row says RUNNING are adopted,
 * paused ones stay paused as long as their disk is there, half-made ones and leftovers are torn down,
 * rows without a box are ended. Starts the expiry and event threads and the warm pool. */
int sandboxes_open(const struct sandboxes_config *config, struct sandboxes **out,
                   struct error *err);
/* Stops the threads and ends the warm boxes; sandboxes keep running. */
void sandboxes_close(struct sandboxes *all);
/* As in the config. */
struct store *sandboxes_store(const struct sandboxes *all);
/* Who builds a recipe that comes with quicksand when a create asks for it and it is not built. Until one is set such a create is
 * refused, with the command. build: returns when the team has it, or why it has not. */
struct sandbox_builder {
    void *arg;
    int (*build)(void *arg, struct str team_id, const char *name, struct error *err);
};
/* Before the first create. */
void sandboxes_set_builder(struct sandboxes *all, const struct sandbox_builder *builder);
/* The process is about to end: creates and resumes that wait for programs of a template give up. */
void sandboxes_hurry(struct sandboxes *all);
/* Boxes made ahead end, and no more are made; for a server that ends without a close. */
void sandboxes_drop_warm(struct sandboxes *all);

/* sandbox_waits: the member `waits` of a request is NULL when its caller has time. Else it becomes true, and nothing
 * is done, when programs of a template would have to be waited for: the caller comes again on a thread that may
 * wait. */

/* Answers when envd inside answered, and what the template starts is ready. On failure nothing is left. */
int sandbox_create(struct sandboxes *all, const struct sandbox_new *request, struct arena *arena,
                   struct sandbox_view *out, struct error *err);
int sandbox_get(struct sandboxes *all, struct str team_id, struct str id, struct arena *arena,
                struct sandbox_view *out, struct error *err);
int sandbox_list(struct sandboxes *all, const struct sandbox_filter *filter, struct arena *arena,
                 struct sandbox_page *out, struct error *err);
/* There is one now, whosever it is. */
bool sandbox_known(struct sandboxes *all, struct str id);
/* Returns when the sandbox is gone: no process, no file, no route. */
int sandbox_kill(struct sandboxes *all, struct str team_id, struct str id, struct error *err);
/* The longest timeout_s that a request may ask for, now. */
int64_t sandbox_timeout_max(struct sandboxes *all);
/* End of its time = now + timeout_s, earlier or later than before. 0 ends it now (or pauses it). */
int sandbox_set_timeout(struct sandboxes *all, struct str team_id, struct str id, int64_t timeout_s,
                        struct error *err);
/* As above, but never earlier than it was. */
int sandbox_extend(struct sandboxes *all, struct str team_id, struct str id, int64_t timeout_s,
                   struct arena *arena, struct sandbox_view *out, struct error *err);
/* A secret of the team has another value, or has gone: rules of its sandboxes that name it have it from now on. */
void sandboxes_secret_changed(struct sandboxes *all, struct str team_id, struct str name);
/* What is connected and no longer allowed ends. ERROR_CONFLICT when it is paused. */
int sandbox_set_network(struct sandboxes *all, struct str team_id, struct str id,
                        const struct network_policy *policy, struct error *err);
/* Returns when it is on disk that the sandbox is paused. ERROR_CONFLICT when it was paused before. */
int sandbox_pause(struct sandboxes *all, struct str team_id, struct str id,
                  const struct sandbox_pause *request, struct error *err);
/* Returns when envd answers. ERROR_CONFLICT when it runs. */
int sandbox_resume(struct sandboxes *all, struct str team_id, struct str id,
                   const struct sandbox_resume *request, struct arena *arena,
                   struct sandbox_view *out, struct error *err);
/* Extends when it runs, else resumes. */
int sandbox_connect(struct sandboxes *all, struct str team_id, struct str id,
                    const struct sandbox_resume *request, struct arena *arena,
                    struct sandbox_view *out, bool *out_resumed, struct error *err);
/* Keeps the present files under a name ("name", "name:tag"; STR_NONE = none), which replaces what had
 * that name and tag. The sandbox stands still for a moment. ERROR_CONFLICT when it is paused or being
 * snapshotted. */
int sandbox_snapshot(struct sandboxes *all, struct str team_id, struct str id, struct str text,
                     struct arena *arena, struct snapshot_view *out, struct error *err);
/* Newest first. */
int snapshot_list(struct sandboxes *all, const struct snapshot_filter *filter, struct arena *arena,
                  struct snapshot_page *out, struct error *err);
/* By id or name; without a tag all of its tags. Sandboxes made from it keep what they use. */
int snapshot_delete(struct sandboxes *all, struct str team_id, struct str name, struct error *err);
/* Makes `count` new sandboxes with the present files of a running one, and all its properties but id
 * and token. *out_results (in the arena) has one entry for each. */
int sandbox_fork(struct sandboxes *all, struct str team_id, struct str id,
                 const struct sandbox_fork *request, struct arena *arena,
                 struct fork_result **out_results, struct error *err);
/* A team's limit of disk and what it keeps, for spool_config.disk_of; arg: struct sandboxes. */
int sandboxes_disk_of(void *arg, struct str team_id, struct spool_disk *out, struct error *err);
/* What the team has of each of its limits now; of creates per minute nothing is said. */
int sandboxes_team_use(struct sandboxes *all, struct str team_id, struct store_limits *out,
                       struct error *err);
/* For traffic to a paused sandbox, whoever sends it: resumes it when it was made with auto_resume and
 * its pause is not disk_only, for its first timeout but at least 300 s. 0 when it runs (already).
 * sandboxes_open() makes routes_wake() call this. */
int sandbox_wake(struct sandboxes *all, const char *id, struct error *err);
enum { SANDBOX_VOLUMES_MAX = 8 };
size_t sandbox_view_volumes(const struct sandbox_view *view,
                            struct volume_mount out[SANDBOX_VOLUMES_MAX]);
/* Its metadata, in the arena. */
size_t sandbox_view_metadata(const struct sandbox_view *view, struct arena *arena,
                             struct pair **out);
size_t sandboxes_running(struct sandboxes *all);

/* For monitoring. */
enum { SANDBOX_BUCKETS = 11 };
extern const int64_t sandbox_bucket_us[SANDBOX_BUCKETS];
struct sandboxes_stats {
    size_t states[SANDBOX_STATE_COUNT];
    size_t warm;
    uint64_t created, create_failed, paused, resumed_memory, resumed_disk, snapshots, ended;
    uint64_t create_us[SANDBOX_BUCKETS + 1]; /* by duration; the last is above all buckets */
    uint64_t create_sum_us;
    struct sandboxes_space {
        uint64_t pool_bytes, pool_free; /* pool_bytes 0: not known */
        uint64_t host_bytes, host_used, host_free;
        bool held; /* the host is full */
    } space;
    struct sandboxes_egress { /* by the egress process */
        bool up;
        size_t sandboxes; /* with names in their policies */
        uint64_t connections, denied, questions, sent, received, open;
    } egress;
    struct box_traffic network; /* of all sandboxes, also of those that are gone */
};
void sandboxes_stats(struct sandboxes *all, struct sandboxes_stats *out);
typedef void sandboxes_count_fn(void *arg, struct str name, uint64_t count);
/* Creates since the process began, by team or by template. */
void sandboxes_creates_each(struct sandboxes *all, bool templates, sandboxes_count_fn *fn,
                            void *arg);
/* Sandboxes that run, or are paused, by team. */
void sandboxes_teams_each(struct sandboxes *all, bool paused, sandboxes_count_fn *fn, void *arg);

/* What may change while it runs; as in the configuration. What is there already is not touched. */
struct sandboxes_limits {
    size_t max_running;
    int64_t max_timeout_s, volume_mb, ready_s;
};
void sandboxes_set_limits(struct sandboxes *all, const struct sandboxes_limits *limits);

#define SANDBOX_ENVD_VERSION "0.6.13"
#define SANDBOX_CLIENT_ID    "6532622b"

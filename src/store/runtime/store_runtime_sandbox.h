/* Rows of the agent runtime: sandboxes, snapshots, jobs and whom to tell about them. As store.h:
 * each function is one transaction, strings live in the caller's arena. Strings that are STR_NONE
 * are stored as "" and read back as STR_NONE. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include "store/runtime/runtime_state.h"

struct store;

/* A random name that is this store's from then on. */
int store_runtime_instance(struct store *store, struct arena *arena, struct str *out,
                           struct error *err);

/* ---- sandboxes (store_runtime_sandbox.c, store_runtime_list.c) ---- */

struct store_runtime_sandbox {
    struct str id, team_id, key, spec_hash, provider, external_id, token, address, cdp_url;
    struct str image, profile, settings, metadata; /* settings, metadata: JSON objects */
    enum sandbox_state state;
    struct str error, agent_id, task_id, snapshot_id;
    int64_t idle_s, max_lifetime_s, cpu;
    bool persistent;
    bool adopted; /* made by the engine's own API, whose time limit it keeps */
    int64_t created_at_us, last_used_at_us, running_since_us, destroyed_at_us;
    int64_t ran_us, commands, jobs, create_ms;
    int64_t state_at_us; /* what happened to its machine until then is in the row */
};

struct store_runtime_event;
struct store_runtime_claim {
    const struct store_runtime_sandbox *row;
    struct str replaces; /* the dead row that held the key: killed now; STR_NONE */
    struct str reason;   /* of that */
    int64_t max;         /* creating and running ones on this provider; 0 = any number */
    bool durable;
    const struct store_runtime_event *events; /* told with it; may be NULL */
    size_t event_count;
};
/* Inserts. ERROR_EXISTS when a living row has the key and spec, ERROR_QUOTA above max. */
int store_runtime_claim(struct store *store, const struct store_runtime_claim *claim,
                        struct error *err);
/* The same in a transaction that somebody else has begun, and commits as durably as he likes. */
struct conn;
int store_runtime_claim_in(struct conn *conn, const struct store_runtime_claim *claim,
                           struct error *err);
/* By its id, else by that of its machine. ERROR_NOT_FOUND. */
int store_runtime_sandbox_get(struct store *store, struct str team_id, struct str id,
                              struct arena *arena, struct store_runtime_sandbox *out,
                              struct error *err);
/* The living one used last; spec_hash STR_NONE = any. ERROR_NOT_FOUND. */
int store_runtime_sandbox_find(struct store *store, struct str team_id, struct str key,
                               struct str spec_hash, struct arena *arena,
                               struct store_runtime_sandbox *out, struct error *err);

/* The one used last of all that have this key, or ran with it, of any spec. ERROR_NOT_FOUND. */
int store_runtime_sandbox_previous(struct store *store, struct str team_id, struct str key,
                                   struct arena *arena, struct store_runtime_sandbox *out,
                                   struct error *err);
/* Records that the deletion of an unused sandbox is announced at at_us, unless it is already and nobody used
 * the sandbox since. *out_at_us: when it was announced. ERROR_NOT_FOUND when it is destroyed. */
int store_runtime_sandbox_announce(struct store *store, struct str id, int64_t at_us,
                                   int64_t *out_at_us, struct error *err);

/* It has a machine now, and runs. */
struct store_runtime_ready {
    struct str machine; /* only when the row still has this one; STR_NONE = in any case */
    struct str external_id, token, address, cdp_url, snapshot_id;
    struct str id;            /* its own from now on; STR_NONE: leaves it */
    struct str image;         /* STR_NONE: leaves it */
    int64_t at_us, create_ms; /* create_ms < 0: leaves it */
    bool durable;
};
/* ERROR_NOT_FOUND when the row was killed meanwhile. */
int store_runtime_sandbox_ready(struct store *store, struct str id,
                                const struct store_runtime_ready *ready, struct error *err);
/* KILLED destroys. Nothing happens to one that is destroyed.
 * *out_changed: the state is another one now. */
int store_runtime_sandbox_state(struct store *store, struct str id, enum sandbox_state state,
                                struct str error, int64_t at_us, bool *out_changed,
                                struct error *err);
/* The same, for what was seen of a machine: nothing happens when the row has another one meanwhile, or
 * is about to get one. */
int store_runtime_sandbox_seen(struct store *store, struct str id, struct str machine,
                               enum sandbox_state state, struct str error, int64_t at_us,
                               bool *out_changed, struct error *err);
/* The same, as its provider tells it of an earlier moment: nothing happens when the row knows what came
 * after. */
int store_runtime_sandbox_told(struct store *store, struct str id, struct str machine,
                               enum sandbox_state state, struct str error, int64_t at_us,
                               bool *out_changed, struct error *err);
/* last_used only grows; the counters are added. */
int store_runtime_sandbox_used(struct store *store, struct str id, int64_t at_us, int64_t commands,
                               int64_t jobs, struct error *err);
int store_runtime_sandbox_count(struct store *store, struct str provider, int64_t *out,
                                struct error *err);

struct store_runtime_sandbox_query {
    struct str team_id;              /* STR_NONE = all teams */
    const enum sandbox_state *state; /* NULL = any */
    struct str agent_id, task_id, provider;
    bool destroyed;         /* also those */
    int64_t before_us;      /* created before; 0 = any */
    int64_t used_before_us; /* 0 = any */
    size_t limit;
};
/* Newest first. */
int store_runtime_sandbox_list(struct store *store,
                               const struct store_runtime_sandbox_query *wanted,
                               struct arena *arena, struct store_runtime_sandbox **out,
                               size_t *out_count, struct error *err);
/* Teams that have living ones; at most 1000. */
int store_runtime_teams(struct store *store, struct arena *arena, struct str **out,
                        size_t *out_count, struct error *err);
/* Forgets those destroyed before, at most max, and the jobs of all that were. Of each key the one that
 * store_runtime_sandbox_previous() finds stays a year, of at most 1000 keys of a team. */
int store_runtime_sandbox_forget(struct store *store, int64_t before_us, size_t max,
                                 size_t *out_count, struct error *err);

/* ---- following the engine in this process (store_runtime_follow.c) ---- */

/* Up to which of the engine's events the runtime has followed; 0 = never did. */
int store_runtime_followed(struct store *store, int64_t *out_seq, struct error *err);
int store_runtime_follow(struct store *store, int64_t seq, struct error *err);
/* The number of the newest event of the engine; 0 = none. */
int store_event_newest(struct store *store, int64_t *out_seq, struct error *err);
/* The row with this machine, whatever its team; a living one first. ERROR_NOT_FOUND. */
int store_runtime_sandbox_by_machine(struct store *store, struct str machine, struct arena *arena,
                                     struct store_runtime_sandbox *out, struct error *err);
/* Where rows and the engine's own disagree: machines that ended, were paused or resumed, and (row.id is
 * STR_NONE) sandboxes of the engine started before `before_us` that have no row. */
struct store_runtime_stray {
    struct store_runtime_sandbox row;
    struct str machine;
    enum sandbox_state state; /* RUNNING, PAUSED or ENDED; LOST: the engine does not know it */
    struct str reason;        /* of its end there */
    int64_t at_us;            /* since when, as far as it is known; 0 = not */
};
int store_runtime_strays(struct store *store, struct str provider, int64_t before_us, size_t limit,
                         struct arena *arena, struct store_runtime_stray **out, size_t *out_count,
                         struct error *err);

/* ---- usage ---- */

/* One per name and provider (rates differ), those that ran longest first; at most 1000. What has no agent,
 * task or session is left out there. team_id: STR_NONE = all teams. */
enum store_runtime_usage_by {
    USAGE_BY_PROVIDER,
    USAGE_BY_AGENT,
    USAGE_BY_TASK,
    USAGE_BY_SESSION,
    USAGE_BY_TEAM,
};
struct store_runtime_usage {
    struct str name, provider;
    int64_t sandboxes, running, ran_us, cpu_us, commands, jobs;
};
int store_runtime_usage(struct store *store, enum store_runtime_usage_by by, struct str team_id,
                        int64_t now_us, struct arena *arena, struct store_runtime_usage **out,
                        size_t *out_count, struct error *err);
/* Of the last max, ascending. */
int store_runtime_create_ms(struct store *store, struct str team_id, size_t max,
                            struct arena *arena, int64_t **out, size_t *out_count,
                            struct error *err);

/* ---- snapshots (store_runtime_snapshot.c) ---- */

struct store_runtime_snapshot {
    struct str id, team_id, alias, kind, provider, external_id, sandbox_id, image;
    enum snapshot_state state;
    int64_t created_at_us, expires_at_us;
};

/* CREATING, without its alias. */
int store_runtime_snapshot_insert(struct store *store, const struct store_runtime_snapshot *row,
                                  struct error *err);
/* Ready, and holder of row->alias; who held it before expires now. */
int store_runtime_snapshot_ready(struct store *store, const struct store_runtime_snapshot *row,
                                 int64_t now_us, struct error *err);
int store_runtime_snapshot_state(struct store *store, struct str id, enum snapshot_state state,
                                 struct error *err);
/* By id or alias. ERROR_NOT_FOUND. */
int store_runtime_snapshot_get(struct store *store, struct str team_id, struct str name,
                               struct arena *arena, struct store_runtime_snapshot *out,
                               struct error *err);
/* The newest 1000, newest first; sandbox_id STR_NONE = any; state NULL = any. */
int store_runtime_snapshot_list(struct store *store, struct str team_id, struct str sandbox_id,
                                const enum snapshot_state *state, struct arena *arena,
                                struct store_runtime_snapshot **out, size_t *out_count,
                                struct error *err);
/* Those whose time has passed; STR_NONE = all teams. */
int store_runtime_snapshot_expired(struct store *store, struct str team_id, int64_t now_us,
                                   size_t limit, struct arena *arena,
                                   struct store_runtime_snapshot **out, size_t *out_count,
                                   struct error *err);
int store_runtime_snapshot_delete(struct store *store, struct str id, struct error *err);

/* ---- jobs (store_runtime_job.c) ---- */

struct store_runtime_job {
    struct str id, team_id, sandbox_id, agent_id, actor, command, run_as, error;
    enum job_state state;
    bool has_input, stopping, has_exit_code;
    int64_t exit_code, started_at_us, ended_at_us;
    struct str callback_url, callback_token; /* only written; STR_NONE = nobody to tell */
    enum callback_state callback_state;      /* only read, as the next two */
    int64_t callback_attempts, callback_next_at_us;
};

/* On disk when it returns. ERROR_QUOTA when the sandbox has max running ones. */
int store_runtime_job_insert(struct store *store, const struct store_runtime_job *row, int64_t max,
                             struct error *err);
int store_runtime_job_get(struct store *store, struct str team_id, struct str id,
                          struct arena *arena, struct store_runtime_job *out, struct error *err);
/* Newest first. sandbox_id STR_NONE = any. */
int store_runtime_job_list(struct store *store, struct str team_id, struct str sandbox_id,
                           size_t limit, struct arena *arena, struct store_runtime_job **out,
                           size_t *out_count, struct error *err);
/* All that run; sandbox_id STR_NONE = of all. */
int store_runtime_job_running(struct store *store, struct str sandbox_id, struct arena *arena,
                              struct store_runtime_job **out, size_t *out_count, struct error *err);
int store_runtime_job_stopping(struct store *store, struct str id, struct error *err);

struct store_runtime_job_end {
    enum job_state state;
    struct str error;
    bool has_exit_code;
    int64_t exit_code, at_us;
    struct str body; /* for the callback */
};
/* On disk when it returns. *out_ended: it ran until now, by this call it ended. *out_callback: there
 * is somebody to tell, now pending. */
int store_runtime_job_ended(struct store *store, struct str id,
                            const struct store_runtime_job_end *end, bool *out_ended,
                            bool *out_callback, struct error *err);

/* As if it had never been asked for, with whoever was to be told of its end. */
int store_runtime_job_delete(struct store *store, struct str id, struct error *err);

struct store_runtime_callback {
    struct str job_id, team_id, sandbox_id, agent_id, actor, url, token, body;
    int64_t attempts, ended_at_us, next_at_us;
};
/* The one that is due next, may be later; ERROR_NOT_FOUND: there is none. busy: ",a,b,", without these
 * teams. */
int store_runtime_callback_next(struct store *store, struct str busy, struct arena *arena,
                                struct store_runtime_callback *out, struct error *err);
/* Puts it off until later_us, so that nobody else takes it, and counts the attempt. 1 = it is yours, 0 =
 * another process has it. */
int store_runtime_callback_take(struct store *store, struct store_runtime_callback *callback,
                                int64_t later_us, struct error *err);
/* PENDING (again at next_at_us), DELIVERED, FAILED. */
int store_runtime_callback_set(struct store *store, struct str job_id, enum callback_state state,
                               int64_t next_at_us, struct error *err);

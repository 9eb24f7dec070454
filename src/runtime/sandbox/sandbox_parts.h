/* Sandboxes for the rooms of the runtime that work on them: rows, machines, claims. */
#pragma once

#include "base/list.h"
#include "runtime/backend/backend.h"
#include "runtime/core/event.h"
#include "runtime/core/runtime.h"
#include "runtime/core/runtime_parts.h"
#include "runtime/sandbox/sandbox.h"
#include "store/runtime/store_runtime_sandbox.h"

/* ---- what this process knows of sandboxes (sandbox_live.c) ---- */

int runtime_sandboxes_open(struct runtime *runtime, struct error *err);
void runtime_sandboxes_close(struct runtime *runtime); /* tells the store what was counted */

/* Of both: called by them. The close waits for those under way. */
void runtime_sweeps_open(struct runtime *runtime);
void runtime_sweeps_close(struct runtime *runtime);

/* ---- rows in 'creating' (claim.c) ---- */

/* Somebody makes the machine of a row. Zeroed = none; the id is borrowed. */
struct runtime_claim {
    struct list link;
    struct str id;
};
enum {
    RUNTIME_CLAIM_S = 150
}; /* a row in 'creating' that was not renewed for so long was abandoned */

void runtime_claims_open(struct runtime *runtime);
void runtime_claims_close(struct runtime *runtime);
/* Ends what the same claim was for before. */
void runtime_claim_begin(struct runtime *runtime, struct runtime_claim *claim, struct str id);
void runtime_claim_end(struct runtime *runtime, struct runtime_claim *claim);
/* By anybody of this runtime. */
bool runtime_claim_held(struct runtime *runtime, struct str id);
/* Waits until a claim ends in this process, after the number of them that runtime_claim_ends() returned, or until_us of
 * clock_mono_us(). A claim ends after its row was written. */
uint64_t runtime_claim_ends(void);
void runtime_claim_wait(uint64_t seen, int64_t until_us);

struct str runtime_instance_name(const struct runtime *runtime);
/* A hold: one thread at a time works on what has this name, across calls of the store and of providers. */
struct runtime_hold;
struct runtime_hold *runtime_hold(struct runtime *runtime, struct str team_id, struct str name);
/* The same, not longer than the deadline: NULL with ERROR_TIMEOUT. */
struct runtime_hold *runtime_hold_soon(struct runtime *runtime, struct str team_id, struct str name,
                                       int64_t deadline_us, struct error *err);
/* The same, without waiting: NULL when somebody else has it. */
struct runtime_hold *runtime_hold_now(struct runtime *runtime, struct str team_id, struct str name);
void runtime_hold_end(struct runtime *runtime, struct runtime_hold *hold);

/* When it was used last, as far as this process knows; at least row_us. */
int64_t runtime_live_last_used(struct runtime *runtime, struct str id, int64_t row_us);
/* Its provider lets it live for ttl_s from now. */
void runtime_live_extended(struct runtime *runtime, struct str id, int64_t ttl_s);
enum runtime_life { LIFE_LONG, LIFE_SHORT, LIFE_UNKNOWN };
/* SHORT: less than half of ttl_s is left. UNKNOWN: may have ended. */
enum runtime_life runtime_live_life(struct runtime *runtime, struct str id, int64_t ttl_s);
void runtime_live_forget(struct runtime *runtime, struct str id);
/* All that was counted goes to the rows. */
void runtime_live_flush(struct runtime *runtime);

/* ---- rows (sandbox_row.c) ---- */

/* JSON that the arena frees. */
json_t *arena_json(struct arena *arena, json_t *json);
/* The text of a stored object, or NULL when it is empty. */
json_t *arena_parse(struct arena *arena, struct str text);
void runtime_sandbox_of(const struct store_runtime_sandbox *row, struct arena *arena,
                        struct runtime_sandbox *out);
/* By id or "key:KEY"; ownership checked. Killed ones too. */
int runtime_row_get(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                    struct arena *arena, struct store_runtime_sandbox *out, struct error *err);
/* ERROR_CONFLICT with errnum ENODEV: its provider is not configured any more. */
int runtime_row_backend(struct runtime *runtime, const struct runtime_caller *caller,
                        const struct store_runtime_sandbox *row, struct backend **out,
                        struct error *err);
/* The same for whatever else is on a provider. what: "snapshot 'x'". */
int runtime_row_provider(struct runtime *runtime, const struct runtime_caller *caller,
                         struct str provider, const char *what, struct backend **out,
                         struct error *err);
/* Its row is closed; the machine could not be reached because of why. */
void runtime_row_forget(struct runtime *runtime, const struct runtime_caller *caller,
                        const struct store_runtime_sandbox *row, const struct error *why);
/* For an operation: -1 with ERROR_NOT_FOUND telling what became of it, or ERROR_CONFLICT while it is
 * being made. */
int runtime_row_alive(const struct store_runtime_sandbox *row, struct error *err);
struct provider_ref runtime_row_ref(const struct store_runtime_sandbox *row, int64_t deadline_us);
/* How long its provider lets it live without activity; 0 = the provider does not end it. */
int64_t runtime_row_ttl(const struct runtime *runtime, struct backend *backend,
                        const struct store_runtime_sandbox *row);
/* A sandbox whose files the user expects to find again: it has a key, is persistent, or is paused. No idle time
 * and no clean-up deletes it. */
bool runtime_row_kept(const struct store_runtime_sandbox *row);
/* Since when nobody used it: its last use, or the moment when it was paused. */
int64_t runtime_row_unused_since(const struct store_runtime_sandbox *row);
/* Why its time is over: "max lifetime" or "expired"; NULL while it is not. */
const char *runtime_row_over(const struct store_runtime_sandbox *row, int64_t now_us);
/* Kills it when its time is over: -1 with ERROR_NOT_FOUND, which says so. */
int runtime_row_check_over(struct runtime *runtime, const struct runtime_caller *caller,
                           struct backend *backend, const struct store_runtime_sandbox *row,
                           struct error *err);
/* Its row and the world agree again. Events are emitted when the state changed. */
void runtime_row_paused(struct runtime *runtime, const struct runtime_caller *caller,
                        const struct store_runtime_sandbox *row, const char *by);
/* As its provider tells it of an earlier moment: running or paused since then. false: nothing new, the
 * row knows what came after. */
bool runtime_row_told(struct runtime *runtime, const struct runtime_caller *caller,
                      const struct store_runtime_sandbox *row, enum sandbox_state state,
                      int64_t at_us);
/* The same of its end. false: nothing new. */
bool runtime_row_ended(struct runtime *runtime, const struct runtime_caller *caller,
                       const struct store_runtime_sandbox *row, const char *reason, const char *why,
                       int64_t at_us);
/* Its provider does not know its machine. false: nothing new, or the row has another machine by now, or
 * the engine here is still ending it and will tell. */
bool runtime_row_gone(struct runtime *runtime, const struct runtime_caller *caller,
                      const struct store_runtime_sandbox *row, const char *why);
/* Its machine, and destroyed_at is set. */
int runtime_row_kill(struct runtime *runtime, const struct runtime_caller *caller,
                     struct backend *backend, const struct store_runtime_sandbox *row,
                     const char *reason, struct error *err);
/* It could not be made: event sandbox.error. */
void runtime_row_failed(struct runtime *runtime, const struct runtime_caller *caller,
                        const struct store_runtime_sandbox *row, const struct error *why);
/* A failed operation in the log, with its provider, agent and task: sandbox->id may be STR_NONE. Errors that are the
 * request's own fault are not logged. */
void runtime_log_failure(const struct runtime *runtime, struct str team_id,
                         const struct runtime_sandbox *sandbox, const char *operation,
                         const struct error *why);
/* An event about a sandbox; data is borrowed. */
struct runtime_event runtime_row_event_of(const struct runtime_caller *caller,
                                          const struct store_runtime_sandbox *row, const char *type,
                                          json_t *data);
/* data is consumed. */
void runtime_row_event(struct runtime *runtime, const struct runtime_caller *caller,
                       const struct store_runtime_sandbox *row, const char *type, json_t *data);

/* ---- clean-up (prune.c, retention.c) ---- */

/* false: it could not be reached, and is tried again later. */
bool runtime_prune_kill(struct runtime *runtime, const struct store_runtime_sandbox *row,
                        const char *reason, int64_t deadline_us);
/* A kept sandbox: announces its deletion, or deletes it, as retention_days says. true: it was deleted. */
bool runtime_retention_row(struct runtime *runtime, const struct store_runtime_sandbox *row,
                           int64_t now_us);

/* ---- what is asked for (sandbox_spec.c) ---- */

int runtime_spec_check(const struct runtime_ensure *request, struct error *err);
/* 16 hex digits. */
struct str runtime_spec_hash(const struct profile *profile, const struct runtime_ensure *request,
                             struct arena *arena);

/* ---- machines (sandbox_machine.c) ---- */

/* Running afterwards: 0 = it ran already, 1 = it was resumed (hooks run, event told). ERROR_NOT_FOUND:
 * it is gone, the row says so. Under the lock of its id. May change token and address of the row. */
int machine_wake(struct runtime *runtime, const struct runtime_caller *caller,
                 struct backend *backend, struct store_runtime_sandbox *row, struct arena *arena,
                 struct error *err);
/* The embedded engine: its sandboxes end with this host and share this store. */
bool backend_embedded(const struct runtime *runtime, const struct backend *backend);
int machine_kill(struct runtime *runtime, struct backend *backend,
                 const struct store_runtime_sandbox *row, int64_t deadline_us, struct error *err);

/* What is asked of a provider, with labels and environment. Lives in the arena. */
struct machine_spec {
    const struct profile *profile;
    const struct store_runtime_sandbox *row;
    struct str snapshot; /* provider's reference */
    const json_t *metadata;
    struct provider_joint *joint; /* or NULL */
    int64_t *deadline_us;         /* see provider_spec; not NULL */
};
/* Creates it, or finds what an earlier try has made. Hooks are not run. */
int machine_create(struct runtime *runtime, const struct machine_spec *wanted, struct arena *arena,
                   struct provider_sandbox *out, struct error *err);
/* The oldest with the key and hash of the row that is not `except`; 0 = none, 1 = found. */
int machine_find(struct runtime *runtime, struct backend *backend,
                 const struct store_runtime_sandbox *row, struct str except, int64_t deadline_us,
                 struct arena *arena, struct provider_sandbox *out, struct error *err);
/* The machine of this row, by its id's label; 0 = none. */
int machine_find_own(struct runtime *runtime, struct backend *backend,
                     const struct store_runtime_sandbox *row, int64_t deadline_us,
                     struct arena *arena, struct provider_sandbox *out, struct error *err);
/* A machine of this row may be there, or come to be: it is looked for and killed in the background. */
void runtime_sweep_later(struct runtime *runtime, struct backend *backend,
                         const struct store_runtime_sandbox *row);
/* hooks: an array of commands, or NULL. */
int machine_hooks(struct runtime *runtime, struct backend *backend,
                  const struct store_runtime_sandbox *row, json_t *hooks, const char *which,
                  struct error *err);

/* ---- for an operation (sandbox_use.c) ---- */

/* After an operation failed: 1 = it was paused and now runs, try again; 0 = the failure stands;
 * -1 = it is gone (err says so). */
int runtime_use_recover(struct runtime *runtime, const struct runtime_caller *caller,
                        struct runtime_use *use, struct arena *arena, struct error *err);
/* Extends the sandbox's life when less than half is left. */
void runtime_use_extend(struct runtime *runtime, struct provider *provider,
                        const struct provider_ref *ref, struct str id, int64_t ttl_s);

/* Rows on other providers are compared with what those list (reconcile.c). */
void runtime_reconcile(struct runtime *runtime);

/* ---- usage (usage.c, stats.c) ---- */

/* The event of it. After its row says that it does not run any more, and what was counted is in it. */
void runtime_usage_tell(struct runtime *runtime, const struct runtime_caller *caller,
                        struct str id);
void runtime_usage_tell_all(struct runtime *runtime); /* of all that run */
double runtime_usage_usd(const struct runtime *runtime, const struct store_runtime_usage *usage);

/* Timers (prune.c). */
void runtime_prune_open(struct runtime *runtime);
/* Rows of sandboxes whose time should be over are corrected; STR_NONE = on all providers. */
void runtime_prune_overdue(struct runtime *runtime, struct str provider, int64_t deadline_us);

/* Deletes a snapshot at its provider and its row. */
int runtime_snapshot_drop(struct runtime *runtime, const struct runtime_caller *caller,
                          const struct store_runtime_snapshot *row, struct error *err);
/* Snapshots with an alias are the team's; others belong to the agent of their sandbox. */
int runtime_snapshot_allowed(struct runtime *runtime, const struct runtime_caller *caller,
                             const struct store_runtime_snapshot *row, struct error *err);
/* Ready, and of the kind the backend takes; else ERROR_UNSUPPORTED or ERROR_CONFLICT before any
 * call. */
int runtime_snapshot_usable(struct runtime *runtime, const struct backend *backend,
                            const struct store_runtime_snapshot *row, struct error *err);

/* ---- told to rooms above (runtime_parts.h) ---- */

static inline void runtime_tell_resumed(struct runtime *runtime, struct str sandbox_id)
{
    if (runtime->on_resumed)
        runtime->on_resumed(runtime, sandbox_id);
}

static inline void runtime_tell_gone(struct runtime *runtime, struct str sandbox_id)
{
    if (runtime->on_gone)
        runtime->on_gone(runtime, sandbox_id);
}

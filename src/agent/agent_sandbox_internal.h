/* Shared by the files about sandboxes, commands, jobs and terminals. */
#pragma once

#include "agent/agent.h"
#include "agent/agent_backend.h"
#include "agent/agent_event.h"
#include "agent/agent_internal.h"
#include "agent/agent_sandbox.h"
#include "store/store_agent.h"

/* ---- what this process knows of sandboxes (agent_sandbox_live.c) ---- */

int agent_sandboxes_open(struct agents *agents, struct error *err);
void agent_sandboxes_close(struct agents *agents); /* tells the store what was counted */

/* Of both: called by them. The close waits for those under way. */
void agent_sweeps_open(struct agents *agents);
void agent_sweeps_close(struct agents *agents);

struct str agent_instance_name(const struct agents *agents);
/* One at a time for a name. Returns what unlock takes. */
struct agent_key_lock;
struct agent_key_lock *agent_key_lock(struct agents *agents, struct str team_id, struct str name);
/* The same, not longer than the thread's deadline: NULL with ERROR_TIMEOUT. */
struct agent_key_lock *agent_key_lock_soon(struct agents *agents, struct str team_id,
                                           struct str name, struct error *err);
/* The same, without waiting: NULL when somebody else has it. */
struct agent_key_lock *agent_key_lock_now(struct agents *agents, struct str team_id,
                                          struct str name);
void agent_key_unlock(struct agents *agents, struct agent_key_lock *lock);

/* Used now: remembered here, and from time to time in the row. */
void agent_live_used(struct agents *agents, struct str id, int64_t commands, int64_t jobs);
/* When it was used last, as far as this process knows; at least row_us. */
int64_t agent_live_last_used(struct agents *agents, struct str id, int64_t row_us);
/* Its provider lets it live for ttl_s from now. */
void agent_live_extended(struct agents *agents, struct str id, int64_t ttl_s);
enum agent_life { LIFE_LONG, LIFE_SHORT, LIFE_UNKNOWN };
/* SHORT: less than half of ttl_s is left. UNKNOWN: may have ended. */
enum agent_life agent_live_life(struct agents *agents, struct str id, int64_t ttl_s);
void agent_live_forget(struct agents *agents, struct str id);
/* All that was counted goes to the rows. */
void agent_live_flush(struct agents *agents);
/* Has the image a bash? -1 = not known yet. */
int agent_live_bash(struct agents *agents, struct str provider, struct str image);
void agent_live_set_bash(struct agents *agents, struct str provider, struct str image, bool bash);

/* ---- rows (agent_sandbox_row.c) ---- */

/* JSON that the arena frees. */
json_t *agent_arena_json(struct arena *arena, json_t *json);
/* The text of a stored object, or NULL when it is empty. */
json_t *agent_arena_parse(struct arena *arena, struct str text);
void agent_sandbox_of(const struct store_agent_sandbox *row, struct arena *arena,
                      struct agent_sandbox *out);
/* By id or "key:KEY"; ownership checked. Killed ones too. */
int agent_row_get(struct agents *agents, const struct agent_caller *caller, struct str id,
                  struct arena *arena, struct store_agent_sandbox *out, struct error *err);
/* ERROR_CONFLICT with errnum ENODEV: its provider is not configured any more. */
int agent_row_backend(struct agents *agents, const struct agent_caller *caller,
                      const struct store_agent_sandbox *row, struct agent_backend **out,
                      struct error *err);
/* The same for whatever else is on a provider. what: "snapshot 'x'". */
int agent_row_provider(struct agents *agents, const struct agent_caller *caller,
                       struct str provider, const char *what, struct agent_backend **out,
                       struct error *err);
/* Its row is closed; the machine could not be reached because of why. */
void agent_row_forget(struct agents *agents, const struct agent_caller *caller,
                      const struct store_agent_sandbox *row, const struct error *why);
/* For an operation: -1 with ERROR_NOT_FOUND telling what became of it, or ERROR_CONFLICT while it is
 * being made. */
int agent_row_alive(const struct store_agent_sandbox *row, struct error *err);
struct provider_ref agent_row_ref(const struct store_agent_sandbox *row);
/* How long its provider lets it live without activity; 0 = the provider does not end it. */
int64_t agent_row_ttl(const struct agents *agents, struct agent_backend *backend,
                      const struct store_agent_sandbox *row);
/* Its row and the world agree again. Events are emitted when the state changed. */
void agent_row_paused(struct agents *agents, const struct agent_caller *caller,
                      const struct store_agent_sandbox *row, const char *by);
/* As its provider tells it of an earlier moment: running or paused since then. Nothing happens when the
 * row knows what came after. */
void agent_row_told(struct agents *agents, const struct agent_caller *caller,
                    const struct store_agent_sandbox *row, const char *state, int64_t at_us);
/* The same of its end. false: nothing new. */
bool agent_row_ended(struct agents *agents, const struct agent_caller *caller,
                     const struct store_agent_sandbox *row, const char *reason, const char *why,
                     int64_t at_us);
/* false: nothing new, or the row has another machine by now. */
bool agent_row_gone(struct agents *agents, const struct agent_caller *caller,
                    const struct store_agent_sandbox *row, const char *why);
/* Its machine, and destroyed_at is set. */
int agent_row_kill(struct agents *agents, const struct agent_caller *caller,
                   struct agent_backend *backend, const struct store_agent_sandbox *row,
                   const char *reason, struct error *err);
/* It could not be made: event sandbox.error. */
void agent_row_failed(struct agents *agents, const struct agent_caller *caller,
                      const struct store_agent_sandbox *row, const struct error *why);
/* An event about a sandbox; data is borrowed. */
struct agent_event agent_row_event_of(const struct agent_caller *caller,
                                      const struct store_agent_sandbox *row, const char *type,
                                      json_t *data);
/* data is consumed. */
void agent_row_event(struct agents *agents, const struct agent_caller *caller,
                     const struct store_agent_sandbox *row, const char *type, json_t *data);

/* ---- what is asked for (agent_sandbox_spec.c) ---- */

int agent_spec_check(const struct agent_ensure *request, struct error *err);
/* 16 hex digits. */
struct str agent_spec_hash(const struct agent_profile *profile, const struct agent_ensure *request,
                           struct arena *arena);
/* JSON for the row's settings. */
struct str agent_spec_settings(const struct agent_profile *profile, struct arena *arena);

/* ---- machines (agent_sandbox_machine.c) ---- */

/* Running afterwards: 0 = it ran already, 1 = it was resumed (hooks run, event told). ERROR_NOT_FOUND:
 * it is gone, the row says so. Under the lock of its id. May change token and address of the row. */
int agent_machine_wake(struct agents *agents, const struct agent_caller *caller,
                       struct agent_backend *backend, struct store_agent_sandbox *row,
                       struct arena *arena, struct error *err);
/* The embedded engine: its sandboxes end with this host and share this store. */
bool agent_backend_embedded(const struct agents *agents, const struct agent_backend *backend);
int agent_machine_kill(struct agents *agents, struct agent_backend *backend,
                       const struct store_agent_sandbox *row, struct error *err);

/* What is asked of a provider, with labels and environment. Lives in the arena. */
struct agent_machine_spec {
    const struct agent_profile *profile;
    const struct store_agent_sandbox *row;
    struct str snapshot; /* provider's reference */
    const json_t *metadata;
};
/* Creates it, or finds what an earlier try has made. Hooks are not run. */
int agent_machine_create(struct agents *agents, const struct agent_machine_spec *wanted,
                         struct arena *arena, struct provider_sandbox *out, struct error *err);
/* The oldest with the key and hash of the row that is not `except`; 0 = none, 1 = found. */
int agent_machine_find(struct agents *agents, struct agent_backend *backend,
                       const struct store_agent_sandbox *row, struct str except,
                       struct arena *arena, struct provider_sandbox *out, struct error *err);
/* The machine of this row, by its id's label; 0 = none. */
int agent_machine_find_own(struct agents *agents, struct agent_backend *backend,
                           const struct store_agent_sandbox *row, struct arena *arena,
                           struct provider_sandbox *out, struct error *err);
/* A machine of this row may be there, or come to be: it is looked for and killed in the background. */
void agent_sweep_later(struct agents *agents, struct agent_backend *backend,
                       const struct store_agent_sandbox *row);
/* hooks: an array of commands, or NULL. */
int agent_machine_hooks(struct agents *agents, struct agent_backend *backend,
                        const struct store_agent_sandbox *row, json_t *hooks, const char *which,
                        struct error *err);

/* ---- commands (agent_exec.c, agent_command.c) ---- */

struct agent_kept;
struct agent_output;
struct agent_run {
    const char *const *argv;
    const struct provider_label *env;
    size_t env_count;
    const char *cwd, *user;
    struct str input; /* STR_NONE = none */
    bool open_stdin;
    int64_t timeout_ms;
    int64_t output_limit;
    int64_t ttl_s;                                        /* extended while it runs; 0 = not */
    struct str sandbox_id;                                /* for that */
    int (*on_started)(void *arg, const char *process_id); /* as in agent_command */
    int (*on_output)(void *arg, bool is_err, struct str data);
    void *on_output_arg;
    struct agent_running *running; /* to be found by others; NULL = not */
    struct agent_output *output;   /* told as events too; NULL = not */
    struct agent_kept *kept;       /* and kept; NULL = not */
};
/* One command on a machine. *out_started: it was sent; before that the caller may try again. */
int agent_run(struct agents *agents, struct provider *provider, const struct provider_ref *ref,
              const struct agent_run *run, struct agent_result *out, bool *out_started,
              struct error *err);
/* The argv of a command for this machine: as given, or a line for bash or sh. */
int agent_command_argv(struct agents *agents, struct provider *provider,
                       const struct provider_ref *ref, struct str image,
                       const struct agent_command *command, struct arena *arena,
                       const char *const **out, struct error *err);
/* Later ones win over earlier ones. Objects of strings, or NULL. */
int agent_command_env(const json_t *first, const json_t *second, struct arena *arena,
                      const struct provider_label **out, size_t *out_count, struct error *err);
/* For people: the line, or the words joined; masked and cut to 4 KiB. */
struct str agent_command_text(struct agents *agents, struct str team_id,
                              const struct agent_command *command, struct arena *arena);
/* After an operation failed: 1 = it was paused and now runs, try again; 0 = the failure stands;
 * -1 = it is gone (err says so). */
int agent_use_recover(struct agents *agents, const struct agent_caller *caller,
                      struct agent_use *use, struct arena *arena, struct error *err);
/* Extends the sandbox's life when less than half is left. */
void agent_use_extend(struct agents *agents, struct provider *provider,
                      const struct provider_ref *ref, struct str id, int64_t ttl_s);

/* ---- the engine in this process (agent_follow.c) ---- */

/* What it has told until now is in the rows. */
void agent_follow_now(struct agents *agents);
/* Rows on other providers are compared with what those list (agent_reconcile.c). */
void agent_reconcile(struct agents *agents);

/* ---- usage (agent_usage.c, agent_stats.c) ---- */

/* The event of it. After its row says that it does not run any more, and what was counted is in it. */
void agent_usage_tell(struct agents *agents, const struct agent_caller *caller, struct str id);
void agent_usage_tell_all(struct agents *agents); /* of all that run */
double agent_usage_usd(const struct agents *agents, const struct store_agent_usage *usage);

/* ---- called when sandboxes change ---- */

/* Its jobs are watched again. */
void agent_jobs_resumed(struct agents *agents, struct str sandbox_id);
/* It is gone: its jobs ended with 137. */
void agent_jobs_lost(struct agents *agents, struct str sandbox_id);

int agent_terminals_open(struct agents *agents, struct error *err);
void agent_terminals_close(struct agents *agents);
/* Timers (agent_prune.c). */
void agent_prune_open(struct agents *agents);
/* Rows of sandboxes whose time should be over are corrected; STR_NONE = on all providers. */
void agent_prune_overdue(struct agents *agents, struct str provider);

/* Deletes a snapshot at its provider and its row. */
int agent_snapshot_drop(struct agents *agents, const struct agent_caller *caller,
                        const struct store_agent_snapshot *row, struct error *err);
/* Snapshots with an alias are the team's; others belong to the agent of their sandbox. */
int agent_snapshot_allowed(struct agents *agents, const struct agent_caller *caller,
                           const struct store_agent_snapshot *row, struct error *err);
/* Ready, and of the kind the backend takes; else ERROR_UNSUPPORTED or ERROR_CONFLICT before any
 * call. */
int agent_snapshot_usable(struct agents *agents, const struct agent_backend *backend,
                          const struct store_agent_snapshot *row, struct error *err);

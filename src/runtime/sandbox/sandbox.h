/* Sandboxes of the runtime: found by key, made when there is none, used, and thrown away.
 *
 * ensure: the row with this key and the same spec is resumed; when its sandbox is gone, the newest
 * snapshot is restored (same id, new machine); else one is created (new id). Exactly one
 * "sandbox.created" per real creation. Two processes that race for a key: one row wins, the loser's
 * machine is killed. The same key with another spec is another sandbox. */
#pragma once

#include "base/buf.h"
#include "provider/core/provider.h"
#include "runtime/backend/profile.h"
#include "runtime/core/runtime.h"

/* The sandbox that had the key before; id STR_NONE: there was none. */
struct runtime_previous {
    struct str id;
    bool kept;           /* it exists, with other settings (spec_hash); else its files are gone */
    struct str reason;   /* why they are gone */
    int64_t ended_at_us; /* since when; 0 = not known */
};

struct runtime_sandbox {
    struct str id, team_id, key, spec_hash, provider, external_id, image, profile;
    struct str agent_id, task_id;
    enum sandbox_state state;
    struct str error;       /* why, in state ERROR */
    struct str snapshot_id; /* it was started from; STR_NONE */
    struct str cdp_url;     /* browsers; a secret in its query */
    json_t *metadata;       /* borrowed from the arena's tree; or NULL */
    int64_t created_at_us, last_used_at_us, destroyed_at_us; /* 0 = not */
    int64_t idle_s, max_lifetime_s;
    int64_t expire_s;          /* deleted when unused for so long; 0 = never */
    json_t *limits;            /* {cpu, memoryMb, diskMb} as asked for; or NULL */
    struct str workspace_root; /* where its commands start; STR_NONE = its user's home */
    bool persistent;
    bool adopted;                     /* made by the engine's own API */
    struct str warning;               /* only set by runtime_sandbox_ensure(); STR_NONE */
    struct provider_ports *ports;     /* only set by runtime_sandbox_ports(); NULL = not known */
    struct runtime_previous previous; /* only set by runtime_sandbox_ensure() */
};

struct runtime_ensure {
    struct runtime_overrides overrides;
    struct str key; /* STR_NONE: always a new one */
    struct str agent_id, task_id;
    struct str snapshot;                /* id or alias of a snapshot to start from; STR_NONE */
    struct str repo, branch, git_token; /* cloned into the workspace, where commands then start */
    json_t *metadata;                   /* object of strings, or NULL */
};

enum runtime_tier { TIER_RESUMED, TIER_RESTORED, TIER_CREATED };
const char *runtime_tier_name(enum runtime_tier tier); /* "resumed", ... */

int runtime_sandbox_ensure(struct runtime *runtime, const struct runtime_caller *caller,
                           const struct runtime_ensure *request, struct arena *arena,
                           struct runtime_sandbox *out, enum runtime_tier *out_tier,
                           struct error *err);
/* refresh: asks the provider and corrects the row. By id or by "key:KEY". ERROR_FORBIDDEN when
 * caller->agent_id is given and is not its owner. */
int runtime_sandbox_get(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                        bool refresh, struct arena *arena, struct runtime_sandbox *out,
                        struct error *err);

struct runtime_sandbox_filter {
    const enum sandbox_state *state;        /* NULL = any but KILLED */
    struct str agent_id, task_id, provider; /* STR_NONE = any */
    int64_t before_us;                      /* created before; 0 = any */
    size_t limit;                           /* 0 = 100, at most 1000 */
};
/* caller without a team: of all teams. */
int runtime_sandbox_list(struct runtime *runtime, const struct runtime_caller *caller,
                         const struct runtime_sandbox_filter *filter, struct arena *arena,
                         struct runtime_sandbox **out, size_t *out_count, struct error *err);
int runtime_sandbox_pause(struct runtime *runtime, const struct runtime_caller *caller,
                          struct str id, struct error *err);
int runtime_sandbox_resume(struct runtime *runtime, const struct runtime_caller *caller,
                           struct str id, struct error *err);
/* Killed already is success. forced: NULL, or its machine is given up when it cannot be reached: then
 * the row is closed, the result is 1 and *forced says why. */
int runtime_sandbox_kill(struct runtime *runtime, const struct runtime_caller *caller,
                         struct str id, struct error *forced, struct error *err);
int runtime_sandbox_address(struct runtime *runtime, const struct runtime_caller *caller,
                            struct str id, uint16_t port, struct arena *arena,
                            struct provider_address *out, struct error *err);
/* A paused one stays so; the same for runtime_sandbox_traffic(). */
int runtime_sandbox_usage(struct runtime *runtime, const struct runtime_caller *caller,
                          struct str id, struct provider_usage *out, struct error *err);
int runtime_sandbox_traffic(struct runtime *runtime, const struct runtime_caller *caller,
                            struct str id, struct provider_traffic *out, struct error *err);
enum { RUNTIME_PORTS_MS = 1000, RUNTIME_PORTS_SANDBOXES = 100 };
/* Sets items[].ports of those that run, where the provider knows them without asking inside: it does not count as use. Stops
 * after RUNTIME_PORTS_SANDBOXES sandboxes, and after RUNTIME_PORTS_MS. */
void runtime_sandbox_ports(struct runtime *runtime, const struct runtime_caller *caller,
                           struct runtime_sandbox *items, size_t count, struct arena *arena);
/* Those that nobody used for older_than_s (0 = the settings') are killed, expired snapshots and
 * orphans of backends that can be searched too. */
int runtime_sandbox_prune(struct runtime *runtime, const struct runtime_caller *caller,
                          int64_t older_than_s, bool dry_run, size_t *out_sandboxes,
                          size_t *out_snapshots, struct error *err);

/* ---- use over time (usage_steps.c) ---- */

enum runtime_usage_by { BY_AGENT, BY_TASK, BY_PROVIDER, BY_TEAM };
enum { RUNTIME_STEPS_MAX = 31 * 24, RUNTIME_SERIES_MAX = 200 };

/* What one agent, task, provider or team (by its id) used in each step. */
struct runtime_series {
    struct str name; /* "" = of none */
    double *seconds, *usd;
    double total_seconds;
};
/* To 1e-9 dollars or seconds, so that sums of doubles are not printed with digits that mean nothing. */
double runtime_usage_round(double value);
struct runtime_usage_steps {
    int64_t first_s, step_s; /* wall clock; full hours or days of UTC */
    size_t steps;
    struct runtime_series *items; /* the most first */
    size_t count;
    bool partial; /* there was more than can be told */
};
/* The last `steps` of step_s, up to now, by what sandboxes told: when one stops, and each hour while it runs. caller
 * without a team: of all teams. At most RUNTIME_SERIES_MAX: what is left of them is partial. */
int runtime_usage_steps(struct runtime *runtime, const struct runtime_caller *caller,
                        enum runtime_usage_by by, int64_t step_s, size_t steps, struct arena *arena,
                        struct runtime_usage_steps *out, struct error *err);

/* A sandbox made ready for one operation: ownership checked, resumed when it was paused, its life
 * extended. For the files of this folder. */
struct runtime_use {
    struct backend *backend;
    struct provider *provider;
    struct provider_ref ref; /* in the arena */
    struct runtime_sandbox sandbox;
    int64_t timeout_s, output_limit; /* of its profile */
    bool keep_output;                /* likewise */
    json_t *env;                     /* of its profile, or NULL; lives in the arena */
    enum permission permission;
    struct str workspace_root;
};
int runtime_use(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                unsigned features, struct arena *arena, struct runtime_use *out, struct error *err);
/* Used now: remembered here, and from time to time in the row. */
void runtime_live_used(struct runtime *runtime, struct str id, int64_t commands, int64_t jobs);
/* The provider said it is gone (ERROR_NOT_FOUND of an operation): corrects the row. */
void runtime_use_lost(struct runtime *runtime, const struct runtime_caller *caller,
                      const struct runtime_use *use);

/* ---- snapshots ---- */

struct runtime_snapshot {
    struct str id, kind, provider, external_id, sandbox_id, image, alias;
    enum snapshot_state state;
    int64_t created_at_us, expires_at_us; /* 0 = never */
};
/* alias: "github/owner/repo#branch" or any name of the team's; replaces an older one of that name.
 * ttl_s: when it is deleted; 0 = never, -1 = after checkpoint_ttl_s. */
int runtime_snapshot_create(struct runtime *runtime, const struct runtime_caller *caller,
                            struct str id, struct str alias, int64_t ttl_s, struct arena *arena,
                            struct runtime_snapshot *out, struct error *err);
/* By id or alias. */
int runtime_snapshot_get(struct runtime *runtime, const struct runtime_caller *caller,
                         struct str name, struct arena *arena, struct runtime_snapshot *out,
                         struct error *err);
int runtime_snapshot_list(struct runtime *runtime, const struct runtime_caller *caller,
                          struct str sandbox_id, struct arena *arena, struct runtime_snapshot **out,
                          size_t *out_count, struct error *err);
/* forced: as for runtime_sandbox_kill(). */
int runtime_snapshot_delete(struct runtime *runtime, const struct runtime_caller *caller,
                            struct str name, struct error *forced, struct error *err);

/* ---- what it costs ---- */

/* {"total": {sandboxes, running, seconds, cpu_seconds, commands, jobs, usd}, "providers": {NAME: ...},
 * "agents": ..., "tasks": ..., "sessions": ..., "create_ms": {count, p50, p99}}; new reference. */
int runtime_stats(struct runtime *runtime, const struct runtime_caller *caller, json_t **out,
                  struct error *err);
/* {team id: usage} of all teams: for the operator. */
int runtime_stats_teams(struct runtime *runtime, json_t **out, struct error *err);

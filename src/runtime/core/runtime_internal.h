/* Shared by the files of this folder. */
#pragma once

#include <pthread.h>

#include "base/periodic.h"
#include "provider/core/provider.h"
#include "runtime/core/runtime.h"
#include "runtime/core/settings.h"

struct backend;
struct profiles_kept;
struct runtime_events;
struct runtime_follow;
struct jobs;
struct runtime_runs;
struct runtime_sandboxes;
struct sessions;
struct runtime_claims;
struct runtime_sweeps;
struct terminals;

enum { RUNTIME_TIMERS_MAX = 16 };

struct runtime {
    struct runtime_config config;
    struct backend *backends; /* configured ones, then registered runners (backend.c) */
    pthread_rwlock_t backends_lock;
    struct runtime_events *events;       /* event.c */
    struct runtime_sandboxes *sandboxes; /* sandbox_live.c */
    struct runtime_runs *runs;           /* running.c */
    struct runtime_claims *claims;       /* claim.c */
    struct runtime_sweeps *sweeps;       /* sweep.c */
    struct runtime_follow *follow;       /* follow.c */
    struct jobs *jobs;                   /* job.c */
    struct terminals *terminals;         /* terminal.c */
    struct sessions *sessions;           /* session.c */
    struct runtime_secrets *secrets;     /* mask.c */
    struct runtime_timer {               /* timer.c: health every 30 s, stale cleanup hourly, ... */
        struct periodic job;
        struct runtime *runtime;
        void (*fn)(struct runtime *runtime);
    } timers[RUNTIME_TIMERS_MAX];
    size_t timer_count;
    _Atomic(json_t *) profiles; /* those read last; NULL = the settings' */
    struct profiles_kept *kept; /* profile_kept.c */
    json_t *file_profiles;      /* array of all that were read since the start, or NULL */
};

/* Called by runtime_open() and, in the opposite order, by runtime_close() in runtime.c. A close also
 * finds its part never opened or half open. */
int runtime_secrets_open(struct runtime *runtime);
void runtime_secrets_close(struct runtime *runtime);
int backends_open(struct runtime *runtime, struct error *err);
void backends_close(struct runtime *runtime);
/* Until no check is under way. */
void backends_wait(struct runtime *runtime);
/* Of the configuration file. */
json_t *runtime_profiles(const struct runtime *runtime);
void profiles_kept_open(struct runtime *runtime);
void profiles_kept_close(struct runtime *runtime);
/* Checks the profiles of the file against what the backends can do. */
int profiles_open(struct runtime *runtime, struct error *err);
int runtime_events_open(struct runtime *runtime, struct error *err);
void runtime_events_close(struct runtime *runtime);
void runtime_runs_open(struct runtime *runtime);
void runtime_runs_close(struct runtime *runtime);
int jobs_open(struct runtime *runtime, struct error *err);
void jobs_close(struct runtime *runtime);
/* Rows of sandboxes in the engine of this process follow it. Between init and done the engine can be asked
 * why one ended; open comes after jobs: those of what ended end too. */
void runtime_follow_init(struct runtime *runtime);
void runtime_follow_done(struct runtime *runtime);
int runtime_follow_open(struct runtime *runtime, struct error *err);
void runtime_follow_close(struct runtime *runtime);
int sessions_open(struct runtime *runtime, struct error *err);
void sessions_close(struct runtime *runtime);

/* The operator's own team. */
bool runtime_is_operator(const struct runtime *runtime, struct str team_id);
/* URLs of this team must not lead into our own networks. */
bool runtime_public_only(const struct runtime *runtime, struct str team_id);

/* With a list of allowed commands: no variable that changes what is run, no hook that is not on it.
 * ERROR_FORBIDDEN. Either may be NULL. */
int runtime_command_check_hooks(struct runtime *runtime, const json_t *hooks, struct error *err);

/* fn(runtime) every period_s, for what no event can start. may_block: it asks providers, or works through many rows.
 * Before runtime_timer_start(). */
void runtime_timer_add(struct runtime *runtime, const char *name, int64_t period_s, bool may_block,
                       void (*fn)(struct runtime *runtime));
int runtime_timer_start(struct runtime *runtime, struct error *err);
void runtime_timer_stop(struct runtime *runtime);

/* runtime_mask() for JSON text, which stays JSON. */
void runtime_mask_json(const struct runtime *runtime, struct str team_id, char *text);
/* Makes one known from now on; STR_NONE = the operator's. Too short ones are not taken: they would
 * blot out common words. */
void runtime_secret_add(struct runtime *runtime, struct str team_id, struct str secret);

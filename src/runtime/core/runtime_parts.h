/* The runtime's parts, for its rooms: each has its own member, and nothing else of it. */
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
    /* What a room above does when a sandbox changes; set before one can. NULL = nothing. */
    void (*on_resumed)(struct runtime *runtime, struct str sandbox_id);
    void (*on_gone)(struct runtime *runtime, struct str sandbox_id);
    struct runtime_timer { /* timer.c: health every 30 s, stale cleanup hourly, ... */
        struct periodic job;
        struct runtime *runtime;
        void (*fn)(struct runtime *runtime);
    } timers[RUNTIME_TIMERS_MAX];
    size_t timer_count;
    _Atomic(json_t *) profiles; /* those read last; NULL = the settings' */
    struct profiles_kept *kept; /* profile_kept.c */
    json_t *file_profiles;      /* array of all that were read since the start, or NULL */
};

/* Opened and closed by runtime_main.c. A close also finds its part never opened or half open. */
int runtime_secrets_open(struct runtime *runtime);
void runtime_secrets_close(struct runtime *runtime);
int runtime_events_open(struct runtime *runtime, struct error *err);
void runtime_events_close(struct runtime *runtime);

/* The operator's own team. */
bool runtime_is_operator(const struct runtime *runtime, struct str team_id);
/* URLs of this team must not lead into our own networks. */
bool runtime_public_only(const struct runtime *runtime, struct str team_id);

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

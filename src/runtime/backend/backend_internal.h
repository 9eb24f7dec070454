/* A backend as the files backend*.c, runner.c and try.c see it. */
#pragma once

#include "runtime/backend/backend.h"
#include "runtime/core/runtime_parts.h"

/* What a team adds stays until the process ends, so it is bounded for each. */
enum { BACKEND_RUNNERS_MAX = 4096, BACKEND_TEAM_RUNNERS_MAX = 256, BACKEND_TEAM_KEYS_MAX = 64 };

struct breaker {
    int64_t failures;      /* in a row */
    int64_t open_until_us; /* monotonic; 0 = closed */
    int64_t probe_at_us;   /* somebody tries whether it is back; 0 = nobody */
    char last_error[320];
};

/* In a list that only grows until the runtime is closed: pointers to backends stay good. */
struct backend {
    struct backend *next;
    char name[RUNTIME_NAME_MAX + 1];
    /* Both are replaced when a reload brings a new key. */
    struct provider *_Atomic provider;
    const struct backend_settings *_Atomic settings; /* NULL of a runner */
    /* Providers with earlier keys: calls under way still use them, so they are freed at the end. */
    struct backend_retired {
        struct backend_retired *next;
        struct provider *provider;
    } * retired;
    struct backend *origin; /* of one with a profile's own key */

    pthread_mutex_t lock; /* guards all below */
    struct breaker all, kinds[CALL_COUNT];
    uint64_t calls, failures; /* as far as breakers count them */
    bool check_failed;
    int64_t last_check_us; /* wall; 0 = never */
    char last_error[320];
    bool checking;
    int64_t check_begin_ms; /* monotonic; of the check under way */

    /* Runners; guarded by backends_lock. */
    bool runner, removed;
    char team_id[64];
    char *base_url, *token;
    int64_t max_sessions, active_sessions, leased, heartbeat_us; /* heartbeat: wall */
};

/* With backends_lock held: one that the caller may see. */
struct backend *backend_named(struct runtime *runtime, const struct runtime_caller *caller,
                              const char *name);
/* Puts it into the list; the caller holds backends_lock for writing. */
void backend_link(struct runtime *runtime, struct backend *backend);
struct backend *backend_alloc(const char *name);
void backend_free(struct backend *backend);
/* team_id: whose key it has; STR_NONE = the operator's. */
int backend_make_provider(struct runtime *runtime, struct str team_id,
                          const struct provider_config *config, struct provider **out,
                          struct error *err);
enum backend_state backend_state(struct runtime *runtime, struct backend *backend);
/* May be chosen, as far as its heartbeat goes. */
bool runner_alive(const struct runtime *runtime, const struct backend *backend, int64_t now_us);

/* The outcome of a call, for the breakers. */
void breaker_count(const struct runtime *runtime, struct backend *backend, enum runtime_call kind,
                   bool ok, const char *message);
/* Whether a call may be made now. */
int breaker_enter(struct backend *backend, enum runtime_call kind, struct error *err);
bool breaker_is_open(struct backend *backend, enum runtime_call kind);

/* Runners of earlier processes, from the store. */
int runners_open(struct runtime *runtime, struct error *err);
/* With backends_lock held for writing: a free one of the team, and takes a place in it. */
struct backend *runner_choose(struct runtime *runtime, struct str team_id);
int runner_none(struct runtime *runtime, const struct runtime_caller *caller, struct error *err);

/* How long to wait before the next attempt: min_ms, doubled each time and up to half as long again, so that many
 * callers do not come back at the same moment; from min_ms to max_ms. at_least_ms: what the provider asked for. */
int64_t backend_retry_wait_ms(const struct runtime_settings *settings, int attempt,
                              int64_t at_least_ms);

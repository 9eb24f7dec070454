/* Backends at work: health, circuit breaker, retries, leases of registered runners. */
#pragma once

#include "provider/core/provider.h"
#include "runtime/core/runtime.h"

enum backend_state { BACKEND_OK, BACKEND_DEGRADED, BACKEND_OPEN, BACKEND_OFFLINE };

struct backend;

/* By the operator's name, trimmed and without case; STR_NONE = the default. An unknown name is
 * ERROR_INVALID naming those there are. Runners: any free one of the team for "runner". The result
 * stays valid until runtime_close(). */
int backend_find(struct runtime *runtime, const struct runtime_caller *caller, struct str name,
                 struct backend **out, struct error *err);
/* The same without taking a place in a runner: NULL when any free runner is meant. */
int backend_peek(struct runtime *runtime, const struct runtime_caller *caller, struct str name,
                 struct backend **out, struct error *err);
struct provider *backend_provider(struct backend *backend);
const char *backend_name(const struct backend *backend);
int64_t backend_max_sandboxes(const struct backend *backend);
/* A feature it lacks is ERROR_UNSUPPORTED naming backend and feature. No call is made. */
int backend_require(const struct backend *backend, unsigned features, struct error *err);

/* One operation on a backend, tried again when the failure may pass:
 *
 *   struct backend_try try;
 *
 *   if (backend_try_begin(&try, runtime, backend, err) < 0)    breaker open: ERROR_UNAVAILABLE
 *       return -1;
 *   do
 *       r = provider_get(backend_provider(backend), ..., err);
 *   while (backend_try_again(&try, r, err));
 *
 * With the breaker open errnum is EBUSY: so the edge tells "we do not ask now" (503) from "the
 * provider failed" (502).
 *
 * Waits between tries (1 s, doubling, at most 10 s, with jitter; Retry-After is honoured up to the
 * limit). ERROR_UNAVAILABLE is tried again; ERROR_TIMEOUT only when once_more_is_safe was set;
 * ERROR_QUOTA only when the settings say so. Each outcome counts for the breakers, that of all calls and
 * that of its kind: answers (also 404, 409, 429) are successes of the backend. */
enum runtime_call { CALL_OTHER, CALL_CREATE, CALL_CONNECT, CALL_COUNT };

/* deadline_us (0 = none), kind and once_more_is_safe are the caller's to set. */
struct backend_try {
    struct runtime *runtime;
    struct backend *backend;
    int64_t deadline_us; /* no wait for another try goes beyond it */
    int attempt;
    enum runtime_call kind;
    bool once_more_is_safe;
};
int backend_try_begin(struct backend_try *try, struct runtime *runtime, struct backend *backend,
                      struct error *err);
bool backend_try_again(struct backend_try *try, int r, const struct error *err);
/* Instead, for a call to the inside of a sandbox, which is made once. What breaks there (the sandbox
 * was killed, its owner has broken it) says nothing about the backend, which serves others too: so it
 * is asked. true: it answered, and *out is the sandbox's state. */
bool backend_try_inside(struct backend_try *try, const struct provider_ref *ref, int r,
                        const struct error *err, enum provider_state *out);

/* Asks all backends whether they are well; returns at once. It is done every health_interval_s, and
 * may be done at the start. */
void backends_check(struct runtime *runtime);
/* Takes over the keys of backends that differ from the settings in effect in nothing but their key,
 * and checks all backends. Calls under way end with the key they began with. When *out_count is not 0,
 * fresh must live until the runtime is closed, also after an error. One thread at a time. */
int backends_replace_keys(struct runtime *runtime, const struct runtime_settings *fresh,
                          size_t *out_count, struct error *err);
/* GET /providers: array of {name, type, state, default, isolation, features[], egress[],
 * snapshot_kind, last_error, last_check_at, runner{...}?}; new reference. check: asks them now. */
json_t *backends_json(struct runtime *runtime, const struct runtime_caller *caller, bool check);

struct backend_figures {
    const char *name;
    bool up; /* asked, and not left alone */
    uint64_t calls, failures;
};
/* Of the operator's backends, for monitoring. */
void backends_each(struct runtime *runtime,
                   void (*fn)(void *arg, const struct backend_figures *figures), void *arg);

/* Runners: processes elsewhere that offer themselves for a while. */
struct runner {
    struct str name, base_url, token;
    int64_t max_sessions; /* >= 1 */
};
int runner_register(struct runtime *runtime, const struct runtime_caller *caller,
                    const struct runner *runner, struct error *err);
/* ERROR_NOT_FOUND: register again. */
int runner_heartbeat(struct runtime *runtime, const struct runtime_caller *caller, struct str name,
                     int64_t active_sessions, struct error *err);
int runner_remove(struct runtime *runtime, const struct runtime_caller *caller, struct str name,
                  struct error *err);

/* ---- opened and closed by runtime_main.c ---- */

int backends_open(struct runtime *runtime, struct error *err);
void backends_close(struct runtime *runtime);
/* Until no check is under way. */
void backends_wait(struct runtime *runtime);

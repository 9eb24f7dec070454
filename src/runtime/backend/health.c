/* The health of backends: each is asked on a thread of its own, so that one that hangs delays
 * neither the others nor whoever wants to know; and how it is shown. */
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "protocol/json/json_shape.h"
#include "runtime/backend/backend_internal.h"
#include "runtime/backend/capability.h"

/* How long a list waits for answers; the checks themselves go on. */
/* Who asks waits a little longer than a check may take before it counts as failed. */
enum { SLOW_MS = 5000, LIST_WAIT_MS = SLOW_MS + 100, POLL_MS = 5 };

struct check {
    struct runtime *runtime;
    struct backend *backend;
};

/* Under its lock: nobody asked for it, and it has not worked yet. A host without docker is no fault. */
static bool never_wanted(const struct backend *backend)
{
    return backend->settings && backend->settings->implied && backend->last_check_us == 0;
}

static void note_check(struct runtime *runtime, struct backend *backend, int r,
                       const struct error *err)
{
    bool failed = r < 0 && err->code != ERROR_UNSUPPORTED;
    bool reached = !failed || (err->code != ERROR_UNAVAILABLE && err->code != ERROR_TIMEOUT);
    bool was_open;

    (void)pthread_mutex_lock(&backend->lock);
    if (failed) {
        (void)snprintf(backend->last_error, sizeof(backend->last_error), "%s", err->message);
        runtime_mask(runtime, str_of(backend->team_id), backend->last_error);
    }
    if (failed != backend->check_failed)
        log_write(failed && never_wanted(backend) ? LOG_DEBUG : LOG_INFO, "runtime",
                  "provider=%s health=%s%s%s", backend->name, failed ? "failed" : "ok",
                  failed ? ": " : "", failed ? backend->last_error : "");
    backend->check_failed = failed;
    backend->last_check_us = clock_wall_us();
    was_open = backend->all.open_until_us && clock_mono_us() >= backend->all.open_until_us;
    (void)pthread_mutex_unlock(&backend->lock);
    /* It is back: the next caller need not be the one who finds out. */
    if (was_open && reached)
        breaker_count(runtime, backend, CALL_OTHER, true, "");
}

static void run_check(void *arg)
{
    struct check *check = arg;
    struct error err = {0};
    int r = provider_check(check->backend->provider, &err);

    note_check(check->runtime, check->backend, r, &err);
    (void)pthread_mutex_lock(&check->backend->lock);
    check->backend->checking = false;
    (void)pthread_mutex_unlock(&check->backend->lock);
    free(check);
}

static void start_check(struct runtime *runtime, struct backend *backend)
{
    struct check *check;
    bool busy;

    (void)pthread_mutex_lock(&backend->lock);
    busy = backend->checking || backend->removed;
    if (!busy) {
        backend->checking = true;
        backend->check_begin_ms = clock_mono_ms();
    }
    (void)pthread_mutex_unlock(&backend->lock);
    if (busy)
        return;
    check = xmalloc(sizeof(*check));
    *check = (struct check){.runtime = runtime, .backend = backend};
    if (thread_start_detached("health", THREAD_STACK_DEFAULT, run_check, check, NULL) < 0) {
        (void)pthread_mutex_lock(&backend->lock);
        backend->checking = false;
        (void)pthread_mutex_unlock(&backend->lock);
        free(check);
        log_warn("runtime", "provider=%s could not be checked: no thread", backend->name);
    }
}

static bool any_checking(struct runtime *runtime)
{
    bool busy = false;

    (void)pthread_rwlock_rdlock(&runtime->backends_lock);
    for (struct backend *at = runtime->backends; at && !busy; at = at->next) {
        (void)pthread_mutex_lock(&at->lock);
        busy = at->checking;
        (void)pthread_mutex_unlock(&at->lock);
    }
    (void)pthread_rwlock_unlock(&runtime->backends_lock);
    return busy;
}

static void wait_checks(struct runtime *runtime, int64_t max_ms)
{
    struct timespec pause = {.tv_nsec = POLL_MS * 1000000};
    int64_t end = clock_mono_ms() + max_ms;

    while (any_checking(runtime) && clock_mono_ms() < end)
        (void)nanosleep(&pause, NULL);
}

void backends_wait(struct runtime *runtime)
{
    wait_checks(runtime, INT32_MAX); /* each has its own deadline */
}

void backends_check(struct runtime *runtime)
{
    int64_t now = clock_wall_us();

    (void)pthread_rwlock_rdlock(&runtime->backends_lock);
    for (struct backend *at = runtime->backends; at; at = at->next)
        if (!at->runner || runner_alive(runtime, at, now))
            start_check(runtime, at);
    (void)pthread_rwlock_unlock(&runtime->backends_lock);
}

/* Under its lock: something is not asked of it now, be it only to create. That may be asked again once
 * the time is over; whether all may, a check finds out. */
static bool any_open(const struct backend *backend)
{
    int64_t now = clock_mono_us();

    for (size_t i = 0; i < CALL_COUNT; i++)
        if (backend->kinds[i].open_until_us > now)
            return true;
    return backend->all.open_until_us != 0;
}

enum backend_state backend_state(struct runtime *runtime, struct backend *backend)
{
    enum backend_state state = BACKEND_OK;

    (void)pthread_mutex_lock(&backend->lock);
    if (any_open(backend))
        state = BACKEND_OPEN;
    else if (backend->check_failed || backend->all.failures > 0 ||
             (backend->checking && clock_mono_ms() - backend->check_begin_ms >= SLOW_MS))
        state = BACKEND_DEGRADED;
    (void)pthread_mutex_unlock(&backend->lock);
    if (backend->runner && !runner_alive(runtime, backend, clock_wall_us()))
        state = BACKEND_OFFLINE;
    return state;
}

static json_t *feature_names(unsigned features)
{
    json_t *list = json_array();

    for (unsigned bit = 0; bit < 32; bit++)
        if (features & (1U << bit))
            (void)json_array_append_new(list, json_str(str_of(provider_feature_name(1U << bit))));
    return list;
}

static json_t *egress_names(unsigned modes)
{
    json_t *list = json_array();

    for (unsigned mode = EGRESS_ALLOW_ALL; mode <= EGRESS_RESTRICTED; mode <<= 1)
        if (modes & mode)
            (void)json_array_append_new(list, json_str(str_of(provider_egress_name(mode))));
    return list;
}

static json_t *runner_json(struct backend *backend)
{
    int64_t active = backend->active_sessions + backend->leased;
    char when[CLOCK_TEXT_SIZE];

    clock_format(backend->heartbeat_us, when);
    return json_pack("{s:s, s:I, s:I, s:s}", "base_url", backend->base_url, "max_sessions",
                     (json_int_t)backend->max_sessions, "active_sessions", (json_int_t)active,
                     "last_heartbeat_at", when);
}

static json_t *backend_json(struct runtime *runtime, struct backend *backend)
{
    static const char *const states[] = {"ok", "degraded", "open", "offline"};
    const struct provider_caps *caps = provider_caps(backend->provider);
    struct provider_about about;
    bool is_default = strcmp(backend->name, runtime->config.settings->default_provider) == 0;
    const char *state = states[backend_state(runtime, backend)];
    json_t *out = json_object();
    char when[CLOCK_TEXT_SIZE];

    (void)json_object_set_new(out, "name", json_str(str_of(backend->name)));
    (void)json_object_set_new(out, "type", json_str(str_of(provider_type(backend->provider))));
    (void)json_object_set_new(out, "state", json_str(str_of(state)));
    (void)json_object_set_new(out, "default", json_boolean(is_default));
    provider_about(backend->provider, &about);
    (void)json_object_set_new(out, "software", json_str(str_of(about.software)));
    (void)json_object_set_new(out, "isolation", json_str(str_of(about.isolation)));
    (void)json_object_set_new(out, "isolated_by", json_str(str_of(about.isolated_by)));
    (void)json_object_set_new(out, "capabilities", backend_capability_json(backend));
    (void)json_object_set_new(out, "features", feature_names(caps->features));
    (void)json_object_set_new(out, "egress", egress_names(caps->egress));
    (void)json_object_set_new(out, "snapshot_kind",
                              caps->snapshot_kind ? json_str(str_of(caps->snapshot_kind))
                                                  : json_null());
    (void)pthread_mutex_lock(&backend->lock);
    (void)json_object_set_new(out, "last_error",
                              backend->last_error[0] ? json_str(str_of(backend->last_error))
                                                     : json_null());
    clock_format(backend->last_check_us, when);
    (void)json_object_set_new(out, "last_check_at",
                              backend->last_check_us ? json_str(str_of(when)) : json_null());
    if (backend->runner)
        (void)json_object_set_new(out, "runner", runner_json(backend));
    (void)pthread_mutex_unlock(&backend->lock);
    return out;
}

json_t *backends_json(struct runtime *runtime, const struct runtime_caller *caller, bool check)
{
    json_t *list = json_array();

    if (check) {
        backends_check(runtime);
        wait_checks(runtime, LIST_WAIT_MS);
    }
    (void)pthread_rwlock_rdlock(&runtime->backends_lock);
    for (struct backend *at = runtime->backends; at; at = at->next)
        if (!at->origin && (!at->runner || (!at->removed && str_is(caller->team_id, at->team_id))))
            (void)json_array_append_new(list, backend_json(runtime, at));
    (void)pthread_rwlock_unlock(&runtime->backends_lock);
    return list;
}

void backends_each(struct runtime *runtime,
                   void (*fn)(void *arg, const struct backend_figures *figures), void *arg)
{
    (void)pthread_rwlock_rdlock(&runtime->backends_lock);
    for (struct backend *at = runtime->backends; at; at = at->next) {
        enum backend_state state;
        struct backend_figures figures = {.name = at->name};

        if (at->origin || at->runner)
            continue;
        state = backend_state(runtime, at);
        (void)pthread_mutex_lock(&at->lock);
        figures.calls = at->calls;
        figures.failures = at->failures;
        (void)pthread_mutex_unlock(&at->lock);
        figures.up = state == BACKEND_OK || state == BACKEND_DEGRADED;
        fn(arg, &figures);
    }
    (void)pthread_rwlock_unlock(&runtime->backends_lock);
}

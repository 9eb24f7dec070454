/* Trying again, and not asking a backend that does not answer.
 *
 * A breaker is closed at first. After so many failures in a row it opens: calls are refused at once for a
 * while. Then one call may pass (others are still refused); its success closes the breaker, its failure
 * opens it for the same while again. Only silence and broken answers are failures: a backend that says
 * "no such sandbox" works.
 *
 * A backend has one breaker for all calls together, and one for each kind of call: where making sandboxes
 * always fails while lists work in between, only that is left alone, and what is there stays usable. */
#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "runtime/backend/backend_internal.h"

/* A probe whose caller never told its outcome does not block others for ever. */
enum { PROBE_MAX_S = 60 };

/* All of a backend's, under its lock: the common one first. */
static struct breaker *breaker_of(struct backend *backend, int at, enum runtime_call kind)
{
    return at == 0 ? &backend->all : &backend->kinds[kind];
}

bool breaker_is_open(struct backend *backend, enum runtime_call kind)
{
    bool open;

    (void)pthread_mutex_lock(&backend->lock);
    open = backend->all.open_until_us != 0 || backend->kinds[kind].open_until_us != 0;
    (void)pthread_mutex_unlock(&backend->lock);
    return open;
}

static int refuse(const struct backend *backend, const struct breaker *breaker,
                  enum runtime_call kind, int64_t wait_us, struct error *err)
{
    static const char *const verbs[] = {
        [CALL_OTHER] = "", [CALL_CREATE] = " to create", [CALL_CONNECT] = " to resume"};
    const char *verb = breaker == &backend->all ? "" : verbs[kind];
    int64_t wait_s = (wait_us + 999999) / 1000000;

    (void)error_set(err, ERROR_UNAVAILABLE,
                    "provider '%s' failed%s %lld times in a row and is not asked%s for another %lld"
                    " s (last: %s)",
                    backend->name, verb, (long long)breaker->failures, verb, (long long)wait_s,
                    breaker->last_error);
    err->errnum = EBUSY;
    err->retry_after_s = (int)wait_s;
    return -1;
}

int breaker_enter(struct backend *backend, enum runtime_call kind, struct error *err)
{
    int64_t now = clock_mono_us();
    int r = 0;

    (void)pthread_mutex_lock(&backend->lock);
    for (int i = 0; i < 2 && r == 0; i++) {
        struct breaker *breaker = breaker_of(backend, i, kind);
        bool probing =
            breaker->probe_at_us && now - breaker->probe_at_us < (int64_t)PROBE_MAX_S * 1000000;

        if (now < breaker->open_until_us)
            r = refuse(backend, breaker, kind, breaker->open_until_us - now, err);
        else if (breaker->open_until_us && probing)
            r = refuse(backend, breaker, kind, 1000000, err);
    }
    for (int i = 0; i < 2 && r == 0; i++)
        if (breaker_of(backend, i, kind)->open_until_us)
            breaker_of(backend, i, kind)->probe_at_us = now;
    (void)pthread_mutex_unlock(&backend->lock);
    return r;
}

static void count_failure(const struct runtime *runtime, struct backend *backend,
                          struct breaker *breaker, const char *message)
{
    const struct runtime_settings *settings = runtime->config.settings;

    breaker->failures++;
    (void)snprintf(breaker->last_error, sizeof(breaker->last_error), "%s", message);
    runtime_mask(runtime, str_of(backend->team_id), breaker->last_error);
    if (breaker->failures < settings->breaker.failures)
        return;
    if (!breaker->open_until_us)
        log_warn("runtime", "provider=%s failed %lld times in a row, %s left alone: %s",
                 backend->name, (long long)breaker->failures,
                 breaker == &backend->all ? "is" : "calls of this kind are", breaker->last_error);
    breaker->open_until_us = clock_mono_us() + settings->breaker.open_ms * 1000;
}

void breaker_count(const struct runtime *runtime, struct backend *backend, enum runtime_call kind,
                   bool ok, const char *message)
{
    (void)pthread_mutex_lock(&backend->lock);
    backend->calls++;
    backend->failures += !ok;
    for (int i = 0; i < 2; i++) {
        struct breaker *breaker = breaker_of(backend, i, kind);

        breaker->probe_at_us = 0;
        if (!ok) {
            count_failure(runtime, backend, breaker, message);
            continue;
        }
        if (breaker->open_until_us)
            log_info("runtime", "provider=%s answers again", backend->name);
        breaker->failures = 0;
        breaker->open_until_us = 0;
    }
    if (!ok)
        (void)snprintf(backend->last_error, sizeof(backend->last_error), "%s",
                       backend->all.last_error);
    (void)pthread_mutex_unlock(&backend->lock);
}

int backend_try_begin(struct backend_try *try, struct runtime *runtime, struct backend *backend,
                      struct error *err)
{
    try->runtime = runtime;
    try->backend = backend;
    try->attempt = 1;
    return breaker_enter(backend, try->kind, err);
}

int64_t backend_retry_wait_ms(const struct runtime_settings *settings, int attempt,
                              int64_t at_least_ms)
{
    int64_t min_ms = settings->retry.min_ms, max_ms = settings->retry.max_ms, ms = min_ms, most_ms;
    uint32_t random;

    for (int i = 1; i < attempt && ms < max_ms; i++)
        ms *= 2;
    most_ms = ms + ms / 2 < max_ms ? ms + ms / 2 : max_ms;
    if (ms > most_ms * 2 / 3)
        ms = most_ms * 2 / 3 > min_ms ? most_ms * 2 / 3 : min_ms;
    if (ms > most_ms)
        ms = most_ms;
    random_bytes(&random, sizeof(random));
    ms += (int64_t)(random % (uint32_t)(most_ms - ms + 1));
    if (ms < at_least_ms)
        ms = at_least_ms < max_ms ? at_least_ms : max_ms;
    return ms;
}

static void pause_for(int64_t ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    while (nanosleep(&left, &left) < 0 && errno == EINTR) {
    }
}

/* EBUSY: a limit of this server refused it, not the backend. */
static bool is_failure(const struct error *err)
{
    return (err->code == ERROR_UNAVAILABLE && err->errnum != EBUSY) || err->code == ERROR_TIMEOUT;
}

bool backend_try_again(struct backend_try *try, int r, const struct error *err)
{
    const struct runtime_settings *settings = try->runtime->config.settings;
    enum error_code code = r < 0 ? err->code : ERROR_NONE;
    bool failed = r < 0 && is_failure(err);
    bool again = code == ERROR_UNAVAILABLE || (code == ERROR_TIMEOUT && try->once_more_is_safe) ||
                 (code == ERROR_QUOTA && settings->retry.on_quota);
    char why[sizeof(((struct error){0}).message)];
    int64_t ms;

    breaker_count(try->runtime, try->backend, try->kind, !failed, failed ? err->message : "");
    if (!again || try->attempt >= settings->retry.attempts ||
        breaker_is_open(try->backend, try->kind))
        return false;
    ms = backend_retry_wait_ms(settings, try->attempt, (int64_t)err->retry_after_s * 1000);
    if (clock_left_ms(try->deadline_us, ms + 1) <= ms) /* no time would be left to try it */
        return false;
    (void)snprintf(why, sizeof(why), "%s", err->message);
    runtime_mask(try->runtime, str_of(try->backend->team_id), why);
    log_info("runtime", "provider=%s attempt=%d of %lld failed: %s", try->backend->name,
             try->attempt, (long long)settings->retry.attempts, why);
    pause_for(ms);
    try->attempt++;
    return true;
}

bool backend_try_inside(struct backend_try *try, const struct provider_ref *ref, int r,
                        const struct error *err, enum provider_state *out)
{
    auto_arena struct arena arena = {0};
    struct provider_sandbox machine = {0};
    struct error why = {0};
    bool failed = r < 0 && is_failure(err);

    if (failed && provider_get(try->backend->provider, ref, &arena, &machine, &why) < 0 &&
        is_failure(&why)) {
        breaker_count(try->runtime, try->backend, try->kind, false, why.message);
        return false;
    }
    breaker_count(try->runtime, try->backend, try->kind, true, "");
    *out = why.code == ERROR_NOT_FOUND ? PROVIDER_ENDED : machine.state;
    return failed && (!why.code || why.code == ERROR_NOT_FOUND);
}

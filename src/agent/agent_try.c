/* Trying again, and not asking a backend that does not answer.
 *
 * The breaker of a backend is closed at first. After so many failures in a row it opens: calls are
 * refused at once for a while. Then one call may pass (others are still refused); its success closes
 * the breaker, its failure opens it for the same while again. Only silence and broken answers are
 * failures: a backend that says "no such sandbox" works. */
#include <errno.h>
#include <time.h>

#include "agent/agent_backend_internal.h"
#include "agent/agent_deadline.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"

/* A probe whose caller never told its outcome does not block others for ever. */
enum { PROBE_MAX_S = 60 };

bool breaker_is_open(struct agent_backend *backend)
{
    bool open;

    (void)pthread_mutex_lock(&backend->lock);
    open = backend->open_until_us != 0;
    (void)pthread_mutex_unlock(&backend->lock);
    return open;
}

static int refuse(const struct agent_backend *backend, int64_t wait_us, struct error *err)
{
    (void)error_set(err, ERROR_UNAVAILABLE,
                    "provider '%s' failed %lld times in a row and is not asked for another %lld s"
                    " (last: %s)",
                    backend->name, (long long)backend->failures,
                    (long long)((wait_us + 999999) / 1000000), backend->last_error);
    err->errnum = EBUSY;
    return -1;
}

int breaker_enter(const struct agents *agents, struct agent_backend *backend, struct error *err)
{
    int64_t now = clock_mono_us();
    int r = 0;

    (void)agents;
    (void)pthread_mutex_lock(&backend->lock);
    if (backend->open_until_us) {
        bool probing =
            backend->probe_at_us && now - backend->probe_at_us < (int64_t)PROBE_MAX_S * 1000000;

        if (now < backend->open_until_us)
            r = refuse(backend, backend->open_until_us - now, err);
        else if (probing)
            r = refuse(backend, 1000000, err);
        else
            backend->probe_at_us = now;
    }
    (void)pthread_mutex_unlock(&backend->lock);
    return r;
}

void breaker_count(const struct agents *agents, struct agent_backend *backend, bool ok,
                   const char *message)
{
    const struct agent_settings *settings = agents->config.settings;

    (void)pthread_mutex_lock(&backend->lock);
    if (ok) {
        if (backend->open_until_us)
            log_info("agent", "provider=%s answers again", backend->name);
        backend->failures = 0;
        backend->open_until_us = 0;
    } else {
        backend->failures++;
        (void)snprintf(backend->last_error, sizeof(backend->last_error), "%s", message);
        agent_mask(agents, backend->last_error);
        if (backend->failures >= settings->breaker.failures) {
            if (!backend->open_until_us)
                log_warn("agent", "provider=%s failed %lld times in a row, is left alone: %s",
                         backend->name, (long long)backend->failures, backend->last_error);
            backend->open_until_us = clock_mono_us() + settings->breaker.open_ms * 1000;
        }
    }
    backend->probe_at_us = 0;
    (void)pthread_mutex_unlock(&backend->lock);
}

int agent_try_begin(struct agent_try *try, struct agents *agents, struct agent_backend *backend,
                    struct error *err)
{
    try->agents = agents;
    try->backend = backend;
    try->attempt = 1;
    return breaker_enter(agents, backend, err);
}

/* How long a provider that has no room asked us to wait; it is part of the message (rest.c). */
static int64_t asked_to_wait_ms(const struct error *err)
{
    static const char words[] = "try again in ";
    const char *at = err->code == ERROR_QUOTA ? strstr(err->message, words) : NULL;
    struct str rest = str_of(at ? at + sizeof(words) - 1 : NULL);
    int64_t seconds;

    return at && str_to_i64(str_split(&rest, ' '), &seconds) && seconds > 0 && seconds < 3600
               ? seconds * 1000
               : 0;
}

/* min, doubled each time, at most max; between half and all of it, so that many callers do not come
 * back at the same moment. */
static int64_t wait_ms(const struct agent_settings *settings, int attempt, int64_t at_least_ms)
{
    int64_t ms = settings->retry.min_ms;
    uint32_t random;

    for (int i = 1; i < attempt && ms < settings->retry.max_ms; i++)
        ms *= 2;
    if (ms > settings->retry.max_ms)
        ms = settings->retry.max_ms;
    random_bytes(&random, sizeof(random));
    ms = ms / 2 + (int64_t)(random % (uint32_t)(ms / 2 + 1));
    if (ms < at_least_ms)
        ms = at_least_ms < settings->retry.max_ms ? at_least_ms : settings->retry.max_ms;
    return ms;
}

static void pause_for(int64_t ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    while (nanosleep(&left, &left) < 0 && errno == EINTR) {
    }
}

static bool is_failure(enum error_code code)
{
    return code == ERROR_UNAVAILABLE || code == ERROR_TIMEOUT;
}

bool agent_try_again(struct agent_try *try, int r, const struct error *err)
{
    const struct agent_settings *settings = try->agents->config.settings;
    enum error_code code = r < 0 ? err->code : ERROR_NONE;
    bool failed = is_failure(code);
    bool again = code == ERROR_UNAVAILABLE || (code == ERROR_TIMEOUT && try->once_more_is_safe) ||
                 (code == ERROR_QUOTA && settings->retry.on_quota);
    char why[sizeof(((struct error){0}).message)];
    int64_t ms;

    breaker_count(try->agents, try->backend, !failed, failed ? err->message : "");
    if (!again || try->attempt >= settings->retry.attempts || breaker_is_open(try->backend))
        return false;
    ms = wait_ms(settings, try->attempt, asked_to_wait_ms(err));
    if (agent_deadline_left(ms + 1) <= ms) /* no time would be left to try it */
        return false;
    (void)snprintf(why, sizeof(why), "%s", err->message);
    agent_mask(try->agents, why);
    log_info("agent", "provider=%s attempt=%d of %lld failed: %s", try->backend->name, try->attempt,
             (long long)settings->retry.attempts, why);
    pause_for(ms);
    try->attempt++;
    return true;
}

bool agent_try_inside(struct agent_try *try, const struct provider_ref *ref, int r,
                      const struct error *err, enum provider_state *out)
{
    auto_arena struct arena arena = {0};
    struct provider_sandbox machine = {0};
    struct error why = {0};
    bool failed = r < 0 && is_failure(err->code);

    if (failed && provider_get(try->backend->provider, ref, &arena, &machine, &why) < 0 &&
        is_failure(why.code)) {
        breaker_count(try->agents, try->backend, false, why.message);
        return false;
    }
    breaker_count(try->agents, try->backend, true, "");
    *out = why.code == ERROR_NOT_FOUND ? PROVIDER_ENDED : machine.state;
    return failed && (!why.code || why.code == ERROR_NOT_FOUND);
}

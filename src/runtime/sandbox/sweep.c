/* Machines that may be there although nobody waits for them: what a create left whose answer was lost.
 *
 * Each is looked for on a thread of its own, by the label of its row, until it is found and killed: at
 * once, and some more times, because a provider that was slow to answer may be slow to make it. What is
 * missed all the same is found by the hourly cleanup. */
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/log.h"
#include "base/thread.h"
#include "runtime/sandbox/sandbox_parts.h"

enum { SWEEPS_MAX = 64, CALL_S = 10 };

struct runtime_sweeps {
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t changed;
    size_t running;
    bool closing;
};

struct sweep {
    struct runtime *runtime;
    struct backend *backend;
    struct store_runtime_sandbox row; /* id, team_id and external_id are ours */
};

void runtime_sweeps_open(struct runtime *runtime)
{
    struct runtime_sweeps *sweeps = xcalloc(1, sizeof(*sweeps));

    (void)pthread_mutex_init(&sweeps->lock, NULL);
    cond_init(&sweeps->changed);
    runtime->sweeps = sweeps;
}

void runtime_sweeps_close(struct runtime *runtime)
{
    struct runtime_sweeps *sweeps = runtime->sweeps;

    if (!sweeps)
        return;
    (void)pthread_mutex_lock(&sweeps->lock);
    sweeps->closing = true;
    (void)pthread_cond_broadcast(&sweeps->changed);
    while (sweeps->running)
        (void)pthread_cond_wait(&sweeps->changed, &sweeps->lock);
    (void)pthread_mutex_unlock(&sweeps->lock);
    (void)pthread_cond_destroy(&sweeps->changed);
    (void)pthread_mutex_destroy(&sweeps->lock);
    free(sweeps);
    runtime->sweeps = NULL;
}

/* false: everything ends. */
static bool rest(struct runtime_sweeps *sweeps, int seconds)
{
    int64_t until_us = clock_mono_us() + seconds * INT64_C(1000000);
    bool closing, late = seconds == 0;

    (void)pthread_mutex_lock(&sweeps->lock);
    while (!sweeps->closing && !late)
        late = !cond_wait_until(&sweeps->changed, &sweeps->lock, until_us);
    closing = sweeps->closing;
    (void)pthread_mutex_unlock(&sweeps->lock);
    return !closing;
}

/* true: it was there, and is no more. */
static bool kill_it(struct sweep *sweep)
{
    struct provider *provider = backend_provider(sweep->backend);
    auto_arena struct arena arena = {0};
    struct provider_sandbox found = {.id = sweep->row.external_id};
    int64_t deadline_us = clock_deadline(CALL_S, 0);
    struct provider_ref ref;
    struct error err = {0};
    int r = 1;

    if (!found.id.p)
        r = machine_find_own(sweep->runtime, sweep->backend, &sweep->row, deadline_us, &arena,
                             &found, &err);
    ref = (struct provider_ref){
        .team_id = sweep->row.team_id, .id = found.id, .deadline_us = deadline_us};
    if (r == 1 && provider_kill(provider, &ref, &err) < 0)
        r = -1;
    if (r < 0)
        log_info("runtime", "sandbox=%.*s leftover not swept yet: %s", STR_ARG(sweep->row.id),
                 err.message);
    return r == 1;
}

static void end(struct sweep *sweep)
{
    struct runtime_sweeps *sweeps = sweep->runtime->sweeps;

    free((char *)(uintptr_t)sweep->row.id.p);
    free((char *)(uintptr_t)sweep->row.team_id.p);
    free((char *)(uintptr_t)sweep->row.external_id.p);
    free(sweep);
    (void)pthread_mutex_lock(&sweeps->lock);
    sweeps->running--;
    (void)pthread_cond_broadcast(&sweeps->changed);
    (void)pthread_mutex_unlock(&sweeps->lock);
}

static void run(void *arg)
{
    static const int waits_s[] = {0, 5, 20, 60};
    struct sweep *sweep = arg;
    struct runtime_sweeps *sweeps = sweep->runtime->sweeps;

    for (size_t i = 0; i < sizeof(waits_s) / sizeof(*waits_s); i++)
        if (!rest(sweeps, waits_s[i]) || kill_it(sweep))
            break;
    end(sweep);
}

static struct str copy(struct str text)
{
    return text.p ? str_n(str_dup(text), text.len) : STR_NONE;
}

void runtime_sweep_later(struct runtime *runtime, struct backend *backend,
                         const struct store_runtime_sandbox *row)
{
    struct runtime_sweeps *sweeps = runtime->sweeps;
    struct sweep *sweep;
    bool taken;

    (void)pthread_mutex_lock(&sweeps->lock);
    taken = !sweeps->closing && sweeps->running < SWEEPS_MAX;
    sweeps->running += taken;
    (void)pthread_mutex_unlock(&sweeps->lock);
    if (!taken) {
        log_warn("runtime", "sandbox=%.*s may have a machine, left to the cleanup",
                 STR_ARG(row->id));
        return;
    }
    sweep = xmalloc(sizeof(*sweep));
    *sweep = (struct sweep){.runtime = runtime,
                            .backend = backend,
                            .row = {.id = copy(row->id),
                                    .team_id = copy(row->team_id),
                                    .external_id = copy(row->external_id)}};
    if (thread_start_detached("sweep", THREAD_STACK_DEFAULT, run, sweep, NULL) == 0)
        return;
    log_warn("runtime", "sandbox=%.*s may have a machine, no thread to look", STR_ARG(row->id));
    end(sweep);
}

/* Work that is due again and again. Each entry has its own thread, which sleeps on one shared
 * condition until its time has come or all are told to stop. */
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "base/cond.h"
#include "base/log.h"
#include "runtime/core/runtime_internal.h"

enum { TIMER_ENTRIES_MAX = 16 };

struct entry {
    struct runtime *runtime;
    void (*fn)(struct runtime *runtime);
    int64_t period_s;
    int64_t due_us; /* monotonic; a period after the last turn began */
    pthread_t thread;
    bool running;
};

struct runtime_timer {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stopping;
    struct entry entries[TIMER_ENTRIES_MAX];
    size_t count;
};

int runtime_timer_open(struct runtime *runtime)
{
    struct runtime_timer *timer = xcalloc(1, sizeof(*timer));

    (void)pthread_mutex_init(&timer->lock, NULL);
    cond_init(&timer->changed);
    runtime->timer = timer;
    return 0;
}

void runtime_timer_add(struct runtime *runtime, int64_t period_s,
                       void (*fn)(struct runtime *runtime))
{
    struct runtime_timer *timer = runtime->timer;

    if (timer->count == TIMER_ENTRIES_MAX)
        abort(); /* a mistake of the program, seen by its first test */
    timer->entries[timer->count++] =
        (struct entry){.runtime = runtime, .fn = fn, .period_s = period_s};
}

/* True when it is time, false when all must stop. */
static bool wait_for_turn(struct runtime_timer *timer, int64_t until_us)
{
    bool stopping;

    (void)pthread_mutex_lock(&timer->lock);
    while (!timer->stopping && clock_mono_us() < until_us)
        (void)cond_wait_until(&timer->changed, &timer->lock, until_us);
    stopping = timer->stopping;
    (void)pthread_mutex_unlock(&timer->lock);
    return !stopping;
}

static void *run(void *arg)
{
    struct entry *entry = arg;

    while (wait_for_turn(entry->runtime->timer, entry->due_us)) {
        entry->due_us = clock_mono_us() + entry->period_s * 1000000;
        entry->fn(entry->runtime);
    }
    return NULL;
}

void runtime_timer_start(struct runtime *runtime)
{
    struct runtime_timer *timer = runtime->timer;

    for (size_t i = 0; i < timer->count; i++) {
        struct entry *entry = &timer->entries[i];

        entry->due_us = clock_mono_us() + entry->period_s * 1000000;
        entry->running = pthread_create(&entry->thread, NULL, run, entry) == 0;
        if (!entry->running)
            log_error("runtime", "no thread for a periodic task: it will not run");
    }
}

void runtime_timer_test_wake(struct runtime *runtime)
{
    (void)pthread_mutex_lock(&runtime->timer->lock);
    (void)pthread_cond_broadcast(&runtime->timer->changed);
    (void)pthread_mutex_unlock(&runtime->timer->lock);
}

void runtime_timer_stop(struct runtime *runtime)
{
    struct runtime_timer *timer = runtime->timer;

    if (!timer)
        return;
    (void)pthread_mutex_lock(&timer->lock);
    timer->stopping = true;
    (void)pthread_cond_broadcast(&timer->changed);
    (void)pthread_mutex_unlock(&timer->lock);
    for (size_t i = 0; i < timer->count; i++)
        if (timer->entries[i].running)
            (void)pthread_join(timer->entries[i].thread, NULL);
    (void)pthread_cond_destroy(&timer->changed);
    (void)pthread_mutex_destroy(&timer->lock);
    free(timer);
    runtime->timer = NULL;
}

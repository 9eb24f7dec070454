/* Work that is due again and again. Each entry has its own thread, which sleeps on one shared
 * condition until its time has come or all are told to stop. */
#include <stdlib.h>
#include <time.h>

#include "agent/agent_internal.h"
#include "base/alloc.h"
#include "base/log.h"

enum { TIMER_ENTRIES_MAX = 16 };

struct entry {
    struct agents *agents;
    void (*fn)(struct agents *agents);
    int64_t period_s;
    pthread_t thread;
    bool running;
};

struct agent_timer {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stopping;
    struct entry entries[TIMER_ENTRIES_MAX];
    size_t count;
};

int agent_timer_open(struct agents *agents)
{
    struct agent_timer *timer = xcalloc(1, sizeof(*timer));
    pthread_condattr_t attr;

    (void)pthread_mutex_init(&timer->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&timer->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    agents->timer = timer;
    return 0;
}

void agent_timer_add(struct agents *agents, int64_t period_s, void (*fn)(struct agents *agents))
{
    struct agent_timer *timer = agents->timer;

    if (timer->count == TIMER_ENTRIES_MAX)
        abort(); /* a mistake of the program, seen by its first test */
    timer->entries[timer->count++] =
        (struct entry){.agents = agents, .fn = fn, .period_s = period_s};
}

/* True when it is time, false when all must stop. */
static bool wait_for_turn(struct agent_timer *timer, const struct timespec *until)
{
    bool stopping;

    (void)pthread_mutex_lock(&timer->lock);
    while (!timer->stopping && pthread_cond_timedwait(&timer->changed, &timer->lock, until) == 0) {
    }
    stopping = timer->stopping;
    (void)pthread_mutex_unlock(&timer->lock);
    return !stopping;
}

static void *run(void *arg)
{
    struct entry *entry = arg;
    struct timespec until;

    for (;;) {
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += entry->period_s;
        if (!wait_for_turn(entry->agents->timer, &until))
            return NULL;
        entry->fn(entry->agents);
    }
}

void agent_timer_start(struct agents *agents)
{
    struct agent_timer *timer = agents->timer;

    for (size_t i = 0; i < timer->count; i++) {
        struct entry *entry = &timer->entries[i];

        entry->running = pthread_create(&entry->thread, NULL, run, entry) == 0;
        if (!entry->running)
            log_error("agent", "no thread for a periodic task: it will not run");
    }
}

void agent_timer_stop(struct agents *agents)
{
    struct agent_timer *timer = agents->timer;

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
    agents->timer = NULL;
}

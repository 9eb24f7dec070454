/* The runtime's jobs of the periodic service: they are noted while the parts open, and run once all are open. */
#include <stdlib.h>

#include "runtime/core/runtime_parts.h"

static void turn(void *arg)
{
    struct runtime_timer *timer = arg;

    timer->fn(timer->runtime);
}

void runtime_timer_add(struct runtime *runtime, const char *name, int64_t period_s, bool may_block,
                       void (*fn)(struct runtime *runtime))
{
    struct runtime_timer *timer = &runtime->timers[runtime->timer_count++];

    if (runtime->timer_count > RUNTIME_TIMERS_MAX)
        abort(); /* a mistake of the program, seen by its first test */
    *timer = (struct runtime_timer){.job = {.name = name,
                                            .period_us = period_s * 1000000,
                                            .may_block = may_block,
                                            .run = turn,
                                            .arg = timer},
                                    .runtime = runtime,
                                    .fn = fn};
}

int runtime_timer_start(struct runtime *runtime, struct error *err)
{
    for (size_t i = 0; i < runtime->timer_count; i++) {
        struct periodic *job = &runtime->timers[i].job;

        if (periodic_add(job, job->period_us, err) < 0)
            return -1;
    }
    return 0;
}

void runtime_timer_stop(struct runtime *runtime)
{
    for (size_t i = 0; i < runtime->timer_count; i++)
        periodic_remove(&runtime->timers[i].job);
}

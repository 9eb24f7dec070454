/* What happens at a time: sandboxes end (or are paused) at theirs, failed teardowns are tried again.
 *
 * The schedule is a binary heap by wall time, because ends are promises about wall time that must
 * survive a restart; when the clock is set, they move (sandbox_clock.c). Waiting is measured by the
 * monotonic clock and never longer than 30 s, or 1 s when something is due within 30 s: a host that
 * slept is noticed by then.
 *
 * A few threads run the same loop, so that many sandboxes that end in the same second do not wait
 * for each other's teardown. A thread that takes an entry from the schedule owns it. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_life.h"
#include "domain/sandbox/sandbox_table.h"

enum {
    NEAR_US = 30 * 1000 * 1000,
    STEP_US = 1000 * 1000,
};

static void place(struct sandboxes *all, size_t at, struct sandbox *sandbox)
{
    all->schedule[at] = sandbox;
    sandbox->scheduled_at = at;
}

static void sift_up(struct sandboxes *all, size_t at)
{
    struct sandbox *sandbox = all->schedule[at];

    while (at > 0 && all->schedule[(at - 1) / 2]->due_us > sandbox->due_us) {
        place(all, at, all->schedule[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    place(all, at, sandbox);
}

static void sift_down(struct sandboxes *all, size_t at)
{
    struct sandbox *sandbox = all->schedule[at];

    for (size_t child; (child = 2 * at + 1) < all->schedule_len; at = child) {
        if (child + 1 < all->schedule_len &&
            all->schedule[child + 1]->due_us < all->schedule[child]->due_us)
            child++;
        if (all->schedule[child]->due_us >= sandbox->due_us)
            break;
        place(all, at, all->schedule[child]);
    }
    place(all, at, sandbox);
}

void schedule_unset(struct sandboxes *all, struct sandbox *sandbox)
{
    size_t at = sandbox->scheduled_at;
    struct sandbox *last;

    if (at == NOT_SCHEDULED)
        return;
    sandbox->scheduled_at = NOT_SCHEDULED;
    last = all->schedule[--all->schedule_len];
    if (last == sandbox)
        return;
    place(all, at, last);
    sift_up(all, at);
    sift_down(all, last->scheduled_at);
}

void schedule_set(struct sandboxes *all, struct sandbox *sandbox, int64_t due_us)
{
    schedule_unset(all, sandbox);
    if (all->schedule_len == all->schedule_cap) {
        all->schedule_cap = all->schedule_cap ? all->schedule_cap * 2 : 64;
        all->schedule = xrealloc(all->schedule, all->schedule_cap * sizeof(struct sandbox *));
    }
    sandbox->due_us = due_us;
    place(all, all->schedule_len++, sandbox);
    sift_up(all, sandbox->scheduled_at);
    if (all->schedule[0] == sandbox)
        (void)pthread_cond_signal(&all->due);
}

static int64_t time_to_wait(const struct sandboxes *all, int64_t now)
{
    int64_t left = all->schedule_len ? all->schedule[0]->due_us - now : NEAR_US;

    if (left >= NEAR_US)
        return NEAR_US;
    return left < STEP_US ? left : STEP_US;
}

static bool first_is_due(const struct sandboxes *all, int64_t now)
{
    return all->schedule_len && all->schedule[0]->due_us <= now;
}

/* Ends with the lock held, as it began. */
static void end_first(struct sandboxes *all, int64_t now)
{
    struct sandbox *sandbox = table_take_first(all);
    bool condemned = sandbox->condemned;
    struct error err = {0};

    sandbox->condemned = false;
    if (first_is_due(all, now)) /* for another thread, meanwhile */
        (void)pthread_cond_signal(&all->due);
    (void)pthread_mutex_unlock(&all->lock);
    /* Both log, and schedule another attempt. */
    if (sandbox->state == SANDBOX_PAUSING && sandbox->ending)
        pause_finish(all, sandbox);
    else if (sandbox->state == SANDBOX_PAUSING)
        (void)pause_owned(all, sandbox,
                          &(struct pause){.disk_only = sandbox->auto_pause_disk, .at_end = true},
                          &err);
    else
        (void)sandbox_teardown(all, sandbox, &err);
    (void)pthread_mutex_lock(&all->lock);
    if (condemned && --all->condemned == 0)
        (void)pthread_cond_broadcast(&all->settled);
}

static void expire_run(void *arg)
{
    struct sandboxes *all = arg;

    (void)pthread_mutex_lock(&all->lock);
    while (!all->stopping) {
        int64_t now;

        clock_follow(all);
        now = now_us(all);
        if (first_is_due(all, now))
            end_first(all, now);
        else
            (void)cond_wait_us(&all->due, &all->lock, time_to_wait(all, now));
    }
    (void)pthread_mutex_unlock(&all->lock);
}

int expire_start(struct sandboxes *all, struct error *err)
{
    for (size_t i = 0; i < EXPIRE_THREADS; i++)
        if (thread_start(&all->expire_threads[i], "expire", THREAD_STACK_DEFAULT, expire_run, all,
                         err) < 0)
            return -1;
    return 0;
}

void expire_stop(struct sandboxes *all)
{
    (void)pthread_mutex_lock(&all->lock);
    all->stopping = true;
    (void)pthread_cond_broadcast(&all->due);
    (void)pthread_mutex_unlock(&all->lock);
    for (size_t i = 0; i < EXPIRE_THREADS; i++)
        thread_join(&all->expire_threads[i]);
}

void expire_wait_settled(struct sandboxes *all, int64_t timeout_us)
{
    int64_t until = clock_mono_us() + timeout_us, left;

    (void)pthread_mutex_lock(&all->lock);
    while (all->condemned && (left = until - clock_mono_us()) > 0)
        (void)cond_wait_us(&all->settled, &all->lock, left);
    (void)pthread_mutex_unlock(&all->lock);
}

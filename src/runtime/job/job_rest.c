/* Watches between their turns: one thread waits for the streams of all that rest, and for their times.
 *
 * Only this thread ends a rest, so a watch that epoll tells of is there. Its descriptor is waited for only while
 * it rests: who has the turn reads the stream, and may close the descriptor. Nothing blocks here: what asks the store
 * or a provider is done in turns, by workers. The pool has as many threads as are at work just now; a backend that
 * hangs holds up the jobs of others only when that many turns hang. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "runtime/job/job_internal.h"

enum {
    WORKERS_MAX = 512,
    QUEUE_MAX = 1 << 20, /* each watch is in it once */
    EVENTS_MAX = 64,
    TICK_MS = 10,      /* between looks at all of them */
    LIVE_MS = 500,     /* between turns of one whose output is watched */
    LOOK_MS = 2000,    /* and looks whether it is */
    REFUSED_MS = 1000, /* after which is tried again what could not be begun */
};

struct job_rest {
    struct workers *workers;
    void (*turn)(struct work *work);
    struct thread thread;
    int epoll, wake;
    int64_t scan_ms; /* when to look at all of them; under the lock */
    bool stopping;   /* under the lock */
};

static void stop_waiting(struct job_rest *rest, struct job_watch *watch)
{
    if (watch->fd >= 0)
        (void)epoll_ctl(rest->epoll, EPOLL_CTL_DEL, watch->fd, NULL);
    watch->fd = -1;
}

static void wait_until(struct job_rest *rest, int64_t ms)
{
    if (ms < rest->scan_ms)
        rest->scan_ms = ms;
}

void job_rest_begin(struct jobs *jobs, struct job_watch *watch)
{
    struct job_rest *rest = jobs->rest;

    watch->work.run = rest->turn;
    watch->resting = watch->hurry = false;
    if (workers_run(rest->workers, &watch->work) == 0)
        return;
    log_warn("runtime", "job=%s waits: no worker", watch->id);
    watch->resting = true;
    watch->due_ms = watch->look_ms = clock_mono_ms() + REFUSED_MS;
    wait_until(rest, watch->due_ms);
}

static void end_rest(struct jobs *jobs, struct job_watch *watch)
{
    stop_waiting(jobs->rest, watch);
    job_rest_begin(jobs, watch);
}

/* With the lock held. */
static void scan(struct jobs *jobs)
{
    int64_t now_ms = clock_mono_ms();
    struct list *node;

    jobs->rest->scan_ms = INT64_MAX;
    list_for_each (node, &jobs->watches) {
        struct job_watch *watch = container_of(node, struct job_watch, link);

        if (!watch->resting)
            continue;
        if (watch->hurry || now_ms >= watch->due_ms ||
            (now_ms >= watch->look_ms && runtime_output_watched(&watch->output))) {
            end_rest(jobs, watch);
            continue;
        }
        if (now_ms >= watch->look_ms)
            watch->look_ms = now_ms + LOOK_MS;
        wait_until(jobs->rest, watch->look_ms < watch->due_ms ? watch->look_ms : watch->due_ms);
    }
    if (jobs->rest->scan_ms < now_ms + TICK_MS)
        jobs->rest->scan_ms = now_ms + TICK_MS;
}

static int wait_ms(const struct job_rest *rest)
{
    int64_t left_ms = rest->scan_ms - clock_mono_ms();

    if (rest->scan_ms == INT64_MAX)
        return -1;
    return left_ms < 0 ? 0 : left_ms < LOOK_MS ? (int)left_ms : LOOK_MS;
}

static void rest_thread(void *arg)
{
    struct jobs *jobs = arg;
    struct job_rest *rest = jobs->rest;
    struct epoll_event events[EVENTS_MAX];

    (void)pthread_mutex_lock(&jobs->lock);
    while (!rest->stopping) {
        int limit_ms = wait_ms(rest), n;

        (void)pthread_mutex_unlock(&jobs->lock);
        n = epoll_wait(rest->epoll, events, EVENTS_MAX, limit_ms);
        (void)pthread_mutex_lock(&jobs->lock);
        for (int i = 0; i < n; i++) {
            eventfd_t count;

            if (events[i].data.ptr)
                end_rest(jobs, events[i].data.ptr);
            else
                (void)eventfd_read(rest->wake, &count);
        }
        if (clock_mono_ms() >= rest->scan_ms)
            scan(jobs);
    }
    (void)pthread_mutex_unlock(&jobs->lock);
}

void job_rest(struct jobs *jobs, struct job_watch *watch, struct provider_wait wait)
{
    struct job_rest *rest = jobs->rest;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};
    int64_t now_ms = clock_mono_ms(), before_ms, hold_ms;

    (void)pthread_mutex_lock(&jobs->lock);
    if (wait.fd >= 0 && epoll_ctl(rest->epoll, EPOLL_CTL_ADD, wait.fd, &event) == 0)
        watch->fd = wait.fd;
    else if (wait.fd >= 0)
        wait.ms = LIVE_MS;
    hold_ms = watch->process ? watch->kept_ms + watch->hold_ms : INT64_MAX;
    watch->due_ms = now_ms + wait.ms < hold_ms ? now_ms + wait.ms : hold_ms;
    watch->look_ms = now_ms + (runtime_output_watched(&watch->output) ? LIVE_MS : LOOK_MS);
    watch->resting = true;
    before_ms = rest->scan_ms;
    wait_until(rest, watch->hurry                     ? now_ms
                     : watch->look_ms < watch->due_ms ? watch->look_ms
                                                      : watch->due_ms);
    if (rest->scan_ms < before_ms)
        (void)eventfd_write(rest->wake, 1);
    (void)pthread_mutex_unlock(&jobs->lock);
}

void job_rest_hurry(struct jobs *jobs, struct job_watch *watch)
{
    watch->hurry = true;
    jobs->rest->scan_ms = clock_mono_ms();
    (void)eventfd_write(jobs->rest->wake, 1);
}

static void release(struct job_rest *rest)
{
    workers_free(rest->workers);
    close_fd(&rest->epoll);
    close_fd(&rest->wake);
    free(rest);
}

int job_rest_open(struct jobs *jobs, void (*turn)(struct work *work), struct error *err)
{
    struct job_rest *rest = xcalloc(1, sizeof(*rest));
    struct epoll_event event = {.events = EPOLLIN};

    *rest = (struct job_rest){.turn = turn, .scan_ms = INT64_MAX};
    rest->workers = workers_new_elastic(WORKERS_MAX, QUEUE_MAX);
    rest->epoll = epoll_create1(EPOLL_CLOEXEC);
    rest->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    jobs->rest = rest;
    if (rest->epoll < 0 || rest->wake < 0 ||
        epoll_ctl(rest->epoll, EPOLL_CTL_ADD, rest->wake, &event) < 0 ||
        thread_start(&rest->thread, "jobs", THREAD_STACK_DEFAULT, rest_thread, jobs, err) < 0) {
        release(rest);
        jobs->rest = NULL;
        return error_set(err, ERROR_INTERNAL,
                         "nothing to wait for jobs with: descriptors, a thread");
    }
    return 0;
}

void job_rest_close(struct jobs *jobs)
{
    struct job_rest *rest = jobs->rest;

    if (!rest)
        return;
    (void)pthread_mutex_lock(&jobs->lock);
    rest->stopping = true;
    (void)eventfd_write(rest->wake, 1);
    (void)pthread_mutex_unlock(&jobs->lock);
    thread_join(&rest->thread);
    release(rest);
    jobs->rest = NULL;
}

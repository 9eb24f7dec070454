/* Threads wait on one condition for a shared queue. On the way out (workers_free) the queue is
 * emptied first, so all accepted work runs and its completion is posted.
 *
 * An elastic pool starts a thread when more work waits than threads are idle. A thread that was idle
 * for long marks its slot as ended and returns; whoever needs the slot next, or workers_free(),
 * joins it. */
#include "protocol/loop/workers.h"

#include <errno.h>
#include <stdbool.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/thread.h"

enum { ELASTIC_STACK = 256 * 1024 };
static const uint64_t ELASTIC_IDLE_NS = 10000000000;

enum slot_state { SLOT_FREE, SLOT_RUNNING, SLOT_ENDED };

struct slot {
    struct workers *workers;
    struct thread thread;
    enum slot_state state;
};

struct workers {
    uv_mutex_t mutex; /* guards everything below */
    uv_cond_t wake;   /* for the threads: work, or the end */
    uv_cond_t quiet;  /* for workers_free_within() */
    struct work *first, *last;
    size_t waiting, queue_max;
    size_t idle, busy, alive;
    bool ending, elastic;
    size_t slot_count;
    struct slot slots[];
};

static void finish(struct loop_errand *errand)
{
    struct work *work = (struct work *)((char *)errand - offsetof(struct work, errand));

    work->done(work);
}

static void run_one(struct work *work)
{
    if (work->done) {
        work->run(work);
        work->errand.fn = finish;
        loop_post(work->loop, &work->errand);
    } else {
        work->run(work); /* may free the work */
    }
}

/* False when the thread has waited long enough. */
static bool wait_for_errand(struct workers *workers)
{
    int result = 0;

    workers->idle++;
    if (workers->elastic)
        result = uv_cond_timedwait(&workers->wake, &workers->mutex, ELASTIC_IDLE_NS);
    else
        uv_cond_wait(&workers->wake, &workers->mutex);
    workers->idle--;
    return result != UV_ETIMEDOUT || workers->first;
}

static void worker_main(void *arg)
{
    struct slot *slot = arg;
    struct workers *workers = slot->workers;

    uv_mutex_lock(&workers->mutex);
    for (;;) {
        struct work *work = workers->first;

        if (!work && (workers->ending || !wait_for_errand(workers)))
            break;
        if (!work)
            continue;
        workers->first = work->next;
        if (!workers->first)
            workers->last = NULL;
        workers->waiting--;
        workers->busy++;
        uv_mutex_unlock(&workers->mutex);
        run_one(work);
        uv_mutex_lock(&workers->mutex);
        workers->busy--;
        if (workers->ending)
            uv_cond_signal(&workers->quiet);
    }
    slot->state = SLOT_ENDED;
    workers->alive--;
    uv_mutex_unlock(&workers->mutex);
}

/* Under the lock (or before there are threads). */
static int start_thread(struct workers *workers, struct error *err)
{
    size_t stack_size = workers->elastic ? ELASTIC_STACK : THREAD_STACK_DEFAULT;
    struct slot *slot = workers->slots;

    while (slot->state == SLOT_RUNNING)
        slot++;
    if (slot->state == SLOT_ENDED) /* it needs the lock no more */
        thread_join(&slot->thread);
    slot->state = SLOT_FREE;
    slot->workers = workers;
    if (thread_start(&slot->thread, "worker", stack_size, worker_main, slot, err) < 0)
        return -1;
    slot->state = SLOT_RUNNING;
    workers->alive++;
    return 0;
}

static struct workers *make(size_t threads, size_t queue_max, bool elastic)
{
    struct workers *workers = xcalloc(1, sizeof(*workers) + threads * sizeof(workers->slots[0]));

    workers->queue_max = queue_max;
    workers->slot_count = threads;
    workers->elastic = elastic;
    if (uv_mutex_init(&workers->mutex) != 0 || uv_cond_init(&workers->wake) != 0 ||
        uv_cond_init(&workers->quiet) != 0)
        abort();
    return workers;
}

struct workers *workers_new(size_t threads, size_t queue_max)
{
    struct workers *workers = make(threads, queue_max, false);

    uv_mutex_lock(&workers->mutex);
    for (size_t i = 0; i < threads; i++) {
        struct error err;

        if (start_thread(workers, &err) < 0) {
            log_error("workers", "only %zu of %zu threads: %s", i, threads, err.message);
            if (i == 0)
                abort();
            break;
        }
    }
    uv_mutex_unlock(&workers->mutex);
    return workers;
}

struct workers *workers_new_elastic(size_t max_threads, size_t queue_max)
{
    return make(max_threads, queue_max, true);
}

/* Room for one more, and somebody to do it. */
static bool accept_errand(struct workers *workers)
{
    struct error err;

    if (workers->waiting >= workers->queue_max)
        return false;
    if (!workers->elastic || workers->waiting < workers->idle ||
        workers->alive == workers->slot_count)
        return true;
    if (start_thread(workers, &err) < 0)
        log_warn("workers", "no further thread than %zu: %s", workers->alive, err.message);
    return workers->alive > 0;
}

int workers_run(struct workers *workers, struct work *work)
{
    bool accepted;

    work->next = NULL;
    uv_mutex_lock(&workers->mutex);
    accepted = accept_errand(workers);
    if (accepted) {
        if (workers->last)
            workers->last->next = work;
        else
            workers->first = work;
        workers->last = work;
        workers->waiting++;
        uv_cond_signal(&workers->wake);
    }
    uv_mutex_unlock(&workers->mutex);
    return accepted ? 0 : -EAGAIN;
}

static size_t look(struct workers *workers, const size_t *count)
{
    size_t now;

    uv_mutex_lock(&workers->mutex);
    now = *count;
    uv_mutex_unlock(&workers->mutex);
    return now;
}

size_t workers_threads(struct workers *workers)
{
    return look(workers, &workers->alive);
}

size_t workers_idle(struct workers *workers)
{
    return look(workers, &workers->idle);
}

size_t workers_waiting(struct workers *workers)
{
    return look(workers, &workers->waiting);
}

static bool was_started(struct workers *workers, size_t slot)
{
    bool started;

    uv_mutex_lock(&workers->mutex);
    started = workers->slots[slot].state != SLOT_FREE;
    uv_mutex_unlock(&workers->mutex);
    return started;
}

void workers_free(struct workers *workers)
{
    if (!workers)
        return;
    uv_mutex_lock(&workers->mutex);
    workers->ending = true;
    uv_cond_broadcast(&workers->wake);
    uv_mutex_unlock(&workers->mutex);
    for (size_t i = 0; i < workers->slot_count; i++)
        if (was_started(workers, i))
            thread_join(&workers->slots[i].thread);
    uv_cond_destroy(&workers->quiet);
    uv_cond_destroy(&workers->wake);
    uv_mutex_destroy(&workers->mutex);
    free(workers);
}

int workers_free_within(struct workers *workers, uint32_t limit_ms)
{
    uint64_t end = uv_hrtime() + (uint64_t)limit_ms * 1000000;
    bool over = false;

    if (!workers)
        return 0;
    uv_mutex_lock(&workers->mutex);
    workers->ending = true;
    uv_cond_broadcast(&workers->wake);
    while ((workers->busy || workers->waiting) && !over) {
        uint64_t now = uv_hrtime();

        over = now >= end;
        if (!over)
            (void)uv_cond_timedwait(&workers->quiet, &workers->mutex, end - now);
    }
    uv_mutex_unlock(&workers->mutex);
    if (over)
        return -ETIMEDOUT;
    workers_free(workers);
    return 0;
}

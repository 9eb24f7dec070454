/* Threads wait on one condition for a shared queue. On the way out (workers_free) the queue is
 * emptied first, so every accepted job runs and its completion is posted. */
#include "loop/workers.h"

#include <errno.h>
#include <stdbool.h>

#include "base/alloc.h"
#include "base/log.h"

struct workers {
    uv_mutex_t mutex; /* guards everything below up to threads */
    uv_cond_t wake;
    struct work *first, *last;
    size_t waiting, queue_max;
    bool ending;
    size_t thread_count;
    uv_thread_t threads[];
};

static void finish(struct loop_job *job)
{
    struct work *work = (struct work *)((char *)job - offsetof(struct work, job));

    work->done(work);
}

static void thread_main(void *arg)
{
    struct workers *workers = arg;

    uv_mutex_lock(&workers->mutex);
    for (;;) {
        struct work *work = workers->first;

        if (!work && workers->ending)
            break;
        if (!work) {
            uv_cond_wait(&workers->wake, &workers->mutex);
            continue;
        }
        workers->first = work->next;
        if (!workers->first)
            workers->last = NULL;
        workers->waiting--;
        uv_mutex_unlock(&workers->mutex);
        if (work->done) {
            work->run(work);
            work->job.fn = finish;
            loop_post(work->loop, &work->job);
        } else {
            work->run(work); /* may free the work */
        }
        uv_mutex_lock(&workers->mutex);
    }
    uv_mutex_unlock(&workers->mutex);
}

struct workers *workers_new(size_t threads, size_t queue_max)
{
    struct workers *workers = xcalloc(1, sizeof(*workers) + threads * sizeof(workers->threads[0]));

    workers->queue_max = queue_max;
    if (uv_mutex_init(&workers->mutex) != 0 || uv_cond_init(&workers->wake) != 0)
        abort();
    for (; workers->thread_count < threads; workers->thread_count++) {
        int result =
            uv_thread_create(&workers->threads[workers->thread_count], thread_main, workers);

        if (result != 0) {
            log_error("workers", "only %zu of %zu threads: %s", workers->thread_count, threads,
                      uv_strerror(result));
            if (workers->thread_count == 0)
                abort();
            break;
        }
    }
    return workers;
}

int workers_run(struct workers *workers, struct work *work)
{
    bool full;

    work->next = NULL;
    uv_mutex_lock(&workers->mutex);
    full = workers->waiting >= workers->queue_max;
    if (!full) {
        if (workers->last)
            workers->last->next = work;
        else
            workers->first = work;
        workers->last = work;
        workers->waiting++;
        uv_cond_signal(&workers->wake);
    }
    uv_mutex_unlock(&workers->mutex);
    return full ? -EAGAIN : 0;
}

void workers_free(struct workers *workers)
{
    if (!workers)
        return;
    uv_mutex_lock(&workers->mutex);
    workers->ending = true;
    uv_cond_broadcast(&workers->wake);
    uv_mutex_unlock(&workers->mutex);
    for (size_t i = 0; i < workers->thread_count; i++)
        (void)uv_thread_join(&workers->threads[i]);
    uv_cond_destroy(&workers->wake);
    uv_mutex_destroy(&workers->mutex);
    free(workers);
}

/* Closing what may take its time. The last descriptor of a mount that is attached nowhere ends that mount, and for
 * that the kernel waits until no processor looks at it any more: tens of microseconds each, for every layer of a box that
 * is being started. Nobody needs to wait for that, so one thread does it, when there is time.
 *
 * The root of a box that ended takes longer: with an overlay goes a sync of the file system below, which for btrfs is a
 * transaction of all that was changed in the pool. Those are closed some at a time, so that the first one's is that of all. */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/thread.h"
#include "host/native/box.h"

enum { QUEUE_MAX = 256, ROOTS_MAX = 64, ROOTS_WAIT_MS = 200, STACK_SIZE = 64 * 1024 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pid_t process; /* whose thread it is: one that was forked off has none; atomic */
    int fds[QUEUE_MAX];
    size_t count;
    int roots[ROOTS_MAX];
    size_t root_count;
    int64_t roots_due_us;
    size_t waiting; /* for all to be closed */
    bool busy;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool roots_due(void)
{
    return queue.root_count == ROOTS_MAX || (queue.root_count && queue.waiting) ||
           (queue.root_count && clock_mono_us() >= queue.roots_due_us);
}

/* With the lock, which is let go meanwhile. */
static void close_all(const int *fds, size_t count)
{
    (void)pthread_mutex_unlock(&queue.lock);
    for (size_t i = 0; i < count; i++)
        (void)close(fds[i]);
    (void)pthread_mutex_lock(&queue.lock);
}

static void close_roots(void)
{
    int roots[ROOTS_MAX];
    size_t count = queue.root_count;

    memcpy(roots, queue.roots, count * sizeof(*roots));
    queue.root_count = 0;
    close_all(roots, count);
}

static void wait_for_more(void)
{
    (void)pthread_cond_broadcast(&queue.changed);
    if (queue.root_count)
        (void)cond_wait_until(&queue.changed, &queue.lock, queue.roots_due_us);
    else
        (void)pthread_cond_wait(&queue.changed, &queue.lock);
}

static void run(void *unused)
{
    (void)unused;
    (void)pthread_mutex_lock(&queue.lock);
    for (;;) {
        queue.busy = queue.count > 0 || roots_due();
        if (queue.count) {
            int fd = queue.fds[--queue.count];

            close_all(&fd, 1);
        } else if (queue.busy) {
            close_roots();
        } else {
            wait_for_more();
        }
    }
}

/* With the lock. */
static bool has_thread(void)
{
    if (queue.process == getpid())
        return true;
    cond_init(&queue.changed);
    if (thread_start_detached("close", STACK_SIZE, run, NULL, NULL) < 0)
        return false;
    __atomic_store_n(&queue.process, getpid(), __ATOMIC_RELAXED);
    return true;
}

/* A process that was forked off begins anew: whoever held the lock or waited is in the other one. */
static void leave_parent(void)
{
    pid_t process = __atomic_load_n(&queue.process, __ATOMIC_RELAXED);

    if (process == 0 || process == getpid())
        return;
    (void)pthread_mutex_init(&queue.lock, NULL);
    queue.count = queue.root_count = queue.waiting = 0;
    queue.busy = false;
    __atomic_store_n(&queue.process, 0, __ATOMIC_RELAXED);
}

void box_close_later(int fd)
{
    bool taken;

    if (fd < 0)
        return;
    leave_parent();
    (void)pthread_mutex_lock(&queue.lock);
    taken = has_thread() && queue.count < QUEUE_MAX;
    if (taken) {
        queue.fds[queue.count++] = fd;
        (void)pthread_cond_broadcast(&queue.changed);
    }
    (void)pthread_mutex_unlock(&queue.lock);
    if (!taken)
        (void)close(fd);
}

void box_close_root(int fd)
{
    bool taken;

    if (fd < 0)
        return;
    leave_parent();
    (void)pthread_mutex_lock(&queue.lock);
    taken = has_thread() && queue.root_count < ROOTS_MAX;
    if (taken) {
        if (queue.root_count == 0)
            queue.roots_due_us = clock_mono_us() + (int64_t)ROOTS_WAIT_MS * 1000;
        queue.roots[queue.root_count++] = fd;
        (void)pthread_cond_broadcast(&queue.changed);
    }
    (void)pthread_mutex_unlock(&queue.lock);
    if (!taken)
        (void)close(fd);
}

void box_close_wait(void)
{
    leave_parent();
    (void)pthread_mutex_lock(&queue.lock);
    queue.waiting++;
    while (queue.process == getpid() && (queue.count || queue.root_count || queue.busy)) {
        (void)pthread_cond_broadcast(&queue.changed);
        (void)cond_wait_ms(&queue.changed, &queue.lock, ROOTS_WAIT_MS);
    }
    queue.waiting--;
    (void)pthread_mutex_unlock(&queue.lock);
}

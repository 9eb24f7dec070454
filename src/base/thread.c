#include "base/thread.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "base/alloc.h"
#include "base/cond.h"
#include "base/str.h"

struct start {
    thread_fn *run;
    void *arg;
    char name[16];
};

static void *thread_main(void *arg)
{
    struct start start = *(struct start *)arg;

    free(arg);
    (void)prctl(PR_SET_NAME, start.name);
    start.run(start.arg);
    return NULL;
}

/* A fault whose signal is blocked kills the process without a sanitizer's or debugger's report. */
static void signals_of_threads(sigset_t *out)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};

    (void)sigfillset(out);
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
        (void)sigdelset(out, faults[i]);
}

static int start_one(pthread_t *out, bool detached, const char *name, size_t stack_size,
                     thread_fn *run, void *arg, struct error *err)
{
    struct start *start = xcalloc(1, sizeof(*start));
    sigset_t blocked, before;
    pthread_attr_t attr;
    int r;

    *start = (struct start){.run = run, .arg = arg};
    (void)str_copy(str_n(name, strnlen(name, sizeof(start->name) - 1)), start->name,
                   sizeof(start->name));
    (void)pthread_attr_init(&attr);
    if (detached)
        (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attr, stack_size);
    signals_of_threads(&blocked);
    (void)pthread_sigmask(SIG_SETMASK, &blocked, &before);
    r = pthread_create(out, &attr, thread_main, start);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    if (r == 0)
        return 0;
    free(start);
    return err ? error_set_errno(err, r, "start the thread '%s'", name) : -1;
}

int thread_start(struct thread *thread, const char *name, size_t stack_size, thread_fn *run,
                 void *arg, struct error *err)
{
    if (!atomic_load(&thread->made)) {
        (void)pthread_mutex_init(&thread->lock, NULL);
        cond_init(&thread->changed);
        atomic_store(&thread->made, true);
    }
    (void)pthread_mutex_lock(&thread->lock);
    thread->stopping = thread->woken = false;
    (void)pthread_mutex_unlock(&thread->lock);
    thread->started = start_one(&thread->handle, false, name, stack_size, run, arg, err) == 0;
    return thread->started ? 0 : -1;
}

int thread_start_detached(const char *name, size_t stack_size, thread_fn *run, void *arg,
                          struct error *err)
{
    pthread_t handle;

    return start_one(&handle, true, name, stack_size, run, arg, err);
}

bool thread_wait_until(struct thread *thread, int64_t until_us)
{
    bool goes_on;

    (void)pthread_mutex_lock(&thread->lock);
    while (!thread->stopping && !thread->woken && clock_mono_us() < until_us)
        (void)cond_wait_until(&thread->changed, &thread->lock, until_us);
    thread->woken = false;
    goes_on = !thread->stopping;
    (void)pthread_mutex_unlock(&thread->lock);
    return goes_on;
}

bool thread_stopping(struct thread *thread)
{
    bool stopping;

    (void)pthread_mutex_lock(&thread->lock);
    stopping = thread->stopping;
    (void)pthread_mutex_unlock(&thread->lock);
    return stopping;
}

static void set_flag(struct thread *thread, bool *flag)
{
    if (!atomic_load(&thread->made))
        return;
    (void)pthread_mutex_lock(&thread->lock);
    *flag = true;
    (void)pthread_cond_broadcast(&thread->changed);
    (void)pthread_mutex_unlock(&thread->lock);
}

void thread_wake(struct thread *thread)
{
    set_flag(thread, &thread->woken);
}

void thread_ask_stop(struct thread *thread)
{
    set_flag(thread, &thread->stopping);
}

void thread_join(struct thread *thread)
{
    if (!thread->started)
        return;
    (void)pthread_join(thread->handle, NULL);
    thread->started = false;
}

void thread_stop(struct thread *thread)
{
    thread_ask_stop(thread);
    thread_join(thread);
}

void thread_crew(const char *name, size_t count, thread_fn *run, void *arg)
{
    struct thread threads[THREAD_CREW_MAX - 1] = {0};
    size_t started = 0;

    while (started + 1 < count && started + 1 < THREAD_CREW_MAX &&
           thread_start(&threads[started], name, THREAD_STACK_DEFAULT, run, arg, NULL) == 0)
        started++;
    run(arg);
    for (size_t i = 0; i < started; i++)
        thread_join(&threads[i]);
}

/* Threads: started with a name (in /proc and debuggers) and a stack size, woken, told to stop, joined. Every thread of the
 * programs is started here; tools/check.sh enforces it. A thread blocks all signals except those of its own faults, so
 * signals reach the main thread. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    THREAD_STACK_DEFAULT =
        8 * 1024 * 1024, /* the same with every C library: musl would give 128 KiB */
    THREAD_CREW_MAX = 16,
};

typedef void thread_fn(void *arg);

/* Zeroed before its first use. The owner starts and joins; any thread may wake it, also before and after it runs. */
struct thread {
    pthread_t handle;
    bool started;     /* and not joined; the owner's */
    atomic_bool made; /* lock and condition, which stay as long as the struct */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* `stopping` or `woken` was set */
    bool stopping, woken;
};

/* The name is cut after 15 bytes. err may be NULL. */
int thread_start(struct thread *thread, const char *name, size_t stack_size, thread_fn *run,
                 void *arg, struct error *err);
/* A thread that nobody joins; it has no stop flag. */
int thread_start_detached(const char *name, size_t stack_size, thread_fn *run, void *arg,
                          struct error *err);

/* Runs it in up to `count` threads, the caller's among them, and returns when all have ended. Also when the caller is the
 * only one because no other thread could be started. */
void thread_crew(const char *name, size_t count, thread_fn *run, void *arg);

/* In the loop of a thread: sleeps until thread_wake(), thread_stop() or the time until_us of clock_mono_us(), and takes
 * the wake-up. A wake-up that came before is not lost. False: the thread must return. */
bool thread_wait_until(struct thread *thread, int64_t until_us);
static inline bool thread_wait(struct thread *thread)
{
    return thread_wait_until(thread, INT64_MAX);
}
bool thread_stopping(struct thread *thread);

/* Without effect on a thread that does not run. */
void thread_wake(struct thread *thread);
/* Sets the stop flag and wakes the thread, without waiting for its end. */
void thread_ask_stop(struct thread *thread);
/* Waits for its end. Afterwards the thread may be started again. */
void thread_join(struct thread *thread);
/* thread_ask_stop() and thread_join(). */
void thread_stop(struct thread *thread);

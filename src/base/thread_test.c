#include "base/thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/test.h"

struct seen {
    struct thread thread;
    char name[16];
    size_t stack_size;
    sigset_t mask;
    atomic_int turns;
};

static void look(void *arg)
{
    struct seen *seen = arg;
    pthread_attr_t attr;

    (void)prctl(PR_GET_NAME, seen->name);
    (void)pthread_getattr_np(pthread_self(), &attr);
    (void)pthread_attr_getstacksize(&attr, &seen->stack_size);
    (void)pthread_attr_destroy(&attr);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &seen->mask);
}

TEST(thread_has_name_stack_and_mask)
{
    struct seen seen = {0};
    struct error err;
    sigset_t mine;

    CHECK_INT(thread_start(&seen.thread, "a-name-that-is-cut", 1 << 20, look, &seen, &err), 0);
    thread_join(&seen.thread);
    CHECK(strcmp(seen.name, "a-name-that-is-") == 0);
    CHECK(seen.stack_size >= 1 << 20 && seen.stack_size < 2 << 20);
    CHECK(sigismember(&seen.mask, SIGTERM) == 1 && sigismember(&seen.mask, SIGCHLD) == 1);
    CHECK(sigismember(&seen.mask, SIGSEGV) == 0);
    /* The caller's mask is as before. */
    (void)pthread_sigmask(SIG_SETMASK, NULL, &mine);
    CHECK(sigismember(&mine, SIGTERM) == 0);
}

static void count_wakes(void *arg)
{
    struct seen *seen = arg;

    while (thread_wait(&seen->thread))
        atomic_fetch_add(&seen->turns, 1);
}

TEST(thread_wake_is_not_lost_and_stop_ends_the_wait)
{
    struct seen seen = {0};
    struct error err;

    thread_wake(&seen.thread); /* before the start: no effect */
    CHECK_INT(thread_start(&seen.thread, "waits", THREAD_STACK_DEFAULT, count_wakes, &seen, &err),
              0);
    for (int i = 1; i <= 100; i++) {
        thread_wake(&seen.thread);
        WAIT_FOR(atomic_load(&seen.turns) == i);
    }
    thread_stop(&seen.thread);
    CHECK_INT(atomic_load(&seen.turns), 100);
    thread_stop(&seen.thread); /* once more: no effect */
    /* It can be started again. */
    CHECK_INT(thread_start(&seen.thread, "waits", THREAD_STACK_DEFAULT, count_wakes, &seen, &err),
              0);
    CHECK(!thread_stopping(&seen.thread));
    thread_ask_stop(&seen.thread);
    CHECK(thread_stopping(&seen.thread));
    thread_join(&seen.thread);
}

static void count_turns(void *arg)
{
    struct seen *seen = arg;

    do {
        atomic_fetch_add(&seen->turns, 1);
    } while (thread_wait_until(&seen->thread, clock_mono_us() + 10000));
}

TEST(thread_wait_ends_at_its_time)
{
    struct seen seen = {0};
    struct error err;

    CHECK_INT(thread_start(&seen.thread, "ticks", THREAD_STACK_DEFAULT, count_turns, &seen, &err),
              0);
    WAIT_FOR(atomic_load(&seen.turns) >= 3);
    thread_stop(&seen.thread);
}

static void note_end(void *arg)
{
    atomic_store((atomic_int *)arg, 1);
}

TEST(thread_detached_runs)
{
    static atomic_int ended;
    struct error err;

    CHECK_INT(thread_start_detached("detached", 64 * 1024, note_end, &ended, &err), 0);
    WAIT_FOR(atomic_load(&ended));
}

TEST(thread_start_reports_the_failure)
{
    struct thread thread = {0};
    struct error err = {0};

    CHECK_INT(thread_start(&thread, "huge", (size_t)1 << 60, note_end, NULL, &err), -1);
    CHECK(strstr(err.message, "start the thread 'huge'") != NULL);
    CHECK(!thread.started);
    thread_stop(&thread);
    CHECK_INT(thread_start(&thread, "huge", (size_t)1 << 60, note_end, NULL, NULL), -1);
}

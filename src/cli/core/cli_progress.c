#include "cli/core/cli_progress.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/size.h"
#include "cli/core/cli_screen.h"

enum { FIRST_MS = 300, EACH_MS = 200 };

struct cli_progress {
    const char *what;
    _Atomic uint64_t items, bytes, expected;
    int64_t begin_us;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool end;
};

void cli_progress_text(const char *what, uint64_t items, uint64_t bytes, uint64_t expected,
                       double seconds, char out[CLI_PROGRESS_SIZE])
{
    char done[SIZE_TEXT], rate[SIZE_TEXT], all[SIZE_TEXT], number[64] = "";
    double per_second = seconds > 0 ? (double)bytes / seconds : 0;

    size_text(bytes, done);
    size_text((uint64_t)per_second, rate);
    size_text(expected, all);
    if (what)
        (void)snprintf(number, sizeof(number), "%llu %s, ", (unsigned long long)items, what);
    if (expected > bytes && per_second > 0)
        (void)snprintf(out, CLI_PROGRESS_SIZE, "%s%s of %s, %s/s, %.0f s left", number, done, all,
                       rate, (double)(expected - bytes) / per_second);
    else
        (void)snprintf(out, CLI_PROGRESS_SIZE, "%s%s, %s/s", number, done, rate);
}

static void show(struct cli_progress *progress)
{
    char text[CLI_PROGRESS_SIZE];

    cli_progress_text(progress->what, atomic_load(&progress->items), atomic_load(&progress->bytes),
                      atomic_load(&progress->expected),
                      (double)(clock_mono_us() - progress->begin_us) / 1e6, text);
    (void)fprintf(stderr, "\r%s\033[K", text);
}

static struct timespec in_ms(int64_t ms)
{
    struct timespec at;

    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += ms / 1000;
    at.tv_nsec += ms % 1000 * 1000000;
    if (at.tv_nsec >= 1000000000) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000;
    }
    return at;
}

static void *show_again(void *arg)
{
    struct cli_progress *progress = arg;
    struct timespec next = in_ms(FIRST_MS);
    bool shown = false;

    (void)pthread_mutex_lock(&progress->lock);
    while (!progress->end) {
        if (pthread_cond_timedwait(&progress->ended, &progress->lock, &next) == 0)
            continue;
        show(progress);
        shown = true;
        next = in_ms(EACH_MS);
    }
    (void)pthread_mutex_unlock(&progress->lock);
    if (shown)
        (void)fprintf(stderr, "\r\033[K");
    return NULL;
}

static void init_cond(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;

    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(cond, &attributes);
    (void)pthread_condattr_destroy(&attributes);
}

struct cli_progress *cli_progress_start(const char *what)
{
    struct cli_progress *progress;
    sigset_t all, old;
    int rc;

    if (!cli_screen_is(STDERR_FILENO))
        return NULL;
    progress = xcalloc(1, sizeof(*progress));
    progress->what = what;
    progress->begin_us = clock_mono_us();
    (void)pthread_mutex_init(&progress->lock, NULL);
    init_cond(&progress->ended);
    (void)sigfillset(&all); /* signals are for whoever works */
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&progress->thread, NULL, show_again, progress);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc == 0)
        return progress;
    free(progress);
    return NULL;
}

void cli_progress_expect(struct cli_progress *progress, uint64_t bytes)
{
    if (progress)
        atomic_store(&progress->expected, bytes);
}

void cli_progress_add(struct cli_progress *progress, uint64_t items, uint64_t bytes)
{
    if (!progress)
        return;
    atomic_fetch_add(&progress->items, items);
    atomic_fetch_add(&progress->bytes, bytes);
}

void cli_progress_end(struct cli_progress *progress)
{
    if (!progress)
        return;
    (void)pthread_mutex_lock(&progress->lock);
    progress->end = true;
    (void)pthread_cond_signal(&progress->ended);
    (void)pthread_mutex_unlock(&progress->lock);
    (void)pthread_join(progress->thread, NULL);
    (void)pthread_cond_destroy(&progress->ended);
    (void)pthread_mutex_destroy(&progress->lock);
    free(progress);
}

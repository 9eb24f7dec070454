#include "cli/core/cli_progress.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/size.h"
#include "base/thread.h"
#include "cli/core/cli_screen.h"

enum { FIRST_US = 300 * 1000, EACH_US = 200 * 1000 };

struct cli_progress {
    const char *what;
    _Atomic uint64_t items, bytes, expected;
    int64_t begin_us;
    struct thread thread;
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

static void show_again(void *arg)
{
    struct cli_progress *progress = arg;
    int64_t wait_us = FIRST_US;

    for (; thread_wait_until(&progress->thread, clock_mono_us() + wait_us); wait_us = EACH_US)
        show(progress);
    if (wait_us == EACH_US) /* something was shown */
        (void)fprintf(stderr, "\r\033[K");
}

struct cli_progress *cli_progress_start(const char *what)
{
    struct cli_progress *progress;

    if (!cli_screen_is(STDERR_FILENO))
        return NULL;
    progress = xcalloc(1, sizeof(*progress));
    progress->what = what;
    progress->begin_us = clock_mono_us();
    if (thread_start(&progress->thread, "progress", THREAD_STACK_DEFAULT, show_again, progress,
                     NULL) == 0)
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
    thread_stop(&progress->thread);
    free(progress);
}

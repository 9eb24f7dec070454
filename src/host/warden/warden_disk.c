/* The thread that tends the disk pool: off every request's way, because moving a chunk takes its time. */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "host/disk/disk.h"
#include "host/warden/warden_internal.h"

enum {
    REPEAT_MS = 60000, /* the same failure is told again */
    SPARE_MS = 10000,
    SWEEP_MS = 2000,
};

struct told {
    bool held;
    int64_t failed_at_ms, spare_at_ms, sweep_at_ms;
    char failure[sizeof(((struct error *)0)->message)];
};

static void tell_failure(struct told *told, const struct error *err)
{
    int64_t now = clock_mono_ms();

    if (strcmp(told->failure, err->message) == 0 && now - told->failed_at_ms < REPEAT_MS)
        return;
    memcpy(told->failure, err->message, sizeof(told->failure));
    told->failed_at_ms = now;
    log_error("warden", "pool: %s", err->message);
}

static void tell_held(struct told *told, const struct disk_space *space, const char *data)
{
    if (space->held == told->held)
        return;
    told->held = space->held;
    if (space->held)
        log_warn("warden",
                 "the file system of '%s' is full (%" PRIu64
                 " MiB free): the pool stays at %" PRIu64 " MiB, %" PRIu64
                 " MiB of it free; sandboxes that need more are told that there is "
                 "no space. Nothing is lost; free some space there",
                 data, space->host_free >> 20, space->pool_bytes >> 20, space->pool_free >> 20);
    else
        log_info("warden", "the file system of '%s' has space again: the pool grows as needed",
                 data);
}

static void tend(struct warden *warden, struct told *told)
{
    struct disk_space space;
    struct error err;

    if (disk_tend(warden->disk, &err) < 0)
        tell_failure(told, &err);
    if (clock_mono_ms() >= told->sweep_at_ms) {
        disk_sweep(warden->disk);
        told->sweep_at_ms = clock_mono_ms() + SWEEP_MS;
    }
    warden_trees_tend(warden);
    if (disk_space(warden->disk, &space, &err) < 0)
        return;
    tell_held(told, &space, warden->config->data_dir);
    if (!space.held && clock_mono_ms() >= told->spare_at_ms) {
        for (size_t i = 0; i < warden->engine_count; i++)
            warden->engines[i]->ops->tend(warden->engines[i]);
        told->spare_at_ms = clock_mono_ms() + SPARE_MS;
    }
}

static void run(void *arg)
{
    struct warden *warden = arg;
    struct told told = {0};

    do
        tend(warden, &told);
    while (thread_wait_until(&warden->disk_thread, clock_mono_us() + DISK_TEND_MS * 1000));
}

int warden_disk_start(struct warden *warden, struct error *err)
{
    return thread_start(&warden->disk_thread, "disk", THREAD_STACK_DEFAULT, run, warden, err);
}

void warden_disk_stop(struct warden *warden)
{
    thread_stop(&warden->disk_thread);
}

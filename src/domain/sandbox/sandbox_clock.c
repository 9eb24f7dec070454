/* Ends are promises in wall time, because they are shown to clients and survive restarts; but what was
 * promised is a duration. When somebody sets the clock, an hour forward or back, no sandbox may end an
 * hour early or late. So time is measured by the clock that counts from the boot of the host, and its
 * distance to the wall clock is noted; when that changes by more than a little, the clock was set, and
 * all ends, here and in the store, move by as much. The distance is in the store with the boot it
 * belongs to, so that a change while no server ran is noticed as well. After a reboot there is only the
 * wall clock. */
#include <linux/fcntl.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_table.h"

enum { STEP_US = 500 * 1000 };

static bool is_step(int64_t delta)
{
    return delta > STEP_US || delta < -STEP_US;
}

/* Wall time, as long as the clock was only corrected. */
int64_t now_us(const struct sandboxes *all)
{
    int64_t steady = atomic_load(&all->clock_us) + clock_boot_us(), wall = clock_wall_us();

    return is_step(wall - steady) ? steady : wall;
}

static struct str boot_id(struct buf *text)
{
    buf_init(text, 64);
    if (fd_read_file_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", text) < 0)
        return STR("unknown");
    return str_trim(buf_str(text));
}

int clock_open(struct sandboxes *all, struct error *err)
{
    auto_buf struct buf text = {0};
    struct str boot = boot_id(&text);
    int64_t clock_us = clock_wall_us() - clock_boot_us(), before_us = clock_us;

    atomic_store(&all->clock_us, clock_us);
    if (store_clock_get(all->store, boot, &before_us, err) < 0)
        return -1;
    if (!is_step(clock_us - before_us))
        before_us = clock_us;
    else
        log_warn("sandbox", "the clock was set by %lld s since the last start: ends move with it",
                 (long long)((clock_us - before_us) / 1000000));
    return store_clock_set(all->store, boot, clock_us, clock_us - before_us, err);
}

/* The order of the schedule stays: all of it moves by the same. */
static void move_ends(struct sandboxes *all, int64_t delta)
{
    struct map_entry *entry;

    map_for_each (&all->table, entry) {
        struct sandbox *sandbox = entry->value;

        if (sandbox->due_us > 0)
            sandbox->due_us += delta;
    }
}

void clock_follow(struct sandboxes *all)
{
    int64_t delta = clock_wall_us() - clock_boot_us() - atomic_load(&all->clock_us);
    auto_buf struct buf text = {0};
    struct error err = {0};

    if (!is_step(delta)) {
        atomic_fetch_add(&all->clock_us, delta);
        return;
    }
    log_warn("sandbox", "the clock was set by %lld s: the ends of sandboxes move with it",
             (long long)(delta / 1000000));
    move_ends(all, delta);
    atomic_fetch_add(&all->clock_us, delta);
    /* Rare enough to be done with the lock held: nobody changes an end meanwhile. */
    if (store_clock_set(all->store, boot_id(&text), atomic_load(&all->clock_us), delta, &err) < 0)
        log_error("sandbox", "%s; after a restart ends are off by %lld s", err.message,
                  (long long)(delta / 1000000));
}

/* Watches how large the trees become that boxes are filling. The host's file system knows no quota for a directory, and
 * adding up a large tree takes its time; but asking how much is free takes none. So a tree is added up only when
 * the host has lost as much space as would bring it beyond its limit, whoever took it; and now and then besides, because
 * others may have freed as much, or the file system may not count yet what is not written out (btrfs). A box that is beyond it, or that has
 * used up what the host must keep for itself, has to end. Between two looks it may write some more: what it can write in
 * TREES_TEND_MS.
 *
 * A quota for this would need the pool, and then the tree would have to be copied once more. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "host/disk/tree_internal.h"

enum {
    RESERVE_PERCENT = 2,
    LOOK_MS = 1000,     /* between two times that one is added up, at least */
    LATE_MS = 5000,     /* and at most */
    UNUSED_MS = 600000, /* whoever wanted to seal it is gone */
};
static const uint64_t reserve_max = UINT64_C(1) << 30;

struct space {
    uint64_t free;
    bool low;
};

static bool is_low(const struct statvfs *fs)
{
    uint64_t size = (uint64_t)fs->f_blocks * fs->f_frsize, reserve = size / 100 * RESERVE_PERCENT;

    if (reserve > reserve_max)
        reserve = reserve_max;
    return (uint64_t)fs->f_bavail * fs->f_frsize < reserve ||
           (fs->f_files && fs->f_favail < fs->f_files / 100 * RESERVE_PERCENT);
}

static int ask_space(const struct trees *trees, struct space *out, struct error *err)
{
    struct statvfs fs;

    if (fstatvfs(trees->layers_fd, &fs) < 0)
        return error_set_errno(err, errno, "ask for the free space of the layers");
    *out = (struct space){.free = (uint64_t)fs.f_bavail * fs.f_frsize, .low = is_low(&fs)};
    return 0;
}

int tree_check_space(const struct trees *trees, struct error *err)
{
    struct space space = {0};

    if (ask_space(trees, &space, err) < 0)
        return -1;
    return space.low ? error_set(err, ERROR_NO_SPACE,
                                 "too little space is left where the layers are (%" PRIu64 " MiB)",
                                 space.free >> 20)
                     : 0;
}

void tree_watch_add(struct trees *trees, const char *name, uint64_t limit)
{
    struct tree_fill *fill = xcalloc(1, sizeof(*fill));
    struct space space = {0};
    struct error ignored;

    (void)snprintf(fill->name, sizeof(fill->name), "%s", name);
    fill->limit = limit;
    fill->look_at_ms = clock_mono_ms();
    (void)ask_space(trees, &space, &ignored);
    fill->host_free = space.free;
    (void)pthread_mutex_lock(&trees->lock);
    list_push_back(&trees->fills, &fill->link);
    (void)pthread_mutex_unlock(&trees->lock);
}

/* With the lock. */
static struct tree_fill *find(struct trees *trees, const char *name)
{
    struct list *node;

    list_for_each (node, &trees->fills) {
        struct tree_fill *fill = container_of(node, struct tree_fill, link);

        if (strcmp(fill->name, name) == 0)
            return fill;
    }
    return NULL;
}

bool tree_watch_take(struct trees *trees, const char *name, struct tree_fill *out)
{
    struct tree_fill *fill;

    (void)pthread_mutex_lock(&trees->lock);
    fill = find(trees, name);
    if (fill)
        list_remove(&fill->link);
    (void)pthread_mutex_unlock(&trees->lock);
    if (!fill)
        return false;
    *out = *fill;
    free(fill);
    return true;
}

/* May it be larger than it should be? */
static bool is_suspect(const struct tree_fill *fill, const struct space *space, int64_t now_ms)
{
    uint64_t lost = fill->host_free > space->free ? fill->host_free - space->free : 0;

    if (fill->over)
        return false;
    if (space->low || now_ms >= fill->look_at_ms + LATE_MS - LOOK_MS)
        return true;
    return fill->limit && fill->bytes + lost > fill->limit && now_ms >= fill->look_at_ms;
}

/* With the lock. */
static struct tree_fill *find_suspect(struct trees *trees, const struct space *space)
{
    int64_t now = clock_mono_ms();
    struct list *node;

    list_for_each (node, &trees->fills) {
        struct tree_fill *fill = container_of(node, struct tree_fill, link);

        if (is_suspect(fill, space, now))
            return fill;
    }
    return NULL;
}

/* Its box writes meanwhile. One that nobody could seal anyway counts as too large. */
static int add_up(struct trees *trees, const char *name, uint64_t *out_bytes)
{
    char new[TREE_NAME_SIZE];
    auto_close int fd = -1;
    struct tree_stamp stamp;
    struct error err;

    (void)snprintf(new, sizeof(new), TREE_NEW "%s", name);
    if (tree_open_entry(trees, new, &fd, &err) < 0)
        return 0;
    if (tree_stamp_measure(trees, fd, &stamp, &err) < 0)
        return err.code == ERROR_INVALID || err.code == ERROR_LIMIT ? -1 : 0;
    *out_bytes = stamp.info.bytes;
    return 0;
}

/* Looks at one; false when there is none to look at. */
static bool look(struct trees *trees, const struct space *space, char over[TREE_NAME_SIZE])
{
    char name[TREE_NAME_SIZE] = "";
    struct tree_fill *fill;
    uint64_t bytes = 0;
    int r;

    (void)pthread_mutex_lock(&trees->lock);
    fill = find_suspect(trees, space);
    if (fill)
        memcpy(name, fill->name, sizeof(name));
    (void)pthread_mutex_unlock(&trees->lock);
    if (!fill)
        return false;
    r = space->low ? -1 : add_up(trees, name, &bytes);
    (void)pthread_mutex_lock(&trees->lock);
    fill = find(trees, name);
    if (fill) {
        fill->bytes = bytes;
        fill->host_free = space->free;
        fill->look_at_ms = clock_mono_ms() + LOOK_MS;
        fill->over = r < 0 || (fill->limit && bytes > fill->limit);
        if (fill->over)
            memcpy(over, name, sizeof(name));
    }
    (void)pthread_mutex_unlock(&trees->lock);
    return true;
}

static void watch_size(struct trees *trees, const struct trees_tending *tending)
{
    struct space space = {0};
    struct error err;

    if (ask_space(trees, &space, &err) < 0)
        return;
    for (;;) {
        char over[TREE_NAME_SIZE] = "";

        if (!look(trees, &space, over))
            return;
        if (!over[0])
            continue;
        log_warn("warden", "layer '%s' is larger than it may be, or the disk is full: its box ends",
                 over);
        tending->overfull(over, tending->arg);
    }
}

/* With the lock. A copy of the n-th name; false when there is none. */
static bool nth_name(struct trees *trees, size_t n, char out[TREE_NAME_SIZE])
{
    struct list *node;

    list_for_each (node, &trees->fills) {
        if (n-- > 0)
            continue;
        memcpy(out, container_of(node, struct tree_fill, link)->name, TREE_NAME_SIZE);
        return true;
    }
    return false;
}

/* With the lock. */
static bool note_use(struct trees *trees, const char *name, bool used)
{
    struct tree_fill *fill = find(trees, name);
    int64_t now = clock_mono_ms();

    if (!fill)
        return false;
    if (used)
        fill->unused_at_ms = 0;
    else if (fill->unused_at_ms == 0)
        fill->unused_at_ms = now;
    return !used && now - fill->unused_at_ms >= UNUSED_MS;
}

/* Those whose box is gone for long, and that nobody sealed. */
static void watch_use(struct trees *trees, const struct trees_tending *tending)
{
    char name[TREE_NAME_SIZE];

    for (size_t i = 0;; i++) {
        struct error ignored;
        bool found, used, forgotten;

        (void)pthread_mutex_lock(&trees->lock);
        found = nth_name(trees, i, name);
        (void)pthread_mutex_unlock(&trees->lock);
        if (!found)
            return;
        used = tending->used(name, tending->arg);
        (void)pthread_mutex_lock(&trees->lock);
        forgotten = note_use(trees, name, used);
        (void)pthread_mutex_unlock(&trees->lock);
        if (forgotten)
            (void)tree_delete(trees, name, &ignored);
    }
}

void tree_watch_tend(struct trees *trees, const struct trees_tending *tending)
{
    bool any;

    (void)pthread_mutex_lock(&trees->lock);
    any = !list_empty(&trees->fills);
    (void)pthread_mutex_unlock(&trees->lock);
    if (!any)
        return;
    watch_size(trees, tending);
    watch_use(trees, tending);
}

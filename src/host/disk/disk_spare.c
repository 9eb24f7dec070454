/* Spare clones of layers. A clone waits for the disk, since btrfs commits a transaction for each: milliseconds, and all
 * of the time that a box takes that is made of a blank one. So a layer that was just used, and is too large to be copied
 * (disk_small.c), gets one clone ahead, spares/<layer>, by a thread of its own; whoever needs one renames it. What a killed warden left, the next one removes. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/cond.h"
#include "base/thread.h"
#include "host/disk/disk_internal.h"

enum { SPARE_NICE = 10, PAUSE_US = 5000 };

static bool same(const char *a, const char *b)
{
    return strncmp(a, b, DISK_SPARE_NAME_SIZE) == 0;
}

/* With the lock: the place of a layer in the list, which has the one that was wanted last at its end; count when it has none. */
static size_t find(const struct disk_spares *spares, const char *layer)
{
    size_t i = 0;

    while (i < spares->count && !same(spares->list[i].layer, layer))
        i++;
    return i;
}

static void remove_at(struct disk_spares *spares, size_t i)
{
    memmove(&spares->list[i], &spares->list[i + 1],
            (--spares->count - i) * sizeof(spares->list[0]));
}

/* Ready to be used by any box: all that can be done before its limit is known. */
static int make(struct disk *disk, const char *layer, struct error *err)
{
    auto_close int fd = -1;

    if (disk_subvol_open(disk->layers_fd, layer, &fd, err) < 0 ||
        disk_subvol_snapshot(fd, disk->spares_fd, layer, false, err) < 0)
        return -1;
    return disk_box_prepare(disk, disk->spares_fd, layer, err);
}

/* With the lock. The next that is wanted and not there. */
static bool next(const struct disk_spares *spares, char out[DISK_SPARE_NAME_SIZE])
{
    for (size_t i = spares->count; i-- > 0;)
        if (!spares->list[i].ready) {
            memcpy(out, spares->list[i].layer, DISK_SPARE_NAME_SIZE);
            return true;
        }
    return false;
}

static void made(struct disk *disk, const char *layer, bool good)
{
    struct disk_spares *spares = &disk->spares;
    struct error ignored;
    size_t i = find(spares, layer);

    if (good && i < spares->count) {
        spares->list[i].ready = true;
        return;
    }
    if (i < spares->count)
        remove_at(spares, i);
    (void)disk_subvol_delete(disk, disk->spares_fd, layer, &ignored);
}

static void run(void *arg)
{
    struct disk *disk = arg;
    struct disk_spares *spares = &disk->spares;

    (void)setpriority(PRIO_PROCESS, 0, SPARE_NICE);
    (void)pthread_mutex_lock(&spares->lock);
    while (!spares->stopping) {
        struct error ignored;
        bool good;

        if (!next(spares, spares->making)) {
            (void)pthread_cond_wait(&spares->changed, &spares->lock);
            continue;
        }
        (void)pthread_mutex_unlock(&spares->lock);
        /* Whoever used the layer is still at it, and would wait for our transaction. */
        (void)usleep(PAUSE_US);
        good = make(disk, spares->making, &ignored) == 0;
        (void)pthread_mutex_lock(&spares->lock);
        made(disk, spares->making, good);
        spares->making[0] = '\0';
        (void)pthread_cond_broadcast(&spares->changed);
    }
    (void)pthread_mutex_unlock(&spares->lock);
}

void disk_spare_open(struct disk *disk)
{
    (void)pthread_mutex_init(&disk->spares.lock, NULL);
    (void)pthread_cond_init(&disk->spares.changed, NULL);
}

void disk_spare_close(struct disk *disk)
{
    struct disk_spares *spares = &disk->spares;
    struct error ignored;

    (void)pthread_mutex_lock(&spares->lock);
    spares->stopping = true;
    (void)pthread_cond_broadcast(&spares->changed);
    (void)pthread_mutex_unlock(&spares->lock);
    if (spares->process == getpid())
        thread_join(&spares->thread);
    for (size_t i = 0; i < spares->count; i++)
        (void)disk_subvol_delete(disk, disk->spares_fd, spares->list[i].layer, &ignored);
    (void)pthread_mutex_destroy(&spares->lock);
    (void)pthread_cond_destroy(&spares->changed);
}

/* With the lock. A process that was forked off has no such thread, and gets none. */
static bool has_thread(struct disk *disk)
{
    struct disk_spares *spares = &disk->spares;

    if (spares->process == 0 &&
        thread_start(&spares->thread, "spares", THREAD_STACK_DEFAULT, run, disk, NULL) == 0)
        spares->process = getpid();
    return spares->process == getpid();
}

/* With the lock. The one that was wanted longest ago goes, unless it is being made. */
static bool make_room(struct disk *disk, struct disk_spares *spares)
{
    struct error ignored;

    if (spares->count < DISK_SPARES_MAX)
        return true;
    for (size_t i = 0; i < spares->count; i++) {
        char layer[DISK_SPARE_NAME_SIZE];

        if (same(spares->list[i].layer, spares->making))
            continue;
        memcpy(layer, spares->list[i].layer, sizeof(layer));
        remove_at(spares, i);
        (void)disk_subvol_delete(disk, disk->spares_fd, layer, &ignored);
        return true;
    }
    return false;
}

void disk_spare_want(struct disk *disk, const char *layer)
{
    struct disk_spares *spares = &disk->spares;

    (void)pthread_mutex_lock(&spares->lock);
    if (has_thread(disk) && find(spares, layer) == spares->count && make_room(disk, spares)) {
        struct disk_spare *spare = &spares->list[spares->count++];

        *spare = (struct disk_spare){0};
        (void)snprintf(spare->layer, sizeof(spare->layer), "%s", layer);
        (void)pthread_cond_broadcast(&spares->changed);
    }
    (void)pthread_mutex_unlock(&spares->lock);
}

bool disk_spare_known(struct disk *disk, const char *layer)
{
    struct disk_spares *spares = &disk->spares;
    bool known;

    (void)pthread_mutex_lock(&spares->lock);
    known = find(spares, layer) < spares->count;
    (void)pthread_mutex_unlock(&spares->lock);
    return known;
}

bool disk_spare_take(struct disk *disk, const char *layer, const char *id)
{
    struct disk_spares *spares = &disk->spares;
    bool taken = false;
    size_t i;

    (void)pthread_mutex_lock(&spares->lock);
    i = find(spares, layer);
    if (i < spares->count && spares->list[i].ready) {
        remove_at(spares, i);
        taken = renameat(disk->spares_fd, layer, disk->boxes_fd, id) == 0;
    }
    (void)pthread_mutex_unlock(&spares->lock);
    return taken;
}

void disk_spare_drop(struct disk *disk, const char *layer)
{
    struct disk_spares *spares = &disk->spares;
    struct error ignored;
    bool was;
    size_t i;

    (void)pthread_mutex_lock(&spares->lock);
    while (spares->process == getpid() && same(spares->making, layer))
        (void)pthread_cond_wait(&spares->changed, &spares->lock);
    i = find(spares, layer);
    was = i < spares->count;
    if (was)
        remove_at(spares, i);
    (void)pthread_mutex_unlock(&spares->lock);
    if (was)
        (void)disk_subvol_delete(disk, disk->spares_fd, layer, &ignored);
}

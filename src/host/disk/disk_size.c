/* The size of the image. It is sparse, so its size is a promise to the file system inside; it is never
 * made larger than what the host's file system could keep at that moment. What becomes of the promise
 * when others fill that file system is disk_back.c's. */
#include <errno.h>
#include <linux/loop.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>

#include "base/cleanup.h"
#include "host/disk/disk_internal.h"

#define MIB (1024ull * 1024)
#define GIB (1024 * MIB)

enum { RESERVE_PERCENT = 5, FREE_PERCENT = 25 };
static const uint64_t reserve_min = 2 * GIB;
static const uint64_t step_min = 64 * MIB; /* smaller steps are not worth a resize */

int disk_size_allowed(int dir_fd, uint64_t image_bytes, uint64_t *out_bytes, struct error *err)
{
    struct statvfs host;
    uint64_t free_bytes, reserve;

    if (fstatvfs(dir_fd, &host) < 0)
        return error_set_errno(err, errno, "ask for the free space of the data directory");
    free_bytes = (uint64_t)host.f_bavail * host.f_frsize;
    reserve = (uint64_t)host.f_blocks * host.f_frsize / 100 * RESERVE_PERCENT;
    if (reserve < reserve_min)
        reserve = reserve_min;
    *out_bytes = image_bytes + (free_bytes > reserve ? free_bytes - reserve : 0);
    *out_bytes -= *out_bytes % MIB;
    return 0;
}

static int set_capacity(struct disk *disk, struct error *err)
{
    struct disk_loop loop = {.fd = -1};
    struct stat image;
    int found;

    if (fstat(disk->image_fd, &image) < 0)
        return error_set_errno(err, errno, "ask for the image's size");
    found = disk_loop_find(&image, &loop, err);
    auto_close int loop_fd = loop.fd;

    if (found < 0)
        return -1;
    if (found == 0)
        return error_set(err, ERROR_INTERNAL, "the pool's image has no loop device");
    if (ioctl(loop_fd, LOOP_SET_CAPACITY, 0) < 0)
        return error_set_errno(err, errno, "enlarge '%s'", loop.path);
    disk->settled = true;
    return 0;
}

/* The file system inside follows in disk_back(). */
static int enlarge(struct disk *disk, uint64_t bytes, struct error *err)
{
    if (ftruncate(disk->image_fd, (off_t)bytes) < 0)
        return error_set_errno(err, errno, "enlarge the pool's image");
    disk->settled = false;
    return set_capacity(disk, err);
}

static int grow(struct disk *disk, struct error *err)
{
    struct statvfs pool;
    struct stat image;
    uint64_t size, allowed = 0, wanted;

    if (fstatvfs(disk->pool_fd, &pool) < 0 || fstat(disk->image_fd, &image) < 0)
        return error_set_errno(err, errno, "ask for the pool's size");
    size = (uint64_t)image.st_size;
    if (disk->held || (uint64_t)pool.f_bavail * 100 >= (uint64_t)pool.f_blocks * FREE_PERCENT)
        return 0;
    if (disk_size_allowed(disk->image_fd, (uint64_t)image.st_blocks * 512, &allowed, err) < 0)
        return -1;
    wanted = size * 2 < allowed ? size * 2 : allowed;
    return wanted >= size + step_min ? enlarge(disk, wanted, err) : 0;
}

/* A crash between the steps of enlarge() leaves a device smaller than its image. */
static int tend(struct disk *disk, struct error *err)
{
    if (!disk->settled && set_capacity(disk, err) < 0)
        return -1;
    disk_back_hurry(disk);
    if (grow(disk, err) < 0)
        return -1;
    return disk_back(disk, err);
}

int disk_tend(struct disk *disk, struct error *err)
{
    struct error ignored;
    int r = 0;

    (void)pthread_mutex_lock(&disk->tend_lock);
    if (disk->image_fd >= 0)
        r = tend(disk, err);
    if (r == 0)
        r = disk_share(disk, err);
    else
        (void)disk_share(disk, &ignored);
    (void)pthread_mutex_unlock(&disk->tend_lock);
    return r;
}

int disk_space(struct disk *disk, struct disk_space *out, struct error *err)
{
    struct statvfs pool, host;

    if (fstatvfs(disk->pool_fd, &pool) < 0 ||
        fstatvfs(disk->image_fd >= 0 ? disk->image_fd : disk->pool_fd, &host) < 0)
        return error_set_errno(err, errno, "ask for the free space of the pool");
    *out = (struct disk_space){
        .pool_bytes = (uint64_t)pool.f_blocks * pool.f_frsize,
        .pool_free = (uint64_t)pool.f_bavail * pool.f_frsize,
        .host_bytes = (uint64_t)host.f_blocks * host.f_frsize,
        .host_used = (uint64_t)(host.f_blocks - host.f_bfree) * host.f_frsize,
        .host_free = (uint64_t)host.f_bavail * host.f_frsize,
        .held = __atomic_load_n(&disk->held, __ATOMIC_RELAXED),
    };
    return 0;
}

/* Real blocks behind the image.
 *
 * The image is sparse. A block that others took from the host's file system would be missing when btrfs
 * writes to it: long after the program inside was told that its write succeeded, and reason enough for
 * btrfs to stop. So btrfs is never let to where there are no blocks:
 *
 *   0          last chunk's end       backed          file system's end        image's end
 *   |  chunks, gaps  |    headroom    |    a promise, sparse    |     nothing     |
 *
 * btrfs writes to chunks only, pieces of at most CHUNK_BYTES, and takes the first gap that is large
 * enough for a new one. Everything up to `backed` has its blocks, and disk_tend() moves it ahead of the
 * chunks. Nothing below is given back piece by piece (nodiscard). When the host cannot provide more, the
 * file system is made to end where the host's blocks do: a program that writes is told at once that there
 * is no space, and nothing that was acknowledged gets lost. It grows again when there is space.
 *
 * Chunks that emptied are removed by btrfs, those with little in them are merged by it
 * (bg_reclaim_threshold); the last one is moved to a gap when there are many; what is behind the headroom
 * then goes back to the host. All of that happens by resizing the file system, so btrfs itself
 * sees to it that nothing of its is there. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "host/disk/disk_internal.h"

#define MIB (1024ull * 1024)
#define GIB (1024 * MIB)

#define CHUNK_BYTES "268435456"
static const uint64_t headroom_max = 512 * MIB;   /* two chunks */
static const uint64_t headroom_unknown = 2 * GIB; /* the kernel chooses the size of chunks */
static const uint64_t host_keep = 256 * MIB;      /* for the store, records, everybody */
static const uint64_t smallest_fs = 256 * MIB;    /* btrfs' own limit */
static const uint64_t give_back_min = 256 * MIB;  /* less is not worth a resize */
static const uint64_t gaps_min = 1 * GIB;
static const uint64_t small_metadata = 16 * MIB;
static const uint64_t plenty = 2 * GIB;
static const uint64_t step_min = 64 * MIB;
static const uint64_t little_max = 256 * MIB;
enum { GIVE_BACK_MS = 30000, HURRY_MS = 1000, HEADROOM_PERCENT = 20, LITTLE_PERCENT = 5 };

/* What there is, in bytes. */
struct look {
    uint64_t image;     /* size of the file */
    uint64_t allocated; /* blocks of the host in it */
    uint64_t fs;        /* size of the file system inside */
    uint64_t chunks;    /* sum of its chunks */
    uint64_t last, end; /* of its last chunk */
    uint64_t can;       /* what the file could be given, some left to the host */
    uint64_t want;      /* backed up to here, all is well */
};

/* Every block of a new image has to come from somewhere: the first is as good as any. */
bool disk_back_possible(int image_fd)
{
    return fallocate(image_fd, 0, 0, 4096) == 0 || errno != EOPNOTSUPP;
}

void disk_back_open(struct disk *disk)
{
    auto_close int fd = -1;
    struct error ignored;
    uint64_t metadata;

    disk->headroom = headroom_unknown;
    disk->unbacked = disk->image_fd >= 0 && !disk_back_possible(disk->image_fd);
    if (disk->image_fd < 0 || disk_sysfs_open(disk, "allocation", &fd, &ignored) < 0)
        return;
    /* Older kernels have larger chunks, and merge none. */
    if (fd_write_value_at(fd, "data/chunk_size", CHUNK_BYTES) == 0 &&
        fd_write_value_at(fd, "metadata/chunk_size", CHUNK_BYTES) == 0)
        disk->headroom = headroom_max;
    (void)fd_write_value_at(fd, "data/bg_reclaim_threshold", "30");
    disk->small_metadata =
        disk_sysfs_number(fd, "metadata/total_bytes", &metadata) == 0 && metadata < small_metadata;
}

/* The last chunk with an offset of `from` or more; 0 when there is none. */
static int last_chunk(const struct disk *disk, uint64_t from, struct look *look, struct error *err)
{
    struct disk_tree_range range = {.tree = BTRFS_DEV_TREE_OBJECTID,
                                    .objectid = 1,
                                    .type = BTRFS_DEV_EXTENT_KEY,
                                    .min_offset = from,
                                    .max_offset = UINT64_MAX};
    int found = 0, r;

    for (;;) {
        struct btrfs_dev_extent extent;
        uint64_t length;

        r = disk_tree_item(disk->pool_fd, &range, &look->last, &extent, sizeof(extent), err);
        if (r <= 0)
            return r < 0 ? -1 : found;
        memcpy(&length, &extent.length, sizeof(length));
        look->end = look->last + le64toh(length);
        range.min_offset = look->last + 1;
        found = 1;
    }
}

static int look_at_host(const struct disk *disk, struct look *look, struct error *err)
{
    struct statvfs host;
    struct stat image;
    uint64_t free_bytes;

    if (fstatvfs(disk->image_fd, &host) < 0 || fstat(disk->image_fd, &image) < 0)
        return error_set_errno(err, errno, "ask for the free space below the pool");
    look->image = (uint64_t)image.st_size;
    look->allocated = (uint64_t)image.st_blocks * 512;
    free_bytes = (uint64_t)host.f_bavail * host.f_frsize;
    look->can = look->allocated + (free_bytes > host_keep ? free_bytes - host_keep : 0);
    return 0;
}

static int look_at(struct disk *disk, struct look *look, struct error *err)
{
    struct btrfs_ioctl_dev_info_args device = {.devid = 1};
    uint64_t headroom;
    int r;

    if (look_at_host(disk, look, err) < 0)
        return -1;
    if (ioctl(disk->pool_fd, BTRFS_IOC_DEV_INFO, &device) < 0)
        return error_set_errno(err, errno, "ask for the pool's device");
    look->fs = device.total_bytes;
    look->chunks = device.bytes_used;
    r = last_chunk(disk, disk->last_chunk, look, err);
    if (r == 0)
        r = last_chunk(disk, 0, look, err);
    if (r < 0)
        return -1;
    disk->last_chunk = look->last;
    headroom = look->image / 100 * HEADROOM_PERCENT;
    look->want = look->end + (headroom < disk->headroom ? headroom : disk->headroom);
    if (look->want < smallest_fs)
        look->want = smallest_fs;
    if (look->want > look->image)
        look->want = look->image;
    return 0;
}

/* Moves the mark ahead as far as the host allows. A chunk that came since gets its blocks even at the
 * host's expense; not all that an image without any may lack. */
static int back(struct disk *disk, const struct look *look, struct error *err)
{
    uint64_t mark = look->want < look->can ? look->want : look->can - look->can % MIB;

    if (mark < look->want && mark < disk->backed + step_min)
        mark = disk->backed;
    if (mark < look->end && look->end - disk->backed <= GIB)
        mark = look->end;
    if (mark <= disk->backed)
        return 0;
    if (fallocate(disk->image_fd, 0, (off_t)disk->backed, (off_t)(mark - disk->backed)) == 0)
        disk->backed = mark;
    else if (errno != ENOSPC)
        return error_set_errno(err, errno, "allocate blocks of the pool's image");
    return 0;
}

static int resize(const struct disk *disk, uint64_t bytes, struct error *err)
{
    struct btrfs_ioctl_vol_args args = {0};

    (void)snprintf(args.name, sizeof(args.name), "%llu", (unsigned long long)bytes);
    if (ioctl(disk->pool_fd, BTRFS_IOC_RESIZE, &args) < 0)
        return error_set_errno(err, errno, "resize the pool to %llu MiB",
                               (unsigned long long)(bytes / MIB));
    return 0;
}

/* The size of the file system: what the host could provide now. */
static int promise(const struct disk *disk, const struct look *look, struct error *err)
{
    uint64_t size = look->image;

    if (size > look->can) {
        size = look->can - look->can % GIB;
        if (disk->backed < look->want) /* others are faster */
            size = 0;
        if (size < disk->backed)
            size = disk->backed;
        if (size < look->end)
            size = look->end;
        if (size < smallest_fs)
            size = smallest_fs;
        if (size > look->fs && size < look->fs + GIB + step_min)
            return 0; /* not with every file that comes or goes */
    }
    return size == look->fs ? 0 : resize(disk, size, err);
}

/* Blocks behind `keep` go back to the host. btrfs is made to end there meanwhile, for which it
 * moves what it has there. */
static int give_back(struct disk *disk, const struct look *look, uint64_t keep, struct error *err)
{
    if (resize(disk, keep, err) < 0)
        return -1;
    disk->backed = keep;
    if (fallocate(disk->image_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)keep,
                  (off_t)(look->image - keep)) < 0)
        return error_set_errno(err, errno, "give blocks of the pool's image back");
    return resize(disk, look->fs, err);
}

static int save(struct disk *disk, const struct look *look, struct error *err)
{
    uint64_t gaps = look->end - look->chunks;

    if (clock_mono_ms() < disk->give_back_at_ms)
        return 0;
    disk->give_back_at_ms = clock_mono_ms() + GIVE_BACK_MS;
    if (gaps > gaps_min && gaps > look->end / 2 && look->last >= smallest_fs)
        return give_back(disk, look, look->last, err);
    if (look->want >= smallest_fs && look->allocated > look->want + give_back_min)
        return give_back(disk, look, look->want, err);
    return 0;
}

/* btrfs frees what was deleted in its own time, half a minute at worst: too long when there is nothing
 * else. */
void disk_back_hurry(struct disk *disk)
{
    struct statvfs pool;

    if (clock_mono_ms() < disk->hurry_at_ms || fstatvfs(disk->pool_fd, &pool) < 0 ||
        (uint64_t)pool.f_bavail * pool.f_frsize >= little_max ||
        pool.f_bavail >= pool.f_blocks / 100 * LITTLE_PERCENT)
        return;
    (void)ioctl(disk->pool_fd, BTRFS_IOC_SYNC);
    disk->hurry_at_ms = clock_mono_ms() + HURRY_MS;
}

/* mkfs makes a chunk of 8 MiB for metadata. The next one comes when that is nearly full, which may be
 * too late: writers of large files have all the rest in chunks of data by then, and nobody can so much as
 * make a directory. Moving what is in it gets it one of the usual size; not while there is plenty, for
 * large pools mostly have one by then. */
static void make_room_for_metadata(struct disk *disk, const struct look *look)
{
    struct btrfs_ioctl_balance_args args = {.flags = BTRFS_BALANCE_METADATA};
    uint64_t not_in_chunks = look->fs - look->chunks;

    if (!disk->small_metadata || (not_in_chunks >= plenty && not_in_chunks >= look->fs / 2))
        return;
    (void)ioctl(disk->pool_fd, BTRFS_IOC_BALANCE_V2, &args); /* or after the next start */
    disk->small_metadata = false;
}

int disk_back(struct disk *disk, struct error *err)
{
    struct look look = {0};

    if (look_at(disk, &look, err) < 0)
        return -1;
    if (disk->unbacked)
        return look.fs == look.image ? 0 : resize(disk, look.image, err);
    if (back(disk, &look, err) < 0)
        return -1;
    __atomic_store_n(&disk->held, disk->backed < look.want, __ATOMIC_RELAXED);
    if (promise(disk, &look, err) < 0)
        return -1;
    if (disk->held)
        return 0;
    make_room_for_metadata(disk, &look);
    return save(disk, &look, err);
}

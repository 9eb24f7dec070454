/* Opening and unmounting the pool.
 *
 * Opening is idempotent and looks at the host, not at records: a pool that is mounted is adopted,
 * an image that exists is mounted, else one is made under a temporary name and renamed once it is
 * a file system. So a crash at any point is repaired by the next open. The mount outlives us; only
 * disk_unmount() takes it away. */
#include "host/disk/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <time.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "host/disk/disk_internal.h"

#define DEFAULT_BYTES  (16ull << 30)
#define SMALLEST_BYTES (256ull << 20)

#define MOUNT_FLAGS (MS_NOATIME | MS_NOSUID | MS_NODEV)

enum {
    DIR_FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
    DETACH_TRIES = 50,
    CLEAR_TRIES = 500
};

struct places {
    int data_fd;
    char image[4096];
    char pool[4096];
};

static int places_open(struct places *places, const struct disk_config *config, struct error *err)
{
    size_t len = strlen(config->data_dir);

    if (len == 0 || len + sizeof("/pool.img") > sizeof(places->image))
        return error_set(err, ERROR_INVALID, "bad data directory");
    (void)snprintf(places->image, sizeof(places->image), "%s/pool.img", config->data_dir);
    (void)snprintf(places->pool, sizeof(places->pool), "%s/pool", config->data_dir);
    places->data_fd = open(config->data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (places->data_fd < 0)
        return error_set_errno(err, errno, "open data directory '%s'", config->data_dir);
    return 0;
}

static void places_close(struct places *places)
{
    close_fd(&places->data_fd);
}

static bool is_btrfs(int fd)
{
    struct statfs fs;

    return fstatfs(fd, &fs) == 0 && fs.f_type == BTRFS_SUPER_MAGIC;
}

/* 1 when something is mounted on DATA/pool, 0 when not (or nothing is there). */
static int pool_mounted(const struct places *places, struct error *err)
{
    struct statx stx;

    if (statx(places->data_fd, "pool", AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_TYPE, &stx) < 0)
        return errno == ENOENT ? 0 : error_set_errno(err, errno, "stat '%s'", places->pool);
    return (stx.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

static int make_image(const struct places *places, uint64_t wanted, struct error *err)
{
    char temporary[sizeof(places->image) + 8];
    auto_close int fd = -1;
    uint64_t allowed;

    (void)snprintf(temporary, sizeof(temporary), "%s.new", places->image);
    if (disk_size_allowed(places->data_fd, 0, &allowed, err) < 0)
        return -1;
    if (wanted == 0)
        wanted = DEFAULT_BYTES;
    if (wanted > allowed)
        wanted = allowed;
    if (wanted < SMALLEST_BYTES)
        return error_set(err, ERROR_NO_SPACE, "too little free space for a pool in '%s'",
                         places->pool);
    fd = open(temporary, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_set_errno(err, errno, "make '%s'", temporary);
    if (ftruncate(fd, (off_t)wanted) < 0)
        return error_set_errno(err, errno, "size '%s'", temporary);
    if (disk_mkfs(temporary, err) < 0)
        return -1;
    if (fsync(fd) < 0 || rename(temporary, places->image) < 0)
        return error_set_errno(err, errno, "finish '%s'", places->image);
    return 0;
}

static int open_image(const struct places *places, uint64_t initial_bytes, int *out_fd,
                      struct error *err)
{
    int flags = O_RDWR | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(places->data_fd, "pool.img", flags);

    if (fd < 0 && errno == ENOENT) {
        if (make_image(places, initial_bytes, err) < 0)
            return -1;
        fd = openat(places->data_fd, "pool.img", flags);
    }
    if (fd < 0)
        return error_set_errno(err, errno, "open '%s'", places->image);
    *out_fd = fd;
    return 0;
}

/* Freed blocks stay with the image, unless there are none of its own anyway (disk_back.c). */
static const char *options(int image_fd)
{
    return disk_back_possible(image_fd) ? "nodiscard" : "discard=async";
}

static int mount_image(const struct places *places, int image_fd, struct error *err)
{
    struct disk_loop loop = {.fd = -1};
    auto_close int loop_fd = -1;

    if (disk_loop_attach(image_fd, &loop, err) < 0)
        return -1;
    loop_fd = loop.fd; /* until the mount holds it, or for the autoclear to act on failure */
    if (mount(loop.path, places->pool, "btrfs", MOUNT_FLAGS, options(image_fd)) < 0)
        return error_set_errno(err, errno, "mount '%s' on '%s'", loop.path, places->pool);
    return 0;
}

/* The loop device under the pool's file system; it must be backed by our image. */
static int pool_loop(int pool_fd, int image_fd, struct disk_loop *out, struct error *err)
{
    struct btrfs_ioctl_dev_info_args device = {.devid = 1};
    auto_close int fd = -1;
    struct stat image;

    if (fstat(image_fd, &image) < 0)
        return error_set_errno(err, errno, "stat the pool's image");
    if (!is_btrfs(pool_fd) || ioctl(pool_fd, BTRFS_IOC_DEV_INFO, &device) < 0)
        return error_set(err, ERROR_CONFLICT, "something else is mounted on the pool");
    device.path[sizeof(device.path) - 1] = '\0';
    fd = open((const char *)device.path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || !disk_loop_backed_by(fd, &image))
        return error_set(err, ERROR_CONFLICT, "the pool is mounted from something else");
    if (!str_copy(str_of((const char *)device.path), out->path, sizeof(out->path)))
        return error_set(err, ERROR_CONFLICT, "the pool is mounted from something else");
    out->fd = take_fd(&fd);
    return 0;
}

static int adopt(const struct places *places, int image_fd, struct error *err)
{
    auto_close int pool_fd = openat(places->data_fd, "pool", DIR_FLAGS);
    struct disk_loop loop = {.fd = -1};

    if (pool_fd < 0)
        return error_set_errno(err, errno, "open '%s'", places->pool);
    if (pool_loop(pool_fd, image_fd, &loop, err) < 0)
        return -1;
    close_fd(&loop.fd);
    return 0;
}

/* Makes DATA/pool lie on btrfs. */
static int prepare(struct disk *disk, const struct places *places, uint64_t initial_bytes,
                   struct error *err)
{
    bool has_image = faccessat(places->data_fd, "pool.img", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    int mounted;

    if (mkdirat(places->data_fd, "pool", 0700) < 0 && errno != EEXIST)
        return error_set_errno(err, errno, "make '%s'", places->pool);
    if (!has_image && is_btrfs(places->data_fd))
        return 0;
    if (open_image(places, initial_bytes, &disk->image_fd, err) < 0)
        return -1;
    mounted = pool_mounted(places, err);
    if (mounted < 0)
        return -1;
    return mounted ? adopt(places, disk->image_fd, err) : mount_image(places, disk->image_fd, err);
}

static int open_dir(int pool_fd, const char *name, int *out_fd, struct error *err)
{
    if (mkdirat(pool_fd, name, 0700) < 0 && errno != EEXIST)
        return error_set_errno(err, errno, "make '%s'", name);
    *out_fd = openat(pool_fd, name, DIR_FLAGS);
    return *out_fd < 0 ? error_set_errno(err, errno, "open '%s'", name) : 0;
}

/* btrfs takes no more writes after one failed: on a full disk below a sparse image, for example. What
 * it had committed is safe, and there again once the pool is mounted anew. */
static bool has_stopped(int pool_fd)
{
    struct statvfs fs;

    return fstatvfs(pool_fd, &fs) == 0 && (fs.f_flag & ST_RDONLY);
}

static int refuse_stopped(const struct places *places, struct error *err)
{
    return error_set(
        err, ERROR_UNAVAILABLE,
        "'%s' is read-only, because writing to its disk failed (is that full?): see to "
        "the disk, then run 'quicksand down --data' on this data directory and start "
        "again; running sandboxes end, paused ones keep their files",
        places->pool);
}

static int open_stopped(struct disk *disk, struct error *err)
{
    disk->boxes_fd = openat(disk->pool_fd, "boxes", DIR_FLAGS);
    disk->layers_fd = openat(disk->pool_fd, "layers", DIR_FLAGS);
    disk->volumes_fd = openat(disk->pool_fd, "volumes", DIR_FLAGS);
    disk->temporary_fd = openat(disk->pool_fd, "temporary", DIR_FLAGS);
    disk->spares_fd = openat(disk->pool_fd, "spares", DIR_FLAGS);
    if (disk->boxes_fd < 0)
        return error_set_errno(err, errno, "open 'boxes'");
    return 0;
}

/* The other process has made all that is needed. */
static int open_beside(struct disk *disk, const struct places *places, struct error *err)
{
    disk->pool_fd = openat(places->data_fd, "pool", DIR_FLAGS);
    if (disk->pool_fd < 0)
        return error_set_errno(err, errno, "open '%s'", places->pool);
    if (open_stopped(disk, err) < 0 || disk_sysfs_fsid(disk->pool_fd, disk->fsid, err) < 0 ||
        disk_sysfs_open(disk, "qgroups", &disk->qgroups_fd, err) < 0)
        return error_prefix(err, "'%s' is not mounted here", places->pool);
    disk->simple_quota = disk_quota_is_simple(disk->qgroups_fd);
    return 0;
}

static int open_dirs(struct disk *disk, const struct places *places, bool only_to_unmount,
                     struct error *err)
{
    struct error ignored;

    disk->pool_fd = openat(places->data_fd, "pool", DIR_FLAGS);
    if (disk->pool_fd < 0)
        return error_set_errno(err, errno, "open '%s'", places->pool);
    if (has_stopped(disk->pool_fd))
        return only_to_unmount ? open_stopped(disk, err) : refuse_stopped(places, err);
    if (disk->image_fd >= 0 &&
        mount(NULL, places->pool, NULL, MS_REMOUNT | MOUNT_FLAGS, options(disk->image_fd)) < 0)
        return error_set_errno(err, errno, "remount '%s'", places->pool);
    if (fchmod(disk->pool_fd, 0700) < 0)
        return error_set_errno(err, errno, "open '%s'", places->pool);
    if (open_dir(disk->pool_fd, "boxes", &disk->boxes_fd, err) < 0 ||
        open_dir(disk->pool_fd, "layers", &disk->layers_fd, err) < 0 ||
        open_dir(disk->pool_fd, "volumes", &disk->volumes_fd, err) < 0 ||
        open_dir(disk->pool_fd, "temporary", &disk->temporary_fd, err) < 0 ||
        open_dir(disk->pool_fd, "spares", &disk->spares_fd, err) < 0 ||
        disk_quota_enable(disk->pool_fd, err) < 0 ||
        disk_sysfs_fsid(disk->pool_fd, disk->fsid, err) < 0 ||
        disk_sysfs_open(disk, "qgroups", &disk->qgroups_fd, err) < 0)
        return -1;
    /* Missing where data and metadata are mixed. */
    (void)disk_sysfs_open(disk, "allocation/data", &disk->data_fd, &ignored);
    disk_back_open(disk);
    disk->simple_quota = disk_quota_is_simple(disk->qgroups_fd);
    /* What a killed predecessor left; the data directory's lock says that there is no other. A pool
     * so full that nothing can be deleted must still open. */
    (void)disk_subvol_clear(disk, disk->temporary_fd, &ignored);
    (void)disk_subvol_clear(disk, disk->spares_fd, &ignored);
    if (disk->image_fd >= 0)
        disk_group_find(disk);
    return 0;
}

int disk_open(const struct disk_config *config, struct disk **out, struct error *err)
{
    struct places places = {.data_fd = -1};
    struct disk *disk;
    int r;

    if (places_open(&places, config, err) < 0)
        return -1;
    disk = xcalloc(1, sizeof(*disk));
    disk->pool_fd = disk->boxes_fd = disk->layers_fd = disk->volumes_fd = disk->temporary_fd = -1;
    disk->spares_fd = disk->image_fd = disk->qgroups_fd = disk->data_fd = -1;
    (void)pthread_mutex_init(&disk->tend_lock, NULL);
    (void)pthread_mutex_init(&disk->gone.lock, NULL);
    disk_spare_open(disk);
    r = config->beside ? open_beside(disk, &places, err)
                       : prepare(disk, &places, config->initial_bytes, err);
    if (r == 0 && !config->beside)
        r = open_dirs(disk, &places, config->only_to_unmount, err);
    places_close(&places);
    if (r < 0) {
        disk_close(disk);
        return error_prefix(err, "pool");
    }
    *out = disk;
    return 0;
}

void disk_close(struct disk *disk)
{
    if (!disk)
        return;
    disk_spare_close(disk);
    close_fd(&disk->qgroups_fd);
    close_fd(&disk->data_fd);
    close_fd(&disk->boxes_fd);
    close_fd(&disk->layers_fd);
    close_fd(&disk->volumes_fd);
    close_fd(&disk->temporary_fd);
    close_fd(&disk->spares_fd);
    close_fd(&disk->pool_fd);
    close_fd(&disk->image_fd);
    (void)pthread_mutex_destroy(&disk->tend_lock);
    (void)pthread_mutex_destroy(&disk->gone.lock);
    free(disk->gone.ids);
    free(disk);
}

/* The kernel refuses exclusive opens while a file system uses the device: EBUSY. 0 when it is clear;
 * EAGAIN when it will be as soon as whoever looks at it just now is done. udev does so with every device
 * whenever something changes. */
static int try_detach(const struct disk_loop *loop, const struct stat *image)
{
    auto_close int fd = open(loop->path, O_RDONLY | O_EXCL | O_CLOEXEC);

    if (fd < 0)
        return errno == EBUSY ? EBUSY : 0;
    if (!disk_loop_backed_by(fd, image))
        return 0;
    if (ioctl(fd, LOOP_CLR_FD, 0) < 0 && errno != ENXIO)
        return errno;
    return disk_loop_backed_by(fd, image) ? EAGAIN : 0;
}

/* A process that is just getting a mount namespace of its own has a copy of every mount for some
 * moments: that is not yet a reason to call the pool in use. */
static int detach(const struct disk_loop *loop, const struct stat *image)
{
    const struct timespec pause = {.tv_nsec = 10000000L};
    int r = EBUSY;

    for (int i = 0; i < (r == EAGAIN ? CLEAR_TRIES : DETACH_TRIES); i++) {
        r = try_detach(loop, image);
        if (r != EBUSY && r != EAGAIN)
            break;
        (void)nanosleep(&pause, NULL);
    }
    return r == EAGAIN ? 0 : r;
}

static int unmount_pool(const struct places *places, int image_fd, struct error *err)
{
    auto_close int pool_fd = openat(places->data_fd, "pool", DIR_FLAGS);
    struct disk_loop loop = {.fd = -1};
    struct disk_holders holders = {0};
    struct stat image;
    int r;

    if (pool_fd < 0)
        return error_set_errno(err, errno, "open '%s'", places->pool);
    if (pool_loop(pool_fd, image_fd, &loop, err) < 0)
        return -1;
    close_fd(&loop.fd);
    close_fd(&pool_fd);
    if (fstat(image_fd, &image) < 0)
        return error_set_errno(err, errno, "stat '%s'", places->image);
    if (umount2(places->pool, UMOUNT_NOFOLLOW) < 0) {
        if (errno == EBUSY)
            return error_set(err, ERROR_CONFLICT, "the pool '%s' is in use", places->pool);
        return error_set_errno(err, errno, "unmount '%s'", places->pool);
    }
    r = detach(&loop, &image);
    if (r != 0) {
        disk_holders_detach(&holders, loop.path, places->pool);
        r = holders.count ? detach(&loop, &image) : r;
    }
    if (r == 0)
        return 0;
    /* An overlay, or a file that is open in another namespace, still uses the file system; put the
     * mount back, so that a refused unmount changes nothing. */
    if (mount_image(places, image_fd, err) < 0)
        return -1;
    if (holders.count)
        return error_set(
            err, ERROR_CONFLICT,
            "the pool '%s' is in use in other mount namespaces, by process %s: end them",
            places->pool, holders.names);
    return error_set(err, ERROR_CONFLICT, "the pool '%s' is in use by a sandbox", places->pool);
}

int disk_unmount(const struct disk_config *config, struct error *err)
{
    struct places places = {.data_fd = -1};
    auto_close int image_fd = -1;
    int r;

    if (places_open(&places, config, err) < 0)
        return err->errnum == ENOENT ? 0 : -1;
    r = pool_mounted(&places, err);
    if (r > 0) {
        image_fd = openat(places.data_fd, "pool.img", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
        r = image_fd < 0 ? 0 : unmount_pool(&places, image_fd, err);
    }
    places_close(&places);
    return r;
}

/* Loop devices by ioctl.
 *
 * A device is configured with the autoclear flag: the kernel detaches it when its last user goes,
 * so a crash between attaching and mounting leaves nothing, the mount keeps it while it lives, and
 * unmounting is enough to detach. One image must never be on two loop devices at once (the kernel
 * would take them for two devices of one file system), hence attach looks for an existing one
 * first: an overlay can keep a pool alive that is no longer mounted anywhere. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "host/disk/disk_internal.h"

/* The sector size of the device: matches btrfs and the page, so direct I/O needs no copying. */
enum { BLOCK_SIZE = 4096, ATTACH_ATTEMPTS = 64 };

bool disk_loop_backed_by(int loop_fd, const struct stat *image)
{
    struct loop_info64 info = {0};

    return ioctl(loop_fd, LOOP_GET_STATUS64, &info) == 0 && info.lo_inode == image->st_ino &&
           info.lo_device == image->st_dev;
}

static bool is_loop_name(const char *name)
{
    uint64_t number;
    struct str s = str_of(name);

    return str_starts(s, STR("loop")) && str_to_u64(str_skip(s, 4), &number) && number < 1u << 20;
}

int disk_loop_find(const struct stat *image, struct disk_loop *out, struct error *err)
{
    DIR *dir = opendir("/dev");
    struct dirent *entry;
    int found = 0;

    if (!dir)
        return error_set_errno(err, errno, "open '/dev'");
    while (!found && (entry = readdir(dir))) {
        char path[DISK_LOOP_PATH_SIZE];
        auto_close int fd = -1;

        if (!is_loop_name(entry->d_name))
            continue;
        (void)snprintf(path, sizeof(path), "/dev/%.24s", entry->d_name);
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0 || !disk_loop_backed_by(fd, image))
            continue;
        memcpy(out->path, path, sizeof(path));
        out->fd = take_fd(&fd);
        found = 1;
    }
    (void)closedir(dir);
    return found;
}

/* 1 when attached, 0 when somebody else was faster. */
static int try_attach(int control_fd, int image_fd, struct disk_loop *out, struct error *err)
{
    struct loop_config config = {
        .fd = (unsigned)image_fd,
        .block_size = BLOCK_SIZE,
        .info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO,
    };
    int number = ioctl(control_fd, LOOP_CTL_GET_FREE);
    auto_close int fd = -1;

    if (number < 0)
        return error_set_errno(err, errno, "find a free loop device");
    (void)snprintf(out->path, sizeof(out->path), "/dev/loop%d", number);
    (void)snprintf((char *)config.info.lo_file_name, sizeof(config.info.lo_file_name),
                   "quicksand pool");
    fd = open(out->path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, errno, "open '%s'", out->path);
    if (ioctl(fd, LOOP_CONFIGURE, &config) < 0) {
        if (errno == EBUSY)
            return 0;
        return error_set_errno(err, errno, "attach the pool's image to '%s'", out->path);
    }
    out->fd = take_fd(&fd);
    return 1;
}

int disk_loop_attach(int image_fd, struct disk_loop *out, struct error *err)
{
    auto_close int control = -1;
    struct stat image;
    int found;

    if (fstat(image_fd, &image) < 0)
        return error_set_errno(err, errno, "stat the pool's image");
    found = disk_loop_find(&image, out, err);
    if (found != 0)
        return found < 0 ? -1 : 0;
    control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (control < 0)
        return error_set_errno(err, errno, "open '/dev/loop-control'");
    for (int i = 0; i < ATTACH_ATTEMPTS; i++) {
        int r = try_attach(control, image_fd, out, err);

        if (r != 0)
            return r < 0 ? -1 : 0;
    }
    return error_set(err, ERROR_UNAVAILABLE, "no free loop device");
}

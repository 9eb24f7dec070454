/* Volumes: subvolumes with one directory, so that what appears inside sandboxes is not the
 * subvolume's own directory and cannot be taken for one. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "host/disk/disk_internal.h"

int disk_volume_create(struct disk *disk, const char *name, uint64_t limit_bytes, struct error *err)
{
    struct btrfs_qgroup_limit limit =
        disk_quota_of(limit_bytes, disk_share_room(disk, limit_bytes));
    auto_close int fd = -1;

    if (disk_subvol_create(disk->volumes_fd, name, &limit, err) < 0 && err->code != ERROR_EXISTS)
        return -1;
    if (disk_subvol_open(disk->volumes_fd, name, &fd, err) < 0 ||
        disk_quota_limit(fd, limit_bytes, err) < 0 ||
        disk_share_limit(disk, fd, limit_bytes, err) < 0)
        return -1;
    if (mkdirat(fd, "data", 0777) < 0)
        return errno == EEXIST ? 0 : error_set_errno(err, errno, "make volume '%s'", name);
    /* Again, because of the umask. */
    if (fchmodat(fd, "data", 0777, 0) < 0)
        return error_set_errno(err, errno, "make volume '%s'", name);
    return 0;
}

int disk_volume_delete(struct disk *disk, const char *name, struct error *err)
{
    return disk_subvol_delete(disk, disk->volumes_fd, name, err);
}

int disk_volume_used(struct disk *disk, const char *name, uint64_t *out_bytes, struct error *err)
{
    auto_close int fd = -1;

    if (disk_subvol_open(disk->volumes_fd, name, &fd, err) < 0)
        return -1;
    return disk_quota_used(disk, fd, out_bytes, err);
}

int disk_volume_open(struct disk *disk, const char *name, int *out_dir_fd, struct error *err)
{
    auto_close int fd = -1;

    if (disk_subvol_open(disk->volumes_fd, name, &fd, err) < 0)
        return -1;
    *out_dir_fd = openat(fd, "data", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*out_dir_fd < 0)
        return error_set_errno(err, errno, "open volume '%s'", name);
    return 0;
}

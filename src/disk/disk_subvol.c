/* One subvolume per box: boxes/<id>/{upper,work}. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "disk/disk_internal.h"

enum { NAME_MAX_LEN = 64, NESTED_DEPTH_MAX = 16, BOXES_MAX = 1 << 20 };

static bool name_valid(const char *name)
{
    size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_");

    return len > 0 && len <= NAME_MAX_LEN && name[len] == '\0';
}

static int check_name(const char *id, struct error *err)
{
    return name_valid(id) ? 0 : error_set(err, ERROR_INVALID, "bad box name");
}

static int open_box(const struct disk *disk, const char *id, int *out_fd, struct error *err)
{
    int fd;

    if (check_name(id, err) < 0)
        return -1;
    fd = openat(disk->boxes_fd, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, errno, "open the disk of box '%s'", id);
    *out_fd = fd;
    return 0;
}

static int make_dirs(const struct disk *disk, const char *id, int *out_fd, struct error *err)
{
    static const char *const names[] = {"upper", "work"};
    auto_close int fd = openat(disk->boxes_fd, id, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return error_set_errno(err, errno, "open the disk of box '%s'", id);
    for (size_t i = 0; i < 2; i++) {
        /* The mode is set again because of the umask. */
        if (mkdirat(fd, names[i], 0755) < 0 || fchmodat(fd, names[i], 0755, 0) < 0)
            return error_set_errno(err, errno, "make '%s' for box '%s'", names[i], id);
    }
    *out_fd = take_fd(&fd);
    return 0;
}

int disk_box_create(struct disk *disk, const char *id, uint64_t limit_bytes, int *out_dir_fd,
                    struct error *err)
{
    struct btrfs_qgroup_inherit inherit = {.flags = BTRFS_QGROUP_INHERIT_SET_LIMITS,
                                           .lim = disk_quota_of(limit_bytes)};
    struct btrfs_ioctl_vol_args_v2 args = {0};
    struct error ignored;

    if (check_name(id, err) < 0)
        return -1;
    memcpy(args.name, id, strlen(id) + 1);
    if (limit_bytes) {
        /* The limit comes into being with the subvolume: no window without one. */
        args.flags = BTRFS_SUBVOL_QGROUP_INHERIT;
        args.size = sizeof(inherit);
        args.qgroup_inherit = &inherit;
    }
    if (ioctl(disk->boxes_fd, BTRFS_IOC_SUBVOL_CREATE_V2, &args) < 0)
        return error_set_errno(err, errno, "make the disk of box '%s'", id);
    if (make_dirs(disk, id, out_dir_fd, err) < 0) {
        (void)disk_box_delete(disk, id, &ignored);
        return -1;
    }
    return 0;
}

int disk_box_limit(struct disk *disk, const char *id, uint64_t limit_bytes, struct error *err)
{
    auto_close int fd = -1;

    if (open_box(disk, id, &fd, err) < 0)
        return -1;
    return disk_quota_limit(fd, limit_bytes, err);
}

int disk_box_used(struct disk *disk, const char *id, uint64_t *out_bytes, struct error *err)
{
    auto_close int fd = -1;

    if (open_box(disk, id, &fd, err) < 0)
        return -1;
    return disk_quota_used(disk, fd, out_bytes, err);
}

/* Deletes the subvolumes inside a subvolume. Boxes cannot make any (an overlay does not pass the
 * ioctl on), so this is for what an operator put there. */
static int delete_nested(const struct disk *disk, uint64_t subvolume, int depth, struct error *err)
{
    struct disk_tree_range range = {.tree = BTRFS_ROOT_TREE_OBJECTID,
                                    .objectid = subvolume,
                                    .type = BTRFS_ROOT_REF_KEY,
                                    .max_offset = UINT64_MAX};

    if (depth >= NESTED_DEPTH_MAX)
        return error_set(err, ERROR_LIMIT, "subvolumes nested too deep");
    for (;;) {
        struct btrfs_ioctl_vol_args_v2 args = {.flags = BTRFS_SUBVOL_SPEC_BY_ID};
        uint64_t child;
        int r = disk_tree_first(disk->pool_fd, &range, &child, err);

        if (r <= 0)
            return r;
        if (delete_nested(disk, child, depth + 1, err) < 0)
            return -1;
        args.subvolid = child;
        if (ioctl(disk->pool_fd, BTRFS_IOC_SNAP_DESTROY_V2, &args) < 0)
            return error_set_errno(err, errno, "delete a nested subvolume");
    }
}

static int delete_with_nested(struct disk *disk, const char *id, struct error *err)
{
    auto_close int fd = -1;
    uint64_t subvolume;

    if (open_box(disk, id, &fd, err) < 0 || disk_tree_subvolume(fd, &subvolume, err) < 0)
        return -1;
    return delete_nested(disk, subvolume, 0, err);
}

static int destroy(struct disk *disk, const char *id)
{
    struct btrfs_ioctl_vol_args_v2 args = {0};

    memcpy(args.name, id, strlen(id) + 1);
    return ioctl(disk->boxes_fd, BTRFS_IOC_SNAP_DESTROY_V2, &args) < 0 ? errno : 0;
}

int disk_box_delete(struct disk *disk, const char *id, struct error *err)
{
    int r;

    if (check_name(id, err) < 0)
        return -1;
    r = destroy(disk, id);
    if (r == ENOTEMPTY) {
        if (delete_with_nested(disk, id, err) < 0)
            return error_prefix(err, "delete the disk of box '%s'", id);
        r = destroy(disk, id);
    }
    if (r == 0 || r == ENOENT)
        return 0;
    return error_set_errno(err, r, "delete the disk of box '%s'", id);
}

int disk_box_list(struct disk *disk, char ***out, size_t *out_count, struct error *err)
{
    int fd = openat(disk->boxes_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    size_t count = 0, capacity = 0;
    char **names = NULL;
    struct dirent *entry;

    if (!dir) {
        (void)error_set_errno(err, errno, "open the pool's boxes");
        close_fd(&fd);
        return -1;
    }
    while (count < BOXES_MAX && (entry = readdir(dir))) {
        if (!name_valid(entry->d_name))
            continue;
        if (count == capacity) {
            capacity = capacity ? capacity * 2 : 16;
            names = xrealloc(names, capacity * sizeof(*names));
        }
        names[count++] = xstrdup(entry->d_name);
    }
    (void)closedir(dir);
    *out = names;
    *out_count = count;
    return 0;
}

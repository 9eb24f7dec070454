/* Subvolumes by name in one of the pool's directories: boxes, layers, volumes. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"
#include "host/disk/disk_internal.h"

enum { NAME_MAX_LEN = 64, NESTED_DEPTH_MAX = 16, ENTRIES_MAX = 1 << 20 };

static bool name_valid(const char *name)
{
    size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_");

    return len > 0 && len <= NAME_MAX_LEN && name[len] == '\0';
}

static int check_name(const char *name, struct error *err)
{
    return name_valid(name) ? 0 : error_set(err, ERROR_INVALID, "not a name of the pool");
}

int disk_subvol_open(int dir_fd, const char *name, int *out_fd, struct error *err)
{
    int fd;

    if (check_name(name, err) < 0)
        return -1;
    fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, errno, "open '%s' in the pool", name);
    *out_fd = fd;
    return 0;
}

int disk_subvol_create(int dir_fd, const char *name, const struct btrfs_qgroup_limit *limit,
                       struct error *err)
{
    struct btrfs_qgroup_inherit inherit = {.flags = BTRFS_QGROUP_INHERIT_SET_LIMITS, .lim = *limit};
    struct btrfs_ioctl_vol_args_v2 args = {0};

    if (check_name(name, err) < 0)
        return -1;
    memcpy(args.name, name, strlen(name) + 1);
    if (limit->flags) {
        /* The limit comes into being with the subvolume: no window without one. */
        args.flags = BTRFS_SUBVOL_QGROUP_INHERIT;
        args.size = sizeof(inherit);
        args.qgroup_inherit = &inherit;
    }
    if (ioctl(dir_fd, BTRFS_IOC_SUBVOL_CREATE_V2, &args) < 0)
        return error_set_errno(err, errno, "make '%s' in the pool", name);
    return 0;
}

int disk_subvol_snapshot(int source_fd, int dir_fd, const char *name, bool read_only,
                         struct error *err)
{
    struct btrfs_ioctl_vol_args_v2 args = {.fd = source_fd,
                                           .flags = read_only ? BTRFS_SUBVOL_RDONLY : 0};

    if (check_name(name, err) < 0)
        return -1;
    memcpy(args.name, name, strlen(name) + 1);
    if (ioctl(dir_fd, BTRFS_IOC_SNAP_CREATE_V2, &args) < 0)
        return error_set_errno(err, errno, "snapshot to '%s'", name);
    return 0;
}

/* Deletes the subvolumes inside a subvolume. Sandboxes cannot make any: overlays do not pass the
 * ioctl on, and for volumes the system call filter refuses it. So this is for what an operator put
 * there. */
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

static int delete_with_nested(struct disk *disk, int dir_fd, const char *name, struct error *err)
{
    auto_close int fd = -1;
    uint64_t subvolume;

    if (disk_subvol_open(dir_fd, name, &fd, err) < 0 ||
        disk_tree_subvolume(fd, &subvolume, err) < 0)
        return -1;
    return delete_nested(disk, subvolume, 0, err);
}

static int destroy(int dir_fd, const char *name)
{
    struct btrfs_ioctl_vol_args_v2 args = {0};

    memcpy(args.name, name, strlen(name) + 1);
    return ioctl(dir_fd, BTRFS_IOC_SNAP_DESTROY_V2, &args) < 0 ? errno : 0;
}

uint64_t disk_subvol_id(int dir_fd, const char *name)
{
    auto_close int fd = -1;
    struct error ignored;
    uint64_t id;

    if (disk_subvol_open(dir_fd, name, &fd, &ignored) < 0 ||
        disk_tree_subvolume(fd, &id, &ignored) < 0)
        return 0;
    return id;
}

int disk_subvol_delete(struct disk *disk, int dir_fd, const char *name, struct error *err)
{
    uint64_t id;
    int r;

    if (check_name(name, err) < 0)
        return -1;
    id = disk_subvol_id(dir_fd, name);
    r = destroy(dir_fd, name);
    if (r == ENOTEMPTY) {
        if (delete_with_nested(disk, dir_fd, name, err) < 0)
            return error_prefix(err, "delete '%s' from the pool", name);
        r = destroy(dir_fd, name);
    }
    if (r == 0 && id)
        disk_group_add(disk, id);
    if (r == 0 || r == ENOENT)
        return 0;
    return error_set_errno(err, r, "delete '%s' from the pool", name);
}

int disk_subvol_list(int dir_fd, char ***out, size_t *out_count, struct error *err)
{
    DIR *dir = path_open_dir(dir_fd, ".");
    size_t count = 0, capacity = 0;
    char **names = NULL;
    struct dirent *entry;

    if (!dir)
        return error_set_errno(err, errno, "list the pool");
    while (count < ENTRIES_MAX && (entry = readdir(dir))) {
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

int disk_subvol_clear(struct disk *disk, int dir_fd, struct error *err)
{
    char **names;
    size_t count;
    int r = 0;

    if (disk_subvol_list(dir_fd, &names, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        if (r == 0)
            r = disk_subvol_delete(disk, dir_fd, names[i], err);
        free(names[i]);
    }
    free(names);
    return r;
}

int disk_note_set(int subvol_fd, const char *note, uint64_t value, struct error *err)
{
    char text[24];
    int len = snprintf(text, sizeof(text), "%llu", (unsigned long long)value);

    if (fsetxattr(subvol_fd, note, text, (size_t)len, 0) < 0)
        return error_set_errno(err, errno, "note '%s'", note);
    return 0;
}

int disk_note_get(int subvol_fd, const char *note, uint64_t *out, struct error *err)
{
    char text[24];
    ssize_t len = fgetxattr(subvol_fd, note, text, sizeof(text));

    *out = 0;
    if (len < 0)
        return errno == ENODATA ? 0 : error_set_errno(err, errno, "read note '%s'", note);
    if (!str_to_u64(str_n(text, (size_t)len), out))
        return error_set(err, ERROR_INTERNAL, "note '%s' is no number", note);
    return 0;
}

/* Items of btrfs' own trees by ioctl, and its numbers in sysfs. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "host/disk/disk_internal.h"

int disk_tree_item(int pool_fd, const struct disk_tree_range *range, uint64_t *out_offset,
                   void *out_item, size_t size, struct error *err)
{
    struct btrfs_ioctl_search_args args = {.key = {.tree_id = range->tree,
                                                   .min_objectid = range->objectid,
                                                   .max_objectid = range->objectid,
                                                   .min_type = range->type,
                                                   .max_type = range->type,
                                                   .min_offset = range->min_offset,
                                                   .max_offset = range->max_offset,
                                                   .max_transid = UINT64_MAX,
                                                   .nr_items = 1}};
    struct btrfs_ioctl_search_header header;

    if (ioctl(pool_fd, BTRFS_IOC_TREE_SEARCH, &args) < 0)
        return error_set_errno(err, errno, "search the pool's trees");
    if (args.key.nr_items == 0)
        return 0;
    memcpy(&header, args.buf, sizeof(header));
    *out_offset = header.offset;
    if (header.len < size || size > sizeof(args.buf) - sizeof(header))
        return error_set(err, ERROR_INTERNAL, "an item of the pool's trees is too short");
    if (size)
        memcpy(out_item, args.buf + sizeof(header), size);
    return 1;
}

int disk_tree_first(int pool_fd, const struct disk_tree_range *range, uint64_t *out_offset,
                    struct error *err)
{
    return disk_tree_item(pool_fd, range, out_offset, NULL, 0, err);
}

int disk_tree_subvolume(int fd, uint64_t *out_id, struct error *err)
{
    struct btrfs_ioctl_ino_lookup_args lookup = {.objectid = BTRFS_FIRST_FREE_OBJECTID};

    if (ioctl(fd, BTRFS_IOC_INO_LOOKUP, &lookup) < 0)
        return error_set_errno(err, errno, "ask for the subvolume's id");
    *out_id = lookup.treeid;
    return 0;
}

int disk_sysfs_fsid(int pool_fd, char out[DISK_FSID_SIZE], struct error *err)
{
    struct btrfs_ioctl_fs_info_args info = {0};
    const unsigned char *id = info.fsid;

    if (ioctl(pool_fd, BTRFS_IOC_FS_INFO, &info) < 0)
        return error_set_errno(err, errno, "ask the pool for its id");
    (void)snprintf(out, DISK_FSID_SIZE,
                   "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", id[0],
                   id[1], id[2], id[3], id[4], id[5], id[6], id[7], id[8], id[9], id[10], id[11],
                   id[12], id[13], id[14], id[15]);
    return 0;
}

int disk_sysfs_open(const struct disk *disk, const char *name, int *out_fd, struct error *err)
{
    char path[96];
    int fd;

    (void)snprintf(path, sizeof(path), "/sys/fs/btrfs/%s/%s", disk->fsid, name);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, errno, "open '%s'", path);
    *out_fd = fd;
    return 0;
}

int disk_sysfs_number(int dir_fd, const char *path, uint64_t *out)
{
    auto_buf struct buf text = {0};
    int r;

    buf_init(&text, 64);
    r = fd_read_file_at(dir_fd, path, &text);
    if (r < 0)
        return r;
    return str_to_u64(str_trim(buf_str(&text)), out) ? 0 : -EINVAL;
}

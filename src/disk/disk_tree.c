#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include "disk/disk_internal.h"

int disk_tree_first(int pool_fd, const struct disk_tree_range *range, uint64_t *out_offset,
                    struct error *err)
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
    return 1;
}

int disk_tree_subvolume(int fd, uint64_t *out_id, struct error *err)
{
    struct btrfs_ioctl_ino_lookup_args lookup = {.objectid = BTRFS_FIRST_FREE_OBJECTID};

    if (ioctl(fd, BTRFS_IOC_INO_LOOKUP, &lookup) < 0)
        return error_set_errno(err, errno, "ask for the subvolume's id");
    *out_id = lookup.treeid;
    return 0;
}

/* Quota groups of subvolumes that are gone.
 *
 * A group is made with its subvolume. Kernels before 6.11 never remove it; newer ones do so once the
 * subvolume's tree is gone, but not when a snapshot still holds what the subvolume was charged for, and
 * then nobody ever does. Thousands of boxes later, each commit would carry thousands of dead groups. So the
 * ids of deleted subvolumes wait in a queue, and a few of them are tried now and then: a group goes when
 * its subvolume's root is no longer in the tree of roots and nothing is charged to it any more.
 *
 * What a predecessor had in its queue is found by looking at all groups when the pool is opened, as long
 * as the file system is the pool's own: in one of the host's, other groups are somebody else's. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"
#include "host/disk/disk_internal.h"

enum {
    QUEUE_MAX = 1 << 16, /* what does not fit is found at the next start */
    TRIES = 64           /* at a time */
};

void disk_group_add(struct disk *disk, uint64_t subvolume)
{
    struct disk_groups *gone = &disk->gone;

    (void)pthread_mutex_lock(&gone->lock);
    if (gone->count < QUEUE_MAX) {
        if (gone->count == gone->capacity) {
            gone->capacity = gone->capacity ? gone->capacity * 2 : 64;
            gone->ids = xrealloc(gone->ids, gone->capacity * sizeof(*gone->ids));
        }
        gone->ids[gone->count++] = subvolume;
    }
    (void)pthread_mutex_unlock(&gone->lock);
}

/* Does the tree of roots have an item of this type for it? */
static bool has_item(const struct disk *disk, uint64_t subvolume, uint32_t type)
{
    struct disk_tree_range range = {.tree = BTRFS_ROOT_TREE_OBJECTID,
                                    .objectid = subvolume,
                                    .type = type,
                                    .max_offset = UINT64_MAX};
    struct error ignored;
    uint64_t offset;

    return disk_tree_first(disk->pool_fd, &range, &offset, &ignored) != 0;
}

/* With simple quotas every extent that is freed later is looked up here: were its group missing, btrfs
 * would abort the transaction and stop. Without a subvolume, what is zero once stays zero. */
static bool is_charged(const struct disk *disk, uint64_t subvolume)
{
    uint64_t bytes = 0;

    return disk->simple_quota && disk_quota_charged(disk, subvolume, &bytes) == 0 && bytes > 0;
}

/* False when it has to be tried again. */
static bool remove_group(const struct disk *disk, uint64_t subvolume)
{
    struct btrfs_ioctl_qgroup_create_args args = {.create = 0, .qgroupid = subvolume};

    /* Its root stays until all of its tree is taken down. */
    if (has_item(disk, subvolume, BTRFS_ROOT_ITEM_KEY) || is_charged(disk, subvolume))
        return false;
    return ioctl(disk->pool_fd, BTRFS_IOC_QGROUP_CREATE, &args) == 0 || errno != EBUSY;
}

/* Each that stays goes to the end of the queue. */
void disk_sweep(struct disk *disk)
{
    struct disk_groups *gone = &disk->gone;
    uint64_t ids[TRIES];
    size_t count;

    (void)pthread_mutex_lock(&gone->lock);
    count = gone->count < TRIES ? gone->count : TRIES;
    if (count) {
        memcpy(ids, gone->ids, count * sizeof(*ids));
        gone->count -= count;
        memmove(gone->ids, gone->ids + count, gone->count * sizeof(*ids));
    }
    (void)pthread_mutex_unlock(&gone->lock);
    for (size_t i = 0; i < count; i++)
        if (!remove_group(disk, ids[i]))
            disk_group_add(disk, ids[i]);
}

/* Names are "LEVEL_ID"; those of subvolumes have level 0. */
static bool parse_name(const char *name, uint64_t *out_subvolume)
{
    struct str text = str_of(name);

    return str_starts(text, STR("0_")) && str_to_u64(str_skip(text, 2), out_subvolume) &&
           *out_subvolume >= BTRFS_FIRST_FREE_OBJECTID;
}

void disk_group_find(struct disk *disk)
{
    DIR *dir = path_open_dir(disk->qgroups_fd, ".");
    struct dirent *entry;

    if (!dir)
        return;
    while ((entry = readdir(dir))) {
        uint64_t subvolume;

        /* A subvolume that was deleted has no name any more, though it may still have its root. */
        if (parse_name(entry->d_name, &subvolume) &&
            !has_item(disk, subvolume, BTRFS_ROOT_BACKREF_KEY))
            disk_group_add(disk, subvolume);
    }
    (void)closedir(dir);
}

/* Copies of small disks. btrfs commits a transaction for each snapshot, for which whoever wants it waits: milliseconds, more than
 * all else that a fork takes. Most boxes have written a few files when they are forked or sealed, and to copy those
 * is quicker. So what is small is copied, file by file, into a new subvolume; nothing of that waits for the disk.
 *
 * Whether it is small is looked up in its quota group first, then by a look at each file. What a copy would lose (several
 * names of a file, flags, attributes that nobody expects here) or must not have (devices) is for a snapshot as well. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "host/disk/disk_internal.h"
#include "host/disk/tree_internal.h"

/* Then a snapshot is as quick. */
enum {
    USED_MAX = 512 << 10, /* by its group */
    ENTRIES_MAX = 48,
    COPIED_MAX = 1 << 20, /* with a block for each entry */
    ENTRY_BYTES = 4096,
};

static int count(uint64_t *bytes, uint64_t add, struct error *err)
{
    *bytes += ENTRY_BYTES + add;
    return *bytes > COPIED_MAX ? error_set(err, ERROR_LIMIT, "too large") : 0;
}

static int count_dir(void *arg, const struct tree_entry *entry, uint64_t *out_note,
                     struct error *err)
{
    (void)entry;
    *out_note = 0;
    return count(arg, 0, err);
}

static int count_leaf(void *arg, const struct tree_entry *entry, struct error *err)
{
    if (!tree_entry_is_alone(entry))
        return error_set(err, ERROR_UNSUPPORTED, "a file has several names");
    return count(arg, S_ISREG(entry->st.st_mode) ? (uint64_t)entry->st.st_blocks * 512 : 0, err);
}

/* What is said of it may be less than there is: files that it shares with others are charged to those. */
static bool looks_small(const struct disk *disk, int subvol_fd, int upper_fd)
{
    struct error ignored;
    uint64_t used, bytes = 0;
    struct tree_walk walk = {
        .entries_max = ENTRIES_MAX, .arg = &bytes, .enter = count_dir, .leaf = count_leaf};

    return disk_quota_used(disk, subvol_fd, &used, &ignored) == 0 && used <= USED_MAX &&
           tree_walk(&walk, upper_fd, &ignored) == 0;
}

static int copy_upper(int from_fd, int dir_fd, struct error *err)
{
    auto_close int to = openat(dir_fd, "upper", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct tree_copying copying = {.root_fd = to,
                                   .links_fd = -1,
                                   .exact = true,
                                   .entries_max = ENTRIES_MAX,
                                   .bytes_max = COPIED_MAX};

    if (to < 0)
        return error_set_errno(err, errno, "open the new disk");
    return tree_copy_into(&copying, from_fd, err);
}

/* As for space: the new one may have a cap, and the pool may be full. */
static bool can_be_shared(const struct error *err)
{
    return err->code == ERROR_LIMIT || err->code == ERROR_UNSUPPORTED ||
           err->code == ERROR_INVALID || err->code == ERROR_NO_SPACE;
}

/* The one that was made ahead, or a new one. */
static int make(struct disk *disk, const char *id, int *out_dir_fd, struct error *err)
{
    int there = disk_box_find_new(disk, id, out_dir_fd, err);

    if (there)
        return there < 0 ? -1 : 0;
    return disk_box_create(disk, id, 0, out_dir_fd, err);
}

int disk_small_copy(struct disk *disk, int subvol_fd, const char *id, struct error *err)
{
    auto_close int from =
        openat(subvol_fd, "upper", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NOATIME | O_CLOEXEC);
    auto_close int dir = -1;
    struct error ignored;

    if (from < 0)
        return error_set_errno(err, errno, "open what was written");
    if (!looks_small(disk, subvol_fd, from))
        return 0;
    if (make(disk, id, &dir, err) < 0)
        return can_be_shared(err) ? 0 : -1;
    if (copy_upper(from, dir, err) == 0)
        return 1;
    if (disk_subvol_delete(disk, disk->boxes_fd, id, &ignored) < 0)
        return -1;
    return can_be_shared(err) ? 0 : -1;
}

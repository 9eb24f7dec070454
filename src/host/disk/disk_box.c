/* The writable subvolume of a box: boxes/<id>/{upper,work}. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "host/disk/disk_internal.h"

/* What a snapshot may have to write while its box stands still: a few milliseconds' worth. */
enum { UNWRITTEN_MAX = 1 << 20 };

static int make_dir(int subvol_fd, const char *name, struct error *err)
{
    /* The mode is set again because of the umask. */
    if (mkdirat(subvol_fd, name, 0755) < 0 || fchmodat(subvol_fd, name, 0755, 0) < 0)
        return error_set_errno(err, errno, "make '%s'", name);
    return 0;
}

/* What an overlay left in its work directory is of no use to the next one. */
static int renew_work(int subvol_fd, const void *arg, struct error *err)
{
    (void)arg;
    int r = path_remove_tree(subvol_fd, "work");

    if (r < 0)
        return error_set_errno(err, -r, "clear the work directory");
    return make_dir(subvol_fd, "work", err);
}

static int path_fd(const struct disk *disk, const char *id, int *out_fd, struct error *err)
{
    int fd = openat(disk->boxes_fd, id, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return error_set_errno(err, errno, "open the disk of box '%s'", id);
    *out_fd = fd;
    return 0;
}

static int fill_new(const struct disk *disk, const char *id, int *out_fd, struct error *err)
{
    auto_close int fd = -1;

    if (path_fd(disk, id, &fd, err) < 0 || make_dir(fd, "upper", err) < 0 ||
        make_dir(fd, "work", err) < 0)
        return error_prefix(err, "box '%s'", id);
    *out_fd = take_fd(&fd);
    return 0;
}

int disk_box_create(struct disk *disk, const char *id, uint64_t limit_bytes, int *out_dir_fd,
                    struct error *err)
{
    struct btrfs_qgroup_limit limit =
        disk_quota_of(limit_bytes, disk_share_room(disk, limit_bytes));
    struct error ignored;

    if (disk_subvol_create(disk->boxes_fd, id, &limit, err) < 0)
        return -1;
    if (fill_new(disk, id, out_dir_fd, err) < 0) {
        (void)disk_subvol_delete(disk, disk->boxes_fd, id, &ignored);
        return -1;
    }
    return 0;
}

int disk_box_find_new(struct disk *disk, const char *id, int *out_dir_fd, struct error *err)
{
    auto_close int fd = -1;
    struct stat upper;

    if (path_fd(disk, id, &fd, err) < 0)
        return err->errnum == ENOENT ? 0 : -1;
    if (fstatat(fd, "upper", &upper, AT_SYMLINK_NOFOLLOW) < 0)
        return error_set_errno(err, errno, "look at the disk of box '%s'", id);
    /* To btrfs a directory is as large as the names in it. */
    if (upper.st_size)
        return error_set(err, ERROR_EXISTS, "box '%s' has files already", id);
    *out_dir_fd = take_fd(&fd);
    return 1;
}

/* renew: also its work directory. */
static int reopen(struct disk *disk, const char *id, uint64_t limit_bytes, bool renew,
                  int *out_dir_fd, bool *out_raised, struct error *err)
{
    auto_close int fd = -1;

    if (disk_subvol_open(disk->boxes_fd, id, &fd, err) < 0 ||
        (out_raised ? disk_quota_limit_start(disk, fd, limit_bytes, out_raised, err)
                    : disk_quota_limit(fd, limit_bytes, err)) < 0 ||
        disk_share_limit(disk, fd, limit_bytes, err) < 0 ||
        (renew && disk_share_beyond(disk, fd, renew_work, NULL, err) < 0))
        return error_prefix(err, "disk of box '%s'", id);
    return path_fd(disk, id, out_dir_fd, err);
}

int disk_box_begin(struct disk *disk, const char *id, uint64_t had_bytes, uint64_t limit_bytes,
                   int *out_dir_fd, struct error *err)
{
    if (had_bytes == limit_bytes && disk_share_room(disk, limit_bytes) == UINT64_MAX)
        return path_fd(disk, id, out_dir_fd, err);
    return reopen(disk, id, limit_bytes, false, out_dir_fd, NULL, err);
}

int disk_box_reopen(struct disk *disk, const char *id, uint64_t limit_bytes, int *out_dir_fd,
                    bool *out_raised, struct error *err)
{
    return reopen(disk, id, limit_bytes, true, out_dir_fd, out_raised, err);
}

/* What it has of its source does not count, whether it was copied or is shared. */
static int forgive(struct disk *disk, int dir_fd, const char *name, struct error *err)
{
    auto_close int fd = -1;
    uint64_t inherited = 0, subvolume;

    if (disk_subvol_open(dir_fd, name, &fd, err) < 0 ||
        disk_quota_used(disk, fd, &inherited, err) < 0)
        return -1;
    /* With full quotas the cap of the source came along too. */
    if (!disk->simple_quota && (disk_tree_subvolume(fd, &subvolume, err) < 0 ||
                                disk_quota_cap(disk, subvolume, UINT64_MAX, err) < 0))
        return -1;
    return disk_note_set(fd, DISK_NOTE_FREE, inherited, err);
}

int disk_box_adopt(struct disk *disk, const char *id, bool shared, uint64_t limit_bytes,
                   int *out_dir_fd, struct error *err)
{
    struct error ignored;

    if (forgive(disk, disk->boxes_fd, id, err) == 0 &&
        reopen(disk, id, limit_bytes, shared, out_dir_fd, NULL, err) == 0)
        return 0;
    (void)disk_subvol_delete(disk, disk->boxes_fd, id, &ignored);
    return -1;
}

int disk_box_prepare(struct disk *disk, int dir_fd, const char *name, struct error *err)
{
    auto_close int fd = -1;

    if (forgive(disk, dir_fd, name, err) < 0 || disk_subvol_open(dir_fd, name, &fd, err) < 0)
        return -1;
    return disk_share_beyond(disk, fd, renew_work, NULL, err);
}

static int use_spare(struct disk *disk, const char *id, uint64_t limit_bytes, int *out_dir_fd,
                     struct error *err)
{
    struct error ignored;

    if (reopen(disk, id, limit_bytes, false, out_dir_fd, NULL, err) == 0)
        return 0;
    (void)disk_subvol_delete(disk, disk->boxes_fd, id, &ignored);
    return -1;
}

/* One that was made ahead is of no use to who gets a snapshot. */
static int make_way(struct disk *disk, const char *id, struct error *err)
{
    auto_close int fd = -1;
    int there = disk_box_find_new(disk, id, &fd, err);

    return there > 0 ? disk_subvol_delete(disk, disk->boxes_fd, id, err) : there;
}

/* A layer that is known as large is not looked at again. */
static int copy_layer(struct disk *disk, const char *id, const char *layer, bool *out_shared,
                      struct error *err)
{
    auto_close int fd = -1;
    int copied = 0;

    if (disk_subvol_open(disk->layers_fd, layer, &fd, err) < 0)
        return -1;
    if (!disk_spare_known(disk, layer))
        copied = disk_small_copy(disk, fd, id, err);
    *out_shared = copied == 0;
    if (copied)
        return copied < 0 ? -1 : 0;
    disk_spare_want(disk, layer);
    if (make_way(disk, id, err) < 0)
        return -1;
    return disk_subvol_snapshot(fd, disk->boxes_fd, id, false, err);
}

int disk_box_clone(struct disk *disk, const char *id, const char *layer, uint64_t limit_bytes,
                   int *out_dir_fd, struct error *err)
{
    bool shared;

    if (disk_spare_known(disk, layer) && make_way(disk, id, err) == 0 &&
        disk_spare_take(disk, layer, id)) {
        disk_spare_want(disk, layer);
        return use_spare(disk, id, limit_bytes, out_dir_fd, err);
    }
    if (copy_layer(disk, id, layer, &shared, err) < 0 ||
        disk_box_adopt(disk, id, shared, limit_bytes, out_dir_fd, err) < 0)
        return error_prefix(err, "layer '%s'", layer);
    return 0;
}

int disk_box_copy(struct disk *disk, const char *source, const char *id, bool *out_shared,
                  struct error *err)
{
    auto_close int fd = -1;
    int copied;

    if (disk_subvol_open(disk->boxes_fd, source, &fd, err) < 0)
        return -1;
    copied = disk_small_copy(disk, fd, id, err);
    *out_shared = copied == 0;
    if (copied)
        return copied < 0 ? -1 : 0;
    if (make_way(disk, id, err) < 0)
        return -1;
    return disk_subvol_snapshot(fd, disk->boxes_fd, id, false, err);
}

int disk_box_limit(struct disk *disk, const char *id, uint64_t limit_bytes, struct error *err)
{
    auto_close int fd = -1;

    if (disk_subvol_open(disk->boxes_fd, id, &fd, err) < 0 ||
        disk_quota_limit(fd, limit_bytes, err) < 0)
        return -1;
    return disk_share_limit(disk, fd, limit_bytes, err);
}

int disk_box_group(struct disk *disk, const char *id, char out[DISK_GROUP_SIZE], struct error *err)
{
    uint64_t subvolume = disk_subvol_id(disk->boxes_fd, id);

    if (subvolume == 0)
        return error_set(err, ERROR_INTERNAL, "the disk of box '%s' has no id", id);
    (void)snprintf(out, DISK_GROUP_SIZE, "fs/btrfs/%s/qgroups/0_%" PRIu64, disk->fsid, subvolume);
    return 0;
}

void disk_groups(const struct disk *disk, char out[DISK_GROUP_SIZE])
{
    (void)snprintf(out, DISK_GROUP_SIZE, "fs/btrfs/%s/qgroups", disk->fsid);
}

int disk_box_used(struct disk *disk, const char *id, uint64_t *out_bytes, struct error *err)
{
    auto_close int fd = -1;

    if (disk_subvol_open(disk->boxes_fd, id, &fd, err) < 0)
        return -1;
    return disk_quota_used(disk, fd, out_bytes, err);
}

static int sync_by_snapshot(struct disk *disk, const char *id, int fd, struct error *err)
{
    struct error ignored;

    if (disk_subvol_delete(disk, disk->temporary_fd, id, err) < 0 ||
        disk_subvol_snapshot(fd, disk->temporary_fd, id, true, err) < 0)
        return -1;
    (void)disk_subvol_delete(disk, disk->temporary_fd, id, &ignored); /* or by the next sync */
    return 0;
}

/* Taking a snapshot is the one thing that makes btrfs flush a single subvolume; syncfs() and the sync
 * ioctls flush the pool, with everybody's data. They are for a pool that has no room for a snapshot. */
int disk_box_sync(struct disk *disk, const char *id, struct error *err)
{
    auto_close int fd = -1;

    if (disk_subvol_open(disk->boxes_fd, id, &fd, err) < 0)
        return error_prefix(err, "sync box '%s'", id);
    if (sync_by_snapshot(disk, id, fd, err) == 0 || syncfs(fd) == 0)
        return 0;
    return error_set_errno(err, errno, "sync box '%s'", id);
}

int disk_box_settle_down(struct disk *disk, const char *id, struct error *err)
{
    auto_close int fd = -1;
    uint64_t bytes;

    if (disk_subvol_open(disk->boxes_fd, id, &fd, err) < 0 ||
        disk_quota_unwritten(disk, fd, &bytes, err) < 0)
        return -1;
    return bytes < UNWRITTEN_MAX ? 0 : disk_box_sync(disk, id, err);
}

int disk_box_delete(struct disk *disk, const char *id, struct error *err)
{
    return disk_subvol_delete(disk, disk->boxes_fd, id, err);
}

int disk_box_list(struct disk *disk, char ***out, size_t *out_count, struct error *err)
{
    return disk_subvol_list(disk->boxes_fd, out, out_count, err);
}

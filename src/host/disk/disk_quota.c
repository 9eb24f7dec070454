/* Disk limits by btrfs quota groups.
 *
 * Every subvolume has the quota group 0/<subvolume id>, made and removed with it. Simple quotas
 * (Linux 6.7) charge an extent to the subvolume that wrote it, for as long as it exists: writing
 * and deleting cost nothing extra, whatever is shared by snapshots. Older kernels get full quotas, which
 * count references and make deletes of large or snapshotted subvolumes more expensive. A file
 * system that already has quotas of either kind keeps them.
 *
 * With simple quotas a box goes on being charged for what only its layers still hold: a box that fills
 * half of its disk, is snapshotted and writes that half anew would be full. So what was charged at
 * the last snapshot is forgiven: the limit is raised by it. With full quotas it is the reverse: a box made
 * from a layer is charged for the layer's files, and those are forgiven. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "host/disk/disk_internal.h"

#ifndef BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA
#define BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA 4
#endif

int disk_quota_enable(int pool_fd, struct error *err)
{
    struct btrfs_ioctl_quota_ctl_args args = {.cmd = BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA};

    if (ioctl(pool_fd, BTRFS_IOC_QUOTA_CTL, &args) == 0 || errno == EEXIST)
        return 0;
    if (errno != EINVAL)
        return error_set_errno(err, errno, "enable quotas on the pool");
    args = (struct btrfs_ioctl_quota_ctl_args){.cmd = BTRFS_QUOTA_CTL_ENABLE};
    if (ioctl(pool_fd, BTRFS_IOC_QUOTA_CTL, &args) == 0 || errno == EEXIST)
        return 0;
    return error_set_errno(err, errno, "enable quotas on the pool");
}

struct btrfs_qgroup_limit disk_quota_of(uint64_t limit_bytes, uint64_t cap_bytes)
{
    struct btrfs_qgroup_limit limit = {.max_rfer = limit_bytes, .max_excl = cap_bytes};

    if (limit_bytes)
        limit.flags |= BTRFS_QGROUP_LIMIT_MAX_RFER;
    if (cap_bytes != UINT64_MAX)
        limit.flags |= BTRFS_QGROUP_LIMIT_MAX_EXCL;
    return limit;
}

static int set_limit(int subvol_fd, uint64_t limit_bytes, struct error *err)
{
    /* Group 0 is the one of the subvolume behind the descriptor. All ones is how "no limit" is spelled
     * once a limit was there. */
    struct btrfs_ioctl_qgroup_limit_args args = {
        .lim = {.flags = BTRFS_QGROUP_LIMIT_MAX_RFER,
                .max_rfer = limit_bytes ? limit_bytes : UINT64_MAX}};

    if (ioctl(subvol_fd, BTRFS_IOC_QGROUP_LIMIT, &args) < 0)
        return error_set_errno(err, errno, "set the disk limit");
    return 0;
}

int disk_quota_limit(int subvol_fd, uint64_t limit_bytes, struct error *err)
{
    uint64_t forgiven;

    if (disk_note_get(subvol_fd, DISK_NOTE_FREE, &forgiven, err) < 0)
        return -1;
    return set_limit(subvol_fd, limit_bytes ? limit_bytes + forgiven : 0, err);
}

int disk_quota_limit_start(const struct disk *disk, int subvol_fd, uint64_t limit_bytes,
                           bool *out_raised, struct error *err)
{
    uint64_t forgiven, used;

    *out_raised = false;
    if (limit_bytes == 0)
        return set_limit(subvol_fd, 0, err);
    if (disk_note_get(subvol_fd, DISK_NOTE_FREE, &forgiven, err) < 0 ||
        disk_quota_used(disk, subvol_fd, &used, err) < 0)
        return -1;
    *out_raised = used + DISK_START_WORK > limit_bytes + forgiven;
    return set_limit(subvol_fd, *out_raised ? used + DISK_START_WORK : limit_bytes + forgiven, err);
}

bool disk_quota_is_simple(int qgroups_fd)
{
    auto_buf struct buf text = {0};

    buf_init(&text, 64);
    return fd_read_file_at(qgroups_fd, "mode", &text) == 0 &&
           str_is(str_trim(buf_str(&text)), "squota");
}

int disk_quota_charged(const struct disk *disk, uint64_t subvolume, uint64_t *out_bytes)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "0_%" PRIu64 "/referenced", subvolume);
    return disk_sysfs_number(disk->qgroups_fd, path, out_bytes);
}

static int read_group(const struct disk *disk, int subvol_fd, const char *field, uint64_t *out,
                      struct error *err)
{
    char path[64];
    uint64_t id;
    int r;

    if (disk_tree_subvolume(subvol_fd, &id, err) < 0)
        return -1;
    (void)snprintf(path, sizeof(path), "0_%" PRIu64 "/%s", id, field);
    r = disk_sysfs_number(disk->qgroups_fd, path, out);
    return r < 0 ? error_set_errno(err, -r, "read '%s'", path) : 0;
}

/* What is on disk plus what is written but not flushed: the sum is what the limit is held against. */
int disk_quota_used(const struct disk *disk, int subvol_fd, uint64_t *out_bytes, struct error *err)
{
    uint64_t on_disk = 0, reserved = 0;

    if (read_group(disk, subvol_fd, "referenced", &on_disk, err) < 0 ||
        read_group(disk, subvol_fd, "rsv_data", &reserved, err) < 0)
        return -1;
    *out_bytes = on_disk + reserved;
    return 0;
}

int disk_quota_unwritten(const struct disk *disk, int subvol_fd, uint64_t *out_bytes,
                         struct error *err)
{
    return read_group(disk, subvol_fd, "rsv_data", out_bytes, err);
}

int disk_quota_forgive(const struct disk *disk, int subvol_fd, uint64_t bytes, struct error *err)
{
    uint64_t limit = 0, before = 0;

    if (disk_note_get(subvol_fd, DISK_NOTE_FREE, &before, err) < 0 ||
        read_group(disk, subvol_fd, "max_referenced", &limit, err) < 0 ||
        disk_note_set(subvol_fd, DISK_NOTE_FREE, bytes, err) < 0)
        return -1;
    if (limit == 0 || limit == UINT64_MAX || limit < before)
        return 0;
    return set_limit(subvol_fd, limit - before + bytes, err);
}

uint64_t disk_quota_pending(const struct disk *disk)
{
    uint64_t unwritten = 0, being_written = 0;

    if (disk->data_fd < 0 || disk_sysfs_number(disk->data_fd, "bytes_may_use", &unwritten) < 0 ||
        disk_sysfs_number(disk->data_fd, "bytes_reserved", &being_written) < 0)
        return 0;
    return unwritten + being_written;
}

int disk_quota_state(const struct disk *disk, uint64_t subvolume, struct disk_group_state *out)
{
    uint64_t unwritten = 0;
    const struct {
        const char *field;
        uint64_t *out;
    } fields[] = {{"exclusive", &out->held},
                  {"rsv_data", &unwritten},
                  {"max_referenced", &out->limit},
                  {"max_exclusive", &out->cap}};

    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
        char path[64];
        int r;

        (void)snprintf(path, sizeof(path), "0_%" PRIu64 "/%s", subvolume, fields[i].field);
        r = disk_sysfs_number(disk->qgroups_fd, path, fields[i].out);
        if (r < 0)
            return r;
    }
    out->subvolume = subvolume;
    out->held += unwritten;
    if (out->limit == 0)
        out->limit = UINT64_MAX;
    if (out->cap == 0)
        out->cap = UINT64_MAX;
    return 0;
}

int disk_quota_cap(const struct disk *disk, uint64_t subvolume, uint64_t bytes, struct error *err)
{
    struct btrfs_ioctl_qgroup_limit_args args = {
        .qgroupid = subvolume, .lim = {.flags = BTRFS_QGROUP_LIMIT_MAX_EXCL, .max_excl = bytes}};

    if (ioctl(disk->pool_fd, BTRFS_IOC_QGROUP_LIMIT, &args) < 0 && errno != ENOENT)
        return error_set_errno(err, errno, "set the cap of a disk");
    return 0;
}

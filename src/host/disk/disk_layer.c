/* Read-only snapshots of box subvolumes. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/cleanup.h"
#include "host/disk/disk_internal.h"

static int note_bytes(int subvol_fd, const void *bytes, struct error *err)
{
    return disk_note_set(subvol_fd, DISK_NOTE_BYTES, *(const uint64_t *)bytes, err);
}

int disk_layer_prepare(struct disk *disk, const char *id, uint64_t *out_bytes, struct error *err)
{
    auto_close int fd = -1;

    if (disk_box_settle_down(disk, id, err) < 0 ||
        disk_subvol_open(disk->boxes_fd, id, &fd, err) < 0 ||
        disk_quota_used(disk, fd, out_bytes, err) < 0)
        return -1;
    return disk_share_beyond(disk, fd, note_bytes, out_bytes, err);
}

int disk_layer_create(struct disk *disk, const char *id, const char *layer, struct error *err)
{
    auto_close int fd = -1;

    if (disk_subvol_open(disk->boxes_fd, id, &fd, err) < 0)
        return -1;
    return disk_subvol_snapshot(fd, disk->layers_fd, layer, true, err);
}

int disk_layer_settle(struct disk *disk, const char *id, struct error *err)
{
    auto_close int fd = -1;
    uint64_t used;

    if (!disk->simple_quota)
        return 0;
    if (disk_subvol_open(disk->boxes_fd, id, &fd, err) < 0 ||
        disk_quota_used(disk, fd, &used, err) < 0)
        return -1;
    return disk_quota_forgive(disk, fd, used, err);
}

bool disk_layer_exists(struct disk *disk, const char *layer)
{
    auto_close int fd = -1;
    struct error ignored;

    return disk_subvol_open(disk->layers_fd, layer, &fd, &ignored) == 0;
}

int disk_layer_open(struct disk *disk, const char *layer, int *out_upper_fd, struct error *err)
{
    auto_close int fd = -1;
    int upper;

    if (disk_subvol_open(disk->layers_fd, layer, &fd, err) < 0)
        return -1;
    upper = openat(fd, "upper", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (upper < 0)
        return error_set_errno(err, errno, "open layer '%s'", layer);
    *out_upper_fd = upper;
    return 0;
}

int disk_layer_delete(struct disk *disk, const char *layer, struct error *err)
{
    disk_spare_drop(disk, layer);
    return disk_subvol_delete(disk, disk->layers_fd, layer, err);
}

int disk_layer_list(struct disk *disk, char ***out, size_t *out_count, struct error *err)
{
    return disk_subvol_list(disk->layers_fd, out, out_count, err);
}

int disk_layer_bytes(struct disk *disk, const char *layer, uint64_t *out_bytes, struct error *err)
{
    auto_close int fd = -1;

    if (disk_subvol_open(disk->layers_fd, layer, &fd, err) < 0)
        return -1;
    return disk_note_get(fd, DISK_NOTE_BYTES, out_bytes, err);
}

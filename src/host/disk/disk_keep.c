/* Subvolumes for backups: snapshots that stand still while they are read, and new ones that are filled from a file. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/cleanup.h"
#include "host/disk/disk_internal.h"

/* A layer is a snapshot of a box: of this one, while a layer is filled. */
#define FILLING "refill"

static int dir_of(const struct disk *disk, enum disk_kind kind)
{
    return kind == DISK_BOXES    ? disk->boxes_fd
           : kind == DISK_LAYERS ? disk->layers_fd
                                 : disk->volumes_fd;
}

static int open_files(int subvol_fd, enum disk_kind kind, int *out_fd, struct error *err)
{
    int fd = openat(subvol_fd, kind == DISK_VOLUMES ? "data" : "upper",
                    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return error_set_errno(err, errno, "open a directory of the pool");
    *out_fd = fd;
    return 0;
}

static int box_bytes(const struct disk *disk, int fd, uint64_t *out_bytes, struct error *err)
{
    uint64_t used = 0, forgiven = 0;

    if (disk_quota_used(disk, fd, &used, err) < 0 ||
        disk_note_get(fd, DISK_NOTE_FREE, &forgiven, err) < 0)
        return -1;
    *out_bytes = used > forgiven ? used - forgiven : 0;
    return 0;
}

static int volume_limit(const struct disk *disk, int fd, uint64_t *out_bytes, struct error *err)
{
    struct disk_group_state state = {0};
    uint64_t subvolume;
    int r;

    if (disk_tree_subvolume(fd, &subvolume, err) < 0)
        return -1;
    r = disk_quota_state(disk, subvolume, &state);
    if (r < 0)
        return error_set_errno(err, -r, "read the limit of a volume");
    *out_bytes = state.limit == UINT64_MAX ? 0 : state.limit;
    return 0;
}

int disk_kept_bytes(struct disk *disk, enum disk_kind kind, const char *name, uint64_t *out_bytes,
                    struct error *err)
{
    auto_close int fd = -1;

    if (disk_subvol_open(dir_of(disk, kind), name, &fd, err) < 0)
        return -1;
    return kind == DISK_BOXES    ? box_bytes(disk, fd, out_bytes, err)
           : kind == DISK_LAYERS ? disk_note_get(fd, DISK_NOTE_BYTES, out_bytes, err)
                                 : volume_limit(disk, fd, out_bytes, err);
}

int disk_keep(struct disk *disk, enum disk_kind kind, const char *name, const char *as,
              struct error *err)
{
    auto_close int fd = -1;

    if (disk_subvol_open(dir_of(disk, kind), name, &fd, err) < 0)
        return -1;
    return disk_subvol_snapshot(fd, disk->temporary_fd, as, true, err);
}

int disk_keep_open(struct disk *disk, enum disk_kind kind, const char *as, int *out_fd,
                   struct error *err)
{
    auto_close int fd = -1;

    if (disk_subvol_open(disk->temporary_fd, as, &fd, err) < 0)
        return -1;
    return open_files(fd, kind, out_fd, err);
}

void disk_keep_drop(struct disk *disk, const char *as)
{
    struct error ignored;

    (void)disk_subvol_delete(disk, disk->temporary_fd, as, &ignored);
}

int disk_refill(struct disk *disk, enum disk_kind kind, const char *name, int *out_fd,
                struct error *err)
{
    const char *box = kind == DISK_LAYERS ? FILLING : name;
    auto_close int subvol = -1;

    if (kind == DISK_VOLUMES ? disk_volume_create(disk, name, 0, err) < 0
                             : disk_box_create(disk, box, 0, &subvol, err) < 0)
        return -1;
    close_fd(&subvol);
    if (disk_subvol_open(kind == DISK_VOLUMES ? disk->volumes_fd : disk->boxes_fd, box, &subvol,
                         err) < 0)
        return -1;
    return open_files(subvol, kind, out_fd, err);
}

static int finish_box(struct disk *disk, const char *id, uint64_t bytes, struct error *err)
{
    auto_close int fd = -1;
    uint64_t used = 0;

    if (disk_box_sync(disk, id, err) < 0 || disk_subvol_open(disk->boxes_fd, id, &fd, err) < 0 ||
        disk_quota_used(disk, fd, &used, err) < 0)
        return -1;
    return disk_quota_forgive(disk, fd, used > bytes ? used - bytes : 0, err);
}

static int finish_layer(struct disk *disk, const char *layer, uint64_t bytes, struct error *err)
{
    auto_close int fd = -1;

    if (disk_box_sync(disk, FILLING, err) < 0 ||
        disk_subvol_open(disk->boxes_fd, FILLING, &fd, err) < 0 ||
        disk_note_set(fd, DISK_NOTE_BYTES, bytes, err) < 0 ||
        disk_layer_create(disk, FILLING, layer, err) < 0)
        return -1;
    return disk_box_delete(disk, FILLING, err);
}

int disk_refilled(struct disk *disk, enum disk_kind kind, const char *name, uint64_t bytes,
                  struct error *err)
{
    return kind == DISK_BOXES    ? finish_box(disk, name, bytes, err)
           : kind == DISK_LAYERS ? finish_layer(disk, name, bytes, err)
                                 : disk_volume_create(disk, name, bytes, err);
}

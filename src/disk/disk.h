/* Writable layers on a copy-on-write pool, used by the warden only (root).
 *
 * The pool is DATA/pool: the data directory itself where that is btrfs, else DATA/pool.img, a sparse
 * file that is loop-mounted there. Each box has one subvolume DATA/pool/boxes/<id> with the overlay's
 * `upper` and `work` directories and a quota; subvolumes are made, snapshotted and deleted by ioctl
 * in microseconds. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct disk;

struct disk_config {
    const char *data_dir;
    uint64_t initial_bytes; /* of a new image; 0 = a sensible default */
};

/* Makes, mounts or re-adopts the pool. */
int disk_open(const struct disk_config *config, struct disk **out, struct error *err);
void disk_close(struct disk *disk); /* leaves it mounted */
/* Unmounts and detaches the loop device; fails with ERROR_CONFLICT when something is still in use.
 * Idempotent. */
int disk_unmount(const struct disk_config *config, struct error *err);

/* Subvolume with `upper` and `work`, both owned by root, mode 0755; limit 0 = none. Returns an O_PATH
 * descriptor of the subvolume. Thread-safe. */
int disk_box_create(struct disk *disk, const char *id, uint64_t limit_bytes, int *out_dir_fd,
                    struct error *err);
int disk_box_limit(struct disk *disk, const char *id, uint64_t limit_bytes, struct error *err);
int disk_box_used(struct disk *disk, const char *id, uint64_t *out_bytes, struct error *err);
/* Missing is success. The space comes back in the background. */
int disk_box_delete(struct disk *disk, const char *id, struct error *err);
/* Names of all box subvolumes, for recovery; *out is an array of strings, free each and the array. */
int disk_box_list(struct disk *disk, char ***out, size_t *out_count, struct error *err);
/* Grows the image when little is free (no-op on a plain btrfs). Call now and then. */
int disk_grow(struct disk *disk, struct error *err);

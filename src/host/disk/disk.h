/* Writable layers on a copy-on-write pool, used by the warden only (root).
 *
 * The pool is DATA/pool: the data directory itself where that is btrfs, else DATA/pool.img, a sparse
 * file that is loop-mounted there. In it:
 *   boxes/<id>       one subvolume per box: the overlay's `upper` and `work` directories, and a quota
 *   layers/<name>    read-only snapshots of box subvolumes
 *   volumes/<name>   subvolumes with one directory `data`
 *   temporary/       nothing that outlives the call that made it
 *   spares/<name>    clones of layers that wait for a box (disk_spare.c)
 * All functions are thread-safe.
 *
 * A box that starts from a layer gets a writable snapshot of it as its subvolume: the layer's files
 * are its own from the first moment, shared block by block until written, and a layer is always
 * complete by itself. Stacking the layer's directory below a new, empty one would be the obvious way;
 * but the overlay tells files apart by file system and inode number, and two subvolumes of one btrfs
 * number their files alike: different files would look like one (`cp` refuses to copy one over the
 * other).
 *
 * Layers in DATA/layers (tree.h, and those the operator installed) are stacked. With an image as the pool they are on
 * another file system than any box, so numbers do not matter. With a data directory on btrfs they are on the same one: there
 * a file of such a layer and a new one of the box may have the same number, if they are among the first files of that
 * file system or of very many in the box. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct disk;

struct disk_config {
    const char *data_dir;
    uint64_t initial_bytes; /* of a new image; 0 = a sensible default */
    bool only_to_unmount;   /* also one that stopped after an I/O error, and takes no writes */
    bool beside;            /* one that another process has open and tends; it must be mounted */
};

/* Makes, mounts or re-adopts the pool. */
int disk_open(const struct disk_config *config, struct disk **out, struct error *err);
void disk_close(struct disk *disk); /* leaves it mounted */
/* Unmounts and detaches the loop device; fails with ERROR_CONFLICT when something is still in use.
 * Idempotent. */
int disk_unmount(const struct disk_config *config, struct error *err);

/* ---- boxes (disk_box.c) ---- */

/* These give an O_PATH descriptor of a subvolume with `upper` and an empty `work`, both made with
 * mode 0755 and owned by root; limit 0 = none. */
int disk_box_create(struct disk *disk, const char *id, uint64_t limit_bytes, int *out_dir_fd,
                    struct error *err);
/* One that disk_box_create() made ahead, with another limit, and nobody used yet. */
int disk_box_begin(struct disk *disk, const char *id, uint64_t had_bytes, uint64_t limit_bytes,
                   int *out_dir_fd, struct error *err);
/* These fill one that was made ahead, or make it. */
/* With the files of a layer. When those are many it waits for the disk: milliseconds. */
int disk_box_clone(struct disk *disk, const char *id, const char *layer, uint64_t limit_bytes,
                   int *out_dir_fd, struct error *err);
/* With the files of another box, in two calls of which only the first needs that box to stand still. *out_shared: they share
 * what the other wrote, and disk_layer_settle() is due for it. */
int disk_box_copy(struct disk *disk, const char *source, const char *id, bool *out_shared,
                  struct error *err);
int disk_box_adopt(struct disk *disk, const char *id, bool shared, uint64_t limit_bytes,
                   int *out_dir_fd, struct error *err);
/* Opens the disk of a stopped box that starts again; nothing may use the disk now. *out_raised: the disk is full, and
 * its limit leaves room for what the start writes. disk_box_limit() is due once the box has started. */
int disk_box_reopen(struct disk *disk, const char *id, uint64_t limit_bytes, int *out_dir_fd,
                    bool *out_raised, struct error *err);
int disk_box_limit(struct disk *disk, const char *id, uint64_t limit_bytes, struct error *err);
enum { DISK_GROUP_SIZE = 96 };
/* The directory beneath /sys in which the kernel shows its limits, and what is held against them. */
int disk_box_group(struct disk *disk, const char *id, char out[DISK_GROUP_SIZE], struct error *err);
/* The directory above, of all. */
void disk_groups(const struct disk *disk, char out[DISK_GROUP_SIZE]);
/* What it wrote and still occupies. */
int disk_box_used(struct disk *disk, const char *id, uint64_t *out_bytes, struct error *err);
/* Writes to the disk what is not there yet, of this box only. */
int disk_box_sync(struct disk *disk, const char *id, struct error *err);
/* The same when there is so much of it that a snapshot, which does it too, would take long. */
int disk_box_settle_down(struct disk *disk, const char *id, struct error *err);
/* Missing is success. The space comes back in the background. */
int disk_box_delete(struct disk *disk, const char *id, struct error *err);
/* Names of all box subvolumes, for recovery; *out is an array of strings, free each and the array. */
int disk_box_list(struct disk *disk, char ***out, size_t *out_count, struct error *err);

/* ---- layers (disk_layer.c) ---- */

/* Making one takes three calls; only the second needs the box to stand still, and it does not depend
 * on how much the box has written.
 *   disk_layer_prepare  disk_box_settle_down(), and notes the size
 *   disk_layer_create   the snapshot; on disk when it returns
 *   disk_layer_settle   what the layer holds no longer counts against the box's limit */
int disk_layer_prepare(struct disk *disk, const char *id, uint64_t *out_bytes, struct error *err);
int disk_layer_create(struct disk *disk, const char *id, const char *layer, struct error *err);
int disk_layer_settle(struct disk *disk, const char *id, struct error *err);
bool disk_layer_exists(struct disk *disk, const char *layer);
/* O_PATH descriptor of what its box had written. */
int disk_layer_open(struct disk *disk, const char *layer, int *out_upper_fd, struct error *err);
/* Missing is success; boxes made from it do not mind. */
int disk_layer_delete(struct disk *disk, const char *layer, struct error *err);
/* Names, as disk_box_list(). */
int disk_layer_list(struct disk *disk, char ***out, size_t *out_count, struct error *err);
/* What its box had written, as noted when it was made. */
int disk_layer_bytes(struct disk *disk, const char *layer, uint64_t *out_bytes, struct error *err);

/* ---- volumes (disk_volume.c) ---- */

/* An existing one is success. Its directory belongs to root and everybody may write to it. */
int disk_volume_create(struct disk *disk, const char *name, uint64_t limit_bytes,
                       struct error *err);
/* Missing is success. */
int disk_volume_delete(struct disk *disk, const char *name, struct error *err);
int disk_volume_used(struct disk *disk, const char *name, uint64_t *out_bytes, struct error *err);
/* O_PATH descriptor of its directory. */
int disk_volume_open(struct disk *disk, const char *name, int *out_dir_fd, struct error *err);

/* ---- backups (disk_keep.c) ---- */

enum disk_kind { DISK_BOXES, DISK_LAYERS, DISK_VOLUMES };
/* Of a box what counts against its limit, of a layer its size as noted, of a volume its limit. */
int disk_kept_bytes(struct disk *disk, enum disk_kind kind, const char *name, uint64_t *out_bytes,
                    struct error *err);
/* A read-only snapshot of one. `as` names it until it is dropped; one that nobody drops goes with the next disk_open(). */
int disk_keep(struct disk *disk, enum disk_kind kind, const char *name, const char *as,
              struct error *err);
/* The directory with its files. */
int disk_keep_open(struct disk *disk, enum disk_kind kind, const char *as, int *out_fd,
                   struct error *err);
void disk_keep_drop(struct disk *disk, const char *as);
/* A new one to be filled through the descriptor, then finished. bytes: as disk_kept_bytes() told them. */
int disk_refill(struct disk *disk, enum disk_kind kind, const char *name, int *out_fd,
                struct error *err);
int disk_refilled(struct disk *disk, enum disk_kind kind, const char *name, uint64_t bytes,
                  struct error *err);

/* ---- the pool ---- */

/* Sees to it that the image has the blocks it needs, grows it when little is free and gives back what
 * is not needed (disk_back.c); nothing of that on a plain btrfs. When little is left, sees to it that
 * every box gets its share of it (disk_share.c). Call it every DISK_TEND_MS; may take seconds. */
enum { DISK_TEND_MS = 200 };
int disk_tend(struct disk *disk, struct error *err);

struct disk_space {
    uint64_t pool_bytes, pool_free;
    /* Of the file system below the image (else of the pool), as df has them: what is used and what is free
     * for everybody are less than all of it where some is reserved for root. */
    uint64_t host_bytes, host_used, host_free;
    bool held; /* the host is full, and the pool cannot grow */
};
int disk_space(struct disk *disk, struct disk_space *out, struct error *err);
/* Removes what deleted subvolumes left in the file system's own books. Call now and then. */
void disk_sweep(struct disk *disk);

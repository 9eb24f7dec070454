/* Shared by the files of disk/ only. */
#pragma once

#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <pthread.h>
#include <sys/stat.h>

#include "base/thread.h"
#include "host/disk/disk.h"

/* Subvolumes that are gone and whose quota groups may still be there, oldest first (disk_group.c). */
struct disk_groups {
    pthread_mutex_t lock;
    uint64_t *ids;
    size_t count, capacity;
};

/* What boxes may add to the pool (disk_share.c). */
struct disk_share {
    uint64_t room; /* for a new box; 0 before the first look; atomic */
    bool low;
    uint64_t free; /* when all boxes were looked at */
    int64_t next_ms;
};

enum { DISK_SPARES_MAX = 32, DISK_SPARE_NAME_SIZE = 32 };

/* Clones of layers that wait to be used (disk_spare.c), the one wanted last at the end. */
struct disk_spares {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct disk_spare {
        char layer[DISK_SPARE_NAME_SIZE];
        bool ready; /* else: is to be made */
    } list[DISK_SPARES_MAX];
    size_t count;
    char making[DISK_SPARE_NAME_SIZE]; /* by the thread, now; "" = none */
    bool stopping;
    pid_t process; /* that has the thread; 0 = none yet */
    struct thread thread;
};

enum { DISK_FSID_SIZE = 37 };

struct disk {
    char fsid[DISK_FSID_SIZE]; /* as the kernel names it in /sys/fs/btrfs */
    int pool_fd;               /* root of the pool */
    int boxes_fd, layers_fd, volumes_fd, temporary_fd, spares_fd; /* directories in it */
    int image_fd;      /* DATA/pool.img, or -1 on a plain btrfs */
    int qgroups_fd;    /* /sys/fs/btrfs/<fsid>/qgroups */
    int data_fd;       /* /sys/fs/btrfs/<fsid>/allocation/data, or -1 */
    bool simple_quota; /* extents are charged to who wrote them (disk_quota.c) */
    struct disk_groups gone;
    struct disk_spares spares;
    pthread_mutex_t tend_lock; /* guards what follows, and the sizes of image and file system */
    bool unbacked;             /* the host cannot allocate ahead: disk_back.c does nothing */
    bool settled;              /* the loop device is as large as the image */
    bool held;                 /* no room on the host for the headroom */
    bool small_metadata;       /* its chunk is that of mkfs */
    uint64_t headroom;
    uint64_t backed;     /* the image has all its blocks up to here */
    uint64_t last_chunk; /* where the last one was found */
    int64_t give_back_at_ms, hurry_at_ms;
    struct disk_share share;
};

/* disk_back.c */
bool disk_back_possible(int image_fd);
void disk_back_open(struct disk *disk);
void disk_back_hurry(struct disk *disk);
int disk_back(struct disk *disk, struct error *err); /* tend_lock is held */

/* disk_mkfs.c: makes a btrfs of the whole file. */
int disk_mkfs(const char *image, struct error *err);

/* disk_size.c: what an image on the file system of `dir_fd` may grow to, when `image_bytes` of it
 * are already allocated to that image. */
int disk_size_allowed(int dir_fd, uint64_t image_bytes, uint64_t *out_bytes, struct error *err);

/* disk_holders.c: takes the pool's mount away from other mount namespaces; tells who had it. */
enum { DISK_HOLDERS_MAX = 64 };
struct disk_holders {
    const char *device;
    ino_t mounts[DISK_HOLDERS_MAX]; /* the namespaces that had a copy */
    size_t count;
    char names[160]; /* "PID (NAME), ..."; cut */
};
void disk_holders_detach(struct disk_holders *holders, const char *device, const char *place);

/* disk_loop.c */
enum { DISK_LOOP_PATH_SIZE = 32 };
struct disk_loop {
    int fd; /* of the loop device, close-on-exec */
    char path[DISK_LOOP_PATH_SIZE];
};
/* Whether the open loop device is backed by that file. */
bool disk_loop_backed_by(int loop_fd, const struct stat *image);
/* 1 and *out when a loop device is already backed by that file, 0 when none is. */
int disk_loop_find(const struct stat *image, struct disk_loop *out, struct error *err);
/* Finds or attaches; the device clears itself when the last user (mount or descriptor) is gone. */
int disk_loop_attach(int image_fd, struct disk_loop *out, struct error *err);

/* disk_subvol.c: subvolumes by name in one of the pool's directories. */
int disk_subvol_create(int dir_fd, const char *name, const struct btrfs_qgroup_limit *limit,
                       struct error *err);
int disk_subvol_open(int dir_fd, const char *name, int *out_fd, struct error *err);
/* Flushes the source and commits; done when it returns. */
int disk_subvol_snapshot(int source_fd, int dir_fd, const char *name, bool read_only,
                         struct error *err);
/* Missing is success. */
int disk_subvol_delete(struct disk *disk, int dir_fd, const char *name, struct error *err);
/* 0 when there is none. */
uint64_t disk_subvol_id(int dir_fd, const char *name);
/* Names of all entries; *out is an array of strings. */
int disk_subvol_list(int dir_fd, char ***out, size_t *out_count, struct error *err);
int disk_subvol_clear(struct disk *disk, int dir_fd, struct error *err);

/* Numbers noted on a subvolume's own directory, which nothing inside a sandbox can see. */
#define DISK_NOTE_BYTES "trusted.quicksand.bytes" /* size of a layer */
#define DISK_NOTE_FREE  "trusted.quicksand.free"  /* charged, but not counted against the limit */
int disk_note_set(int subvol_fd, const char *note, uint64_t value, struct error *err);
/* 0 when there is none. */
int disk_note_get(int subvol_fd, const char *note, uint64_t *out, struct error *err);

/* disk_tree.c: items of btrfs' own trees. */
struct disk_tree_range {
    uint64_t tree;
    uint64_t objectid;
    uint32_t type;
    uint64_t min_offset, max_offset;
};
/* 1 and the offset of the first item in range, 0 when there is none. */
int disk_tree_first(int pool_fd, const struct disk_tree_range *range, uint64_t *out_offset,
                    struct error *err);
/* And the first `size` bytes of the item itself. */
int disk_tree_item(int pool_fd, const struct disk_tree_range *range, uint64_t *out_offset,
                   void *out_item, size_t size, struct error *err);
int disk_sysfs_fsid(int pool_fd, char out[DISK_FSID_SIZE], struct error *err);
/* A directory in which the kernel shows this file system. */
int disk_sysfs_open(const struct disk *disk, const char *name, int *out_fd, struct error *err);
/* -errno when there is none. */
int disk_sysfs_number(int dir_fd, const char *path, uint64_t *out);
/* Id of the subvolume that a descriptor lies in. */
int disk_tree_subvolume(int fd, uint64_t *out_id, struct error *err);

/* disk_quota.c */

/* Bytes that our own work on a full disk may write. */
enum { DISK_START_WORK = 2 << 20 };

int disk_quota_enable(int pool_fd, struct error *err);
/* 0 = none. The note DISK_NOTE_FREE is added. */
int disk_quota_limit(int subvol_fd, uint64_t limit_bytes, struct error *err);
/* The same for a box that is about to start from its files. A start writes a little (the overlay's work directory,
 * resolv.conf): when the limit has no room for that, it is raised to what the start needs. */
int disk_quota_limit_start(const struct disk *disk, int subvol_fd, uint64_t limit_bytes,
                           bool *out_raised, struct error *err);
/* From now on this much of what is charged does not count; the limit moves along. */
int disk_quota_forgive(const struct disk *disk, int subvol_fd, uint64_t bytes, struct error *err);
/* Whether extents are charged to the subvolume that wrote them. */
bool disk_quota_is_simple(int qgroups_fd);
int disk_quota_used(const struct disk *disk, int subvol_fd, uint64_t *out_bytes, struct error *err);
/* To its group, also when the subvolume is gone. -errno when there is no group. */
int disk_quota_charged(const struct disk *disk, uint64_t subvolume, uint64_t *out_bytes);
/* The part of what is used that is in memory only. */
int disk_quota_unwritten(const struct disk *disk, int subvol_fd, uint64_t *out_bytes,
                         struct error *err);
/* Of a new subvolume: its limit, 0 = none, and its cap, UINT64_MAX = none. */
struct btrfs_qgroup_limit disk_quota_of(uint64_t limit_bytes, uint64_t cap_bytes);
/* Bytes of data that are written but not flushed, of everybody. */
uint64_t disk_quota_pending(const struct disk *disk);
struct disk_group_state {
    uint64_t subvolume;
    uint64_t held;       /* exclusively, with what is not flushed */
    uint64_t limit, cap; /* UINT64_MAX = none */
};
/* -errno when there is no group. */
int disk_quota_state(const struct disk *disk, uint64_t subvolume, struct disk_group_state *out);
/* Beside the limit, for what is exclusively its; UINT64_MAX = none. Nothing to do without a group. */
int disk_quota_cap(const struct disk *disk, uint64_t subvolume, uint64_t bytes, struct error *err);

/* disk_share.c */
int disk_share(struct disk *disk, struct error *err); /* tend_lock is held */
/* The cap of a new box with that limit; UINT64_MAX = none. */
uint64_t disk_share_room(const struct disk *disk, uint64_t limit_bytes);
/* A cap for one that got this limit, if it has none and needs one. */
int disk_share_limit(const struct disk *disk, int subvol_fd, uint64_t limit_bytes,
                     struct error *err);
/* Small work of our own, which a cap does not stop. It may be done twice. */
int disk_share_beyond(const struct disk *disk, int subvol_fd,
                      int (*work)(int subvol_fd, const void *arg, struct error *err),
                      const void *arg, struct error *err);

/* disk_group.c */
/* Its group goes with one of the next sweeps. */
void disk_group_add(struct disk *disk, uint64_t subvolume);
/* All groups without a subvolume. Only while none is being made. */
void disk_group_find(struct disk *disk);

/* disk_box.c: 1 and an O_PATH descriptor when there is one that was made ahead, 0 when there is none. ERROR_EXISTS when it has
 * files. */
int disk_box_find_new(struct disk *disk, const char *id, int *out_dir_fd, struct error *err);
/* Makes a fresh clone fit for a box, but for the limit. */
int disk_box_prepare(struct disk *disk, int dir_fd, const char *name, struct error *err);

/* disk_small.c: a new box's disk with the files of another subvolume, which nobody changes meanwhile. 1 when it was made, 0 when it
 * is to be a snapshot. disk_box_adopt() is due. */
int disk_small_copy(struct disk *disk, int subvol_fd, const char *id, struct error *err);

/* disk_spare.c */
void disk_spare_open(struct disk *disk);
/* Removes them. */
void disk_spare_close(struct disk *disk);
/* Let there be one soon. */
void disk_spare_want(struct disk *disk, const char *layer);
/* Is there one, or was it wanted? */
bool disk_spare_known(struct disk *disk, const char *layer);
/* The disk of the box is a clone of the layer now; false when there was none. */
bool disk_spare_take(struct disk *disk, const char *layer, const char *id);
/* Before the layer goes. */
void disk_spare_drop(struct disk *disk, const char *layer);

/* Shared by the files of disk/ only. */
#pragma once

#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <pthread.h>
#include <sys/stat.h>

#include "disk/disk.h"

struct disk {
    int pool_fd;               /* root of the pool */
    int boxes_fd;              /* DATA/pool/boxes */
    int image_fd;              /* DATA/pool.img, or -1 on a plain btrfs */
    int qgroups_fd;            /* /sys/fs/btrfs/<fsid>/qgroups */
    pthread_mutex_t grow_lock; /* one grow at a time; guards the image's size */
};

/* disk_mkfs.c: makes a btrfs of the whole file. */
int disk_mkfs(const char *image, struct error *err);

/* disk_size.c: what an image on the file system of `dir_fd` may grow to, when `image_bytes` of it
 * are already allocated to that image. */
int disk_size_allowed(int dir_fd, uint64_t image_bytes, uint64_t *out_bytes, struct error *err);

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
/* Id of the subvolume that a descriptor lies in. */
int disk_tree_subvolume(int fd, uint64_t *out_id, struct error *err);

/* disk_quota.c */
int disk_quota_enable(int pool_fd, struct error *err);
/* Opens the directory in sysfs that shows the quota groups of this file system. */
int disk_quota_open(int pool_fd, int *out_fd, struct error *err);
int disk_quota_limit(int subvol_fd, uint64_t limit_bytes, struct error *err);
int disk_quota_used(const struct disk *disk, int subvol_fd, uint64_t *out_bytes, struct error *err);
struct btrfs_qgroup_limit disk_quota_of(uint64_t limit_bytes);

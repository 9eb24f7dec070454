/* What kind of file system a mount has, told without asking that file system: statfs(2) on a dead
 * network mount does not return. */
#pragma once

#include <stdint.h>

#include "base/str.h"

enum guest_mount {
    GUEST_MOUNT_ORDINARY,
    GUEST_MOUNT_NETWORK, /* NFS, CIFS/SMB, FUSE: changes made elsewhere are not reported */
    GUEST_MOUNT_KERNEL,  /* /proc, /sys and the like: not files in the usual sense */
};

/* id is guest_stat's; unknown ones are ordinary. */
enum guest_mount guest_mount_kind(uint64_t id);
/* For tests: the same from a text like /proc/self/mountinfo. */
enum guest_mount guest_mount_kind_in(struct str mountinfo, uint64_t id);

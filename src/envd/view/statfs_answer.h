/* statfs(2) and fstatfs(2) of the programs inside.
 *
 * The kernel would answer them with the sizes of the pool, which all sandboxes share: btrfs tells nobody of
 * quotas. So the system-call filter (host/native/box_seccomp.c) hands them to a thread of envd. What lies on
 * the sandbox's root gets the sandbox's own numbers (disk_use.h); everything else, and everything that
 * cannot be told for sure, goes on in the kernel as if nobody had looked: volumes, tmpfs, errors. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* Takes the descriptor that came with the filter. 0 or -errno: then these calls fail inside (ENOSYS). */
int statfs_answer_start(int notify_fd_consume);
/* The root is another one since. Only while nothing runs that could ask. */
int statfs_answer_renew(void);

/* For tests: what a text like /proc/PID/status says of the rights to files. */
enum { STATFS_GROUPS_MAX = 256 };
struct statfs_rights {
    uint32_t uid, gid, groups[STATFS_GROUPS_MAX];
    size_t group_count;
    bool searches_all; /* directories, whoever's they are */
};
bool statfs_rights_parse(struct str status, struct statfs_rights *out);

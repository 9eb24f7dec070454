/* stat() that never asks a file system served from user space. envd itself serves one
 * (proc_files.c), and asking itself would stop it for ever; so all its stat calls go through here. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct guest_stat {
    mode_t mode;
    uid_t uid;
    gid_t gid;
    uint32_t nlink;
    int64_t size;
    int64_t mtime_s;
    uint32_t mtime_ns;
    uint32_t dev_major, dev_minor;
    uint64_t ino;
    uint64_t mount; /* id as in /proc/self/mountinfo; 0 when the kernel does not tell */
};

/* 0 or -errno. */
int guest_stat(const char *path, bool follow, struct guest_stat *out);
int guest_stat_fd(int fd, struct guest_stat *out);
/* Is it a file that proc_files.c serves? Opening it would hang envd. */
bool guest_stat_is_own(const struct guest_stat *st);
/* Called at start, when there is such a file; all are on one device. */
void guest_stat_set_own(const struct guest_stat *st);

/* Paths beneath a directory that somebody hostile may write to: never followed outside of it. */
#pragma once

#include <dirent.h>
#include <stdbool.h>
#include <sys/types.h>

/* openat2 with RESOLVE_IN_ROOT: absolute paths, ".." and symbolic links stay beneath root_fd. */
int path_open_in_root(int root_fd, const char *path, int flags, mode_t mode);
/* mkdir -p of an absolute or cwd-relative path. 0 or -errno. */
int path_make_dirs(const char *path, mode_t mode);
/* Opens a directory for readdir(), without following a link. On errors NULL, with errno set. */
DIR *path_open_dir(int dir_fd, const char *name);
/* rm -rf of one entry, without following links or crossing mounts. Missing is fine. 0 or -errno. */
int path_remove_tree(int dir_fd, const char *name);
/* The first folder on the way that this process may not pass, in out; false when none is in the way. */
bool path_barred(const char *path, char *out, size_t size);
/* Can a process of this user and group, without other groups, open an existing path with this access(2) mode? Returns
 * 1 when it cannot, and out has the folder that it may not pass, or the path itself; 0 when it can or the path is
 * missing; -errno when that is unknown, such as -EPERM for a caller that is not root. Forks. */
int path_denied_to(uid_t uid, const char *path, int mode, char *out, size_t size);

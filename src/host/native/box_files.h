/* The files of /proc that a box's envd serves. */
#pragma once

enum { BOX_FILES = 3 };

/* Their names in /proc. */
extern const char *const box_files_names[BOX_FILES];

/* Tests: called in the box, in the process that answers, before each reply. NULL = nothing. */
extern void (*box_files_before_reply)(void);

/* In the child: detached mounts of the files of a FUSE file system whose root is a directory; it is mounted somewhere, and
 * nobody has read from its server's side. That is another descriptor afterwards; while the files are found, the caller has
 * none. -1 with errno. */
int box_files_find(int *fuse_fd, int mount_fd, int out_fds[BOX_FILES]);

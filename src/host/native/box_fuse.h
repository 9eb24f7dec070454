/* The FUSE connections of a box, and their end. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

enum { BOX_FUSE_MAX = 1 }; /* file systems per box */

/* The host's connections, as a detached mount. */
int box_fuse_open(int *out_fd, struct error *err);
/* In the child: by which number the connection of a detached mount is found. -1 with errno. */
int box_fuse_number(int mount_fd, uint32_t *out);
/* Those of a process's mounts, for a box that another warden started: as many as there are, or fit. */
void box_fuse_find(pid_t pid, uint32_t out[BOX_FUSE_MAX]);
/* Whoever waits for an answer goes on with an error. A connection that is gone, or belongs to another
 * user (the host id of root inside), is left alone; 0 is none. */
int box_fuse_abort(int control_fd, uint32_t number, uid_t owner, struct error *err);
/* The same for all mounts that a task sees: one that still starts sees the host's too. */
int box_fuse_abort_seen(int control_fd, pid_t task, uid_t owner, struct error *err);

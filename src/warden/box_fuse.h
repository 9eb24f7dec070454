/* The FUSE connections of a box, and their end. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

enum { BOX_FUSE_MAX = 1 }; /* mounts per box */

/* The host's connections, as a detached mount. */
int box_fuse_open(int *out_fd, struct error *err);
/* In the child: by which number the connection of a detached mount is found. -1 with errno. */
int box_fuse_number(int mount_fd, uint32_t *out);
/* Whoever waits for an answer goes on with an error. A connection that is gone, or belongs to another
 * user (the host id of root inside), is left alone; 0 is none. */
int box_fuse_abort(int control_fd, uint32_t number, uid_t owner, struct error *err);

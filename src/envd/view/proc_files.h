/* Files of /proc as the sandbox should see them: a FUSE file system whose files are already mounted over
 * them; envd answers its requests on the given descriptor. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "protocol/loop/loop.h"

enum {
    PROC_FILES_REQUEST_MAX = 8192, /* the least the kernel accepts as a reading buffer */
    PROC_FILES_REPLY_MAX = 8192,
};

/* Takes the connection to the kernel. 0 or -errno. */
int proc_files_start(struct loop *loop, int fuse_fd_consume, uint64_t mem_bytes);
/* What is the limit from now on. */
void proc_files_set_memory(uint64_t mem_bytes);

/* What a reader of the file with that inode number would get now; -ENODEV when none is served here. */
int proc_files_read_own(uint64_t node, struct buf *out);

/* Answers one request; returns the length of the reply, 0 for none. Separate for tests. */
size_t proc_files_answer(const void *request, size_t len, struct str text,
                         char reply[PROC_FILES_REPLY_MAX]);

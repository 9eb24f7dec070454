/* /proc/meminfo as the sandbox should see it: a FUSE file system that is one regular file, already
 * mounted over it; the agent answers its requests on the given descriptor. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "envd/usage.h"
#include "loop/loop.h"

enum {
    MEMINFO_REQUEST_MAX = 8192, /* the least the kernel accepts as a reading buffer */
    MEMINFO_REPLY_MAX = 8192,
};

/* Takes the connection to the kernel. 0 or -errno. */
int meminfo_start(struct loop *loop, int fuse_fd_consume, uint64_t mem_bytes);

/* What a reader of the file would get now; -ENODEV when it is not served here. */
int meminfo_read_own(struct buf *out);

/* The file's text. */
void meminfo_text(const struct usage *usage, struct buf *out);

/* Answers one request; returns the length of the reply, 0 for none. Separate for tests. */
size_t meminfo_answer(const void *request, size_t len, struct str text,
                      char reply[MEMINFO_REPLY_MAX]);

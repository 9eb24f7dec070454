/* The bytes of an archive, decompressed: gzip, zstd, xz, bzip2 or plain, told by how they begin. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct source;

/* Reads from fd as it stands; it stays the caller's and must outlive the source. name is for messages. What is compressed is
 * decompressed by a thread of its own, some pieces ahead. */
int source_open(int fd, const char *name, struct source **out, struct error *err);
/* The next piece, which is there until the next call: its length, 0 at the end, -1. */
ssize_t source_next(struct source *source, const void **piece, struct error *err);
void source_close(struct source *source); /* NULL is fine */

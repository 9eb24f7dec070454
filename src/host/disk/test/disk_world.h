/* The pool that the tests of this folder share: an image of 256 MiB in a directory and a mount namespace of the test's
 * own. Both are removed when the test's process exits. */
#pragma once

#include "host/disk/disk_internal.h"

#define MIB (1024ull * 1024)

extern char world_dir[64];
extern struct disk_config world_config;

/* First in each test. */
void world_setup(void);
/* The test fails if the pool cannot be opened. */
struct disk *world_open(void);
void world_box(struct disk *disk, const char *id, uint64_t limit);
/* A layer with the files of the box. *out_bytes: what it holds. */
void world_layer(struct disk *disk, const char *id, const char *layer, uint64_t *out_bytes);
/* Writes `bytes` to the file below pool/boxes. Returns 0, or the errno of the first write that failed. */
int world_fill(const char *file, uint64_t bytes);

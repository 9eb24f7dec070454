/* The sandbox's disk: how large it is, and how much of it is used, as the limits say that hold for it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct disk_use {
    uint64_t size, used; /* bytes */
    uint64_t available;  /* may be less than the rest: what the pool has left is shared */
};

/* The directory in which the kernel shows the limits (-1: none, nothing is known). Before all others. */
void disk_use_init(int group_fd);
/* What the sandbox was given; 0: what the limit says. The limit is higher once snapshots were taken: what those
 * hold counts no longer. */
void disk_use_set_size(uint64_t bytes);
/* From any thread. False when there is no limit, or it is not known. */
bool disk_use_read(uint64_t pool_free, struct disk_use *out);

/* String-keyed hash map of pointers. Keys are copied; values are the caller's. The hash is keyed
 * with a random seed, so chosen keys cannot pile up in one bucket. Not thread-safe. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

struct map_entry {
    struct map_entry *next;
    void *value;
    uint64_t hash;
    size_t key_len;
    char key[];
};

struct map {
    struct map_entry **buckets;
    size_t bucket_count;
    size_t count;
    uint64_t seed[2];
};

void map_init(struct map *map);
void map_done(struct map *map); /* values are not freed */
void *map_get(const struct map *map, struct str key);
/* Returns the value that was there before, or NULL. */
void *map_put(struct map *map, struct str key, void *value);
void *map_remove(struct map *map, struct str key);
/* Iteration: pass NULL first; order is arbitrary; the map must not change meanwhile. */
struct map_entry *map_next(const struct map *map, struct map_entry *after);

#define map_for_each(map, entry) \
    for (entry = map_next(map, NULL); entry; entry = map_next(map, entry))

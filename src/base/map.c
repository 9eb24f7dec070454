#include "base/map.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"

/* SipHash-1-3, as used for hash tables by Rust and Python. */
#define ROTL(x, b) (((x) << (b)) | ((x) >> (64 - (b))))

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = ROTL(v[1], 13) ^ v[0];
    v[0] = ROTL(v[0], 32);
    v[2] += v[3];
    v[3] = ROTL(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = ROTL(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = ROTL(v[1], 17) ^ v[2];
    v[2] = ROTL(v[2], 32);
}

static uint64_t hash_of(const struct map *map, struct str key)
{
    uint64_t v[4] = {map->seed[0] ^ 0x736f6d6570736575ULL, map->seed[1] ^ 0x646f72616e646f6dULL,
                     map->seed[0] ^ 0x6c7967656e657261ULL, map->seed[1] ^ 0x7465646279746573ULL};
    uint64_t last = (uint64_t)key.len << 56;
    size_t i = 0;

    for (; i + 8 <= key.len; i += 8) {
        uint64_t word;

        memcpy(&word, key.p + i, 8);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    for (size_t shift = 0; i < key.len; i++, shift += 8)
        last |= (uint64_t)(unsigned char)key.p[i] << shift;
    v[3] ^= last;
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    sip_round(v);
    sip_round(v);
    sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void map_init(struct map *map)
{
    *map = (struct map){.bucket_count = 16};
    map->buckets = xcalloc(map->bucket_count, sizeof(*map->buckets));
    if (getrandom(map->seed, sizeof(map->seed), 0) != (ssize_t)sizeof(map->seed))
        abort();
}

void map_done(struct map *map)
{
    for (size_t i = 0; i < map->bucket_count; i++) {
        struct map_entry *entry = map->buckets[i];

        while (entry) {
            struct map_entry *next = entry->next;

            free(entry);
            entry = next;
        }
    }
    free(map->buckets);
    *map = (struct map){0};
}

static struct map_entry **find_link(const struct map *map, struct str key, uint64_t hash)
{
    struct map_entry **link = &map->buckets[hash & (map->bucket_count - 1)];

    while (*link && !((*link)->hash == hash && str_eq(str_n((*link)->key, (*link)->key_len), key)))
        link = &(*link)->next;
    return link;
}

static void grow(struct map *map)
{
    size_t count = map->bucket_count * 2;
    struct map_entry **buckets = xcalloc(count, sizeof(*buckets));

    for (size_t i = 0; i < map->bucket_count; i++) {
        struct map_entry *entry = map->buckets[i];

        while (entry) {
            struct map_entry *next = entry->next;
            struct map_entry **to = &buckets[entry->hash & (count - 1)];

            entry->next = *to;
            *to = entry;
            entry = next;
        }
    }
    free(map->buckets);
    map->buckets = buckets;
    map->bucket_count = count;
}

void *map_get(const struct map *map, struct str key)
{
    struct map_entry *entry = *find_link(map, key, hash_of(map, key));

    return entry ? entry->value : NULL;
}

void *map_put(struct map *map, struct str key, void *value)
{
    uint64_t hash = hash_of(map, key);
    struct map_entry **link = find_link(map, key, hash);
    struct map_entry *entry = *link;

    if (entry) {
        void *old = entry->value;

        entry->value = value;
        return old;
    }
    entry = xmalloc(sizeof(*entry) + key.len + 1);
    *entry = (struct map_entry){.value = value, .hash = hash, .key_len = key.len};
    if (key.len)
        memcpy(entry->key, key.p, key.len);
    entry->key[key.len] = '\0';
    *link = entry;
    if (++map->count > map->bucket_count)
        grow(map);
    return NULL;
}

void *map_remove(struct map *map, struct str key)
{
    struct map_entry **link = find_link(map, key, hash_of(map, key));
    struct map_entry *entry = *link;
    void *value;

    if (!entry)
        return NULL;
    value = entry->value;
    *link = entry->next;
    free(entry);
    map->count--;
    return value;
}

struct map_entry *map_next(const struct map *map, struct map_entry *after)
{
    size_t i = 0;

    if (after) {
        if (after->next)
            return after->next;
        i = (after->hash & (map->bucket_count - 1)) + 1;
    }
    for (; i < map->bucket_count; i++)
        if (map->buckets[i])
            return map->buckets[i];
    return NULL;
}

#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { BLOCK_SIZE = 4096 - 64 };

struct arena_block {
    struct arena_block *next;
    size_t used, size;
    _Alignas(max_align_t) char data[];
};

struct arena_deferred {
    struct arena_deferred *next;
    void (*fn)(void *arg);
    void *arg;
};

void arena_defer(struct arena *arena, void (*fn)(void *arg), void *arg)
{
    struct arena_deferred *deferred = arena_alloc(arena, sizeof(*deferred));

    *deferred = (struct arena_deferred){arena->deferred, fn, arg};
    arena->deferred = deferred;
}

void arena_done(struct arena *arena)
{
    struct arena_block *block = arena->blocks;

    for (; arena->deferred; arena->deferred = arena->deferred->next)
        arena->deferred->fn(arena->deferred->arg);
    while (block) {
        struct arena_block *next = block->next;

        free(block);
        block = next;
    }
    arena->blocks = NULL;
}

void *arena_alloc(struct arena *arena, size_t size)
{
    size_t rounded = (size + _Alignof(max_align_t) - 1) & ~(_Alignof(max_align_t) - 1);
    struct arena_block *block = arena->blocks;
    void *p;

    if (!block || block->size - block->used < rounded) {
        size_t block_size = rounded > BLOCK_SIZE ? rounded : BLOCK_SIZE;

        block = xmalloc(sizeof(*block) + block_size);
        block->used = 0;
        block->size = block_size;
        block->next = arena->blocks;
        arena->blocks = block;
    }
    p = block->data + block->used;
    block->used += rounded;
    memset(p, 0, size);
    return p;
}

struct str arena_str(struct arena *arena, struct str s)
{
    char *copy;

    if (!s.p)
        return STR_NONE;
    copy = arena_alloc(arena, s.len + 1);
    memcpy(copy, s.p, s.len);
    return str_n(copy, s.len);
}

struct pair *arena_pairs(struct arena *arena, const struct pair *pairs, size_t count)
{
    struct pair *copy = arena_alloc(arena, (count + 1) * sizeof(*copy));

    for (size_t i = 0; i < count; i++)
        copy[i] = (struct pair){arena_str(arena, pairs[i].name), arena_str(arena, pairs[i].value)};
    return copy;
}

struct str arena_lower(struct arena *arena, struct str s)
{
    char *copy = arena_alloc(arena, s.len + 1);

    str_lower(s, copy);
    return str_n(copy, s.len);
}

char *arena_printf(struct arena *arena, const char *fmt, ...)
{
    va_list args;
    char *out;
    int len;

    va_start(args, fmt);
    len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    out = arena_alloc(arena, (size_t)(len < 0 ? 0 : len) + 1);
    va_start(args, fmt);
    (void)vsnprintf(out, (size_t)(len < 0 ? 0 : len) + 1, fmt, args);
    va_end(args);
    return out;
}

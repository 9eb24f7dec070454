/* Request-scoped memory: allocated piecewise, freed in one go. */
#pragma once

#include <stddef.h>

#include "base/pair.h"
#include "base/str.h"

struct arena {
    struct arena_block *blocks;
    struct arena_deferred *deferred;
};

#define auto_arena __attribute__((cleanup(arena_done)))

void arena_done(struct arena *arena);
void *arena_alloc(struct arena *arena, size_t size);       /* zeroed, aligned for any type */
struct str arena_str(struct arena *arena, struct str s);   /* copy, NUL-terminated */
struct str arena_lower(struct arena *arena, struct str s); /* the same in lower case (ASCII) */
struct pair *arena_pairs(struct arena *arena, const struct pair *pairs, size_t count); /* copies */
/* fn(arg) when the arena is done; the last one first. For what the arena's memory refers to. */
void arena_defer(struct arena *arena, void (*fn)(void *arg), void *arg);
char *arena_printf(struct arena *arena, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Request-scoped memory: allocated piecewise, freed in one go. */
#pragma once

#include <stddef.h>

#include "base/str.h"

struct arena {
    struct arena_block *blocks;
};

#define auto_arena __attribute__((cleanup(arena_done)))

void arena_done(struct arena *arena);
void *arena_alloc(struct arena *arena, size_t size);     /* zeroed, aligned for any type */
struct str arena_str(struct arena *arena, struct str s); /* copy, NUL-terminated */
char *arena_printf(struct arena *arena, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

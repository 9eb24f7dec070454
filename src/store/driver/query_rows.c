#include <string.h>

#include "store/driver/query.h"

enum { FIRST_CAPACITY = 16 };

/* What is too small is left behind in the arena: together never more than the array itself. */
static char *grow(struct arena *arena, char *old, size_t count, size_t *capacity, size_t size)
{
    char *rows;

    *capacity = *capacity ? *capacity * 2 : FIRST_CAPACITY;
    rows = arena_alloc(arena, *capacity * size);
    if (count)
        memcpy(rows, old, count * size);
    return rows;
}

int query_rows(struct query *query, const struct query_kind *kind, struct arena *arena, void *out,
               size_t *out_count, struct error *err)
{
    size_t count = 0, capacity = 0;
    char *rows = grow(arena, NULL, 0, &capacity, kind->size);
    int more;

    while ((more = query_step(query, err)) > 0) {
        if (count == capacity)
            rows = grow(arena, rows, count, &capacity, kind->size);
        kind->read(query, arena, rows + count++ * kind->size);
    }
    if (more < 0)
        return -1;
    *(void **)out = rows;
    *out_count = count;
    return 0;
}

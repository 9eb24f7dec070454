#include "store/core/row.h"

#include <string.h>

#include "base/buf.h"

enum {
    FIRST_CAPACITY = 16,
    CHARGED_STEP = 64 * 1024,
    CHARGED_TIMES = 2, /* what is read is parsed or written once more */
};

const struct row row_strings = {sizeof(struct str), (const struct row_field[]){{ROW_STR, 0}}, 1, 0,
                                NULL};
const struct row row_numbers = {sizeof(int64_t), (const struct row_field[]){{ROW_INT, 0}}, 1, 0,
                                NULL};

static int read_name(const struct names *names, struct str text, unsigned *out, struct error *err)
{
    char known[256];

    if (name_find(names, text, out))
        return 0;
    names_list(names, known, sizeof(known));
    return error_set(err, ERROR_INTERNAL,
                     "the database has the %s '%.*s', which is not %s: a newer version wrote it, or"
                     " it was changed by hand",
                     names->what, (int)(text.len < 40 ? text.len : 40), text.p ? text.p : "",
                     known);
}

static struct str read_text(const struct row *row, const struct query *query, int column,
                            struct arena *arena)
{
    struct str text = query_text(query, column, arena);

    return (row->flags & ROW_NONE) && !text.len ? STR_NONE : text;
}

int row_read(const struct row *row, const struct query *query, struct arena *arena, void *out,
             struct error *err)
{
    const struct names *const *names = row->names;

    memset(out, 0, row->size);
    for (size_t i = 0; i < row->count; i++) {
        void *member = (char *)out + row->fields[i].offset;
        int column = (int)i;

        switch (row->fields[i].kind) {
        case ROW_STR:
            *(struct str *)member = read_text(row, query, column, arena);
            break;
        case ROW_INT:
            *(int64_t *)member = query_int(query, column);
            break;
        case ROW_BOOL:
            *(bool *)member = query_int(query, column) != 0;
            break;
        case ROW_ENUM:
            if (read_name(*names++, query_peek(query, column), member, err) < 0)
                return -1;
            break;
        }
    }
    return 0;
}

static void bind_str(const struct row *row, struct query *query, struct str text)
{
    bind_text(query, text.p || (row->flags & ROW_NULLS) ? text : STR(""));
}

void row_bind(const struct row *row, struct query *query, const void *in)
{
    const struct names *const *names = row->names;

    for (size_t i = 0; i < row->count; i++) {
        const void *member = (const char *)in + row->fields[i].offset;

        switch (row->fields[i].kind) {
        case ROW_STR:
            bind_str(row, query, *(const struct str *)member);
            break;
        case ROW_INT:
            bind_int(query, *(const int64_t *)member);
            break;
        case ROW_BOOL:
            bind_int(query, *(const bool *)member);
            break;
        case ROW_ENUM:
            bind_text(query, str_of(name_of(*names++, *(const unsigned *)member)));
            break;
        }
    }
}

int row_one(const struct row *row, struct query *query, const char *what, struct str name,
            struct arena *arena, void *out, struct error *err)
{
    if (query_one(query, what, name, err) < 0)
        return -1;
    return row_read(row, query, arena, out, err);
}

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

static size_t text_bytes(const struct row *row, const void *in)
{
    size_t bytes = 0;

    for (size_t i = 0; i < row->count; i++)
        if (row->fields[i].kind == ROW_STR)
            bytes +=
                ((const struct str *)(const void *)((const char *)in + row->fields[i].offset))->len;
    return bytes;
}

int row_all(const struct row *row, struct query *query, struct arena *arena, void *out,
            size_t *out_count, struct error *err)
{
    size_t count = 0, capacity = 0, uncharged = 0;
    char *rows = grow(arena, NULL, 0, &capacity, row->size);
    int more;

    while ((more = query_step(query, err)) > 0) {
        if (count == capacity)
            rows = grow(arena, rows, count, &capacity, row->size);
        if (row_read(row, query, arena, rows + count * row->size, err) < 0)
            return -1;
        uncharged += text_bytes(row, rows + count++ * row->size);
        if (uncharged >= CHARGED_STEP) {
            if (buf_account_reserve(uncharged * CHARGED_TIMES, err) < 0)
                return -1;
            uncharged = 0;
        }
    }
    if (more < 0)
        return -1;
    *(void **)out = rows;
    *out_count = count;
    return 0;
}

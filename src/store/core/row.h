/* One list per kind of row says which column is which member. It makes the columns of a SELECT, the marks of
 * an INSERT, and the table by which rows are read and bound, so none of them can disagree with another. The
 * kind of a member follows from its C type.
 *
 *   #define TEAM_ROW(F, T, AND) F(T, id, id) AND() F(T, name, name) AND() F(T, max_cpu, limits.cpu)
 *   ROW(team_row, struct store_team, TEAM_ROW);
 *
 *   "SELECT " ROW_COLUMNS(TEAM_ROW) " FROM teams"            row_one(), row_all()
 *   ROW_INSERT("teams", TEAM_ROW)                            row_bind() */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/names.h"
#include "base/str.h"
#include "store/core/query.h"

enum row_kind { ROW_STR, ROW_INT, ROW_BOOL, ROW_ENUM };

struct row_field {
    enum row_kind kind;
    size_t offset;
};

enum {
    ROW_NONE = 1,  /* "" is read as STR_NONE */
    ROW_NULLS = 2, /* STR_NONE is written as NULL, else as "" */
};

struct row {
    size_t size;
    const struct row_field *fields;
    size_t count;
    unsigned flags;
    const struct names *const *names; /* of the enums, in their order */
};

/* clang-format off */
#define ROW_KIND(T, member)         \
    _Generic(((T *)0)->member,      \
             struct str: ROW_STR,   \
             int64_t: ROW_INT,      \
             bool: ROW_BOOL,        \
             default: ROW_ENUM)
#define ROW_NEXT()  ,
#define ROW_COMMA() ", "
#define ROW_FIELD(T, column, member)  {ROW_KIND(T, member), offsetof(T, member)}
#define ROW_COLUMN(T, column, member) #column
#define ROW_MARK(T, column, member)   "?"
#define ROW_COLUMNS(list) list(ROW_COLUMN, , ROW_COMMA)
#define ROW_MARKS(list)   list(ROW_MARK, , ROW_COMMA)
#define ROW_INSERT(table, list) \
    "INSERT INTO " table " (" ROW_COLUMNS(list) ") VALUES (" ROW_MARKS(list) ")"
/* Of fields that are listed otherwise; then flags and names. */
#define ROW_OF(table, T, ...) \
    {.size = sizeof(T), .fields = (table), .count = sizeof(table) / sizeof((table)[0]), __VA_ARGS__}
#define ROW(name, T, list, ...)                                                        \
    static const struct row_field name##_fields[] = {list(ROW_FIELD, T, ROW_NEXT)};    \
    static const struct row name = ROW_OF(name##_fields, T, __VA_ARGS__)
/* clang-format on */

/* From the first column on; what has no column is 0. ERROR_INTERNAL for an enum's name that is not known. */
int row_read(const struct row *row, const struct query *query, struct arena *arena, void *out,
             struct error *err);
/* To the next placeholders. */
void row_bind(const struct row *row, struct query *query, const void *in);
/* 0 = read; ERROR_NOT_FOUND as query_one() has it. */
int row_one(const struct row *row, struct query *query, const char *what, struct str name,
            struct arena *arena, void *out, struct error *err);
/* All rows, as an array in the arena: *(struct thing **)out. Never NULL. Long ones are charged to the thread's account of
 * memory: ERROR_QUOTA or ERROR_UNAVAILABLE when it has no more. */
int row_all(const struct row *row, struct query *query, struct arena *arena, void *out,
            size_t *out_count, struct error *err);

/* Rows of one column: struct str, int64_t. */
extern const struct row row_strings, row_numbers;

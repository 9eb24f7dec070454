/* struct str: a borrowed (pointer, length) view of bytes that came from somewhere else. Never
 * owned, never assumed to end in NUL. A missing value is STR_NONE (p == NULL). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct str {
    const char *p;
    size_t len;
};

#define STR_NONE ((struct str){NULL, 0})
/* For string literals. */
#define STR(lit) ((struct str){"" lit, sizeof(lit) - 1})
/* The same where only constants may stand: initializers of static objects. */
#define STR_INIT(lit)           \
    {                           \
        "" lit, sizeof(lit) - 1 \
    }
/* For printf: printf("%.*s", STR_ARG(s)). */
#define STR_ARG(s) (int)(s).len, (s).p ? (s).p : ""

static inline struct str str_of(const char *s)
{
    return s ? (struct str){s, strlen(s)} : STR_NONE;
}

static inline struct str str_n(const void *p, size_t len)
{
    return (struct str){p, len};
}

bool str_eq(struct str a, struct str b);
bool str_eq_nocase(struct str a, struct str b); /* ASCII */
char ascii_lower(char c);
/* Writes s in lower case (ASCII) to out, which has s.len bytes and may be s.p. */
void str_lower(struct str s, char *out);
bool str_is(struct str a, const char *b);
int str_cmp(struct str a, struct str b);
bool str_starts(struct str s, struct str prefix);
bool str_ends(struct str s, struct str suffix);
struct str str_skip(struct str s, size_t n);
struct str str_trim(struct str s); /* ASCII blanks and tabs, CR, LF at both ends */
/* Index of c, or -1. */
ptrdiff_t str_find(struct str s, char c);
ptrdiff_t str_find_str(struct str s, struct str what);
/* Cuts off and returns what stands before the first c; *rest becomes what follows it. When there is
 * no c, returns all of *rest and leaves *rest as STR_NONE. */
struct str str_split(struct str *rest, char c);

/* Whole string must be a number; rejects blanks, junk and overflow. */
bool str_to_i64(struct str s, int64_t *out);
bool str_to_u64(struct str s, uint64_t *out);

/* NUL-terminated heap copy. */
char *str_dup(struct str s);
/* Copies into dst (always terminated). Returns false when it does not fit or has a NUL inside. */
bool str_copy(struct str s, char *dst, size_t dst_size);
bool str_valid_utf8(struct str s);
/* A token of RFC 9110 (5.6.2), such as the name of a header, and a character of one. */
bool str_is_token(struct str s);
bool ascii_is_token(char c);

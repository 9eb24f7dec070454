/* struct buf: growable bytes with a maximum given at init. Appending past the maximum sets
 * `overflowed` and drops the data; callers check once at the end. The content is always followed
 * by a NUL that is not counted, so buf.p can be used as a C string when it holds text. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

struct buf {
    char *p;
    size_t len;
    size_t cap;
    size_t max;
    bool overflowed;
};

#define auto_buf __attribute__((cleanup(buf_done)))

void buf_init(struct buf *buf, size_t max);
void buf_done(struct buf *buf);  /* frees; safe on a zeroed struct */
void buf_clear(struct buf *buf); /* forgets the content, keeps the memory */
bool buf_add(struct buf *buf, const void *p, size_t len);
bool buf_add_str(struct buf *buf, struct str s);
bool buf_add_char(struct buf *buf, char c);
bool buf_printf(struct buf *buf, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Room for len more bytes at p + buf->len, or NULL when over the maximum; then buf_grew(). */
char *buf_reserve(struct buf *buf, size_t len);
void buf_grew(struct buf *buf, size_t len);
/* Drops the first n bytes. */
void buf_drop(struct buf *buf, size_t n);
struct str buf_str(const struct buf *buf);
/* Hands the memory to the caller (free()), leaves an empty buf. Never NULL. */
char *buf_take(struct buf *buf);

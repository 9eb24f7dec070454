/* Allocation that cannot fail: out of memory ends the process. What can fail is size, and every
 * size from outside is bounded before it gets here. */
#pragma once

#include <stddef.h>

void *xmalloc(size_t size) __attribute__((malloc, returns_nonnull));
void *xcalloc(size_t count, size_t size) __attribute__((malloc, returns_nonnull));
void *xrealloc(void *old, size_t size) __attribute__((returns_nonnull));
/* For bytes that the kernel copies in or out by the hundred thousand. Processors that copy with one
 * instruction are up to twenty times slower at it when the target's place in its page is 1 to 31 bytes behind the
 * source's (seen on Zen 3). The kernel's own buffers begin with a page, what malloc gives often a few bytes
 * behind one; this begins in the middle of one. Given back by free_wide(). */
void *xmalloc_wide(size_t size) __attribute__((malloc, returns_nonnull));
void free_wide(void *p); /* or NULL */
char *xstrdup(const char *s) __attribute__((malloc, returns_nonnull));
char *xstrndup(const char *s, size_t len) __attribute__((malloc, returns_nonnull));
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2), returns_nonnull));

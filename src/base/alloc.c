#include "base/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *check(void *p)
{
    if (!p) {
        (void)fputs("out of memory\n", stderr);
        abort();
    }
    return p;
}

void *xmalloc(size_t size)
{
    return check(malloc(size ? size : 1));
}

void *xcalloc(size_t count, size_t size)
{
    return check(calloc(count ? count : 1, size ? size : 1));
}

void *xrealloc(void *old, size_t size)
{
    return check(realloc(old, size ? size : 1));
}

enum { PAGE = 4096 };

void *xmalloc_wide(size_t size)
{
    char *p = check(aligned_alloc(PAGE, (size + PAGE / 2 + PAGE - 1) / PAGE * PAGE));

    return p + PAGE / 2;
}

void free_wide(void *p)
{
    if (p)
        free((char *)p - PAGE / 2);
}

char *xstrdup(const char *s)
{
    return check(strdup(s));
}

char *xstrndup(const char *s, size_t len)
{
    char *copy = xmalloc(len + 1);

    if (len)
        memcpy(copy, s, len);
    copy[len] = '\0';
    return copy;
}

char *xasprintf(const char *fmt, ...)
{
    va_list args;
    char *out = NULL;
    int len;

    va_start(args, fmt);
    len = vasprintf(&out, fmt, args);
    va_end(args);
    return check(len < 0 ? NULL : out);
}

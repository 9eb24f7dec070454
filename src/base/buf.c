#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { CHARGED_MIN = 64 * 1024 }; /* smaller buffers are not worth the lock */

static _Thread_local struct buf_account *current;

void buf_init(struct buf *buf, size_t max)
{
    *buf = (struct buf){.max = max};
}

void buf_init_charged(struct buf *buf, size_t max)
{
    *buf = (struct buf){.max = max, .account = current};
}

void buf_done(struct buf *buf)
{
    free(buf->p);
    if (buf->charged)
        buf->account->give(buf->account, buf->charged);
    *buf = (struct buf){.max = buf->max, .account = buf->account};
}

void buf_clear(struct buf *buf)
{
    buf->len = 0;
    buf->overflowed = buf->refused = false;
    if (buf->p)
        buf->p[0] = '\0';
}

static bool buf_charge(struct buf *buf, size_t cap)
{
    if (!buf->account || cap <= CHARGED_MIN)
        return true;
    if (!buf->account->take(buf->account, cap - buf->charged)) {
        buf->refused = buf->overflowed = true;
        return false;
    }
    buf->charged = cap;
    return true;
}

char *buf_reserve(struct buf *buf, size_t len)
{
    size_t need;

    if (__builtin_add_overflow(buf->len, len, &need) || need > buf->max) {
        buf->overflowed = true;
        return NULL;
    }
    if (need + 1 > buf->cap) {
        size_t cap = buf->cap ? buf->cap : 64;

        while (cap < need + 1)
            cap *= 2;
        if (buf->max < SIZE_MAX && cap > buf->max + 1)
            cap = buf->max + 1;
        if (!buf_charge(buf, cap))
            return NULL;
        buf->p = xrealloc(buf->p, cap);
        buf->cap = cap;
    }
    return buf->p + buf->len;
}

void buf_grew(struct buf *buf, size_t len)
{
    buf->len += len;
    buf->p[buf->len] = '\0';
}

bool buf_add(struct buf *buf, const void *p, size_t len)
{
    char *to = buf_reserve(buf, len);

    if (!to)
        return false;
    if (len)
        memcpy(to, p, len);
    buf_grew(buf, len);
    return true;
}

bool buf_add_str(struct buf *buf, struct str s)
{
    return buf_add(buf, s.p, s.len);
}

bool buf_add_char(struct buf *buf, char c)
{
    return buf_add(buf, &c, 1);
}

bool buf_printf(struct buf *buf, const char *fmt, ...)
{
    va_list args;
    char *to;
    int len;

    va_start(args, fmt);
    len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (len < 0 || !(to = buf_reserve(buf, (size_t)len)))
        return false;
    va_start(args, fmt);
    (void)vsnprintf(to, (size_t)len + 1, fmt, args);
    va_end(args);
    buf->len += (size_t)len;
    return true;
}

void buf_drop(struct buf *buf, size_t n)
{
    if (n >= buf->len) {
        buf_clear(buf);
        return;
    }
    memmove(buf->p, buf->p + n, buf->len - n + 1);
    buf->len -= n;
}

struct str buf_str(const struct buf *buf)
{
    return str_n(buf->p ? buf->p : "", buf->len);
}

char *buf_take(struct buf *buf)
{
    char *p = buf->p ? buf->p : xstrdup("");

    if (buf->charged)
        buf->account->reserved += buf->charged;
    *buf = (struct buf){.max = buf->max, .account = buf->account};
    return p;
}

int buf_refuse(const struct buf *buf, struct error *err)
{
    return buf->account->refuse(buf->account, err);
}

/* ---- accounts ---- */

struct buf_account *buf_account_enter(struct buf_account *account)
{
    struct buf_account *before = current;

    current = account;
    return before;
}

int buf_account_reserve(size_t bytes, struct error *err)
{
    if (!current || !bytes)
        return 0;
    if (!current->take(current, bytes))
        return current->refuse(current, err);
    current->reserved += bytes;
    return 0;
}

void buf_account_return(size_t bytes)
{
    if (!current || !bytes)
        return;
    current->give(current, bytes);
    current->reserved -= bytes;
}

void buf_account_done(struct buf_account *account)
{
    if (account->reserved)
        account->give(account, account->reserved);
    account->reserved = 0;
}

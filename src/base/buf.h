/* struct buf: growable bytes with a maximum given at init. Appending past the maximum sets
 * `overflowed` and drops the data; callers check once at the end. The content is always followed
 * by a NUL that is not counted, so buf.p can be used as a C string when it holds text.
 *
 * Buffers for bytes that others send (guests, providers) can be charged to an account, usually a team's: a request is
 * made on one thread, which names the account, and each buffer of buf_init_charged() on that thread takes memory from it
 * while it grows and returns it when it is freed.
 *
 * The account is thread-local, not a parameter: such buffers are made deep inside (fetch, JSON, extras), below functions that
 * know of no request, and a path that forgot to pass the account on would hold memory that no limit counts. Only
 * edge/call sets it, for exactly one step of one request on this thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/str.h"

struct buf_account {
    bool (*take)(struct buf_account *account, size_t bytes); /* false: a limit is reached */
    void (*give)(struct buf_account *account, size_t bytes);
    int (*refuse)(struct buf_account *account, struct error *err); /* the limit; -1 */
    size_t reserved;                                               /* until buf_account_done() */
};

struct buf {
    char *p;
    size_t len;
    size_t cap;
    size_t max;
    bool overflowed;
    bool refused; /* overflowed because of a limit of the account */
    struct buf_account *account;
    size_t charged;
};

#define auto_buf __attribute__((cleanup(buf_done)))

void buf_init(struct buf *buf, size_t max);
/* Charged to this thread's account from 64 KiB on. The account must outlive the content. */
void buf_init_charged(struct buf *buf, size_t max);
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
/* Hands the memory to the caller (free()), leaves an empty buf. Never NULL. What was charged stays reserved. */
char *buf_take(struct buf *buf);
/* The error of a buffer that was refused. Always -1. */
int buf_refuse(const struct buf *buf, struct error *err);

/* ---- accounts ---- */

/* This thread's from now on; NULL = none. Returns the one before. */
struct buf_account *buf_account_enter(struct buf_account *account);
/* Charges memory outside of buffers to this thread's account, until the account's end. */
int buf_account_reserve(size_t bytes, struct error *err);
/* Returns a part of it early. */
void buf_account_return(size_t bytes);
/* Returns what is reserved. */
void buf_account_done(struct buf_account *account);

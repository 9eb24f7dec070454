/* Bytes and file ranges on their way into a stream. Private to src/http and src/http2. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#include "base/str.h"
#include "protocol/stream/stream.h"

/* iov_base is not const although nothing writes through it when sending. */
static inline struct iovec http_iov(const void *p, size_t len)
{
    struct iovec iov = {.iov_len = len};

    memcpy(&iov.iov_base, &p, sizeof(p));
    return iov;
}

/* What the queue may do with bytes that the stream does not take at once. */
enum http_memory {
    HTTP_COPIED, /* they are the caller's: a copy is queued */
    HTTP_STATIC, /* they stay for ever: queued as they are */
    HTTP_OWNED,  /* malloc()ed, and the queue's from now on: freed once they are sent */
};

/* Nobody wants these bytes: frees what is owned. STR_NONE. */
struct str http_memory_drop(struct str body, enum http_memory memory);

struct http_segment;

struct http_outq {
    struct http_segment *head, *tail;
    size_t pending; /* bytes not yet with the kernel, file bytes included */
    size_t memory;  /* bytes of memory that the segments hold; static and file bytes are not */
    bool blocked;   /* the stream took no more; wait until it is writable */
};

void http_outq_done(struct http_outq *q);
/* Queues a copy. */
void http_outq_add(struct http_outq *q, const struct iovec *iov, size_t count);
/* Queues the bytes themselves (HTTP_STATIC, HTTP_OWNED) or a copy. */
void http_outq_add_body(struct http_outq *q, struct str body, enum http_memory memory);
/* Sends what is queued, then `head` and `body`, as far as the stream takes it; queues the rest, of `head` a copy.
 * 0 or -errno (the queue is of no use then). */
int http_outq_send_body(struct http_outq *q, struct stream *stream, struct str head,
                        struct str body, enum http_memory memory);
/* The same for bytes of which the rest is copied. */
int http_outq_send(struct http_outq *q, struct stream *stream, const struct iovec *iov,
                   size_t count);
/* Moves up to len bytes from the front to p. How many, or -errno; -EIO: a file was shorter than said. */
ssize_t http_outq_take(struct http_outq *q, void *p, size_t len);
void http_outq_add_file(struct http_outq *q, int fd_consume, int64_t offset, int64_t len);
/* The stream is writable, or was never tried: sends on. 0 or -errno; -EIO: a file was shorter than
 * said. */
int http_outq_flush(struct http_outq *q, struct stream *stream);

/* Bytes and file ranges on their way into a stream. Private to src/http. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#include "protocol/stream/stream.h"

/* iov_base is not const although nothing writes through it when sending. */
static inline struct iovec http_iov(const void *p, size_t len)
{
    struct iovec iov = {.iov_len = len};

    memcpy(&iov.iov_base, &p, sizeof(p));
    return iov;
}

struct http_segment;

struct http_outq {
    struct http_segment *head, *tail;
    size_t pending; /* bytes not yet with the kernel, file bytes included */
    bool blocked;   /* the stream took no more; wait until it is writable */
};

void http_outq_done(struct http_outq *q);
/* Queues a copy. */
void http_outq_add(struct http_outq *q, const struct iovec *iov, size_t count);
/* Sends what is queued and then iov, as far as the stream takes it; queues a copy of the rest.
 * 0 or -errno (the queue is of no use then). */
int http_outq_send(struct http_outq *q, struct stream *stream, const struct iovec *iov,
                   size_t count);
/* Moves up to len bytes from the front to p. How many, or -errno; -EIO: a file was shorter than said. */
ssize_t http_outq_take(struct http_outq *q, void *p, size_t len);
void http_outq_add_file(struct http_outq *q, int fd_consume, int64_t offset, int64_t len);
/* The stream is writable, or was never tried: sends on. 0 or -errno; -EIO: a file was shorter than
 * said. */
int http_outq_flush(struct http_outq *q, struct stream *stream);

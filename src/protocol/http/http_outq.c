/* A list of segments: copied bytes, bytes of somebody else, or a range of a file. Small writes share the tail
 * segment, and segments grow with the queue, because a slow peer's short answer should cost little. What fits
 * into the stream at once is never copied: http_outq_send() puts queued bytes and the caller's into one
 * stream_write(). */
#include "protocol/http/http_outq.h"

#include <errno.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"

enum {
    SEGMENT_MIN = 1024 - 128, /* of copied bytes; each further one has twice the room */
    SEGMENT_MAX = 16 * 1024 - 128,
    IOV_MAX_USED = 16,
    FILE_STEP = 1024 * 1024,     /* per stream_send_file() */
    FLUSH_MAX = 4 * 1024 * 1024, /* per flush, then other connections get their turn */
};

struct http_segment {
    struct http_segment *next;
    const char *bytes;       /* `data`, or what was given */
    void *owned;             /* to be freed with it */
    size_t start, end, size; /* bytes[start..end); `size` is the room in `data` */
    size_t memory;           /* as counted in the queue */
    int fd;                  /* file range when >= 0: left bytes from offset */
    int64_t offset, left;
    char data[];
};

static void push(struct http_outq *q, struct http_segment *segment)
{
    if (q->tail)
        q->tail->next = segment;
    else
        q->head = segment;
    q->tail = segment;
    q->memory += segment->memory;
}

static void pop(struct http_outq *q)
{
    struct http_segment *segment = q->head;

    q->head = segment->next;
    if (!q->head)
        q->tail = NULL;
    q->memory -= segment->memory;
    close_fd(&segment->fd);
    free(segment->owned);
    free(segment);
}

void http_outq_done(struct http_outq *q)
{
    while (q->head)
        pop(q);
    q->pending = 0;
    q->blocked = false;
}

static size_t room_of_next(const struct http_segment *tail)
{
    size_t room = tail && tail->fd < 0 ? tail->size * 2 : SEGMENT_MIN;

    return room < SEGMENT_MIN ? SEGMENT_MIN : room > SEGMENT_MAX ? SEGMENT_MAX : room;
}

static void add_bytes(struct http_outq *q, const char *p, size_t len)
{
    struct http_segment *tail = q->tail;

    q->pending += len;
    if (tail && tail->fd < 0 && tail->end < tail->size) {
        size_t part = tail->size - tail->end < len ? tail->size - tail->end : len;

        memcpy(tail->data + tail->end, p, part);
        tail->end += part;
        p += part;
        len -= part;
    }
    if (len) {
        size_t room = room_of_next(tail), size = len > room ? len : room;

        tail = xmalloc(sizeof(*tail) + size);
        *tail = (struct http_segment){.bytes = tail->data,
                                      .end = len,
                                      .size = size,
                                      .memory = sizeof(*tail) + size,
                                      .fd = -1};
        memcpy(tail->data, p, len);
        push(q, tail);
    }
}

static void *owned_by(struct str body, enum http_memory memory)
{
    void *owned = NULL;

    if (memory == HTTP_OWNED)
        memcpy(&owned, &body.p, sizeof(owned)); /* not const: it is freed */
    return owned;
}

struct str http_memory_drop(struct str body, enum http_memory memory)
{
    free(owned_by(body, memory));
    return STR_NONE;
}

/* The bytes behind the first `skip` ones. */
static void add_reference(struct http_outq *q, struct str body, size_t skip,
                          enum http_memory memory)
{
    struct http_segment *segment;

    if (skip == body.len) {
        (void)http_memory_drop(body, memory);
        return;
    }
    segment = xmalloc(sizeof(*segment));
    *segment =
        (struct http_segment){.bytes = body.p,
                              .owned = owned_by(body, memory),
                              .start = skip,
                              .end = body.len,
                              .memory = sizeof(*segment) + (memory == HTTP_OWNED ? body.len : 0),
                              .fd = -1};
    q->pending += body.len - skip;
    push(q, segment);
}

static void add_body(struct http_outq *q, struct str body, size_t skip, enum http_memory memory)
{
    if (memory != HTTP_COPIED)
        add_reference(q, body, skip, memory);
    else if (skip < body.len) /* the pointer of an empty body may be null */
        add_bytes(q, body.p + skip, body.len - skip);
}

void http_outq_add_body(struct http_outq *q, struct str body, enum http_memory memory)
{
    add_body(q, body, 0, memory);
}

void http_outq_add(struct http_outq *q, const struct iovec *iov, size_t count)
{
    for (size_t i = 0; i < count; i++)
        add_bytes(q, iov[i].iov_base, iov[i].iov_len);
}

void http_outq_add_file(struct http_outq *q, int fd_consume, int64_t offset, int64_t len)
{
    struct http_segment *segment;

    if (len <= 0) {
        close_fd(&fd_consume);
        return;
    }
    segment = xmalloc(sizeof(*segment));
    *segment = (struct http_segment){
        .memory = sizeof(*segment), .fd = fd_consume, .offset = offset, .left = len};
    q->pending += (size_t)len;
    push(q, segment);
}

/* Up to `max` iovs from the byte segments in front. *out_all: the queue ends with them. */
static size_t gather(const struct http_outq *q, struct iovec *iov, size_t max, bool *out_all)
{
    const struct http_segment *segment;
    size_t count = 0;

    for (segment = q->head; segment && segment->fd < 0 && count < max; segment = segment->next) {
        iov[count++] = http_iov(segment->bytes + segment->start, segment->end - segment->start);
    }
    *out_all = !segment;
    return count;
}

/* Takes sent bytes off the front; returns how many of them were not the queue's. */
static size_t consume(struct http_outq *q, size_t sent)
{
    while (sent && q->head && q->head->fd < 0) {
        size_t here = q->head->end - q->head->start, part = here < sent ? here : sent;

        q->head->start += part;
        q->pending -= part;
        sent -= part;
        if (part == here)
            pop(q);
    }
    return sent;
}

static ssize_t take_file(struct http_outq *q, void *p, size_t len)
{
    struct http_segment *file = q->head;
    ssize_t got =
        pread(file->fd, p, (int64_t)len < file->left ? len : (size_t)file->left, file->offset);

    if (got <= 0)
        return got < 0 ? -errno : -EIO;
    file->offset += got;
    file->left -= got;
    q->pending -= (size_t)got;
    if (file->left == 0)
        pop(q);
    return got;
}

ssize_t http_outq_take(struct http_outq *q, void *p, size_t len)
{
    char *to = p;
    size_t at = 0;

    while (at < len && q->head) {
        ssize_t got;

        if (q->head->fd >= 0) {
            got = take_file(q, to + at, len - at);
        } else {
            size_t here = q->head->end - q->head->start;

            got = (ssize_t)(here < len - at ? here : len - at);
            memcpy(to + at, q->head->bytes + q->head->start, (size_t)got);
            (void)consume(q, (size_t)got);
        }
        if (got < 0)
            return got;
        at += (size_t)got;
    }
    return (ssize_t)at;
}

/* Less than all was taken: the rest waits. */
static ssize_t not_now(struct http_outq *q, ssize_t result)
{
    if (result != -EAGAIN)
        return result;
    q->blocked = true;
    return 0;
}

/* Sends what is queued and then iov in one go. How many bytes of iov are with the kernel, or -errno. When the queue
 * must go first, none are. */
static ssize_t send_through(struct http_outq *q, struct stream *stream, const struct iovec *iov,
                            size_t count)
{
    struct iovec all[IOV_MAX_USED];
    size_t queued, total = 0;
    ssize_t sent;
    bool whole;

    queued = gather(q, all, IOV_MAX_USED - count, &whole);
    if (q->blocked || !whole)
        return 0;
    for (size_t i = 0; i < count; i++)
        all[queued + i] = iov[i];
    for (size_t i = 0; i < queued + count; i++)
        total += all[i].iov_len;
    if (!total)
        return 0;
    sent = not_now(q, stream_write(stream, all, queued + count, false));
    if (sent < 0)
        return sent;
    if ((size_t)sent < total)
        q->blocked = true;
    return (ssize_t)consume(q, (size_t)sent);
}

int http_outq_send(struct http_outq *q, struct stream *stream, const struct iovec *iov,
                   size_t count)
{
    ssize_t sent = send_through(q, stream, iov, count);

    if (sent < 0)
        return (int)sent;
    for (size_t i = 0; i < count; i++) {
        size_t part = iov[i].iov_len < (size_t)sent ? iov[i].iov_len : (size_t)sent;

        sent -= (ssize_t)part;
        if (part < iov[i].iov_len)
            add_bytes(q, (char *)iov[i].iov_base + part, iov[i].iov_len - part);
    }
    return q->pending && !q->blocked ? http_outq_flush(q, stream) : 0;
}

int http_outq_send_body(struct http_outq *q, struct stream *stream, struct str head,
                        struct str body, enum http_memory memory)
{
    struct iovec iov[2] = {http_iov(head.p, head.len), http_iov(body.p, body.len)};
    ssize_t sent = send_through(q, stream, iov, body.len ? 2 : 1);
    size_t part;

    if (sent < 0) {
        (void)http_memory_drop(body, memory);
        return (int)sent;
    }
    part = head.len < (size_t)sent ? head.len : (size_t)sent;
    if (part < head.len)
        add_bytes(q, head.p + part, head.len - part);
    add_body(q, body, (size_t)sent - part, memory);
    return q->pending && !q->blocked ? http_outq_flush(q, stream) : 0;
}

static ssize_t send_file(struct http_outq *q, struct stream *stream)
{
    struct http_segment *file = q->head;
    size_t want = file->left < FILE_STEP ? (size_t)file->left : FILE_STEP;
    ssize_t sent = not_now(q, stream_send_file(stream, file->fd, file->offset, want));

    if (sent <= 0)
        return sent;
    file->offset += sent;
    file->left -= sent;
    q->pending -= (size_t)sent;
    if (file->left == 0)
        pop(q);
    return sent;
}

static ssize_t send_bytes(struct http_outq *q, struct stream *stream)
{
    struct iovec iov[IOV_MAX_USED];
    bool whole;
    size_t count = gather(q, iov, IOV_MAX_USED, &whole);
    ssize_t sent = not_now(q, stream_write(stream, iov, count, !whole));

    if (sent > 0)
        (void)consume(q, (size_t)sent);
    return sent;
}

int http_outq_flush(struct http_outq *q, struct stream *stream)
{
    size_t budget = FLUSH_MAX;

    q->blocked = false;
    while (q->pending && !q->blocked && budget) {
        ssize_t sent = q->head->fd >= 0 ? send_file(q, stream) : send_bytes(q, stream);

        if (sent < 0)
            return (int)sent;
        budget -= (size_t)sent < budget ? (size_t)sent : budget;
    }
    return 0;
}

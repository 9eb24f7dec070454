/* How it works: records are appended, and when there are too many bytes of them, the oldest are cut
 * off at the front, the first one that stays in its middle if need be. The newest record grows as
 * long as output comes through the same channel. */
#include "envd/process/process_ring.h"

enum {
    HEAD = 4, /* channel, and the length in three bytes */
    RECORDS_MAX = PROCESS_RING_MAX + PROCESS_RING_MAX / 2,
};

static void put_head(char *to, enum process_channel channel, size_t len)
{
    to[0] = (char)channel;
    to[1] = (char)(len >> 16);
    to[2] = (char)(len >> 8);
    to[3] = (char)len;
}

static size_t length_at(const char *from)
{
    const unsigned char *head = (const unsigned char *)from;

    return (size_t)head[1] << 16 | (size_t)head[2] << 8 | head[3];
}

static enum process_channel channel_at(const char *from)
{
    return (enum process_channel)from[0];
}

void process_ring_done(struct process_ring *ring)
{
    buf_done(&ring->records);
    *ring = (struct process_ring){0};
}

/* Cuts bytes of output off the front, with the heads of the records that end thereby. */
static void cut(struct process_ring *ring, size_t bytes)
{
    char *p = ring->records.p;
    size_t at = 0;

    ring->kept -= bytes;
    while (bytes > 0) {
        size_t len = length_at(p + at);

        if (len > bytes) {
            enum process_channel channel = channel_at(p + at);

            at += bytes;
            put_head(p + at, channel, len - bytes);
            bytes = 0;
        } else {
            at += HEAD + len;
            bytes -= len;
        }
    }
    /* The newest may be the one that was shortened. */
    ring->last = ring->last > at ? ring->last - at : 0;
    buf_drop(&ring->records, at);
}

/* How much has to go so that a good part of the room is free: cutting is not cheap. */
static size_t bytes_over(const struct process_ring *ring, size_t more)
{
    size_t at = 0, bytes = 0;

    while (at < ring->records.len && ring->records.len - at + more > PROCESS_RING_MAX) {
        size_t len = length_at(ring->records.p + at);

        bytes += len;
        at += HEAD + len;
    }
    return bytes;
}

void process_ring_add(struct process_ring *ring, enum process_channel channel, const char *p,
                      size_t len)
{
    struct buf *records = &ring->records;
    char head[HEAD];

    if (len == 0)
        return;
    ring->total += len;
    if (len > PROCESS_RING_MAX) {
        p += len - PROCESS_RING_MAX;
        len = PROCESS_RING_MAX;
    }
    if (!records->max)
        buf_init(records, RECORDS_MAX);
    if (records->len + HEAD + len > RECORDS_MAX) {
        size_t room = PROCESS_RING_MAX - len;

        if (ring->kept > room)
            cut(ring, ring->kept - room);
        /* Many short records are mostly heads. */
        if (records->len + HEAD + len > RECORDS_MAX)
            cut(ring, bytes_over(ring, len));
    }
    if (records->len > 0 && channel_at(records->p + ring->last) == channel) {
        put_head(records->p + ring->last, channel, length_at(records->p + ring->last) + len);
    } else {
        ring->last = records->len;
        put_head(head, channel, len);
        (void)buf_add(records, head, HEAD);
    }
    (void)buf_add(records, p, len);
    ring->kept += len;
}

void process_ring_each(const struct process_ring *ring, uint64_t from, process_ring_fn *fn,
                       void *arg)
{
    uint64_t offset = ring->total - ring->kept;
    const char *p = ring->records.p;

    for (size_t at = 0; at < ring->records.len;) {
        size_t len = length_at(p + at), skip = 0;

        if (offset < from)
            skip = from - offset < len ? (size_t)(from - offset) : len;
        if (skip < len)
            fn(arg, channel_at(p + at), p + at + HEAD + skip, len - skip);
        offset += len;
        at += HEAD + len;
    }
}

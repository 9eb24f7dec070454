/* The last output of a program, for clients whose connection broke. */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "envd/process/process_event.h"

enum {
    PROCESS_RING_MAX = 64 * 1024, /* bytes of output that are kept */
    /* What their events may need: the worst case has one for each byte. */
    PROCESS_REPLAY_MAX = 16 * PROCESS_RING_MAX,
};

/* Zeroed is empty. */
struct process_ring {
    struct buf records; /* each a head and the bytes of one channel, oldest first */
    size_t last;        /* where the newest begins */
    size_t kept;        /* bytes of output in records */
    uint64_t total;     /* bytes of output ever */
};

void process_ring_done(struct process_ring *ring);
void process_ring_add(struct process_ring *ring, enum process_channel channel, const char *p,
                      size_t len);

typedef void process_ring_fn(void *arg, enum process_channel channel, const char *p, size_t len);

/* All that is kept behind the first `from` bytes of the output, in order. */
void process_ring_each(const struct process_ring *ring, uint64_t from, process_ring_fn *fn,
                       void *arg);

/* The kinds of compression: each takes what it is given of a stream, and gives what it has of its content. */
#pragma once

#include <stddef.h>

enum decode_state {
    DECODE_INSIDE,  /* of a stream that goes on */
    DECODE_BETWEEN, /* the stream has ended; another one may follow */
    DECODE_DAMAGED,
};

/* What is left of the input and of the room for the output; both are moved on. */
struct decode_bytes {
    const unsigned char *in;
    size_t in_len;
    unsigned char *out;
    size_t out_len;
};

struct decode_kind {
    const char *name, *magic;
    size_t magic_len;
    void *(*open)(void); /* NULL: no memory */
    enum decode_state (*step)(void *decoder, struct decode_bytes *bytes);
    void (*close)(void *decoder);
};

/* By how it begins; NULL when it is none of them. */
const struct decode_kind *decode_kind_of(const unsigned char *p, size_t len);

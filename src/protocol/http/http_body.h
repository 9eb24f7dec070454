/* Finds the end of a message body and takes the framing off. Private to src/http. */
#pragma once

#include "base/buf.h"
#include "base/str.h"
#include "protocol/http/http.h"

/* Payload bytes, framing removed. Non-zero asks for a break behind these bytes. */
typedef int http_body_fn(void *arg, struct str payload);

struct http_body {
    enum http_body_kind kind;
    int state;     /* of the chunk framing */
    uint64_t left; /* of the length or the current chunk */
    size_t line;   /* bytes of the current framing line */
    size_t trailer_bytes;
    struct buf *trailers; /* where their lines go, or NULL */
    size_t
        tail; /* bytes of the last feed behind the last chunk's line: trailers and the blank line */
    bool complete;
};

enum { HTTP_TRAILER_BYTES_MAX = 16 * 1024 };

void http_body_init(struct http_body *body, enum http_body_kind kind, uint64_t length);
/* Uses bytes from the front of *in until the body is complete, fn asks for a break or the input
 * ends. 0, or -1 on bad framing. fn may be NULL. */
int http_body_feed(struct http_body *body, struct str *in, http_body_fn *fn, void *arg);

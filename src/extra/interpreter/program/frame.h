/* What kernels say, as bytes: "KIND LENGTH\n" and LENGTH bytes, again and again. Kinds are single letters (interpreter.h).
 * Kernels run what guests wrote, who can write to the same socket: nothing is taken on trust, and a body is passed on as it
 * comes instead of being collected. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum { FRAME_HEAD_MAX = 16, FRAME_BODY_MAX = 1 << 30 };

struct frame_reader {
    char head[FRAME_HEAD_MAX];
    size_t head_len;
    char kind;
    uint64_t left; /* of the body */
    bool in_body;
};

enum frame_event {
    FRAME_MORE,  /* all was taken, and more is needed */
    FRAME_BEGIN, /* of the kind in the reader */
    FRAME_BODY,  /* some bytes of it, in *out */
    FRAME_END,
    FRAME_BAD, /* this is no frame: nothing that follows can be understood */
};

/* Takes from the begin of *in what makes up one event. */
enum frame_event frame_read(struct frame_reader *reader, struct str *in, struct str *out);

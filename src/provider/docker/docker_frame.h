/* The multiplexed stream of an attached process without a terminal: 8 bytes of header (stream,
 * three zeros, length big-endian), then that many bytes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum { DOCKER_FRAME_MAX = 16 * 1024 * 1024 };

enum docker_stream_kind { DOCKER_STDIN, DOCKER_STDOUT, DOCKER_STDERR, DOCKER_SYSERR };

struct docker_frame {
    uint8_t header[8];
    size_t have;   /* of the header */
    uint32_t left; /* of the frame's bytes */
};

/* Takes from the front of *in. 1: *out is a piece of a frame (borrowed from *in, never empty);
 * 0: *in is used up; -1: this is no such stream. */
int docker_frame_next(struct docker_frame *frame, struct str *in, enum docker_stream_kind *out_kind,
                      struct str *out);

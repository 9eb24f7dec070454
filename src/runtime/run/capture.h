/* What one command prints, captured while it runs, to be kept (sandbox/kept.h). */
#pragma once

#include "base/buf.h"

/* Bytes captured beyond the limit: a secret that crosses the limit is masked as a whole. */
enum { RUNTIME_CAPTURE_MAX = 64 * 1024, RUNTIME_CAPTURE_SPARE = 32 * 1024 };

struct runtime_capture {
    int64_t started_at_us;
    int64_t limit; /* bytes of each stream */
    struct buf streams[2];
    bool overflowed[2];
};

/* limit: of the command's output; RUNTIME_CAPTURE_MAX is one besides. */
void runtime_capture_begin(struct runtime_capture *capture, int64_t limit);
void runtime_capture_take(struct runtime_capture *capture, bool is_err, struct str data);
void runtime_capture_done(struct runtime_capture *capture);

/* A hostile daemon's stream, cut into pieces of varying size: every byte comes out at most once,
 * and in order. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "provider/docker/docker_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct docker_frame frame = {0};
    size_t at = 0, step = size > 0 ? data[0] % 17 + 1 : 1, out_bytes = 0;

    while (at < size) {
        size_t n = size - at < step ? size - at : step;
        /* A copy of exactly this size, so that reading past it is seen. */
        auto_free char *piece = xmalloc(n);
        struct str in = {piece, n}, out;
        enum docker_stream_kind kind;
        int got;

        memcpy(piece, data + at, n);
        while ((got = docker_frame_next(&frame, &in, &kind, &out)) == 1) {
            if (out.len == 0 || out.p < piece || out.p + out.len > piece + n || kind > 3)
                abort();
            out_bytes += out.len;
        }
        if (got < 0)
            return 0;
        if (in.len != 0)
            abort();
        at += n;
    }
    if (out_bytes > size)
        abort();
    return 0;
}

#include "provider/docker/docker_frame.h"

#include <string.h>

static int read_header(struct docker_frame *frame, struct str *in)
{
    size_t want = sizeof(frame->header) - frame->have;
    size_t take = in->len < want ? in->len : want;
    const uint8_t *h = frame->header;

    memcpy(frame->header + frame->have, in->p, take);
    frame->have += take;
    *in = str_skip(*in, take);
    if (frame->have < sizeof(frame->header))
        return 0;
    if (h[0] > DOCKER_SYSERR || h[1] || h[2] || h[3])
        return -1;
    frame->left = (uint32_t)h[4] << 24 | (uint32_t)h[5] << 16 | (uint32_t)h[6] << 8 | h[7];
    if (frame->left > DOCKER_FRAME_MAX)
        return -1;
    if (frame->left == 0)
        frame->have = 0;
    return 0;
}

int docker_frame_next(struct docker_frame *frame, struct str *in, enum docker_stream_kind *out_kind,
                      struct str *out)
{
    while (in->len > 0) {
        if (frame->left == 0) {
            if (read_header(frame, in) < 0)
                return -1;
            continue;
        }
        *out_kind = (enum docker_stream_kind)frame->header[0];
        *out = str_n(in->p, in->len < frame->left ? in->len : frame->left);
        *in = str_skip(*in, out->len);
        frame->left -= (uint32_t)out->len;
        if (frame->left == 0)
            frame->have = 0;
        return 1;
    }
    return 0;
}

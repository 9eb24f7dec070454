#include "runtime/run/capture.h"

#include "base/clock.h"

void runtime_capture_begin(struct runtime_capture *capture, int64_t limit)
{
    *capture = (struct runtime_capture){.started_at_us = clock_wall_us(),
                                        .limit = limit < RUNTIME_CAPTURE_MAX ? limit
                                                                             : RUNTIME_CAPTURE_MAX};
    for (int i = 0; i < 2; i++)
        buf_init(&capture->streams[i], (size_t)capture->limit + RUNTIME_CAPTURE_SPARE);
}

void runtime_capture_take(struct runtime_capture *capture, bool is_err, struct str data)
{
    struct buf *stream = &capture->streams[is_err];
    size_t room = (size_t)capture->limit + RUNTIME_CAPTURE_SPARE - stream->len;

    if (data.len > room) {
        capture->overflowed[is_err] = true;
        data.len = room;
    }
    (void)buf_add_str(stream, data);
}

void runtime_capture_done(struct runtime_capture *capture)
{
    for (int i = 0; i < 2; i++)
        buf_done(&capture->streams[i]);
}

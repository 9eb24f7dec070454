#include "extra/mcp/mcp_output.h"

#include "base/clock.h"
#include "protocol/json/json_shape.h"

enum {
    PROGRESS_MS = 100,       /* between two words about it */
    PROGRESS_MAX = 4 * 1024, /* bytes of output in one: the last ones */
};

/* ---- for the result ---- */

void mcp_capture_init(struct mcp_capture *capture, size_t limit)
{
    capture->half = limit / 2;
    capture->total = 0;
    buf_init_charged(&capture->head, capture->half);
    buf_init_charged(&capture->tail, SIZE_MAX / 2);
}

void mcp_capture_done(struct mcp_capture *capture)
{
    buf_done(&capture->head);
    buf_done(&capture->tail);
}

static void keep_end(struct buf *buf, size_t most)
{
    if (buf->len > most)
        buf_drop(buf, buf->len - most);
}

void mcp_capture_add(struct mcp_capture *capture, struct str data)
{
    size_t room = capture->half - capture->head.len, n = data.len < room ? data.len : room;

    capture->total += (int64_t)data.len;
    (void)buf_add(&capture->head, data.p, n);
    data = str_skip(data, n);
    if (data.len > capture->half)
        data = str_skip(data, data.len - capture->half);
    (void)buf_add(&capture->tail, data.p, data.len);
    if (capture->tail.len > 2 * capture->half)
        keep_end(&capture->tail, capture->half);
}

int64_t mcp_capture_missing(struct mcp_capture *capture)
{
    keep_end(&capture->tail, capture->half);
    return capture->total - (int64_t)(capture->head.len + capture->tail.len);
}

struct str mcp_capture_text(struct mcp_capture *capture, struct arena *arena)
{
    int64_t missing = mcp_capture_missing(capture);
    auto_buf struct buf text = {0};

    buf_init(&text, 4 * capture->half + 256);
    (void)buf_add_str(&text, buf_str(&capture->head));
    if (missing > 0)
        (void)buf_printf(&text, "\n[%lld bytes left out]\n", (long long)missing);
    (void)buf_add_str(&text, buf_str(&capture->tail));
    return text.len ? arena_str(arena, buf_str(&text)) : STR("");
}

/* ---- while it runs ---- */

static int tell(struct mcp_call *call)
{
    struct mcp_progress *progress = &call->progress;
    json_t *params;

    /* It must grow with each. */
    progress->last_told =
        progress->done > progress->last_told ? progress->done : progress->last_told + 1;
    params =
        json_pack("{s:O, s:I, s:o}", "progressToken", progress->token, "progress",
                  (json_int_t)progress->last_told, "message", json_str(buf_str(&progress->text)));
    buf_clear(&progress->text);
    return mcp_notify(call, "notifications/progress", params);
}

int mcp_progress_add(struct mcp_call *call, struct str data)
{
    struct mcp_progress *progress = &call->progress;

    if (!progress->token || !call->takes_events)
        return 0;
    progress->done += (int64_t)data.len;
    if (data.len > PROGRESS_MAX)
        data = str_skip(data, data.len - PROGRESS_MAX);
    (void)buf_add_str(&progress->text, data);
    keep_end(&progress->text, PROGRESS_MAX);
    return clock_mono_ms() - progress->told_ms >= PROGRESS_MS ? tell(call) : 0;
}

int mcp_progress_flush(struct mcp_call *call)
{
    return call->progress.text.len ? tell(call) : 0;
}

/* Output of a process in the background: as text, or as events whose ids are cursors.
 *
 * A follower holds a worker, which looks from time to time whether its client is still there. When the
 * server stops, the answer ends at once and the worker follows. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "edge/api_runtime/v1_sse.h"
#include "edge/api_runtime/v1_types.h"
#include "protocol/json/json_shape.h"
#include "runtime/job/job.h"

enum { TURN_MS = 10000, LIMIT_MAX = 64 * 1024 * 1024 };
static const int64_t CURSOR_MAX = INT64_MAX / 2; /* sums of cursors and sizes stay numbers */

/* In the call's arena: when the server stops, the loop looks at it, and the worker's stack may be gone. */
struct logs {
    struct v1_call *call;
    struct v1_stream stream;
    bool events;    /* server-sent, else plain */
    int64_t cursor; /* bytes told so far */
    int64_t left;   /* of the limit */
    int64_t told_ms;
    char part[4]; /* begin of a character whose rest has not come yet; not told */
    size_t part_len;
};

/* One event whose id is the cursor behind it. */
static int tell(struct logs *logs, struct str type, json_t *json_consume)
{
    auto_json json_t *json = json_consume;
    auto_free char *line = json_text(json);
    auto_buf struct buf text = {0};

    buf_init(&text, strlen(line) + 256);
    v1_sse_format(logs->cursor, type, str_of(line), &text);
    return call_pipe_write(&logs->call->pipe, buf_str(&text));
}

static int tell_output(struct logs *logs, struct str data)
{
    logs->left -= (int64_t)data.len;
    logs->cursor += (int64_t)data.len;
    logs->told_ms = clock_mono_ms();
    if (!logs->events)
        return call_pipe_write(&logs->call->pipe, data);
    return tell(logs, STR("output"),
                json_pack("{s:I, s:o}", "after", (json_int_t)logs->cursor, "data", json_str(data)));
}

size_t v1_logs_begun(struct str data)
{
    for (size_t n = 1; n <= 3 && n <= data.len; n++) {
        unsigned char c = (unsigned char)data.p[data.len - n];

        if ((c & 0xc0) == 0x80)
            continue;
        return c >= (n == 1 ? 0xc0 : n == 2 ? 0xe0 : 0xf0) ? n : 0;
    }
    return 0;
}

static int sink(void *arg, struct str data)
{
    struct logs *logs = arg;
    auto_buf struct buf joined = {0};
    size_t kept;

    if (logs->events && logs->part_len) {
        buf_init(&joined, data.len + logs->part_len);
        (void)buf_add(&joined, logs->part, logs->part_len);
        (void)buf_add_str(&joined, data);
        data = buf_str(&joined);
    }
    if ((int64_t)data.len > logs->left)
        data.len = (size_t)logs->left;
    kept = logs->events ? v1_logs_begun(data) : 0;
    if (kept == data.len && (int64_t)kept == logs->left)
        kept = 0;
    memcpy(logs->part, data.p + data.len - kept, kept);
    logs->part_len = kept;
    data.len -= kept;
    return data.len ? tell_output(logs, data) : 0;
}

static void on_drain(struct v1_stream *stream)
{
    struct logs *logs = container_of(stream, struct logs, stream);

    call_pipe_close(&logs->call->pipe);
    if (logs->call->ex)
        call_pipe_finish(&logs->call->pipe, false);
}

static int heartbeat(struct logs *logs)
{
    if (!logs->events || clock_mono_ms() - logs->told_ms < V1_SSE_HEARTBEAT_MS)
        return 0;
    logs->told_ms = clock_mono_ms();
    return call_pipe_write(&logs->call->pipe, STR(":heartbeat\n\n"));
}

static int pump(struct logs *logs, struct job *job, bool follow, struct error *err)
{
    struct v1_call *call = logs->call;
    struct runtime *runtime = call->v1->config.runtime;

    for (;;) {
        bool ended = job->state != JOB_RUNNING;
        int64_t next = logs->cursor;
        struct job_read read = {.after = logs->cursor,
                                .limit = (size_t)logs->left,
                                .follow = follow && !ended,
                                .wait_ms = TURN_MS};

        logs->part_len = 0; /* the next reading begins with it */
        if (job_logs(runtime, &call->caller, job->id, &read, sink, logs, &next, err) < 0)
            return call_pipe_gone(&call->pipe) ? 0 : -1;
        if (ended && logs->part_len)
            (void)tell_output(logs, str_n(logs->part, logs->part_len));
        if (ended && logs->events && logs->left)
            (void)tell(logs, STR("exit"), v1_types_job(job));
        if (ended || !follow || logs->left <= 0 || call_pipe_gone(&call->pipe) ||
            heartbeat(logs) < 0)
            return 0;
        if (job_get(runtime, &call->caller, job->id, &call->arena, job, err) < 0)
            return -1;
    }
}

int v1_processes_logs(struct v1_call *call, struct error *err)
{
    struct logs *logs = arena_alloc(&call->arena, sizeof(*logs));
    struct job job = {0};
    bool follow = false;
    int result;

    *logs = (struct logs){.call = call,
                          .left = LIMIT_MAX,
                          .told_ms = clock_mono_ms(),
                          .stream = {.loop = call->loop, .end = on_drain}};
    logs->events = str_find_str(call->accept, STR("text/event-stream")) >= 0;
    follow = logs->events;
    if (call->last_event_id.len && (!str_to_i64(call->last_event_id, &logs->cursor) ||
                                    logs->cursor < 0 || logs->cursor > CURSOR_MAX))
        logs->cursor = 0;
    if (v1_query_int(call, "after", 0, CURSOR_MAX, &logs->cursor, err) < 0 ||
        v1_query_int(call, "limit", 1, LIMIT_MAX, &logs->left, err) < 0 ||
        v1_query_bool(call, "follow", &follow, err) < 0 || v1_processes_find(call, &job, err) < 0 ||
        job_logs_check(call->v1->config.runtime, &call->caller, job.id, err) < 0)
        return -1;
    v1_stream_add(call->v1, &logs->stream);
    call_header(&call->call, "X-Process-State", str_of(name_of(&job_state_names, job.state)));
    call_pipe_begin(&call->pipe, 200,
                    logs->events ? "text/event-stream; charset=utf-8"
                                 : "text/plain; charset=utf-8");
    result = atomic_load(&call->v1->draining) ? 0 : pump(logs, &job, follow, err);
    v1_stream_remove(call->v1, &logs->stream);
    return result;
}

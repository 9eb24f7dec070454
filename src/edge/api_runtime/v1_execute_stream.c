/* How it works
 *
 * The worker that runs the command writes a record for each piece of its output. A client that reads
 * slowly stops the worker, which then reads nothing of the command either: nothing piles up. The answer
 * begins when the command runs, so that whatever prevents that is an ordinary error.
 *
 * A client that goes ends its command. When the server stops, the loop itself tells so as the last
 * record, because the worker may be waiting for the command. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "edge/api_runtime/v1_sse.h"
#include "edge/api_runtime/v1_types.h"
#include "protocol/json/json_out.h"
#include "protocol/json/json_shape.h"
#include "runtime/command/command.h"
#include "runtime/sandbox/sandbox.h"

enum {
    PIECE_MAX = 48 * 1024, /* of output in one record; a multiple of three for base64 */
    RECORD_MAX = 6 * (PIECE_MAX + 4) + 256,
    OFFER_MS = 10 * 1000,
};

/* In the call's arena: the loop may look at it until the call goes. */
struct streaming {
    struct v1_call *call;
    struct v1_stream stream;
    bool sse; /* server-sent events, else one JSON text per line */
    bool encoded, begun, truncated;
    struct str process_id;
    int64_t left[2]; /* of the limits of stdout and stderr */
    int64_t told_ms;
    /* Begins of characters whose rest has not come yet. */
    struct part {
        char p[4];
        size_t len;
    } parts[2];
    /* Of the output that is being told. */
    struct buf record;
    size_t sent;  /* bytes of record */
    size_t taken; /* bytes of the output */
};

/* Members may follow the type. */
static void begin_record(bool sse, const char *type, struct buf *out)
{
    if (sse)
        (void)buf_printf(out, "event: %s\ndata: ", type);
    json_out_open(out, NULL, '{');
    json_out_str(out, "type", str_of(type));
}

static void end_record(bool sse, struct buf *out)
{
    json_out_close(out, "}");
    (void)buf_add_str(out, sse ? STR("\n\n") : STR("\n"));
}

static void add_record(bool sse, const char *type, struct str json, struct buf *out)
{
    if (sse)
        (void)buf_printf(out, "event: %s\ndata: %.*s\n\n", type, STR_ARG(json));
    else
        (void)buf_printf(out, "%.*s\n", STR_ARG(json));
}

/* text: of v1_error_text(), an object. */
static void add_error(bool sse, const char *text, struct buf *out)
{
    begin_record(sse, "error", out);
    json_out_members(out, str_of(text));
    end_record(sse, out);
}

/* As one record, whatever the JSON is; waits. */
static int tell(struct streaming *streaming, const char *type, json_t *json_consume)
{
    auto_json json_t *json = json_consume;
    auto_free char *text = NULL;
    auto_buf struct buf record = {0};

    (void)json_object_set_new(json, "type", json_string(type));
    text = json_text(json);
    buf_init(&record, strlen(text) + 64);
    add_record(streaming->sse, type, str_of(text), &record);
    streaming->told_ms = clock_mono_ms();
    return call_pipe_write(&streaming->call->pipe, buf_str(&record));
}

/* ---- output ---- */

static void add_output(struct streaming *streaming, bool is_err, struct str data)
{
    struct buf *out = &streaming->record;

    begin_record(streaming->sse, is_err ? "stderr" : "stdout", out);
    if (streaming->encoded)
        json_out_base64(out, "data", data);
    else
        json_out_str(out, "data", data);
    end_record(streaming->sse, out);
}

/* A character is told as a whole, also when its bytes come one by one. */
static void encode_text(struct streaming *streaming, bool is_err, struct str data, bool last)
{
    struct part *part = &streaming->parts[is_err];
    auto_buf struct buf joined = {0};
    size_t kept;

    if (part->len) {
        buf_init(&joined, PIECE_MAX + sizeof(part->p));
        (void)buf_add(&joined, part->p, part->len);
        (void)buf_add_str(&joined, data);
        data = buf_str(&joined);
    }
    kept = last ? 0 : v1_logs_begun(data);
    memcpy(part->p, data.p + data.len - kept, kept);
    part->len = kept;
    data.len -= kept;
    if (!data.len)
        return;
    add_output(streaming, is_err, data);
}

/* The next piece of the output becomes the record; it may also become none. */
static void encode_next(struct streaming *streaming, bool is_err, struct str data)
{
    struct str piece = str_skip(data, streaming->taken);
    int64_t left = streaming->left[is_err];

    if (piece.len > PIECE_MAX)
        piece.len = PIECE_MAX;
    streaming->taken += piece.len;
    if ((int64_t)piece.len > left) {
        streaming->truncated = true;
        streaming->taken = data.len;
        piece.len = (size_t)left;
    }
    streaming->left[is_err] -= (int64_t)piece.len;
    if (!piece.len)
        return;
    if (streaming->encoded)
        add_output(streaming, is_err, piece);
    else
        encode_text(streaming, is_err, piece, false);
}

static int heartbeat(struct streaming *streaming)
{
    if (call_pipe_gone(&streaming->call->pipe))
        return -1;
    if (clock_mono_ms() - streaming->told_ms < V1_SSE_HEARTBEAT_MS)
        return 0;
    if (!streaming->sse)
        return tell(streaming, "heartbeat", json_object());
    streaming->told_ms = clock_mono_ms();
    return call_pipe_write(&streaming->call->pipe, STR(":heartbeat\n\n"));
}

static int on_output(void *arg, bool is_err, struct str data)
{
    struct streaming *streaming = arg;

    if (!data.len)
        return heartbeat(streaming);
    for (;;) {
        struct str rest = str_skip(buf_str(&streaming->record), streaming->sent);
        size_t before = rest.len;
        int r = call_pipe_offer(&streaming->call->pipe, &rest, OFFER_MS);

        streaming->sent += before - rest.len;
        if (r)
            return r;
        buf_clear(&streaming->record);
        streaming->sent = 0;
        if (streaming->taken == data.len) {
            streaming->taken = 0;
            streaming->told_ms = clock_mono_ms();
            return 0;
        }
        encode_next(streaming, is_err, data);
    }
}

/* ---- begin and end ---- */

static void on_close(void *arg)
{
    struct streaming *streaming = arg;

    runtime_exec_stop(streaming->call->v1->config.runtime, streaming->process_id);
}

static const char stopping[] = "the server stops; the command was ended with it";

/* On the loop. */
static void on_drain(struct v1_stream *stream)
{
    struct streaming *streaming = container_of(stream, struct streaming, stream);
    struct v1_call *call = streaming->call;
    auto_free char *text = NULL;
    auto_buf struct buf record = {0};

    call_pipe_close(&call->pipe);
    if (!call->ex)
        return;
    text = v1_error_text("unavailable", stopping, true, NULL);
    buf_init(&record, strlen(text) + 256);
    /* What was written last may be half a record. */
    (void)buf_add_str(&record, STR("\n\n"));
    add_error(streaming->sse, text, &record);
    call_pipe_last(&call->pipe, buf_str(&record));
    call_pipe_finish(&call->pipe, false);
}

static int on_started(void *arg, const char *process_id)
{
    struct streaming *streaming = arg;
    struct v1_call *call = streaming->call;

    streaming->begun = true;
    streaming->process_id = arena_str(&call->arena, str_of(process_id));
    call_pipe_begin(&call->pipe, 200,
                    streaming->sse ? "text/event-stream; charset=utf-8" : "application/x-ndjson");
    v1_stream_add(call->v1, &streaming->stream);
    if (atomic_load(&call->v1->draining) || !call_pipe_on_close(&call->pipe, on_close, streaming))
        return -1;
    return tell(streaming, "started", json_pack("{s:s}", "process_id", process_id));
}

static void tell_rest(struct streaming *streaming)
{
    for (int i = 0; i < 2; i++)
        if (streaming->parts[i].len)
            encode_text(streaming, i, STR(""), true);
    (void)call_pipe_write(&streaming->call->pipe, buf_str(&streaming->record));
}

/* It has begun: everything is told by records now. */
static void tell_end(struct streaming *streaming, const struct runtime_result *result,
                     const struct error *err)
{
    struct error stopped = {0};
    auto_free char *text = NULL;
    auto_buf struct buf record = {0};

    if (call_pipe_gone(&streaming->call->pipe))
        return;
    tell_rest(streaming);
    if (!err && !result->stopped) {
        json_t *end =
            json_pack("{s:i, s:I, s:b, s:b, s:s*}", "exit_code", result->exit_code, "duration_ms",
                      (json_int_t)result->duration_ms, "timed_out", (int)result->timed_out,
                      "truncated", (int)(result->truncated || streaming->truncated), "reason",
                      result->out_of_memory ? RUNTIME_OUT_OF_MEMORY : NULL);

        v1_types_kept(end, result);
        (void)tell(streaming, "exit", end);
        return;
    }
    if (!err)
        (void)error_set(&stopped, ERROR_UNAVAILABLE, "%s", stopping);
    text = v1_fail_text(streaming->call, err ? err : &stopped);
    buf_init(&record, strlen(text) + 256);
    add_error(streaming->sse, text, &record);
    (void)call_pipe_write(&streaming->call->pipe, buf_str(&record));
}

int v1_execute_stream(struct v1_call *call, struct runtime_command *command, bool encoded,
                      struct error *err)
{
    struct streaming *streaming = arena_alloc(&call->arena, sizeof(*streaming));
    int64_t limit = command->output_limit ? command->output_limit : INT64_MAX;
    struct runtime_result result = {0};
    int r;

    *streaming = (struct streaming){
        .call = call,
        .stream = {.loop = call->loop, .end = on_drain},
        .sse = str_find_str(call->accept, STR("text/event-stream")) >= 0,
        .encoded = encoded,
        .left = {limit, limit},
    };
    buf_init(&streaming->record, RECORD_MAX);
    command->keep_limit = command->output_limit;
    command->output_limit = 0;
    command->on_started = on_started;
    command->on_output = on_output;
    command->on_output_arg = streaming;
    r = runtime_exec(call->v1->config.runtime, &call->caller, call->params[0], command, &result,
                     err);
    if (streaming->begun) {
        tell_end(streaming, &result, r < 0 ? err : NULL);
        v1_stream_remove(call->v1, &streaming->stream);
        r = 0;
    }
    buf_done(&streaming->record);
    runtime_result_done(&result);
    return r;
}

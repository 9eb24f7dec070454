/* POST /sandboxes/{id}/code: a cell in a sandbox with the interpreter. The answer is all of it, or, for who asks for a stream, the interpreter's own
 * lines as they come and a last one, "exit". */
#include "base/cleanup.h"
#include "edge/api_runtime/v1_types.h"
#include "extra/interpreter/code.h"
#include "extra/interpreter/interpreter_extra.h"
#include "protocol/json/json_out.h"
#include "protocol/json/json_shape.h"

/* In the call's arena: the loop may look at it until the call goes. */
struct streaming {
    struct v1_call *call;
    struct v1_stream stream;
    bool sse, begun;
};

static int tell(struct streaming *streaming, struct str line)
{
    struct call_pipe *pipe = &streaming->call->pipe;

    if (streaming->sse && call_pipe_write(pipe, STR("data: ")) < 0)
        return -1;
    if (call_pipe_write(pipe, line) < 0)
        return -1;
    return call_pipe_write(pipe, streaming->sse ? STR("\n\n") : STR("\n"));
}

static int on_line(void *arg, struct str line)
{
    struct streaming *streaming = arg;

    if (!streaming->begun) {
        streaming->begun = true;
        call_pipe_begin(&streaming->call->pipe, 200,
                        streaming->sse ? "text/event-stream; charset=utf-8"
                                       : "application/x-ndjson");
        v1_stream_add(streaming->call->v1, &streaming->stream);
    }
    if (call_pipe_gone(&streaming->call->pipe))
        return -1;
    return line.p ? tell(streaming, line) : 0;
}

/* On the loop: the server stops. */
static void on_drain(struct v1_stream *stream)
{
    struct streaming *streaming = container_of(stream, struct streaming, stream);

    call_pipe_close(&streaming->call->pipe);
    if (streaming->call->ex)
        call_pipe_finish(&streaming->call->pipe, true);
}

/* err: {"type":"error","error":{…}}, as of commands; errors of the code itself have a name and a value. */
static void tell_end(struct streaming *streaming, json_t *outcome, const struct error *err)
{
    auto_free char *text = NULL;
    auto_buf struct buf line = {0};

    if (err) {
        text = v1_fail_text(streaming->call, err);
        buf_init(&line, SIZE_MAX);
        json_out_open(&line, NULL, '{');
        json_out_str(&line, "type", STR("error"));
        json_out_members(&line, str_of(text));
        json_out_close(&line, "}");
        (void)tell(streaming, buf_str(&line));
        return;
    }
    (void)json_object_set_new(outcome, "type", json_string("exit"));
    text = json_text(outcome);
    (void)tell(streaming, str_of(text));
}

static int run_streamed(struct v1_call *call, struct runtime_code *code, struct error *err)
{
    struct streaming *streaming = arena_alloc(&call->arena, sizeof(*streaming));
    auto_json json_t *outcome = NULL;
    int r;

    *streaming =
        (struct streaming){.call = call,
                           .stream = {.loop = call->loop, .end = on_drain},
                           .sse = str_find_str(call->accept, STR("text/event-stream")) >= 0};
    code->on_line = on_line;
    code->arg = streaming;
    r = runtime_code(call->v1->config.runtime, &call->caller, call->params[0], code, &outcome, err);
    if (!streaming->begun && r == 0)
        (void)on_line(streaming, STR_NONE);
    if (!streaming->begun)
        return r;
    tell_end(streaming, outcome, r < 0 ? err : NULL);
    v1_stream_remove(call->v1, &streaming->stream);
    return 0;
}

static int read_code(struct v1_call *call, struct runtime_code *out, bool *stream,
                     struct error *err)
{
    int64_t timeout_s = 0;

    *stream = str_find_str(call->accept, STR("text/event-stream")) >= 0 ||
              str_find_str(call->accept, STR("application/x-ndjson")) >= 0;
    if (v1_body_str(call, "code", &out->code, err) < 0 ||
        v1_body_str(call, "language", &out->language, err) < 0 ||
        v1_body_str(call, "context_id", &out->context_id, err) < 0 ||
        v1_body_strings(call, "env", JSON_OBJECT, &out->env, err) < 0 ||
        v1_body_bool(call, "stream", stream, err) < 0 ||
        v1_body_int(call, "timeout", 0, 86400, &timeout_s, err) < 0)
        return -1;
    out->timeout_ms = timeout_s * 1000;
    if (v1_body_int(call, "timeout_ms", 0, 86400000, &out->timeout_ms, err) < 0)
        return -1;
    if (!out->code.p)
        return error_set(err, ERROR_INVALID, "'code' is needed: the text to run");
    if (out->language.len && out->context_id.len)
        return error_set(err, ERROR_INVALID, "give either 'language' or 'context_id'");
    return 0;
}

int v1_code(struct v1_call *call, struct error *err)
{
    struct runtime_code code = {0};
    json_t *outcome = NULL;
    bool stream;

    if (read_code(call, &code, &stream, err) < 0)
        return -1;
    if (stream)
        return run_streamed(call, &code, err);
    if (runtime_code(call->v1->config.runtime, &call->caller, call->params[0], &code, &outcome,
                     err) < 0)
        return -1;
    call_answer(&call->call, 200, outcome);
    return 0;
}

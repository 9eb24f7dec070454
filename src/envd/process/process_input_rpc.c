/* SendInput and StreamInput: bytes for a program's stdin or terminal. A call is answered when the
 * program's pipe has taken its bytes; a stream is not read further while some wait.
 *
 * Of messages in the binary codec the input is taken as it is: as JSON it would be encoded and decoded
 * again, which is most of what passing it on costs. Only their plain form is known here; anything else
 * is read like all other messages. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "envd/core/envd.h"
#include "envd/process/process_rpc.h"
#include "protocol/json/json_shape.h"
#include "protocol/rpc/connect.h"
#include "protocol/rpc/proto_wire.h"

/* {"stdin": base64} or {"pty": base64} */
static int decode_input(const json_t *input, bool *to_pty, struct buf *out, struct error *err)
{
    struct str text = json_get_str(input, "stdin");

    *to_pty = !text.p;
    if (!text.p)
        text = json_get_str(input, "pty");
    if (!text.p)
        return error_set(err, ERROR_UNSUPPORTED, "invalid input type");
    buf_init(out, CONNECT_MESSAGE_MAX);
    if (!base64_decode(text, out))
        return error_set(err, ERROR_INVALID, "the input is not base64");
    return 0;
}

static int write_input(struct process *process, const json_t *input, process_written_fn *written,
                       void *arg, struct error *err)
{
    auto_buf struct buf bytes = {0};
    bool to_pty;

    if (decode_input(input, &to_pty, &bytes, err) != 0)
        return -1;
    return process_input_write(process, to_pty, buf_str(&bytes), written, arg, err);
}

/* ---- the binary codec ---- */

struct plain_input {
    pid_t pid; /* 0 = the message names none */
    bool to_pty;
    struct str bytes;
};

/* Members whose values are bytes, each at most once; false for anything else. */
static bool scan_members(struct str message, struct str out[3])
{
    out[1] = out[2] = STR_NONE;
    while (message.len) {
        uint32_t number;
        unsigned type;

        if (!proto_wire_tag(&message, &number, &type) || type != PROTO_WIRE_BYTES || number < 1 ||
            number > 2 || out[number].p || !proto_wire_bytes(&message, &out[number]))
            return false;
    }
    return true;
}

/* ProcessInput: stdin = 1, pty = 2. */
static bool scan_input(struct str message, struct plain_input *out)
{
    struct str members[3];

    if (!scan_members(message, members) || !members[1].p == !members[2].p)
        return false;
    out->to_pty = members[2].p != NULL;
    out->bytes = members[out->to_pty ? 2 : 1];
    return true;
}

/* ProcessSelector with pid = 1. */
static bool scan_pid(struct str message, pid_t *out)
{
    uint32_t number;
    unsigned type;
    uint64_t pid;

    if (!proto_wire_tag(&message, &number, &type) || number != 1 || type != PROTO_WIRE_VARINT ||
        !proto_wire_varint(&message, &pid) || message.len || pid < 1 || pid > INT32_MAX)
        return false;
    *out = (pid_t)pid;
    return true;
}

/* SendInputRequest: process = 1, input = 2. */
static bool scan_send(struct str message, struct plain_input *out)
{
    struct str members[3];

    return scan_members(message, members) && members[1].p && members[2].p &&
           scan_pid(members[1], &out->pid) && scan_input(members[2], out);
}

/* StreamInputRequest with data = 2, which has input = 2. */
static bool scan_stream_data(struct str message, struct plain_input *out)
{
    struct str members[3], data[3];

    return scan_members(message, members) && !members[1].p && members[2].p &&
           scan_members(members[2], data) && !data[1].p && data[2].p && scan_input(data[2], out);
}

/* ---- SendInput ---- */

/* Freed when both the write and the exchange are over. */
struct send_input {
    struct http_exchange *ex; /* NULL when the client is gone */
    unsigned refs;
};

static void unref(struct send_input *send)
{
    if (--send->refs == 0)
        free(send);
}

static void on_send_done(struct http_exchange *ex, void *arg)
{
    struct send_input *send = arg;

    (void)ex;
    send->ex = NULL;
    unref(send);
}

static void on_sent(void *arg, const struct error *err)
{
    struct send_input *send = arg;

    if (send->ex && err)
        connect_reply_error(send->ex, err);
    else if (send->ex)
        connect_reply(send->ex, STR("{}"));
    unref(send);
}

static int send_json(struct call *call, const json_t *request, struct send_input *send,
                     struct error *err)
{
    struct process *process = process_rpc_select(call->envd, request, err);

    if (!process)
        return -1;
    return write_input(process, json_object_get(request, "input"), on_sent, send, err);
}

static int send_binary(struct call *call, struct send_input *send, struct error *err)
{
    struct plain_input input = {0};
    auto_json json_t *request = NULL;
    struct process *process;

    if (!scan_send(call->binary, &input))
        return connect_read(call->ex, call->binary, &request, err) != 0
                   ? -1
                   : send_json(call, request, send, err);
    process = process_find(&call->envd->processes, input.pid, STR_NONE);
    if (!process)
        return error_set(err, ERROR_NOT_FOUND, "process with pid %d not found", (int)input.pid);
    return process_input_write(process, input.to_pty, input.bytes, on_sent, send, err);
}

int process_rpc_send_input(struct call *call, struct error *err)
{
    struct send_input *send = xcalloc(1, sizeof(*send));
    int r;

    *send = (struct send_input){.ex = call->ex, .refs = 2};
    r = call->request ? send_json(call, call->request, send, err) : send_binary(call, send, err);
    if (r != 0) {
        free(send);
        return -1;
    }
    http_on_done(call->ex, on_send_done, send);
    return 0;
}

/* ---- StreamInput ---- */

struct input_stream {
    struct envd *envd;
    struct http_exchange *ex; /* NULL when the client is gone */
    struct connect_decoder decoder;
    pid_t pid; /* 0 until the start message */
    unsigned refs, writing;
    bool ended, answered;
};

static void stream_unref(struct input_stream *stream)
{
    if (--stream->refs > 0)
        return;
    connect_decoder_done(&stream->decoder);
    free(stream);
}

static void stream_fail(struct input_stream *stream, const struct error *err)
{
    if (!stream->ex || stream->answered)
        return;
    stream->answered = true;
    connect_fail(stream->ex, err);
}

static void stream_advance(struct input_stream *stream)
{
    auto_buf struct buf answer = {0};
    struct error err;

    buf_init(&answer, 64);
    if (!stream->ex || stream->answered || stream->writing > 0)
        return;
    if (!stream->ended) {
        http_resume(stream->ex);
        return;
    }
    stream->answered = true;
    connect_begin(stream->ex);
    (void)connect_add_message(&answer, connect_format(stream->ex), STR("{}"), &err);
    http_write(stream->ex, answer.p, answer.len);
    connect_finish(stream->ex, NULL);
}

static void on_stream_written(void *arg, const struct error *err)
{
    struct input_stream *stream = arg;

    stream->writing--;
    if (err)
        stream_fail(stream, err);
    else
        stream_advance(stream);
    stream_unref(stream);
}

/* data: of JSON; NULL when the input is plain. */
static int stream_data(struct input_stream *stream, const json_t *data,
                       const struct plain_input *plain, struct error *err)
{
    struct process *process = process_find(&stream->envd->processes, stream->pid, STR_NONE);

    if (stream->pid == 0)
        return error_set(err, ERROR_INVALID, "the first message must be 'start'");
    if (!process)
        return error_set(err, ERROR_NOT_FOUND, "process with pid %d not found", (int)stream->pid);
    if ((data ? write_input(process, json_object_get(data, "input"), on_stream_written, stream, err)
              : process_input_write(process, plain->to_pty, plain->bytes, on_stream_written, stream,
                                    err)) != 0)
        return -1;
    stream->refs++;
    stream->writing++;
    return 0;
}

static int stream_message(struct input_stream *stream, struct str bytes, struct error *err)
{
    struct plain_input plain = {0};
    auto_json json_t *message = NULL;
    const json_t *event;

    if (connect_format(stream->ex) && scan_stream_data(bytes, &plain))
        return stream_data(stream, NULL, &plain, err);
    if (connect_read(stream->ex, bytes, &message, err) != 0)
        return -1;
    if ((event = json_object_get(message, "start"))) {
        struct process *process = process_rpc_select(stream->envd, event, err);

        if (!process)
            return -1;
        stream->pid = process->pid;
        return 0;
    }
    if ((event = json_object_get(message, "data")))
        return stream_data(stream, event, NULL, err);
    if (json_object_get(message, "keepalive"))
        return 0;
    return error_set(err, ERROR_UNSUPPORTED, "invalid event type");
}

struct message_result {
    struct input_stream *stream;
    struct error *err;
};

static int on_message(void *arg, uint8_t flags, struct str message)
{
    struct message_result *result = arg;

    if (flags & CONNECT_END)
        return 0;
    return stream_message(result->stream, message, result->err);
}

static void on_stream_data(struct http_exchange *ex, struct str data, void *arg)
{
    struct input_stream *stream = arg;
    struct error err = {0};
    struct message_result result = {stream, &err};

    if (stream->answered)
        return;
    if (connect_decode(&stream->decoder, data, on_message, &result, &err) != 0)
        stream_fail(stream, &err);
    else if (stream->writing > 0)
        http_pause(ex);
}

static void on_stream_end(struct http_exchange *ex, void *arg)
{
    struct input_stream *stream = arg;
    struct error err;

    (void)ex;
    stream->ended = true;
    if (!connect_decoder_idle(&stream->decoder)) {
        error_set(&err, ERROR_INVALID, "the stream ends inside a message");
        stream_fail(stream, &err);
    }
    stream_advance(stream);
}

static void on_stream_done(struct http_exchange *ex, void *arg)
{
    struct input_stream *stream = arg;

    (void)ex;
    stream->ex = NULL;
    stream_unref(stream);
}

void process_rpc_stream_input(struct envd *envd, struct http_exchange *ex)
{
    struct input_stream *stream = xcalloc(1, sizeof(*stream));

    stream->envd = envd;
    stream->ex = ex;
    stream->refs = 1;
    stream->decoder.max = CONNECT_MESSAGE_MAX;
    http_on_done(ex, on_stream_done, stream);
    http_read_stream(ex, on_stream_data, on_stream_end, stream);
}

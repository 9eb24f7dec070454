/* A process in a sandbox: a Connect stream of its events, and calls beside it for what goes in.
 *
 * The reader alone touches the stream; the pid, which the calls need, is known before anybody else
 * can see the process. An envd that lives says so every KEEPALIVE_S seconds. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/encode.h"
#include "base/list.h"
#include "protocol/json/json_shape.h"
#include "protocol/rpc/connect.h"
#include "protocol/rpc/proto_wire.h"
#include "provider/envd/envd_client.h"

enum {
    KEEPALIVE_S = 40,
    SILENCE_MS = 130 * 1000,
    START_MS = 60 * 1000,
    START_GRACE_MS = 10 * 1000, /* beyond the command's own timeout */
    REST_MS = 20,
    LOOK_MS = 200, /* at a connection that cannot be waited for */
    PIECE = 64 * 1024,
    INPUT_MAX = 512 * 1024, /* of one call */
    HEADERS_MAX = ENVD_HEADERS_MAX + 8,
};

/* Input has a name of its own for terminals, and an envd does not tell which kind a process is that
 * somebody else has started. */
enum input_kind { INPUT_PIPE, INPUT_PTY, INPUT_UNKNOWN };

struct process {
    struct provider_process base;
    struct envd_address address; /* strings are ours */
    struct fetch_stream *stream;
    struct connect_decoder decoder;
    struct envd_events events;
    int64_t pid, last_ms;
    atomic_int input;    /* enum input_kind */
    uint32_t input_ms;   /* of one piece */
    struct error broken; /* stays, once the stream makes no sense */
};

static const struct provider_process_ops process_ops;

static void copy_address(struct envd_address *to, const struct envd_address *from)
{
    *to = *from;
    to->who = xstrdup(from->who);
    to->base = xstrdup(from->base);
    to->unix_path = from->unix_path ? xstrdup(from->unix_path) : NULL;
    to->token = from->token.len ? str_n(str_dup(from->token), from->token.len) : STR_NONE;
    for (size_t i = 0; i < from->extra_count; i++)
        to->extra[i] =
            (struct http_header){str_n(str_dup(from->extra[i].name), from->extra[i].name.len),
                                 str_n(str_dup(from->extra[i].value), from->extra[i].value.len)};
}

static void drop(const char *text)
{
    free((void *)(uintptr_t)text);
}

static void free_address(struct envd_address *address)
{
    drop(address->who);
    drop(address->base);
    drop(address->unix_path);
    drop(address->token.p);
    for (size_t i = 0; i < address->extra_count; i++) {
        drop(address->extra[i].name.p);
        drop(address->extra[i].value.p);
    }
}

/* What follows an exit is only the end of the answer; once that has come the connection can be used
 * again. */
static void read_rest(struct process *process)
{
    struct error ignored;
    char piece[256];

    for (int i = 0; process->events.exited && i < 4; i++)
        if (fetch_read(process->stream, piece, sizeof(piece), REST_MS, &ignored) <= 0)
            return;
}

static void process_free(struct provider_process *base)
{
    struct process *process = container_of(base, struct process, base);

    read_rest(process);
    fetch_close(process->stream);
    connect_decoder_done(&process->decoder);
    envd_events_done(&process->events);
    free_address(&process->address);
    free(process);
}

static void process_cancel(struct provider_process *base)
{
    fetch_cancel(container_of(base, struct process, base)->stream);
}

/* ---- events ---- */

/* The stream is over and told no exit. */
static int ended_early(struct process *process, struct error *err)
{
    struct error *why = &process->events.why;

    if (why->code) {
        *err = *why;
        return error_prefix(err, "%s", process->address.who);
    }
    return error_set(err, ERROR_UNAVAILABLE,
                     "%s: the stream of the process broke before it told how it ended",
                     process->address.who);
}

/* 1 = bytes were taken, 0 = none came. */
static int take_more(struct process *process, uint32_t timeout_ms, struct error *err)
{
    struct envd_events *events = &process->events;
    auto_free char *piece = NULL;
    ssize_t n;

    events->count = events->at = 0;
    buf_clear(&events->data);
    if (process->broken.code) {
        *err = process->broken;
        return -1;
    }
    /* Most processes are silent most of the time. */
    piece = xmalloc(PIECE);
    n = fetch_read(process->stream, piece, PIECE, timeout_ms, err);
    if (n < 0 && err->code == ERROR_TIMEOUT) {
        *err = (struct error){0};
        if (clock_mono_ms() - process->last_ms < SILENCE_MS)
            return 0;
        return error_set(err, ERROR_UNAVAILABLE, "%s: no sign of life from envd for %d s",
                         process->address.who, SILENCE_MS / 1000);
    }
    if (n < 0)
        return error_prefix(err, "%s", process->address.who);
    if (n == 0)
        return ended_early(process, err);
    process->last_ms = clock_mono_ms();
    if (connect_decode(&process->decoder, str_n(piece, (size_t)n), envd_events_add, events, err) <
        0) {
        if (events->why.code)
            *err = events->why;
        err->code = ERROR_UNAVAILABLE;
        (void)error_prefix(err, "%s", process->address.who);
        process->broken = *err;
        return -1;
    }
    return 1;
}

static int process_next(struct provider_process *base, uint32_t timeout_ms,
                        struct provider_event *out, struct error *err)
{
    struct process *process = container_of(base, struct process, base);
    struct envd_events *events = &process->events;
    int64_t end_ms = clock_mono_ms() + timeout_ms;
    const struct envd_event *event;

    while (events->at == events->count) {
        int64_t left_ms = end_ms - clock_mono_ms();
        int result;

        if (events->exited || events->ended)
            return ended_early(process, err);
        result = take_more(process, left_ms > 0 ? (uint32_t)left_ms : 0, err);
        if (result <= 0 && events->at == events->count)
            return result;
    }
    event = &events->items[events->at++];
    *out = (struct provider_event){
        .kind = event->kind,
        .data = event->len ? str_n(events->data.p + event->offset, event->len) : STR(""),
        .pid = event->pid,
        .exit_code = event->exit_code,
        .timed_out = event->timed_out,
        .out_of_memory = event->out_of_memory,
    };
    return 1;
}

static struct provider_wait process_wait(struct provider_process *base)
{
    const struct process *process = container_of(base, struct process, base);
    int64_t left_ms = process->last_ms + SILENCE_MS - clock_mono_ms();
    int fd = fetch_stream_fd(process->stream);

    return (struct provider_wait){.fd = fd, .ms = fd < 0 ? LOOK_MS : left_ms > 0 ? left_ms : 0};
}

/* ---- beginning ---- */

static void read_refusal(struct process *process, const char *what, struct error *err)
{
    auto_buf struct buf body = {0};
    struct error ignored;
    char piece[4096];
    ssize_t n;

    buf_init(&body, PIECE);
    do {
        n = fetch_read(process->stream, piece, sizeof(piece), 10000, &ignored);
        if (n > 0)
            (void)buf_add(&body, piece, (size_t)n);
    } while (n > 0);
    (void)envd_refused(&process->address, what, fetch_status(process->stream), buf_str(&body), err);
}

/* Until the start has come: a command that cannot be run is an error of starting it. */
static int wait_start(struct process *process, uint32_t start_ms, struct error *err)
{
    int64_t end_ms = clock_mono_ms() + start_ms;

    while (!process->events.pid) {
        int64_t left_ms = end_ms - clock_mono_ms();

        if (process->events.ended)
            return ended_early(process, err);
        if (left_ms <= 0)
            return error_set(err, ERROR_TIMEOUT,
                             "%s: envd did not start the process within "
                             "%u s",
                             process->address.who, start_ms / 1000);
        if (take_more(process, (uint32_t)left_ms, err) < 0 && !process->events.pid)
            return -1;
    }
    process->pid = process->events.pid;
    return 0;
}

/* A command whose time would be over need not be waited for. */
static uint32_t start_limit(int64_t timeout_ms)
{
    return timeout_ms > 0 && timeout_ms < START_MS - START_GRACE_MS
               ? (uint32_t)timeout_ms + START_GRACE_MS
               : START_MS;
}

struct opening {
    const char *method; /* "process.Process/Start" */
    const json_t *message;
    const char *user;
    int64_t timeout_ms;
};

static int open_stream(struct process *process, const struct opening *opening, struct error *err)
{
    struct http_header headers[HEADERS_MAX];
    auto_free char *url = xasprintf("%s/%s", process->address.base, opening->method);
    auto_free char *text = json_text(opening->message), *user = NULL;
    auto_buf struct buf body = {0}, basic = {0};
    char timeout[32], keepalive[16];
    size_t count = 0;
    struct fetch_request request = {.method = "POST",
                                    .url = url,
                                    .unix_path = process->address.unix_path,
                                    .reach = fetch_reach(process->address.public_only),
                                    .headers = headers,
                                    .timeout_ms = start_limit(opening->timeout_ms)};

    buf_init(&body, ENVD_MESSAGE_MAX + CONNECT_HEAD_SIZE);
    buf_init(&basic, 1024);
    if (!connect_add(&body, 0, str_of(text)))
        return error_set(err, ERROR_LIMIT, "the command with its variables is too long");
    (void)snprintf(keepalive, sizeof(keepalive), "%d", KEEPALIVE_S);
    headers[count++] = (struct http_header){STR("Content-Type"), STR("application/connect+json")};
    headers[count++] = (struct http_header){STR("Connect-Protocol-Version"), STR("1")};
    headers[count++] = (struct http_header){STR("Keepalive-Ping-Interval"), str_of(keepalive)};
    if (opening->timeout_ms > 0) {
        (void)snprintf(timeout, sizeof(timeout), "%lld", (long long)opening->timeout_ms);
        headers[count++] = (struct http_header){STR("Connect-Timeout-Ms"), str_of(timeout)};
    }
    if (opening->user) {
        char *to;

        user = xasprintf("%s:", opening->user);
        (void)buf_add_str(&basic, STR("Basic "));
        to = buf_reserve(&basic, BASE64_LEN(strlen(user)));
        if (!to)
            return error_set(err, ERROR_INVALID, "the user's name is too long");
        base64_encode(to, user, strlen(user));
        buf_grew(&basic, BASE64_LEN(strlen(user)));
        headers[count++] = (struct http_header){STR("Authorization"), buf_str(&basic)};
    }
    request.header_count = envd_headers(&process->address, headers, count);
    request.body = buf_str(&body);
    if (fetch_open(process->address.fetch, &request, &process->stream, err) < 0)
        return error_prefix(err, "%s", process->address.who);
    if (fetch_status(process->stream) != 200) {
        read_refusal(process, opening->method, err);
        return -1;
    }
    return wait_start(process, start_limit(opening->timeout_ms), err);
}

static int begin(const struct envd_address *address, const struct opening *opening,
                 enum input_kind input, struct provider_process **out, struct error *err)
{
    struct process *process = xcalloc(1, sizeof(*process));

    process->base.ops = &process_ops;
    process->base.provider_name = "";
    atomic_store(&process->input, (int)input);
    process->input_ms = ENVD_CALL_MS;
    process->last_ms = clock_mono_ms();
    process->decoder.max = ENVD_MESSAGE_MAX;
    copy_address(&process->address, address);
    if (open_stream(process, opening, err) < 0) {
        process_free(&process->base);
        return -1;
    }
    *out = &process->base;
    return 0;
}

static json_t *args_of(const char *const *argv)
{
    json_t *args = json_array();

    for (size_t i = 1; argv[i]; i++)
        (void)json_array_append_new(args, json_str(str_of(argv[i])));
    return args;
}

static json_t *env_of(const struct provider_command *command)
{
    json_t *envs = json_object();

    for (size_t i = 0; i < command->env_count; i++) {
        auto_free char *name = str_dup(command->env[i].name);

        (void)json_object_set_new(envs, name, json_str(command->env[i].value));
    }
    return envs;
}

/* An envd tells only by its words that the program is what could not be started. */
static void note_program(struct error *err)
{
    if (err->code != ERROR_INVALID || strstr(err->message, "cwd '"))
        return;
    if (strcasestr(err->message, "no such file or directory") ||
        strstr(err->message, "executable file not found"))
        err->errnum = ENOENT;
    else if (strcasestr(err->message, "permission denied"))
        err->errnum = EACCES;
}

int envd_start(const struct envd_address *address, const struct provider_command *command,
               struct provider_process **out, struct error *err)
{
    auto_json json_t *message = json_object();
    json_t *process = json_object();
    struct opening opening = {.method = "process.Process/Start",
                              .message = message,
                              .user = command->user,
                              .timeout_ms = command->timeout_ms};

    (void)json_object_set_new(process, "cmd", json_str(str_of(command->argv[0])));
    (void)json_object_set_new(process, "args", args_of(command->argv));
    (void)json_object_set_new(process, "envs", env_of(command));
    if (command->cwd)
        (void)json_object_set_new(process, "cwd", json_str(str_of(command->cwd)));
    (void)json_object_set_new(message, "process", process);
    (void)json_object_set_new(message, "stdin", json_boolean(command->open_stdin));
    if (command->tag)
        (void)json_object_set_new(message, "tag", json_str(str_of(command->tag)));
    if (command->pty)
        (void)json_object_set_new(message, "pty",
                                  json_pack("{s:{s:i, s:i}}", "size", "cols",
                                            command->cols ? command->cols : 80, "rows",
                                            command->rows ? command->rows : 24));
    if (begin(address, &opening, command->pty ? INPUT_PTY : INPUT_PIPE, out, err) == 0) {
        if (command->input_ms)
            container_of(*out, struct process, base)->input_ms = command->input_ms;
        return 0;
    }
    /* A program or a user that is not there is the request's fault: the sandbox is, and our key was
     * not refused. */
    if (err->code == ERROR_NOT_FOUND ||
        (err->code == ERROR_UNAUTHORIZED && strstr(err->message, "invalid username")))
        err->code = ERROR_INVALID;
    note_program(err);
    return -1;
}

static json_t *selector(const char *tag, int64_t pid)
{
    return tag ? json_pack("{s:{s:s}}", "process", "tag", tag)
               : json_pack("{s:{s:I}}", "process", "pid", (json_int_t)pid);
}

int envd_attach(const struct envd_address *address, const char *tag, int64_t pid,
                struct provider_process **out, struct error *err)
{
    auto_json json_t *message = selector(tag, pid);
    struct opening opening = {.method = "process.Process/Connect", .message = message};

    if (!message)
        return error_set(err, ERROR_INVALID, "the tag is not text");
    return begin(address, &opening, INPUT_UNKNOWN, out, err);
}

/* ---- what goes in ---- */

static int call_with(struct process *process, const char *method, const char *member,
                     json_t *value_consume, struct error *err)
{
    auto_json json_t *message = selector(NULL, process->pid);
    bool input = member && strcmp(member, "input") == 0;

    if (member)
        (void)json_object_set_new(message, member, value_consume);
    return envd_call_within(&process->address, method, message,
                            input ? process->input_ms : ENVD_CALL_MS, NULL, err);
}

/* SendInputRequest of process.proto: process = 1 {pid = 1}, input = 2 {stdin = 1, pty = 2}. */
static void add_send_input(struct buf *out, int64_t pid, bool to_pty, struct str piece)
{
    size_t mark;

    (void)proto_wire_add_tag(out, 1, PROTO_WIRE_BYTES);
    mark = out->len;
    (void)proto_wire_add_tag(out, 1, PROTO_WIRE_VARINT);
    (void)proto_wire_add_varint(out, (uint64_t)pid);
    (void)proto_wire_add_length(out, mark);
    (void)proto_wire_add_tag(out, 2, PROTO_WIRE_BYTES);
    mark = out->len;
    (void)proto_wire_add_tag(out, to_pty ? 2 : 1, PROTO_WIRE_BYTES);
    (void)proto_wire_add_varint(out, piece.len);
    (void)buf_add_str(out, piece);
    (void)proto_wire_add_length(out, mark);
}

/* An envd of this host is ours and takes bytes as they are. */
static int send_binary(struct process *process, bool to_pty, struct str piece, struct error *err)
{
    auto_buf struct buf message = {0};

    buf_init(&message, piece.len + 64);
    (void)buf_reserve(&message, piece.len + 64);
    add_send_input(&message, process->pid, to_pty, piece);
    return envd_call_binary(&process->address, "process.Process/SendInput", buf_str(&message),
                            process->input_ms, err);
}

static int send_piece(struct process *process, const char *name, struct str piece,
                      struct error *err)
{
    size_t len = BASE64_LEN(piece.len);
    auto_free char *base64 = NULL;

    if (process->address.unix_path)
        return send_binary(process, strcmp(name, "pty") == 0, piece, err);
    base64 = xmalloc(len);
    base64_encode(base64, piece.p, piece.len);
    return call_with(process, "process.Process/SendInput", "input",
                     json_pack("{s:s%}", name, base64, len), err);
}

/* The wrong name is refused and does nothing else. */
static int send_guessing(struct process *process, struct str piece, struct error *err)
{
    struct error why = {0};

    if (send_piece(process, "pty", piece, &why) == 0) {
        atomic_store(&process->input, INPUT_PTY);
        return 0;
    }
    if (send_piece(process, "stdin", piece, err) < 0)
        return -1;
    atomic_store(&process->input, INPUT_PIPE);
    return 0;
}

/* A process that ended or closed its input is no fault of envd, which has no code for it. */
static void note_closed(struct error *err)
{
    if (strstr(err->message, "the process does not read it any more") ||
        strstr(err->message, "stdin not enabled or closed"))
        err->code = ERROR_CONFLICT;
}

static int process_input(struct provider_process *base, struct str data, struct error *err)
{
    struct process *process = container_of(base, struct process, base);

    while (data.len) {
        struct str piece = str_n(data.p, data.len < INPUT_MAX ? data.len : INPUT_MAX);
        int kind = atomic_load(&process->input);
        int r = kind == INPUT_UNKNOWN
                    ? send_guessing(process, piece, err)
                    : send_piece(process, kind == INPUT_PTY ? "pty" : "stdin", piece, err);

        if (r < 0) {
            note_closed(err);
            return -1;
        }
        data = str_skip(data, piece.len);
    }
    return 0;
}

static int process_close_stdin(struct provider_process *base, struct error *err)
{
    return call_with(container_of(base, struct process, base), "process.Process/CloseStdin", NULL,
                     NULL, err);
}

static int process_resize(struct provider_process *base, uint16_t cols, uint16_t rows,
                          struct error *err)
{
    return call_with(container_of(base, struct process, base), "process.Process/Update", "pty",
                     json_pack("{s:{s:i, s:i}}", "size", "cols", cols, "rows", rows), err);
}

static int process_signal(struct provider_process *base, int signal, struct error *err)
{
    struct process *process = container_of(base, struct process, base);

    if (signal == SIGINT && atomic_load(&process->input) == INPUT_PTY)
        return process_input(base, STR("\x03"), err);
    if (signal != SIGTERM && signal != SIGKILL)
        return error_set(err, ERROR_UNSUPPORTED,
                         "%s: envd passes on SIGTERM and SIGKILL, not signal %d",
                         process->address.who, signal);
    return call_with(process, "process.Process/SendSignal", "signal",
                     json_string(signal == SIGTERM ? "SIGNAL_SIGTERM" : "SIGNAL_SIGKILL"), err);
}

static const struct provider_process_ops process_ops = {
    .next = process_next,
    .wait = process_wait,
    .input = process_input,
    .close_stdin = process_close_stdin,
    .resize = process_resize,
    .signal = process_signal,
    .cancel = process_cancel,
    .free = process_free,
};

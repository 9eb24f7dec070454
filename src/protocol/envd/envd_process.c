/* A process in a sandbox: a Connect stream of its events, and calls beside it for what goes in.
 *
 * The reader alone touches the stream: it takes a piece of the body at a time and one message after the
 * other from it, so that nothing piles up when it is slow. The pid, which the calls need, is known before
 * anybody else can see the process. An envd that lives says so every KEEPALIVE_S seconds. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/encode.h"
#include "protocol/envd/envd_client.h"
#include "protocol/json/json_shape.h"
#include "protocol/rpc/connect.h"

enum {
    KEEPALIVE_S = 40,
    SILENCE_MS = 130 * 1000,
    START_MS = 60 * 1000,
    START_GRACE_MS = 10 * 1000, /* beyond the command's own timeout */
    REST_MS = 20,
    LOOK_MS = 200,  /* at a connection that cannot be waited for */
    SAID_MAX = 200, /* of an error's message */
    PIECE = 64 * 1024,
    EVENT_MAX = 256 * 1024, /* an envd sends output in pieces of at most 128 KiB */
    INPUT_MAX = 512 * 1024, /* of one call */
    SELECTOR_MAX = 64,      /* what names a process, and the heads of what comes with it */
    USER_MAX = 1024,
    HEADERS_MAX = ENVD_HEADERS_MAX + 8,
};

/* Input has a name of its own for terminals, and an envd does not tell which kind a process is that
 * somebody else has started. */
enum input_kind { INPUT_PIPE, INPUT_PTY, INPUT_UNKNOWN };

struct envd_process {
    struct envd_address address; /* strings are ours */
    struct fetch_stream *stream;
    struct connect_decoder decoder;
    char *
        piece; /* of the body; NULL while nothing comes: most processes are silent most of the time */
    struct str rest; /* of the piece */
    int64_t pid, last_ms;
    bool told_start;
    bool exited;       /* its end was told */
    bool ended;        /* the end frame has come */
    struct error why;  /* of an end frame that is an error; of a stream that makes no sense */
    atomic_int input;  /* enum input_kind */
    uint32_t input_ms; /* of one piece */
};

static void copy_address(struct envd_address *to, const struct envd_address *from)
{
    *to = *from;
    to->deadline_us = 0;
    to->who = xstrdup(from->who);
    to->base = xstrdup(from->base);
    to->unix_path = from->unix_path ? xstrdup(from->unix_path) : NULL;
    to->token = from->token.len ? str_n(str_dup(from->token), from->token.len) : STR_NONE;
    for (size_t i = 0; i < from->extra_count; i++)
        to->extra[i] =
            (struct pair){str_n(str_dup(from->extra[i].name), from->extra[i].name.len),
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
static void read_rest(struct envd_process *process)
{
    struct error ignored;
    char piece[256];

    for (int i = 0; process->exited && i < 4; i++)
        if (fetch_read(process->stream, piece, sizeof(piece), REST_MS, &ignored) <= 0)
            return;
}

void envd_process_free(struct envd_process *process)
{
    if (!process)
        return;
    read_rest(process);
    fetch_close(process->stream);
    connect_decoder_done(&process->decoder);
    free(process->piece);
    free_address(&process->address);
    free(process);
}

void envd_process_cancel(struct envd_process *process)
{
    fetch_cancel(process->stream);
}

/* ---- events ---- */

/* Says whose error it is. Always -1. */
static int blame(const struct envd_process *process, struct error *err)
{
    const char *who = process->address.who;

    return who[0] ? error_prefix(err, "%s", who) : -1;
}

/* The stream is over and told no exit. */
static int ended_early(const struct envd_process *process, struct error *err)
{
    if (process->why.code)
        *err = process->why;
    else
        (void)error_set(err, ERROR_UNAVAILABLE,
                        "the stream of the process broke before it told how it ended");
    return blame(process, err);
}

/* {} or {"error":{"code","message"}}, in both codecs. A deadline is the program's own: it was ended by
 * it. */
static int read_end_frame(struct envd_process *process, struct str frame, struct envd_event *out,
                          struct error *err)
{
    auto_json json_t *json = NULL;
    const json_t *error;
    struct error ignored;
    struct str code, message;

    *out = (struct envd_event){0};
    process->ended = true;
    if (json_parse(frame, &json, &ignored) < 0)
        return error_set(err, ERROR_UNAVAILABLE, "envd sent an end frame that is not JSON");
    error = json_object_get(json, "error");
    code = json_get_str(error, "code");
    message = json_get_str(error, "message");
    if (!error)
        return 0;
    if (str_is(code, "deadline_exceeded") && process->pid) {
        *out = (struct envd_event){.kind = ENVD_EXITED,
                                   .exit_code = 128 + SIGKILL,
                                   .status = STR("it took too long"),
                                   .timed_out = true};
        return 0;
    }
    if (message.len > SAID_MAX)
        message.len = SAID_MAX;
    (void)error_set(&process->why, envd_code(code), "%.*s", STR_ARG(message));
    return 0;
}

/* Whether the reader is told of it. */
static bool counts(struct envd_process *process, const struct envd_event *event)
{
    bool first = !process->pid;

    if (event->kind == ENVD_STARTED && first)
        process->pid = event->pid;
    process->exited = event->kind == ENVD_EXITED;
    return event->kind != ENVD_NOTHING && (event->kind != ENVD_STARTED || first);
}

/* The next event of what is there: 1, 0 when there is none. What makes no sense ends the stream. */
static int take_event(struct envd_process *process, struct envd_event *out, struct error *err)
{
    struct str message;
    uint8_t flags;
    int r;

    while (!process->exited && !process->ended &&
           (r = connect_next(&process->decoder, &process->rest, &flags, &message, err)) != 0) {
        if (r > 0)
            r = flags & CONNECT_END ? read_end_frame(process, message, out, err)
                                    : envd_read_event(message, out, err);
        if (r < 0) {
            process->ended = true;
            err->code = ERROR_UNAVAILABLE;
            process->why = *err;
            return ended_early(process, err);
        }
        if (counts(process, out))
            return 1;
    }
    return process->exited || process->ended ? ended_early(process, err) : 0;
}

/* 1 = bytes were read, 0 = none came. */
static int read_piece(struct envd_process *process, uint32_t timeout_ms, struct error *err)
{
    ssize_t n;

    if (!process->piece)
        process->piece = xmalloc(PIECE);
    n = fetch_read(process->stream, process->piece, PIECE, timeout_ms, err);
    if (n > 0) {
        process->rest = str_n(process->piece, (size_t)n);
        process->last_ms = clock_mono_ms();
        return 1;
    }
    free(process->piece);
    process->piece = NULL;
    if (n == 0)
        return ended_early(process, err);
    if (err->code != ERROR_TIMEOUT)
        return blame(process, err);
    *err = (struct error){0};
    if (clock_mono_ms() - process->last_ms < SILENCE_MS)
        return 0;
    (void)error_set(err, ERROR_UNAVAILABLE, "no sign of life from envd for %d s",
                    SILENCE_MS / 1000);
    return blame(process, err);
}

static int next_event(struct envd_process *process, uint32_t timeout_ms, struct envd_event *out,
                      struct error *err)
{
    int64_t end_ms = clock_mono_ms() + timeout_ms, left_ms = timeout_ms;
    int r;

    while ((r = take_event(process, out, err)) == 0) {
        r = read_piece(process, left_ms > 0 ? (uint32_t)left_ms : 0, err);
        if (r <= 0)
            return r;
        left_ms = end_ms - clock_mono_ms();
    }
    return r;
}

int envd_process_next(struct envd_process *process, uint32_t timeout_ms, struct envd_event *out,
                      struct error *err)
{
    if (process->told_start)
        return next_event(process, timeout_ms, out, err);
    process->told_start = true;
    *out = (struct envd_event){.kind = ENVD_STARTED, .pid = process->pid};
    return 1;
}

int envd_process_wait(const struct envd_process *process, int64_t *out_ms)
{
    int64_t left_ms = process->last_ms + SILENCE_MS - clock_mono_ms();
    int fd = fetch_stream_fd(process->stream);

    *out_ms = fd < 0 ? LOOK_MS : left_ms > 0 ? left_ms : 0;
    return fd;
}

/* ---- beginning ---- */

/* Until the start has come: a command that cannot be run is an error of starting it. */
static int wait_start(struct envd_process *process, uint32_t start_ms, struct error *err)
{
    int64_t end_ms = clock_mono_ms() + start_ms, left_ms = start_ms;
    struct envd_event event;
    int r = 0;

    while (r == 0 && left_ms > 0) {
        r = next_event(process, (uint32_t)left_ms, &event, err);
        left_ms = end_ms - clock_mono_ms();
    }
    if (r < 0 || (r > 0 && event.kind == ENVD_STARTED))
        return r < 0 ? -1 : 0;
    if (r > 0)
        (void)error_set(err, ERROR_UNAVAILABLE, "envd sent no start first");
    else
        (void)error_set(err, ERROR_TIMEOUT, "envd did not start the process within %u s",
                        start_ms / 1000);
    return blame(process, err);
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
    const char *user;
    int64_t timeout_ms, deadline_us;
};

/* "Basic " and the user's name as the name of an account without a password. */
static int add_user(struct buf *out, const char *user, struct error *err)
{
    auto_free char *account = xasprintf("%s:", user);
    size_t len = BASE64_LEN(strlen(account));
    char *to;

    buf_init(out, USER_MAX);
    (void)buf_add_str(out, STR("Basic "));
    to = buf_reserve(out, len);
    if (!to)
        return error_set(err, ERROR_INVALID, "the user's name is too long");
    base64_encode(to, account, strlen(account));
    buf_grew(out, len);
    return 0;
}

/* frame: an envelope with the one message of the request. */
static int open_stream(struct envd_process *process, const struct opening *opening,
                       struct str frame, struct error *err)
{
    struct pair headers[HEADERS_MAX];
    auto_free char *url = xasprintf("%s/%s", process->address.base, opening->method);
    auto_buf struct buf basic = {0};
    char timeout[32], keepalive[16];
    size_t count = 0;
    struct fetch_request request = {.method = "POST",
                                    .url = url,
                                    .unix_path = process->address.unix_path,
                                    .reach = fetch_reach(process->address.public_only),
                                    .deadline_us = opening->deadline_us,
                                    .headers = headers,
                                    .body = frame,
                                    .timeout_ms = start_limit(opening->timeout_ms)};

    (void)snprintf(keepalive, sizeof(keepalive), "%d", KEEPALIVE_S);
    headers[count++] = (struct pair){STR("Content-Type"), STR("application/connect+proto")};
    headers[count++] = (struct pair){STR("Connect-Protocol-Version"), STR("1")};
    headers[count++] = (struct pair){STR("Keepalive-Ping-Interval"), str_of(keepalive)};
    if (opening->timeout_ms > 0) {
        (void)snprintf(timeout, sizeof(timeout), "%lld", (long long)opening->timeout_ms);
        headers[count++] = (struct pair){STR("Connect-Timeout-Ms"), str_of(timeout)};
    }
    if (opening->user && add_user(&basic, opening->user, err) < 0)
        return -1;
    if (opening->user)
        headers[count++] = (struct pair){STR("Authorization"), buf_str(&basic)};
    request.header_count = envd_headers(&process->address, headers, count);
    if (fetch_open(process->address.fetch, &request, &process->stream, err) < 0)
        return blame(process, err);
    if (fetch_status(process->stream) != 200)
        return envd_refused_stream(&process->address, opening->method, process->stream, err);
    return wait_start(process, start_limit(opening->timeout_ms), err);
}

static int begin(const struct envd_address *address, const struct opening *opening,
                 struct str message, enum input_kind input, struct envd_process **out,
                 struct error *err)
{
    struct envd_process *process = xcalloc(1, sizeof(*process));
    auto_buf struct buf frame = {0};
    int r;

    atomic_store(&process->input, (int)input);
    process->input_ms = ENVD_CALL_MS;
    process->last_ms = clock_mono_ms();
    process->decoder.max = EVENT_MAX;
    copy_address(&process->address, address);
    buf_init(&frame, message.len + CONNECT_HEAD_SIZE);
    (void)connect_add(&frame, 0, message);
    r = open_stream(process, opening, buf_str(&frame), err);
    if (r < 0)
        envd_process_free(process);
    else
        *out = process;
    return r;
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

int envd_start(const struct envd_address *address, const struct envd_command *command,
               struct envd_process **out, struct error *err)
{
    struct opening opening = {.method = "process.Process/Start",
                              .user = command->user,
                              .timeout_ms = command->timeout_ms,
                              .deadline_us = address->deadline_us};
    auto_buf struct buf message = {0};

    buf_init(&message, ENVD_MESSAGE_MAX);
    envd_put_start(&message, command);
    if (message.overflowed)
        return error_set(err, ERROR_LIMIT, "the command with its variables is too long");
    if (begin(address, &opening, buf_str(&message), command->pty ? INPUT_PTY : INPUT_PIPE, out,
              err) == 0) {
        if (command->input_ms)
            (*out)->input_ms = command->input_ms;
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

int envd_attach(const struct envd_address *address, const char *tag, int64_t pid,
                struct envd_process **out, struct error *err)
{
    struct opening opening = {.method = "process.Process/Connect",
                              .deadline_us = address->deadline_us};
    auto_buf struct buf message = {0};

    if (tag && !str_valid_utf8(str_of(tag)))
        return error_set(err, ERROR_INVALID, "the tag is not text");
    buf_init(&message, SELECTOR_MAX + (tag ? strlen(tag) : 0));
    envd_put_process(&message, tag, pid);
    return begin(address, &opening, buf_str(&message), INPUT_UNKNOWN, out, err);
}

/* ---- what goes in ---- */

static int send_piece(struct envd_process *process, bool to_pty, struct str piece,
                      struct error *err)
{
    auto_buf struct buf message = {0};

    buf_init(&message, SELECTOR_MAX + piece.len);
    (void)buf_reserve(&message, SELECTOR_MAX + piece.len);
    envd_put_input(&message, process->pid, to_pty, piece);
    return envd_call(&process->address, "process.Process/SendInput", buf_str(&message),
                     process->input_ms, NULL, err);
}

/* The wrong name is refused and does nothing else. */
static int send_guessing(struct envd_process *process, struct str piece, struct error *err)
{
    struct error why = {0};

    if (send_piece(process, true, piece, &why) == 0) {
        atomic_store(&process->input, INPUT_PTY);
        return 0;
    }
    if (send_piece(process, false, piece, err) < 0)
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

int envd_process_input(struct envd_process *process, struct str data, struct error *err)
{
    while (data.len) {
        struct str piece = str_n(data.p, data.len < INPUT_MAX ? data.len : INPUT_MAX);
        int kind = atomic_load(&process->input);
        int r = kind == INPUT_UNKNOWN ? send_guessing(process, piece, err)
                                      : send_piece(process, kind == INPUT_PTY, piece, err);

        if (r < 0) {
            note_closed(err);
            return -1;
        }
        data = str_skip(data, piece.len);
    }
    return 0;
}

int envd_process_close_stdin(struct envd_process *process, struct error *err)
{
    auto_buf struct buf message = {0};

    buf_init(&message, SELECTOR_MAX);
    envd_put_process(&message, NULL, process->pid);
    return envd_call(&process->address, "process.Process/CloseStdin", buf_str(&message),
                     ENVD_CALL_MS, NULL, err);
}

int envd_process_feed(struct envd_process *process, struct str data, struct error *err)
{
    if (envd_process_input(process, data, err) < 0)
        return -1;
    return envd_process_close_stdin(process, err);
}

int envd_process_resize(struct envd_process *process, uint16_t cols, uint16_t rows,
                        struct error *err)
{
    auto_buf struct buf message = {0};

    buf_init(&message, SELECTOR_MAX);
    envd_put_resize(&message, process->pid, cols, rows);
    return envd_call(&process->address, "process.Process/Update", buf_str(&message), ENVD_CALL_MS,
                     NULL, err);
}

int envd_process_signal(struct envd_process *process, int signal, struct error *err)
{
    auto_buf struct buf message = {0};

    if (signal == SIGINT && atomic_load(&process->input) == INPUT_PTY)
        return envd_process_input(process, STR("\x03"), err);
    if (signal != SIGTERM && signal != SIGKILL)
        return error_set(err, ERROR_UNSUPPORTED,
                         "%s: envd passes on SIGTERM and SIGKILL, not signal %d",
                         process->address.who, signal);
    buf_init(&message, SELECTOR_MAX);
    envd_put_signal(&message, process->pid, signal);
    return envd_call(&process->address, "process.Process/SendSignal", buf_str(&message),
                     ENVD_CALL_MS, NULL, err);
}

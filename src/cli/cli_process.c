/* A Connect stream of process.Process/Start: events come as envelopes and are written out as they
 * come, so a slow reader of our output slows the command. Input is read by a thread of its own,
 * because SendInput waits while the command does not read, and the command may not read because we
 * do not take its output. That thread owns copies of what it uses and is left behind when the
 * command has ended: it may be blocked in read(). */
#include "cli/cli_process.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/encode.h"
#include "base/fd.h"
#include "rpc/connect.h"
#include "json/json_shape.h"

enum { INPUT_SIZE = 32 * 1024, CONNECT_TIMEOUT_MS = 30 * 1000, EXIT_TIMED_OUT = 124 };

struct running {
    const struct cli_process *process;
    struct cli_stream stream;
    struct connect_decoder decoder;
    int64_t pid; /* 0 until it started */
    bool exited; /* `status` holds */
    bool finished;
    int status;
    int signals; /* how many we got */
    struct error failure;
};

/* ---- input ---- */

struct input {
    struct cli_server server;
    struct cli_sandbox sandbox;
    int64_t pid;
};

static int send_input(const struct input *input, const char *p, size_t len)
{
    auto_free char *text = xmalloc(BASE64_LEN(INPUT_SIZE));
    auto_json json_t *body = NULL;
    struct error err = {0};

    base64_encode(text, p, len);
    body = json_pack("{s:{s:I},s:{s:s%}}", "process", "pid", (json_int_t)input->pid, "input",
                     "stdin", text, BASE64_LEN(len));
    return cli_rpc(&input->server, &input->sandbox, "process.Process/SendInput", body, &err);
}

static void *forward_input(void *arg)
{
    struct input *input = arg;
    auto_json json_t *body = json_pack("{s:{s:I}}", "process", "pid", (json_int_t)input->pid);
    auto_free char *bytes = xmalloc(INPUT_SIZE);
    struct error err = {0};
    ssize_t n;

    for (;;) {
        n = read(STDIN_FILENO, bytes, INPUT_SIZE);
        if (n < 0 && errno == EINTR)
            continue;
        /* A failing call means that the command has ended or takes no input any more. */
        if (n <= 0 || send_input(input, bytes, (size_t)n) < 0)
            break;
    }
    (void)cli_rpc(&input->server, &input->sandbox, "process.Process/CloseStdin", body, &err);
    cli_server_done(&input->server);
    cli_sandbox_done(&input->sandbox);
    free(input);
    return NULL;
}

static void start_input(const struct running *running)
{
    const struct cli_process *process = running->process;
    struct input *input = xcalloc(1, sizeof(*input));
    pthread_t thread;

    input->server = *process->server;
    input->server.key = xstrdup(process->server->key);
    input->sandbox.id = xstrdup(process->sandbox->id);
    input->sandbox.token = process->sandbox->token ? xstrdup(process->sandbox->token) : NULL;
    input->pid = running->pid;
    if (pthread_create(&thread, NULL, forward_input, input) == 0) {
        (void)pthread_detach(thread);
        return;
    }
    (void)fprintf(stderr, "quicksand: no thread for the input; the command gets none\n");
    cli_server_done(&input->server);
    cli_sandbox_done(&input->sandbox);
    free(input);
}

/* ---- events ---- */

int cli_process_signal_status(struct str status)
{
    if (!str_starts(status, STR("signal: ")))
        return 255;
    status = str_skip(status, 8);
    if (str_ends(status, STR(" (core dumped)")))
        status.len -= 14;
    for (int n = 1; n < 32; n++) {
        const char *words = sigdescr_np(n);

        if (words && str_eq_nocase(status, str_of(words)))
            return 128 + n;
    }
    return 255;
}

static int write_output(int fd, struct str base64, struct error *err)
{
    auto_buf struct buf bytes = {0};
    int rc;

    buf_init(&bytes, CONNECT_MESSAGE_MAX);
    if (!base64_decode(base64, &bytes))
        return error_set(err, ERROR_UNAVAILABLE, "the sandbox sent output that is not base64");
    rc = fd_write_full(fd, bytes.p, bytes.len);
    return rc < 0 ? error_set_errno(err, -rc, "writing the command's output") : 0;
}

static int on_data(const json_t *data, struct error *err)
{
    struct str out = json_get_str(data, "stdout"), errors = json_get_str(data, "stderr");

    if (out.p && write_output(STDOUT_FILENO, out, err) < 0)
        return -1;
    if (errors.p && write_output(STDERR_FILENO, errors, err) < 0)
        return -1;
    return 0;
}

struct end_event {
    int64_t exit_code;
    bool exited;
    struct str status, error;
};

static const struct json_field end_fields[] = {
    JSON_FIELD(struct end_event, exit_code, "exitCode", 0),
    JSON_FIELD(struct end_event, exited, "exited", 0),
    JSON_FIELD(struct end_event, status, "status", 0),
    JSON_FIELD(struct end_event, error, "error", 0),
    JSON_END,
};

static int on_end(struct running *running, const json_t *json, struct error *err)
{
    struct end_event end = {0};

    if (json_read(end_fields, json, &end, err) < 0)
        return -1;
    running->exited = true;
    if (str_starts(end.status, STR("signal: ")))
        running->status = cli_process_signal_status(end.status);
    else
        running->status = (int)(end.exit_code & 0xff);
    return 0;
}

static int on_end_frame(struct running *running, const json_t *json, struct error *err)
{
    const json_t *error = json_object_get(json, "error");
    struct str message = json_get_str(error, "message");

    running->finished = true;
    if (!error)
        return 0;
    return error_set(err, ERROR_UNAVAILABLE, "the command could not be run: %.*s (%.*s)",
                     STR_ARG(message), STR_ARG(json_get_str(error, "code")));
}

static int on_start(struct running *running, const json_t *json, struct error *err)
{
    if (running->pid)
        return 0;
    running->pid = json_integer_value(json_object_get(json, "pid"));
    if (running->pid <= 0)
        return error_set(err, ERROR_UNAVAILABLE, "the sandbox sent a start without a pid");
    if (running->process->with_stdin)
        start_input(running);
    return 0;
}

static int on_message(void *arg, uint8_t flags, struct str message)
{
    struct running *running = arg;
    struct error *err = &running->failure;
    auto_json json_t *json = NULL;
    const json_t *event, *part;

    if (json_parse(message, &json, err) < 0)
        return error_prefix(err, "the sandbox's answer");
    if (flags & CONNECT_END)
        return on_end_frame(running, json, err);
    event = json_object_get(json, "event");
    if ((part = json_object_get(event, "start")))
        return on_start(running, part, err);
    if ((part = json_object_get(event, "data")))
        return on_data(part, err);
    if ((part = json_object_get(event, "end")))
        return on_end(running, part, err);
    return 0;
}

/* ---- the stream ---- */

/* The shell only looks the command up and becomes it. */
static json_t *start_body(const struct cli_process *process)
{
    json_t *args = json_pack("[s,s,s]", "-c", "exec \"$@\"", "sh"), *inner, *body;

    for (int i = 0; i < process->argc; i++)
        (void)json_array_append_new(args, json_str(str_of(process->argv[i])));
    inner = json_pack("{s:s,s:o}", "cmd", "/bin/sh", "args", args);
    if (process->env)
        (void)json_object_set_new(inner, "envs", json_deep_copy(process->env));
    if (process->cwd)
        (void)json_object_set_new(inner, "cwd", json_str(str_of(process->cwd)));
    body = json_pack("{s:o,s:b}", "process", inner, "stdin", process->with_stdin);
    return body;
}

static int open_stream(struct running *running, struct error *err)
{
    const struct cli_process *process = running->process;
    auto_json json_t *body = start_body(process);
    auto_free char *text = json_text(body), *who = NULL;
    struct http_header headers[CLI_SANDBOX_HEADERS + 3];
    size_t n = cli_sandbox_headers(process->sandbox, headers);
    auto_buf struct buf envelope = {0};

    buf_init(&envelope, CONNECT_MESSAGE_MAX);
    if (!connect_add(&envelope, 0, str_of(text)))
        return error_set(err, ERROR_LIMIT, "the command line is too long");
    headers[n++] = (struct http_header){STR("Content-Type"), STR("application/connect+json")};
    headers[n++] = (struct http_header){STR("Connect-Protocol-Version"), STR("1")};
    if (process->user) {
        auto_free char *plain = xasprintf("%s:", process->user);
        size_t len = strlen(plain);

        who = xcalloc(1, BASE64_LEN(len) + 7);
        memcpy(who, "Basic ", 6);
        base64_encode(who + 6, plain, len);
        headers[n++] = (struct http_header){STR("Authorization"), str_of(who)};
    }
    if (cli_stream_open(&running->stream, &process->server->sandboxes,
                        &(struct cli_request){"POST", "/process.Process/Start", headers, n,
                                              (int64_t)envelope.len},
                        CONNECT_TIMEOUT_MS, CONNECT_MESSAGE_MAX, err) < 0 ||
        cli_stream_send(&running->stream, buf_str(&envelope), err) < 0 ||
        cli_stream_recv_head(&running->stream, err) < 0)
        return -1;
    if (running->stream.status == 200)
        return 0;
    if (cli_stream_recv_all(&running->stream, err) < 0)
        return -1;
    return cli_answer_error(&running->stream, err);
}

static void send_signal(const struct running *running, const char *name)
{
    auto_json json_t *body =
        json_pack("{s:{s:I},s:s}", "process", "pid", (json_int_t)running->pid, "signal", name);
    struct error err = {0};

    if (cli_rpc(running->process->server, running->process->sandbox, "process.Process/SendSignal",
                body, &err) < 0)
        (void)fprintf(stderr, "quicksand: passing the signal on: %s\n", err.message);
}

/* True when the run is to end now. */
static bool on_signal(struct running *running)
{
    const struct cli_process *process = running->process;
    struct signalfd_siginfo signal;

    if (read(process->signal_fd, &signal, sizeof(signal)) != (ssize_t)sizeof(signal))
        return false;
    running->signals++;
    if (!running->pid || running->signals > 2) {
        running->status = 128 + (int)signal.ssi_signo;
        return true;
    }
    send_signal(running, running->signals == 1 ? "SIGNAL_SIGTERM" : "SIGNAL_SIGKILL");
    return false;
}

/* Messages in what has been received; 0 when more may come. */
static int take_messages(struct running *running, struct error *err)
{
    struct cli_stream *stream = &running->stream;
    int rc = connect_decode(&running->decoder, buf_str(&stream->body), on_message, running, err);

    buf_clear(&stream->body);
    if (rc < 0 && running->failure.code)
        *err = running->failure;
    return rc;
}

/* 0 = never. */
static int wait_ms(int64_t end_us)
{
    int64_t left = (end_us - clock_mono_us()) / 1000 + 1;

    if (!end_us)
        return -1;
    return left > 0 ? (int)(left < 60000 ? left : 60000) : 0;
}

static bool overdue(struct running *running, int64_t end_us)
{
    if (!end_us || clock_mono_us() < end_us)
        return false;
    if (running->pid)
        send_signal(running, "SIGNAL_SIGKILL");
    running->status = EXIT_TIMED_OUT;
    return true;
}

/* 0 when finished or ended by a signal, -1 with err. */
static int pump(struct running *running, struct error *err)
{
    const struct cli_process *process = running->process;
    int64_t end_us = process->limit_s ? clock_mono_us() + process->limit_s * 1000000 : 0;
    struct pollfd items[] = {{.fd = running->stream.fd, .events = POLLIN},
                             {.fd = process->signal_fd, .events = POLLIN}};

    for (;;) {
        int got, rc;

        if (take_messages(running, err) < 0)
            return -1;
        if (running->finished)
            return 0;
        got = cli_stream_take(&running->stream, err);
        if (got < 0)
            return -1;
        if (got == 0 && running->stream.body.len == 0)
            return error_set(err, ERROR_UNAVAILABLE, "the command's stream ended too early");
        rc = poll(items, 2, got == CLI_STREAM_LATER ? wait_ms(end_us) : 0);
        if (rc < 0 && errno != EINTR)
            return error_set_errno(err, errno, "poll");
        if (rc > 0 && items[1].revents && on_signal(running))
            return 0;
        if (overdue(running, end_us))
            return 0;
    }
}

int cli_process_run(const struct cli_process *process, int *out_status, struct error *err)
{
    struct running running = {.process = process, .decoder.max = CONNECT_MESSAGE_MAX};
    int rc = open_stream(&running, err);

    if (rc == 0)
        rc = pump(&running, err);
    /* An end that was told holds even when the connection broke behind it. */
    if (rc < 0 && running.exited)
        rc = 0;
    if (rc == 0)
        *out_status = running.status;
    connect_decoder_done(&running.decoder);
    cli_stream_close(&running.stream);
    return rc;
}

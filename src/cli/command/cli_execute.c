/* A command in a sandbox of the runtime, connected with our stdin, stdout and stderr.
 *
 * The server answers with one JSON record per line, written out as they come: a slow reader of our output
 * slows the command. Input and signals are calls of their own to the process the first record names; all
 * input that comes without a pause is one of them.
 * Input is read by a thread, because its calls wait while the command does not read, and the command may
 * not read because we do not take its output. That thread owns what it uses and is left behind when the
 * command has ended: it may be blocked in read(). When we go, the server ends the command. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "base/fd.h"
#include "base/thread.h"
#include "cli/command/cli_runtime.h"
#include "cli/core/cli_table.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_scan.h"
#include "protocol/json/json_shape.h"

enum {
    EXIT_TIMED_OUT = 124,
    LIFE_S = 86400, /* when no limit was asked for: the server's own */
    CONNECT_MS = 30 * 1000,
    PENDING_MAX = 4 * 1024 * 1024,
    INPUT_SIZE = 256 * 1024,
    INPUT_MS = 900 * 1000, /* for a command that does not read */
    QUIET_MS = 1000,       /* then the request with the input so far ends */
};

struct running {
    const struct cli_runtime *run;
    struct http_call stream;
    struct buf name, type, data; /* of the record that is read */
    struct buf bytes;            /* that it stands for */
    char *process_id;            /* NULL until it runs */
    bool with_stdin, ended;
    int status, signals;
};

static void warn(const char *what, const struct error *err)
{
    auto_free char *text = cli_defuse(xstrdup(err->message), true);

    (void)fprintf(stderr, "quicksand: %s: %s\n", what, text);
}

/* ---- input ---- */

struct input {
    struct cli_server server;
    char *path;
};

/* A request whose body is what is read from now on, until nothing comes for a while. */
static int open_request(const struct input *input, int64_t length, struct http_call *stream,
                        struct error *err)
{
    const struct pair headers[] = {
        {STR("X-API-KEY"), str_of(input->server.key)},
        {STR("User-Agent"), STR("quicksand/" QUICKSAND_VERSION)},
        {STR("Content-Type"), STR("application/octet-stream")},
    };

    return cli_stream_open(stream, &input->server.api,
                           &(struct http_call_request){.method = "PUT",
                                                       .target = input->path,
                                                       .headers = headers,
                                                       .header_count = 3,
                                                       .more = length},
                           INPUT_MS, PENDING_MAX, err);
}

/* Its answer. */
static int close_request(struct http_call *stream, struct error *err)
{
    if (http_call_send_end(stream, err) < 0 || http_call_recv_all(stream, err) < 0)
        return -1;
    return stream->status / 100 == 2 ? 0 : cli_answer_error(stream, err);
}

static bool comes_soon(void)
{
    struct pollfd item = {.fd = STDIN_FILENO, .events = POLLIN};

    return poll(&item, 1, QUIET_MS) == 1;
}

/* All that comes without a pause; *more says whether anything may follow. */
static int send_burst(const struct input *input, char *bytes, bool *more, struct error *err)
{
    auto_call struct http_call stream = {.fd = -1};
    bool opened = false;

    do {
        ssize_t n = read(STDIN_FILENO, bytes, INPUT_SIZE);

        if (n < 0 && errno == EINTR)
            continue;
        *more = n > 0;
        if (n <= 0)
            break;
        if (!opened && open_request(input, -1, &stream, err) < 0)
            return -1;
        opened = true;
        if (http_call_send(&stream, str_n(bytes, (size_t)n), err) < 0)
            return -1;
    } while (!stream.cut && comes_soon());
    return opened ? close_request(&stream, err) : 0;
}

/* What a file holds goes as it is. It may grow meanwhile: the rest is read. */
static int send_file(const struct input *input, struct error *err)
{
    auto_call struct http_call stream = {.fd = -1};
    off_t at = lseek(STDIN_FILENO, 0, SEEK_CUR);
    struct stat st;

    if (at < 0 || fstat(STDIN_FILENO, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size <= at)
        return 0;
    if (open_request(input, st.st_size - at, &stream, err) < 0 ||
        http_call_send_file(&stream, STDIN_FILENO, st.st_size - at, err) < 0)
        return -1;
    return close_request(&stream, err);
}

static void close_input(const struct input *input)
{
    auto_json json_t *body = json_pack("{s:b}", "close", 1);
    struct error ignored = {0};

    (void)cli_call(&input->server, "POST", input->path, body, NULL, NULL, &ignored);
}

static void forward_input(void *arg)
{
    struct input *input = arg;
    auto_free char *bytes = xmalloc(INPUT_SIZE);
    struct error err = {0};
    bool more = send_file(input, &err) == 0;

    while (more && send_burst(input, bytes, &more, &err) == 0) {
    }
    /* One that has ended, or has closed its input, needs none. */
    if (err.code && err.code != ERROR_NOT_FOUND && err.code != ERROR_CONFLICT)
        warn("passing the input on", &err);
    close_input(input);
    cli_server_done(&input->server);
    free(input->path);
    free(input);
}

static void start_input(const struct running *running)
{
    const struct cli_runtime *run = running->run;
    struct input *input = xcalloc(1, sizeof(*input));
    struct error err;

    input->server = run->cli->server;
    input->server.key = xstrdup(run->cli->server.key);
    input->path = cli_v1_path("sandboxes", run->id, "processes", running->process_id, "input");
    if (thread_start_detached("input", THREAD_STACK_DEFAULT, forward_input, input, &err) == 0)
        return;
    warn("passing the input on", &err);
    cli_server_done(&input->server);
    free(input->path);
    free(input);
}

/* ---- records ---- */

/* Takes the type and the data of a record into `running`. */
static bool read_record(struct running *running, struct str line)
{
    struct json_scan scan = {.text = line};
    bool ok = json_scan_open(&scan, '{');

    buf_clear(&running->type);
    buf_clear(&running->data);
    while (ok && json_scan_item(&scan, '}')) {
        struct str name;

        buf_clear(&running->name);
        ok = json_scan_string(&scan, &running->name) && json_scan_open(&scan, ':');
        name = buf_str(&running->name);
        if (ok && str_is(name, "type"))
            ok = json_scan_string(&scan, &running->type);
        else if (ok && str_is(name, "data"))
            ok = json_scan_string(&scan, &running->data);
        else if (ok)
            json_scan_skip(&scan);
    }
    return ok && !scan.broken && !json_scan_peek(&scan);
}

static int write_output(struct running *running, int fd, struct error *err)
{
    struct buf *bytes = &running->bytes;
    int rc;

    buf_clear(bytes);
    if (!base64_decode(buf_str(&running->data), bytes))
        return error_set(err, ERROR_UNAVAILABLE, "the server sent output that is not base64");
    rc = fd_write_full(fd, bytes->p, bytes->len);
    return rc < 0 ? error_set_errno(err, -rc, "writing the command's output") : 0;
}

static int on_exit_record(struct running *running, const json_t *record)
{
    running->ended = true;
    running->status = (int)json_integer_value(json_object_get(record, "exit_code")) & 0xff;
    if (json_is_true(json_object_get(record, "timed_out"))) {
        running->status = EXIT_TIMED_OUT;
        (void)fprintf(stderr, "quicksand: the command reached its time limit\n");
    }
    if (str_is(json_get_str(record, "reason"), "out of memory"))
        (void)fprintf(stderr, "quicksand: the command was killed: out of memory\n");
    return 0;
}

static void on_started(struct running *running, const json_t *record)
{
    if (running->process_id)
        return;
    running->process_id = str_dup(json_get_str(record, "process_id"));
    if (running->with_stdin)
        start_input(running);
}

/* Its start, its end, or why there is none. */
static int on_life_record(struct running *running, struct str line, struct error *err)
{
    auto_json json_t *record = NULL;
    struct str type = buf_str(&running->type);

    if (json_parse(line, &record, err) < 0)
        return error_prefix(err, "the server's answer");
    if (str_is(type, "exit"))
        return on_exit_record(running, record);
    if (str_is(type, "error"))
        return error_set(err, ERROR_UNAVAILABLE, "%.*s",
                         STR_ARG(json_get_str(json_object_get(record, "error"), "message")));
    if (str_is(type, "started"))
        on_started(running, record);
    return 0;
}

/* With --json, records are written as they are, one per line. */
static int on_record(struct running *running, struct str line, struct error *err)
{
    struct str type;
    bool is_out, is_err;

    if (!read_record(running, line))
        return error_set(err, ERROR_UNAVAILABLE, "the server sent a record that is not JSON");
    type = buf_str(&running->type);
    is_out = str_is(type, "stdout");
    is_err = str_is(type, "stderr");
    if (str_is(type, "heartbeat"))
        return 0;
    if ((is_out || is_err) && !running->run->cli->json)
        return write_output(running, is_out ? STDOUT_FILENO : STDERR_FILENO, err);
    if (running->run->cli->json) {
        printf("%.*s\n", STR_ARG(line));
        if (fflush(stdout) != 0)
            return error_set_errno(err, errno, "writing the command's output");
    }
    return is_out || is_err ? 0 : on_life_record(running, line, err);
}

/* All whole lines that have come. */
static int take_records(struct running *running, struct error *err)
{
    struct buf *body = &running->stream.body;
    struct str rest = buf_str(body);
    ptrdiff_t end;

    if (running->stream.status != 200)
        return 0;
    while (!running->ended && (end = str_find(rest, '\n')) >= 0) {
        if (end > 0 && on_record(running, str_n(rest.p, (size_t)end), err) < 0)
            return -1;
        rest = str_skip(rest, (size_t)end + 1);
    }
    buf_drop(body, body->len - rest.len);
    return 0;
}

/* ---- signals ---- */

/* True when the run is to end now. */
static bool on_signal(struct running *running)
{
    const struct cli_runtime *run = running->run;
    auto_json json_t *body = NULL;
    struct signalfd_siginfo signal;
    struct error err = {0};

    if (read(run->signal_fd, &signal, sizeof(signal)) != (ssize_t)sizeof(signal))
        return false;
    running->signals++;
    running->status = 128 + (int)signal.ssi_signo;
    if (run->leave_on_signal || !running->process_id || running->signals > 2)
        return true;
    body = json_pack("{s:s}", "signal", running->signals == 1 ? "TERM" : "KILL");
    if (cli_v1(run->cli, "POST",
               cli_v1_path("sandboxes", run->id, "processes", running->process_id, "signal"), body,
               NULL, &err) == 0 ||
        err.code == ERROR_NOT_FOUND)
        return false;
    warn("left; the command may go on", &err);
    return true;
}

/* ---- the stream ---- */

static json_t *body_of(const struct running *running, struct error *err)
{
    const struct cli_runtime *run = running->run;
    auto_json json_t *body =
        json_pack("{s:b, s:s, s:b, s:I}", "stream", 1, "encoding",
                  run->cli->json ? "utf-8" : "base64", "stdin", running->with_stdin, "timeout",
                  (json_int_t)(run->timeout_s ? run->timeout_s : LIFE_S));

    if (cli_v1_command(body, run->argv, run->argc, err) < 0 ||
        cli_v1_set(body, "cwd", run->cwd, err) < 0 || cli_v1_set(body, "user", run->user, err) < 0)
        return NULL;
    if (run->keep)
        (void)json_object_set_new(body, "keep_output", json_true());
    if (run->env)
        (void)json_object_set_new(body, "env", json_deep_copy(run->env));
    return json_incref(body);
}

static int begin(struct running *running, struct error *err)
{
    const struct cli_server *server = &running->run->cli->server;
    auto_free char *path = cli_v1_path("sandboxes", running->run->id, "execute"), *text = NULL;
    auto_json json_t *body = body_of(running, err);
    const struct pair headers[] = {
        {STR("X-API-KEY"), str_of(server->key)},
        {STR("User-Agent"), STR("quicksand/" QUICKSAND_VERSION)},
        {STR("Content-Type"), STR("application/json")},
        {STR("Accept"), STR("application/x-ndjson")},
    };

    if (!body)
        return -1;
    text = json_text(body);
    return cli_stream_open(&running->stream, &server->api,
                           &(struct http_call_request){.method = "POST",
                                                       .target = path,
                                                       .headers = headers,
                                                       .header_count = 4,
                                                       .body = str_of(text)},
                           CONNECT_MS, PENDING_MAX, err);
}

/* The answer is complete. */
static int finish(struct running *running, struct error *err)
{
    if (running->stream.status != 200)
        return cli_answer_error(&running->stream, err);
    return running->ended ? 0
                          : error_set(err, ERROR_UNAVAILABLE,
                                      "the server ended the stream before the command did");
}

/* 0 when it has ended, or was ended by a signal. */
static int pump(struct running *running, struct error *err)
{
    struct pollfd items[] = {{.fd = running->stream.fd, .events = POLLIN},
                             {.fd = running->run->signal_fd, .events = POLLIN}};

    for (;;) {
        int got = http_call_take(&running->stream, err);

        if (got < 0 || take_records(running, err) < 0)
            return running->ended ? 0 : -1;
        if (running->ended)
            return 0;
        if (got == 0)
            return finish(running, err);
        if (poll(items, 2, got == HTTP_CALL_LATER ? -1 : 0) < 0 && errno != EINTR)
            return error_set_errno(err, errno, "poll");
        if (items[1].revents && on_signal(running))
            return 0;
        items[1].revents = 0;
    }
}

int cli_runtime_run(const struct cli_runtime *run)
{
    struct running running = {.run = run,
                              .stream = {.fd = -1},
                              .with_stdin =
                                  !run->no_stdin && (run->interactive || cli_runtime_has_stdin())};
    struct buf *bufs[] = {&running.name, &running.type, &running.data, &running.bytes};
    struct error err = {0};
    int rc;

    for (size_t i = 0; i < sizeof(bufs) / sizeof(bufs[0]); i++)
        buf_init(bufs[i], PENDING_MAX);
    rc = begin(&running, &err);
    if (rc == 0)
        rc = pump(&running, &err);
    for (size_t i = 0; i < sizeof(bufs) / sizeof(bufs[0]); i++)
        buf_done(bufs[i]);
    http_call_done(&running.stream);
    free(running.process_id);
    return rc < 0 ? cli_fail(&err) : running.status;
}

/* pty: a terminal in a sandbox. Our own is raw meanwhile, so that every key reaches the one inside; a
 * change of its size is passed on. When stdin is no terminal, its end is told as Ctrl-D, again
 * and again until the shell has ended: one that is only just starting loses it. */
#include "cli/core/cli_terminal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "base/fd.h"
#include "base/id.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_shape.h"
#include "protocol/websocket/websocket.h"

enum {
    INPUT_SIZE = 16 * 1024,
    COLS = 80,
    ROWS = 24,
    END_AGAIN_MS = 500,
    OPEN_MS = 60 * 1000,
    READ_MAX = 16 * 1024 * 1024,
    MESSAGE_MAX = 8 * 1024 * 1024,
};

struct terminal {
    struct http_call stream;
    struct websocket_parser parser;
    struct termios saved;
    bool raw;
    bool ready;  /* the shell is there: input may go */
    bool closed; /* by the server */
    bool input_ended;
    int signal_fd;
    int status;
    struct winsize told; /* the size that the other side knows */
};

static struct winsize size_now(void)
{
    struct winsize size = {0};

    if (ioctl(STDIN_FILENO, TIOCGWINSZ, &size) < 0 || !size.ws_col || !size.ws_row)
        size = (struct winsize){.ws_row = ROWS, .ws_col = COLS};
    return size;
}

static void make_raw(struct terminal *terminal)
{
    struct termios raw;

    if (!isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, &terminal->saved) < 0)
        return;
    raw = terminal->saved;
    cfmakeraw(&raw);
    terminal->raw = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
}

static void make_normal(struct terminal *terminal)
{
    if (terminal->raw)
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &terminal->saved);
    terminal->raw = false;
}

/* SIGWINCH too: it is read together with those that end us. */
static int open_signals(void)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGWINCH);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGHUP);
    (void)sigaddset(&set, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int open_websocket(struct terminal *terminal, const struct cli_server *server,
                          const char *target, struct error *err)
{
    struct http_call *stream = &terminal->stream;
    unsigned char random[16];
    char key[BASE64_LEN(sizeof(random))];
    const struct http_header headers[] = {
        {STR("X-API-KEY"), str_of(server->key)},
        {STR("Upgrade"), STR("websocket")},
        {STR("Sec-WebSocket-Version"), STR("13")},
        {STR("Sec-WebSocket-Key"), str_n(key, sizeof(key))},
    };
    const struct http_call_request request = {.method = "GET",
                                              .target = target,
                                              .headers = headers,
                                              .header_count = 4,
                                              .after = HTTP_AFTER_UPGRADE};

    random_bytes(random, sizeof(random));
    base64_encode(key, random, sizeof(random));
    if (cli_stream_open(stream, &server->api, &request, OPEN_MS, READ_MAX, err) < 0 ||
        http_call_recv_head(stream, err) < 0)
        return -1;
    if (stream->raw)
        return 0;
    if (http_call_recv_all(stream, err) < 0)
        return -1;
    if (stream->status / 100 == 2)
        return error_set(err, ERROR_UNAVAILABLE, "the server did not open a WebSocket");
    return cli_answer_error(stream, err);
}

static int send_message(struct terminal *terminal, enum websocket_opcode opcode, struct str data,
                        struct error *err)
{
    auto_buf struct buf frame = {0};

    buf_init(&frame, data.len + WEBSOCKET_HEAD_MAX);
    websocket_add(&frame, WEBSOCKET_CLIENT, opcode, data);
    return http_call_send(&terminal->stream, buf_str(&frame), err);
}

static void on_close(struct terminal *terminal, struct str reason)
{
    struct str words = STR("exited with ");
    int64_t code;

    terminal->closed = true;
    if (str_starts(reason, words) && str_to_i64(str_skip(reason, words.len), &code)) {
        terminal->status = (int)code & 0xff;
        return;
    }
    terminal->status = CLI_FAILED;
    make_normal(terminal);
    (void)fprintf(stderr, "quicksand: the terminal was closed: %.*s\n", STR_ARG(reason));
}

static int on_message(struct terminal *terminal, const struct websocket_message *message,
                      struct error *err)
{
    int rc;

    switch (message->opcode) {
    case WEBSOCKET_BINARY:
        rc = fd_write_full(STDOUT_FILENO, message->data.p, message->data.len);
        return rc < 0 ? error_set_errno(err, -rc, "writing to the terminal") : 0;
    case WEBSOCKET_TEXT:
        terminal->ready = true; /* the only text there is */
        return 0;
    case WEBSOCKET_PING:
        return send_message(terminal, WEBSOCKET_PONG, message->data, err);
    case WEBSOCKET_CLOSE:
        on_close(terminal, message->data);
        return 0;
    case WEBSOCKET_PONG:
    case WEBSOCKET_CONTINUATION:
        break;
    }
    return 0;
}

/* Everything that has come. 0 or -1. */
static int take(struct terminal *terminal, struct error *err)
{
    struct http_call *stream = &terminal->stream;
    struct websocket_message message;

    for (;;) {
        struct str bytes = buf_str(&stream->body);
        int rc;

        while ((rc = websocket_parse(&terminal->parser, &bytes, &message)) > 0)
            if (on_message(terminal, &message, err) < 0)
                return -1;
        if (rc < 0)
            return error_set(err, ERROR_UNAVAILABLE,
                             "the server broke the protocol of WebSockets (%u)", message.code);
        if (terminal->closed)
            return 0;
        buf_clear(&stream->body);
        rc = http_call_take(stream, err);
        if (rc == 0)
            return error_set(err, ERROR_UNAVAILABLE, "the server closed the connection");
        if (rc != 1)
            return rc < 0 ? -1 : 0;
    }
}

/* Also once it is ready: nobody could be told of what changed before. */
static int send_size(struct terminal *terminal, struct error *err)
{
    struct winsize size = size_now();
    char text[80];

    if (size.ws_col == terminal->told.ws_col && size.ws_row == terminal->told.ws_row)
        return 0;
    terminal->told = size;
    (void)snprintf(text, sizeof(text), "{\"type\":\"resize\",\"cols\":%u,\"rows\":%u}", size.ws_col,
                   size.ws_row);
    return send_message(terminal, WEBSOCKET_TEXT, str_of(text), err);
}

static int on_signal(struct terminal *terminal, struct error *err)
{
    struct signalfd_siginfo signal;

    if (read(terminal->signal_fd, &signal, sizeof(signal)) != (ssize_t)sizeof(signal))
        return 0;
    if (signal.ssi_signo == SIGWINCH)
        return terminal->ready ? send_size(terminal, err) : 0;
    terminal->closed = true;
    terminal->status = 128 + (int)signal.ssi_signo;
    return 0;
}

static int send_end(struct terminal *terminal, struct error *err)
{
    return send_message(terminal, WEBSOCKET_BINARY, STR("\x04"), err);
}

static int on_input(struct terminal *terminal, struct error *err)
{
    char bytes[INPUT_SIZE];
    ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));

    if (n < 0 && errno == EINTR)
        return 0;
    if (n <= 0) {
        terminal->input_ended = true;
        return send_end(terminal, err);
    }
    return send_message(terminal, WEBSOCKET_BINARY, str_n(bytes, (size_t)n), err);
}

static int pump(struct terminal *terminal, struct error *err)
{
    for (;;) {
        bool listen = terminal->ready && !terminal->input_ended;
        struct pollfd items[] = {{.fd = terminal->stream.fd, .events = POLLIN},
                                 {.fd = terminal->signal_fd, .events = POLLIN},
                                 {.fd = listen ? STDIN_FILENO : -1, .events = POLLIN}};
        int rc;

        if (take(terminal, err) < 0)
            return -1;
        if (terminal->closed)
            return 0;
        if (terminal->ready && !listen && !terminal->input_ended) { /* it has just become ready */
            if (send_size(terminal, err) < 0)
                return -1;
            continue;
        }
        rc = poll(items, 3, terminal->input_ended ? END_AGAIN_MS : -1);
        if (rc < 0 && errno != EINTR)
            return error_set_errno(err, errno, "poll");
        if (rc == 0 && send_end(terminal, err) < 0)
            return -1;
        if (items[1].revents && on_signal(terminal, err) < 0)
            return -1;
        if (!terminal->closed && items[2].revents && on_input(terminal, err) < 0)
            return -1;
    }
}

int cli_terminal_run(struct cli *cli, const char *path)
{
    auto_close int signal_fd = open_signals();
    struct terminal terminal = {.stream = {.fd = -1}, .signal_fd = signal_fd, .told = size_now()};
    auto_free char *target = xasprintf("%s%ccols=%u&rows=%u", path, strchr(path, '?') ? '&' : '?',
                                       terminal.told.ws_col, terminal.told.ws_row);
    struct error err = {0};
    int rc;

    websocket_parser_init(&terminal.parser, WEBSOCKET_SERVER, MESSAGE_MAX);
    rc = open_websocket(&terminal, &cli->server, target, &err);
    if (rc == 0) {
        make_raw(&terminal);
        rc = pump(&terminal, &err);
        make_normal(&terminal);
    }
    http_call_done(&terminal.stream);
    websocket_parser_done(&terminal.parser);
    return rc < 0 ? cli_fail(&err) : terminal.status;
}

static int run_pty(struct cli *cli, int argc, char **argv)
{
    const char *cwd = NULL, *id = NULL;
    const struct cli_option table[] = {
        {"cwd", 'w', CLI_TEXT, &cwd, "DIR", "where the shell starts"},
        {"terminal", 0, CLI_TEXT, &id, "ID", "one that is open already"},
        {.name = NULL},
    };
    auto_free char *base = NULL;
    auto_buf struct buf path = {0};
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &cli_pty_command, table, CLI_ARGS_ANYWHERE, argc, argv, &operands,
                             &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count != 1)
        return cli_usage(&cli_pty_command, "needs one sandbox");
    if (cli_connect(cli, &err) < 0)
        return cli_fail(&err);
    base = cli_v1_path("sandboxes", operands[0], "terminal");
    buf_init(&path, HTTP_URL_MAX);
    (void)buf_printf(&path, "%s?cwd=", base);
    cli_escape(&path, cwd ? cwd : "");
    (void)buf_add_str(&path, STR("&terminal_id="));
    cli_escape(&path, id ? id : "");
    return cli_terminal_run(cli, path.p);
}

const struct cli_command cli_pty_command = {
    "pty", "[OPTION...] SANDBOX",
    "Open a terminal in a sandbox of the runtime.\nThe exit status is the shell's.", run_pty};

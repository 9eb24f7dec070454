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
#include "cli/core/cli_names.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_out.h"
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
    char id[64];         /* by which one comes back */
    const char *detach;  /* keys that leave it running; NULL or "": none */
    size_t held;         /* how many of them came just now, and wait */
    bool left;
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
    const struct pair headers[] = {
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
    return cli_upgrade(stream, &server->api, &request, OPEN_MS, READ_MAX, "WebSocket", err);
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
    struct error err = {0};
    int64_t code;

    terminal->closed = true;
    if (str_starts(reason, words) && str_to_i64(str_skip(reason, words.len), &code)) {
        terminal->status = (int)code & 0xff;
        return;
    }
    make_normal(terminal);
    (void)error_set(&err, ERROR_UNAVAILABLE, "the terminal was closed: %.*s", STR_ARG(reason));
    terminal->status = cli_fail(&err);
}

static void on_ready(struct terminal *terminal, struct str text)
{
    auto_json json_t *json = NULL;
    struct error ignored = {0};

    terminal->ready = true;
    if (json_parse(text, &json, &ignored) == 0)
        (void)snprintf(terminal->id, sizeof(terminal->id), "%.*s",
                       STR_ARG(json_get_str(json, "terminal_id")));
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
        on_ready(terminal, message->data); /* the only text there is */
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
    auto_buf struct buf text = {0};

    if (size.ws_col == terminal->told.ws_col && size.ws_row == terminal->told.ws_row)
        return 0;
    terminal->told = size;
    buf_init(&text, 80);
    json_out_open(&text, NULL, '{');
    json_out_str(&text, "type", STR("resize"));
    json_out_uint(&text, "cols", size.ws_col);
    json_out_uint(&text, "rows", size.ws_row);
    json_out_close(&text, "}");
    return send_message(terminal, WEBSOCKET_TEXT, buf_str(&text), err);
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

bool cli_terminal_keys(const char *text, char out[CLI_TERMINAL_KEYS_SIZE])
{
    struct str rest = str_of(text);
    size_t count = 0;

    while (rest.len) {
        struct str key = str_split(&rest, ',');

        if (count + 1 == CLI_TERMINAL_KEYS_SIZE)
            return false;
        if (key.len == 6 && str_starts(key, STR("ctrl-")) && key.p[5] >= 'a' && key.p[5] <= 'z')
            out[count++] = (char)(key.p[5] - 'a' + 1);
        else if (key.len == 6 && str_starts(key, STR("ctrl-")) && strchr("@[\\]^_", key.p[5]))
            out[count++] = (char)(key.p[5] - '@');
        else if (key.len == 1 && key.p[0] > ' ' && key.p[0] < 0x7f)
            out[count++] = key.p[0];
        else
            return false;
    }
    out[count] = 0;
    return true;
}

/* What is to be sent of these keys: those that may be the beginning of leaving wait for the next. */
static void add_keys(struct terminal *terminal, struct str bytes, struct buf *out)
{
    const char *keys = terminal->detach;

    for (size_t i = 0; i < bytes.len && !terminal->left; i++) {
        if (bytes.p[i] != keys[terminal->held]) {
            (void)buf_add_str(out, str_n(keys, terminal->held));
            terminal->held = 0;
        }
        if (bytes.p[i] == keys[terminal->held])
            terminal->held++;
        else
            (void)buf_add_char(out, bytes.p[i]);
        terminal->left = !keys[terminal->held];
    }
}

static int send_keys(struct terminal *terminal, struct str bytes, struct error *err)
{
    auto_buf struct buf out = {0};

    if (!terminal->raw || !terminal->detach || !terminal->detach[0])
        return send_message(terminal, WEBSOCKET_BINARY, bytes, err);
    buf_init(&out, bytes.len + CLI_TERMINAL_KEYS_SIZE);
    add_keys(terminal, bytes, &out);
    terminal->closed |= terminal->left;
    return out.len ? send_message(terminal, WEBSOCKET_BINARY, buf_str(&out), err) : 0;
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
    return send_keys(terminal, str_n(bytes, (size_t)n), err);
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

int cli_terminal_run(struct cli *cli, const char *path, const char *detach)
{
    auto_close int signal_fd = open_signals();
    struct terminal terminal = {
        .stream = {.fd = -1}, .signal_fd = signal_fd, .told = size_now(), .detach = detach};
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
    if (rc == 0 && terminal.left)
        (void)fprintf(
            stderr, "\r\nleft; 'quicksand pty --terminal %s SANDBOX' comes back within a minute\n",
            terminal.id);
    return rc < 0 ? cli_fail(&err) : terminal.status;
}

static void add_query(struct buf *path, const char *name, const char *value)
{
    if (!value)
        return;
    (void)buf_printf(path, "&%s=", name);
    cli_escape(path, value);
}

int cli_terminal_in(struct cli *cli, const struct cli_terminal *wish)
{
    auto_free char *base = cli_v1_path("sandboxes", wish->sandbox, "terminal"), *argv = NULL,
                   *env = NULL;
    auto_json json_t *words = json_array();
    auto_buf struct buf path = {0};
    struct error err = {0};

    for (int i = 0; i < wish->argc; i++)
        if (json_array_append_new(words, json_string(wish->argv[i])) < 0) {
            (void)error_set(&err, ERROR_INVALID, "the command is not UTF-8");
            return cli_fail(&err);
        }
    argv = wish->argc ? json_text(words) : NULL;
    env = json_object_size(wish->env) ? json_text(wish->env) : NULL;
    buf_init(&path, HTTP_URL_MAX);
    (void)buf_printf(&path, "%s?terminal_id=%s", base, wish->terminal_id ? wish->terminal_id : "");
    add_query(&path, "cwd", wish->cwd);
    add_query(&path, "user", wish->user);
    add_query(&path, "argv", argv);
    add_query(&path, "env", env);
    if (!path.overflowed)
        return cli_terminal_run(cli, path.p, wish->detach);
    (void)error_set(&err, ERROR_LIMIT, "the command and its variables are too long for a terminal");
    return cli_fail(&err);
}

static int run_pty(struct cli *cli, int argc, char **argv)
{
    struct cli_terminal wish = {0};
    const char *detach = CLI_TERMINAL_DETACH;
    const struct cli_option table[] = {
        {"cwd", 'w', CLI_TEXT, &wish.cwd, "DIR", "where the shell starts"},
        {"user", 'u', CLI_TEXT, &wish.user, "USER", "who it is (user)"},
        {"terminal", 0, CLI_TEXT, &wish.terminal_id, "ID", "one that is open already"},
        {"detach-keys", 0, CLI_TEXT, &detach, "KEYS",
         "leave with these (ctrl-p,ctrl-q); '' for none"},
        {.name = NULL},
    };
    char keys[CLI_TERMINAL_KEYS_SIZE];
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &cli_pty_command, table, CLI_ARGS_ANYWHERE, argc, argv, &operands,
                             &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count == 0)
        return cli_usage(&cli_pty_command, "needs a sandbox");
    if (!cli_terminal_keys(detach, keys))
        return cli_usage(&cli_pty_command, "--detach-keys needs keys like ctrl-p,ctrl-q, not '%s'",
                         detach);
    if (cli_connect_to(cli, operands, 1, &err) < 0)
        return cli_fail(&err);
    wish.sandbox = operands[0];
    wish.detach = keys;
    wish.argv = operands + 1;
    wish.argc = count - 1;
    return cli_terminal_in(cli, &wish);
}

const struct cli_command cli_pty_command = {
    "pty", "[OPTION...] SANDBOX [-- COMMAND [ARG...]]",
    "Open a terminal in a sandbox, with a shell or a command.\n"
    "The exit status is its own. Ctrl-P Ctrl-Q leaves it running; it can be come back to for a\n"
    "minute.",
    run_pty,
    .examples = "quicksand pty i...\n"
                "quicksand pty -u root -w /tmp key:my-task\n"
                "quicksand pty i... -- htop"};

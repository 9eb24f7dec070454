/* How it works
 *
 * A sandbox on the server's own engine is reached as one of the engine: output streams, input is
 * passed on, signals arrive. The runtime is told every now and then that it is in use. Sandboxes
 * elsewhere are reached by one call that answers when the command has ended; input goes along as a
 * whole and output is cut at a limit, which is told.
 *
 * Which of both: the engine is asked for the sandbox by the id the runtime gives it. */
#include "cli/cli_runtime.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "base/fd.h"
#include "cli/cli_process.h"
#include "cli/cli_up.h"
#include "cli/cli_v1.h"
#include "json/json_shape.h"

enum {
    EXIT_TIMED_OUT = 124,
    USED_S = 30,
    OUTPUT_MAX = 2 * 1024 * 1024, /* twice, in base64, below what a JSON text may be */
    ANSWER_MAX = 8 * 1024 * 1024,
    INPUT_MAX = 512 * 1024,
    CONNECT_MS = 30 * 1000,
};

int cli_runtime_signals(void)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

bool cli_runtime_has_stdin(void)
{
    struct stat st;

    return fstat(STDIN_FILENO, &st) == 0 && !isatty(STDIN_FILENO);
}

void cli_runtime_line(char *const **argv, int *argc, char *out[CLI_RUNTIME_SHELL])
{
    static const char script[] =
        "command -v bash >/dev/null && exec bash -lc \"$0\"; exec sh -c \"$0\"";

    if (*argc != 1 || !strpbrk((*argv)[0], " \t\n"))
        return;
    out[0] = (char *)(uintptr_t) "/bin/sh";
    out[1] = (char *)(uintptr_t) "-c";
    out[2] = (char *)(uintptr_t)script;
    out[3] = (*argv)[0];
    out[4] = NULL;
    *argv = out;
    *argc = 4;
}

/* ---- on the engine ---- */

static void tell_used(const struct cli_process *process)
{
    const struct cli_runtime *run = process->keep_alive_arg;
    auto_json json_t *body = json_object();
    struct error err = {0};

    if (cli_v1(run->cli, "POST", cli_v1_path("sandboxes", run->id, "resume"), body, NULL, &err) < 0)
        (void)fprintf(stderr, "quicksand: the sandbox's time could not be extended: %s\n",
                      err.message);
}

static int stream(const struct cli_runtime *run, const struct cli_sandbox *sandbox, int64_t idle_s)
{
    struct cli_process process = {
        .server = &run->cli->server,
        .sandbox = sandbox,
        .argv = run->argv,
        .argc = run->argc,
        .env = run->env,
        .cwd = run->cwd,
        .user = run->user,
        .with_stdin = !run->no_stdin && cli_runtime_has_stdin(),
        .signal_fd = run->signal_fd,
        .leave_on_signal = run->leave_on_signal,
        .limit_s = run->timeout_s,
        .keep_alive_s = idle_s > 0 && idle_s < 3 * USED_S ? (uint32_t)(idle_s + 2) / 3 : USED_S,
        .keep_alive = tell_used,
        .keep_alive_arg = (void *)(uintptr_t)run,
    };
    struct error err = {0};
    int status = 0;

    if (cli_process_run(&process, &status, &err) < 0)
        return cli_fail(&err);
    return status;
}

/* ---- elsewhere ---- */

static int read_input(json_t *body, struct error *err)
{
    auto_buf struct buf bytes = {0};
    auto_free char *text = NULL;
    int rc;

    buf_init(&bytes, INPUT_MAX);
    rc = cli_v1_read_stdin(&bytes);
    if (rc == -EFBIG)
        return error_set(err, ERROR_LIMIT,
                         "input for a sandbox elsewhere can be %d KiB: copy a file with "
                         "'quicksand cp' and let the command read that",
                         INPUT_MAX / 1024);
    if (rc < 0)
        return error_set_errno(err, -rc, "reading the input");
    text = xcalloc(1, BASE64_LEN(bytes.len) + 1);
    base64_encode(text, bytes.p, bytes.len);
    (void)json_object_set_new(body, "input_base64", json_string(text));
    return 0;
}

static json_t *execute_body(const struct cli_runtime *run, struct error *err)
{
    auto_json json_t *body =
        json_pack("{s:s, s:i}", "encoding", "base64", "output_limit", (int)OUTPUT_MAX);
    json_t *argv = json_array();

    (void)json_object_set_new(body, "argv", argv);
    for (int i = 0; i < run->argc; i++)
        if (json_array_append_new(argv, json_string(run->argv[i])) < 0) {
            (void)error_set(err, ERROR_INVALID, "the command is not UTF-8");
            return NULL;
        }
    if (cli_v1_set(body, "cwd", run->cwd, err) < 0 || cli_v1_set(body, "user", run->user, err) < 0)
        return NULL;
    if (run->env)
        (void)json_object_set_new(body, "env", json_deep_copy(run->env));
    if (run->timeout_s)
        (void)json_object_set_new(body, "timeout", json_integer(run->timeout_s));
    if (!run->no_stdin && cli_runtime_has_stdin() && read_input(body, err) < 0)
        return NULL;
    return json_incref(body);
}

/* Waits for the answer and for a signal. 1 = a signal came (its number in *out_signal). */
static int await(struct cli_stream *stream, int signal_fd, int *out_signal, struct error *err)
{
    struct pollfd items[] = {{.fd = stream->fd, .events = POLLIN},
                             {.fd = signal_fd, .events = POLLIN}};
    struct signalfd_siginfo signal;

    for (;;) {
        int rc = cli_stream_take(stream, err);

        if (rc <= 0)
            return rc;
        if (poll(items, 2, rc == CLI_STREAM_LATER ? -1 : 0) < 0 && errno != EINTR)
            return error_set_errno(err, errno, "poll");
        if (items[1].revents && read(signal_fd, &signal, sizeof(signal)) > 0) {
            *out_signal = (int)signal.ssi_signo;
            return 1;
        }
    }
}

static int write_out(const json_t *answer, const char *name, int fd, struct error *err)
{
    auto_buf struct buf bytes = {0};
    int rc;

    buf_init(&bytes, ANSWER_MAX);
    if (!base64_decode(json_get_str(answer, name), &bytes))
        return error_set(err, ERROR_UNAVAILABLE, "the server's answer has a broken %s", name);
    rc = fd_write_full(fd, bytes.p, bytes.len);
    return rc < 0 ? error_set_errno(err, -rc, "writing the command's output") : 0;
}

static int tell_result(const json_t *answer, struct error *err)
{
    if (write_out(answer, "stdout", STDOUT_FILENO, err) < 0 ||
        write_out(answer, "stderr", STDERR_FILENO, err) < 0)
        return cli_fail(err);
    if (json_is_true(json_object_get(answer, "truncated")))
        (void)fprintf(stderr,
                      "quicksand: the output was cut at %d MiB: let the command write a "
                      "file and fetch that with 'quicksand cp'\n",
                      OUTPUT_MAX / 1024 / 1024);
    if (json_is_true(json_object_get(answer, "timed_out"))) {
        (void)fprintf(stderr, "quicksand: the command reached its time limit\n");
        return EXIT_TIMED_OUT;
    }
    return (int)json_integer_value(json_object_get(answer, "exit_code")) & 0xff;
}

static int execute(const struct cli_runtime *run)
{
    auto_stream struct cli_stream stream = {.fd = -1};
    auto_free char *path = cli_v1_path("sandboxes", run->id, "execute"), *text = NULL;
    auto_json json_t *body = NULL, *answer = NULL;
    struct http_header headers[] = {
        {STR("X-API-KEY"), str_of(run->cli->server.key)},
        {STR("Content-Type"), STR("application/json")},
    };
    struct error err = {0};
    int signal = 0, rc;

    body = execute_body(run, &err);
    if (!body)
        return cli_fail(&err);
    text = json_text(body);
    if (cli_stream_open(
            &stream, &run->cli->server.api,
            &(struct cli_request){"POST", path, headers, 2, (int64_t)strlen(text), false},
            CONNECT_MS, ANSWER_MAX, &err) < 0 ||
        cli_stream_send(&stream, str_of(text), &err) < 0)
        return cli_fail(&err);
    rc = await(&stream, run->signal_fd, &signal, &err);
    if (rc > 0) {
        if (!run->leave_on_signal)
            (void)fprintf(stderr, "quicksand: left; the command may go on in '%s'\n", run->id);
        return 128 + signal;
    }
    if (rc == 0 && stream.status / 100 != 2)
        rc = cli_answer_error(&stream, &err);
    if (rc < 0 || json_parse(buf_str(&stream.body), &answer, &err) < 0)
        return cli_fail(&err);
    return tell_result(answer, &err);
}

/* ---- either ---- */

int cli_runtime_run(const struct cli_runtime *run)
{
    auto_json json_t *answer = NULL, *body = json_object();
    struct cli_sandbox sandbox = {0};
    auto_free char *external = NULL;
    struct error err = {0};
    int status;

    if (cli_v1(run->cli, "POST", cli_v1_path("sandboxes", run->id, "resume"), body, &answer, &err) <
        0)
        return cli_fail(&err);
    external = str_dup(json_get_str(answer, "external_id"));
    if (!external[0] || cli_sandbox_get(&run->cli->server, external, &sandbox, &err) < 0)
        return execute(run);
    status = stream(run, &sandbox, json_integer_value(json_object_get(answer, "idle_timeout")));
    cli_sandbox_done(&sandbox);
    return status;
}

/* ---- run ---- */

/* "https://host/owner/app.git" -> "app". */
static char *repo_name(const char *repo)
{
    struct str rest = str_of(repo), name = STR("repo");

    while (rest.p) {
        struct str part = str_split(&rest, '/');

        if (part.len)
            name = part;
    }
    if (str_ends(name, STR(".git")))
        name.len -= 4;
    return name.len && name.p[0] != '.' && name.p[0] != '-' ? str_dup(name) : xstrdup("repo");
}

/* The token, when one is passed to the command, is asked for by git and never an argument. */
#define CLONE                                                                             \
    "mkdir -p \"$HOME/workspace\" && cd \"$HOME/workspace\" && "                          \
    "GIT_TERMINAL_PROMPT=0 git -c credential.helper= -c 'credential.helper=!f() { "       \
    "[ -n \"${GITHUB_TOKEN:-$GIT_TOKEN}\" ] || exit 0; "                                  \
    "echo username=x-access-token; echo \"password=${GITHUB_TOKEN:-$GIT_TOKEN}\"; }; f' " \
    "clone -q -- \"$1\" \"$2\" >&2 && cd \"$2\" && pwd"

/* *out_dir: where it is. */
static int clone(const struct cli_runtime *run, const char *repo, char **out_dir, struct error *err)
{
    auto_free char *name = repo_name(repo);
    auto_json json_t *body =
        json_pack("{s:[s,s,s,s,s,s]}", "argv", "/bin/sh", "-c", CLONE, "sh", repo, name);
    auto_json json_t *answer = NULL;
    struct str text;

    if (!body)
        return error_set(err, ERROR_INVALID, "the repository's URL is not UTF-8");
    if (run->env)
        (void)json_object_set_new(body, "env", json_deep_copy(run->env));
    if (cli_v1(run->cli, "POST", cli_v1_path("sandboxes", run->id, "execute"), body, &answer, err) <
        0)
        return -1;
    if (json_integer_value(json_object_get(answer, "exit_code")) != 0) {
        text = str_trim(json_get_str(answer, "stderr"));
        return error_set(err, ERROR_CONFLICT, "the repository could not be cloned: %.*s",
                         STR_ARG(text));
    }
    *out_dir = str_dup(str_trim(json_get_str(answer, "stdout")));
    return 0;
}

static bool interrupted(const struct cli_runtime *run, int *out_status)
{
    struct signalfd_siginfo signal;

    if (read(run->signal_fd, &signal, sizeof(signal)) != (ssize_t)sizeof(signal))
        return false;
    *out_status = 128 + (int)signal.ssi_signo;
    return true;
}

static int clone_and_run(struct cli_runtime *run, const char *repo)
{
    auto_free char *dir = NULL;
    struct error err = {0};
    int status;

    if (interrupted(run, &status))
        return status;
    if (repo) {
        if (clone(run, repo, &dir, &err) < 0)
            return cli_fail(&err);
        if (!run->cwd)
            run->cwd = dir;
        if (interrupted(run, &status))
            return status;
    }
    return cli_runtime_run(run);
}

int cli_runtime_throw_away(struct cli_runtime *run, struct cli_up *up, const char *repo)
{
    auto_json json_t *body = NULL, *answer = NULL;
    auto_close int signal_fd = -1;
    auto_free char *id = NULL;
    struct error err = {0};
    int status;

    body = cli_up_body(&cli_run_command, up, &status);
    if (!body)
        return status;
    if (cli_connect(run->cli, &err) < 0)
        return cli_fail(&err);
    run->signal_fd = signal_fd = cli_runtime_signals();
    run->leave_on_signal = true;
    if (cli_v1(run->cli, "POST", cli_v1_path("sandboxes"), body, &answer, &err) < 0)
        return cli_fail(&err);
    run->id = id = str_dup(json_get_str(answer, "id"));
    status = clone_and_run(run, repo);
    if (cli_v1(run->cli, "DELETE", cli_v1_path("sandboxes", id), NULL, NULL, &err) < 0 &&
        err.code != ERROR_NOT_FOUND)
        (void)fprintf(stderr, "quicksand: the sandbox %s could not be removed: %s\n", id,
                      err.message);
    return status;
}

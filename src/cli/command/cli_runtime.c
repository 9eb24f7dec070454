/* What commands in sandboxes of the runtime have in common, and `run`: up, clone, the command, kill. */
#include "cli/command/cli_runtime.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "cli/command/commands.h"
#include "cli/core/cli_terminal.h"
#include "cli/core/cli_up.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_shape.h"

/* A throw-away sandbox outlives a `run` that was killed by at most this. */
enum { RUN_LEASE_S = 60 };

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

int cli_runtime_terminal(const struct cli_runtime *run, const char *detach)
{
    struct cli_terminal wish = {.sandbox = run->id,
                                .cwd = run->cwd,
                                .user = run->user,
                                .argv = run->argv,
                                .argc = run->argc,
                                .env = run->env,
                                .detach = detach};
    char *line[CLI_RUNTIME_SHELL];

    cli_runtime_line(&wish.argv, &wish.argc, line);
    return cli_terminal_in(run->cli, &wish);
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
    return run->terminal ? cli_runtime_terminal(run, NULL) : cli_runtime_run(run);
}

int cli_runtime_throw_away(struct cli_runtime *run, struct cli_up *up, const char *repo)
{
    auto_json json_t *body = NULL, *answer = NULL;
    auto_close int signal_fd = -1;
    auto_free char *id = NULL;
    struct error err = {0};
    int status;

    if (!up->idle_s)
        up->idle_s = RUN_LEASE_S;
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

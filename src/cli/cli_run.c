/* run, exec, create. */
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "cli/cli_internal.h"
#include "cli/cli_process.h"
#include "json/json_shape.h"

enum {
    RUN_LEASE_S = 60, /* a throw-away sandbox outlives a killed `run` by at most this */
    RUN_RENEW_S = 20,
    CREATE_TIMEOUT_S = 300,
    EXIT_TIMED_OUT = 124, /* as timeout(1) */
};

struct run_options {
    const char *template_name;
    int64_t timeout_s;
    struct cli_list env, metadata;
    const char *cwd, *user;
    bool no_stdin, no_internet;
};

static void options_done(struct run_options *options)
{
    cli_list_done(&options->env);
    cli_list_done(&options->metadata);
}

/* "K=V" items as an object; NULL (and a usage message) when one is not. */
static json_t *pairs(const struct cli_command *command, const struct cli_list *list,
                     const char *option)
{
    json_t *object = json_object();

    for (size_t i = 0; i < list->count; i++) {
        struct str value = str_of(list->items[i]);
        struct str name = str_split(&value, '=');
        auto_free char *key = str_dup(name);

        if (!name.len || !value.p) {
            (void)cli_usage(command, "--%s needs NAME=VALUE, not '%s'", option, list->items[i]);
            json_decref(object);
            return NULL;
        }
        if (json_object_set_new(object, key, json_str(value)) < 0) {
            (void)cli_usage(command, "--%s: '%s' is not UTF-8", option, key);
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

/* The answer of the server, or NULL with err. */
static json_t *create(struct cli *cli, const struct run_options *options, json_t *env,
                      json_t *metadata, struct error *err)
{
    auto_json json_t *body =
        json_pack("{s:s,s:I,s:b,s:b,s:O,s:O}", "templateID", options->template_name, "timeout",
                  (json_int_t)options->timeout_s, "secure", 1, "allow_internet_access",
                  !options->no_internet, "envVars", env, "metadata", metadata);
    json_t *answer = NULL;

    if (!body) {
        (void)error_set(err, ERROR_INVALID, "the template's name is not UTF-8");
        return NULL;
    }
    if (cli_call(&cli->server, "POST", "/sandboxes", body, &answer, NULL, err) < 0)
        return NULL;
    return answer;
}

static void kill_sandbox(const struct cli_server *server, const struct cli_sandbox *sandbox)
{
    auto_free char *target = xasprintf("/sandboxes/%s", sandbox->id);
    struct error err = {0};

    if (cli_call(server, "DELETE", target, NULL, NULL, NULL, &err) < 0 &&
        err.code != ERROR_NOT_FOUND)
        (void)fprintf(stderr, "quicksand: the sandbox %s could not be removed: %s\n", sandbox->id,
                      err.message);
}

static void renew(const struct cli_process *process)
{
    auto_free char *target = xasprintf("/sandboxes/%s/timeout", process->sandbox->id);
    auto_json json_t *body = json_pack("{s:i}", "timeout", (int)RUN_LEASE_S);
    struct error err = {0};

    if (cli_call(process->server, "POST", target, body, NULL, NULL, &err) < 0)
        (void)fprintf(stderr, "quicksand: the sandbox's time could not be extended: %s\n",
                      err.message);
}

/* Signals become readable, so that none can come between a create and its kill. */
static int open_signals(void)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Forwarded unless it is a terminal or not there. */
static bool stdin_usable(void)
{
    struct stat st;

    return fstat(STDIN_FILENO, &st) == 0 && !isatty(STDIN_FILENO);
}

/* Drops the "--" that separates the command. */
static bool take_command(char **operands, int count, char ***out, int *out_count)
{
    if (count && strcmp(operands[0], "--") == 0) {
        operands++;
        count--;
    }
    *out = operands;
    *out_count = count;
    return count > 0;
}

static int run_in(struct cli *cli, const struct run_options *options,
                  const struct cli_sandbox *sandbox, struct cli_process *process, bool limited)
{
    struct error err = {0};
    int status = 0;

    process->server = &cli->server;
    process->sandbox = sandbox;
    process->cwd = options->cwd;
    process->user = options->user;
    process->with_stdin = !options->no_stdin && stdin_usable();
    if (cli_process_run(process, &status, &err) == 0)
        return status;
    if (limited) {
        auto_free char *target = xasprintf("/sandboxes/%s", sandbox->id);
        struct error gone = {0};

        if (cli_call(&cli->server, "GET", target, NULL, NULL, NULL, &gone) < 0 &&
            gone.code == ERROR_NOT_FOUND) {
            (void)fprintf(stderr, "quicksand: the sandbox reached its time limit of %lld s\n",
                          (long long)options->timeout_s);
            return EXIT_TIMED_OUT;
        }
    }
    return cli_fail(&err);
}

/* ---- run ---- */

static int throw_away(struct cli *cli, struct run_options *options, char **argv, int argc)
{
    bool limited = options->timeout_s > 0;
    auto_json json_t *env = pairs(&cli_run_command, &options->env, "env");
    auto_json json_t *metadata = json_object(), *answer = NULL;
    auto_close int signal_fd = -1;
    struct cli_sandbox sandbox = {0};
    struct error err = {0};
    int status;

    if (!env)
        return CLI_USAGE;
    if (!limited)
        options->timeout_s = RUN_LEASE_S;
    if (cli_connect(cli, &err) < 0)
        return cli_fail(&err);
    signal_fd = open_signals();
    answer = create(cli, options, env, metadata, &err);
    if (!answer || cli_sandbox_of(answer, &sandbox, &err) < 0)
        return cli_fail(&err);
    status = run_in(cli, options, &sandbox,
                    &(struct cli_process){.argv = argv,
                                          .argc = argc,
                                          .signal_fd = signal_fd,
                                          .leave_on_signal = true,
                                          .keep_alive_s = limited ? 0 : RUN_RENEW_S,
                                          .keep_alive = renew},
                    limited);
    kill_sandbox(&cli->server, &sandbox);
    cli_sandbox_done(&sandbox);
    return status;
}

static int run_run(struct cli *cli, int argc, char **argv)
{
    struct run_options options = {.template_name = "base"};
    const struct cli_option table[] = {
        {"template", 't', CLI_TEXT, &options.template_name, "NAME", "what to run in (base)"},
        {"timeout", 0, CLI_NUMBER, &options.timeout_s, "SECONDS",
         "end it after so long (exit status 124)"},
        {"env", 'e', CLI_LIST, &options.env, "NAME=VALUE", "environment; may be repeated"},
        {"cwd", 'w', CLI_TEXT, &options.cwd, "DIR", "where the command starts"},
        {"user", 'u', CLI_TEXT, &options.user, "USER", "who runs it (user)"},
        {"no-stdin", 'n', CLI_FLAG, &options.no_stdin, NULL, "do not forward stdin"},
        {"no-internet", 0, CLI_FLAG, &options.no_internet, NULL, "without internet access"},
        {.name = NULL},
    };
    char **command;
    int count,
        rc = cli_args(cli, &cli_run_command, table, CLI_ARGS_FIRST, argc, argv, &command, &count);

    if (rc == CLI_ARGS_RUN)
        rc = take_command(command, count, &command, &count)
                 ? throw_away(cli, &options, command, count)
                 : cli_usage(&cli_run_command, "needs a command");
    options_done(&options);
    return rc;
}

const struct cli_command cli_run_command = {
    "run", "[OPTION...] [--] COMMAND [ARG...]",
    "Run a command in a new sandbox that is removed afterwards.\n"
    "The exit status is the command's; 128+N when signal N ended it.",
    run_run};

/* ---- exec ---- */

static int exec_in(struct cli *cli, struct run_options *options, const char *id, char **argv,
                   int argc)
{
    auto_json json_t *env = pairs(&cli_exec_command, &options->env, "env");
    struct cli_sandbox sandbox = {0};
    auto_close int signal_fd = -1;
    struct error err = {0};
    int status;

    if (!env)
        return CLI_USAGE;
    if (cli_connect(cli, &err) < 0 || cli_sandbox_get(&cli->server, id, &sandbox, &err) < 0)
        return cli_fail(&err);
    signal_fd = open_signals();
    status = run_in(
        cli, options, &sandbox,
        &(struct cli_process){.argv = argv, .argc = argc, .env = env, .signal_fd = signal_fd},
        false);
    cli_sandbox_done(&sandbox);
    return status;
}

static int run_exec(struct cli *cli, int argc, char **argv)
{
    struct run_options options = {0};
    const struct cli_option table[] = {
        {"env", 'e', CLI_LIST, &options.env, "NAME=VALUE", "environment; may be repeated"},
        {"cwd", 'w', CLI_TEXT, &options.cwd, "DIR", "where the command starts"},
        {"user", 'u', CLI_TEXT, &options.user, "USER", "who runs it (user)"},
        {"no-stdin", 'n', CLI_FLAG, &options.no_stdin, NULL, "do not forward stdin"},
        {.name = NULL},
    };
    char **operands, **command;
    int count, command_count;
    int rc = cli_args(cli, &cli_exec_command, table, CLI_ARGS_FIRST, argc, argv, &operands, &count);

    if (rc == CLI_ARGS_RUN && count == 0)
        rc = cli_usage(&cli_exec_command, "needs a sandbox and a command");
    else if (rc == CLI_ARGS_RUN && count > 1 && operands[1][0] == '-' &&
             strcmp(operands[1], "--") != 0)
        rc = cli_usage(&cli_exec_command, "options stand before the sandbox");
    else if (rc == CLI_ARGS_RUN)
        rc = take_command(operands + 1, count - 1, &command, &command_count)
                 ? exec_in(cli, &options, operands[0], command, command_count)
                 : cli_usage(&cli_exec_command, "needs a command");
    options_done(&options);
    return rc;
}

const struct cli_command cli_exec_command = {
    "exec", "[OPTION...] SANDBOX [--] COMMAND [ARG...]",
    "Run a command in a sandbox that is there.\n"
    "The exit status is the command's. The first Ctrl-C ends the command, the second kills it.",
    run_exec};

/* ---- create ---- */

static int create_one(struct cli *cli, struct run_options *options)
{
    auto_json json_t *env = pairs(&cli_create_command, &options->env, "env");
    auto_json json_t *metadata = pairs(&cli_create_command, &options->metadata, "metadata");
    auto_json json_t *answer = NULL;
    auto_free char *text = NULL;
    struct error err = {0};

    if (!env || !metadata)
        return CLI_USAGE;
    if (cli_connect(cli, &err) < 0 || !(answer = create(cli, options, env, metadata, &err)))
        return cli_fail(&err);
    text = json_text(answer);
    if (cli->json)
        printf("%s\n", text);
    else
        printf("%.*s\n", STR_ARG(json_get_str(answer, "sandboxID")));
    return CLI_OK;
}

static int run_create(struct cli *cli, int argc, char **argv)
{
    struct run_options options = {.template_name = "base", .timeout_s = CREATE_TIMEOUT_S};
    const struct cli_option table[] = {
        {"template", 't', CLI_TEXT, &options.template_name, "NAME", "what to make it from (base)"},
        {"timeout", 0, CLI_NUMBER, &options.timeout_s, "SECONDS", "how long it lives (300)"},
        {"env", 'e', CLI_LIST, &options.env, "NAME=VALUE", "environment; may be repeated"},
        {"metadata", 'm', CLI_LIST, &options.metadata, "NAME=VALUE", "a label; may be repeated"},
        {"no-internet", 0, CLI_FLAG, &options.no_internet, NULL, "without internet access"},
        {.name = NULL},
    };
    char **operands;
    int count, rc = cli_args(cli, &cli_create_command, table, CLI_ARGS_ANYWHERE, argc, argv,
                             &operands, &count);

    if (rc == CLI_ARGS_RUN)
        rc = count ? cli_usage(&cli_create_command, "takes no operand") : create_one(cli, &options);
    options_done(&options);
    return rc;
}

const struct cli_command cli_create_command = {"create", "[OPTION...]",
                                               "Make a sandbox and print its id.", run_create};

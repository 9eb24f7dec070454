/* run, exec, create. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "cli/core/cli_internal.h"
#include "cli/core/cli_runtime.h"
#include "cli/core/cli_up.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_shape.h"

enum {
    CREATE_TIMEOUT_S = 300,
};

struct run_options {
    const char *template_name;
    int64_t timeout_s;
    struct cli_list env, metadata;
    const char *cwd, *user;
    bool no_stdin, no_internet, keep;
    /* Of run. */
    struct cli_up up;
    const char *repo;
};

static void options_done(struct run_options *options)
{
    cli_list_done(&options->env);
    cli_list_done(&options->metadata);
    cli_up_done(&options->up);
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

/* ---- run ---- */

static int run_new(struct cli *cli, struct run_options *options, char *const *argv, int argc)
{
    auto_json json_t *env = cli_v1_pairs(&cli_run_command, &options->env, "env", true);
    struct cli_runtime run = {.cli = cli,
                              .argv = argv,
                              .argc = argc,
                              .env = env,
                              .cwd = options->cwd,
                              .user = options->user,
                              .timeout_s = options->timeout_s,
                              .no_stdin = options->no_stdin};

    if (!env)
        return CLI_USAGE;
    options->up.template_name = options->template_name;
    if (options->no_internet)
        options->up.network = "deny-all";
    return cli_runtime_throw_away(&run, &options->up, options->repo);
}

static int run_run(struct cli *cli, int argc, char **argv)
{
    struct run_options options = {0};
    const struct cli_option table[] = {
        {"template", 't', CLI_TEXT, &options.template_name, "NAME", "what to run in"},
        {"timeout", 0, CLI_TIME, &options.timeout_s, "TIME",
         "end it after so long (exit status 124)"},
        {"env", 'e', CLI_LIST, &options.env, "NAME[=VALUE]", "environment; may be repeated"},
        {"cwd", 'w', CLI_TEXT, &options.cwd, "DIR", "where the command starts"},
        {"user", 'u', CLI_TEXT, &options.user, "USER", "who runs it (user)"},
        {"no-stdin", 'n', CLI_FLAG, &options.no_stdin, NULL, "do not forward stdin"},
        {"no-internet", 0, CLI_FLAG, &options.no_internet, NULL, "without internet access"},
        {"profile", 'p', CLI_TEXT, &options.up.profile, "NAME", "what the sandbox is like"},
        {"provider", 0, CLI_TEXT, &options.up.provider, "NAME", "where the sandbox is"},
        {"agent", 0, CLI_TEXT, &options.up.agent_type, "TYPE", "the profile of this type of agent"},
        {"agent-id", 0, CLI_TEXT, &options.up.agent_id, "ID", "who owns it"},
        {"task-id", 0, CLI_TEXT, &options.up.task_id, "ID", "what it is for"},
        {"repo", 0, CLI_TEXT, &options.repo, "URL", "clone this, run the command in it"},
        {.name = NULL},
    };
    char **command;
    int count,
        rc = cli_args(cli, &cli_run_command, table, CLI_ARGS_FIRST, argc, argv, &command, &count);

    if (rc == CLI_ARGS_RUN)
        rc = take_command(command, count, &command, &count)
                 ? run_new(cli, &options, command, count)
                 : cli_usage(&cli_run_command, "needs a command");
    options_done(&options);
    return rc;
}

const struct cli_command cli_run_command = {
    "run", "[OPTION...] [--] COMMAND [ARG...]",
    "Run a command in a new sandbox that is removed afterwards.\n"
    "The exit status is the command's; 128+N when signal N ended it. With --json the output and\n"
    "the exit are records, one per line. A single operand with\n"
    "blanks in it is a line for the shell. '-e NAME' passes a variable of ours on.",
    run_run,
    .examples = "quicksand run -- python3 -c 'print(6 * 7)'\n"
                "quicksand run 'git --version | tr a-z A-Z'\n"
                "quicksand run --repo https://github.com/o/r.git -- make test"};

/* ---- exec ---- */

static int exec_in(struct cli *cli, const struct run_options *options, const char *id,
                   char *const *argv, int argc)
{
    auto_json json_t *env = cli_v1_pairs(&cli_exec_command, &options->env, "env", true);
    auto_close int signal_fd = -1;
    struct error err = {0};

    if (!env)
        return CLI_USAGE;
    if (cli_connect(cli, &err) < 0)
        return cli_fail(&err);
    signal_fd = cli_runtime_signals();
    return cli_runtime_run(&(struct cli_runtime){.cli = cli,
                                                 .id = id,
                                                 .argv = argv,
                                                 .argc = argc,
                                                 .env = env,
                                                 .cwd = options->cwd,
                                                 .user = options->user,
                                                 .timeout_s = options->timeout_s,
                                                 .no_stdin = options->no_stdin,
                                                 .keep = options->keep,
                                                 .signal_fd = signal_fd});
}

static int run_exec(struct cli *cli, int argc, char **argv)
{
    struct run_options options = {0};
    const struct cli_option table[] = {
        {"env", 'e', CLI_LIST, &options.env, "NAME[=VALUE]", "environment; may be repeated"},
        {"cwd", 'w', CLI_TEXT, &options.cwd, "DIR", "where the command starts"},
        {"user", 'u', CLI_TEXT, &options.user, "USER", "who runs it (user)"},
        {"timeout", 0, CLI_TIME, &options.timeout_s, "TIME", "end it after so long (status 124)"},
        {"no-stdin", 'n', CLI_FLAG, &options.no_stdin, NULL, "do not forward stdin"},
        {"keep", 0, CLI_FLAG, &options.keep, NULL, "keep the output for 'quicksand log'"},
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
    "SANDBOX is an id or key:KEY; one that is paused is resumed. The exit\n"
    "status is the command's; with --json the output and the exit are records, one per line.\n"
    "The first Ctrl-C asks the command to end, the second kills it.\n"
    "A file or pipe as stdin is passed on, a terminal is not: for that there is 'quicksand pty'.",
    run_exec,
    .examples = "quicksand exec i... -- ls -l /tmp\n"
                "quicksand exec key:my-task 'cd repo && make test'\n"
                "tar c src | quicksand exec i... -- tar x"};

/* ---- create ---- */

static int create_one(struct cli *cli, struct run_options *options)
{
    auto_json json_t *env = cli_v1_pairs(&cli_create_command, &options->env, "env", true);
    auto_json json_t *metadata =
        cli_v1_pairs(&cli_create_command, &options->metadata, "metadata", false);
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
        {"timeout", 0, CLI_TIME, &options.timeout_s, "TIME", "how long it lives (300)"},
        {"env", 'e', CLI_LIST, &options.env, "NAME[=VALUE]", "environment; may be repeated"},
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

const struct cli_command cli_create_command = {
    "create", "[OPTION...]", "Make a sandbox of the engine and print its id.", run_create};

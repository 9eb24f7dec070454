/* run, exec, create. */
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "cli/command/cli_runtime.h"
#include "cli/command/commands.h"
#include "cli/core/cli_command.h"
#include "cli/core/cli_names.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_terminal.h"
#include "cli/core/cli_up.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_shape.h"

enum {
    CREATE_TIMEOUT_S = 300,
};

struct run_options {
    const char *template_name;
    int64_t timeout_s;
    struct cli_list env, metadata, env_files, volumes;
    int64_t cpu, memory_mb, disk_mb;
    const char *cwd, *user;
    bool no_stdin, no_internet, keep, interactive, terminal;
    const char *detach;
    /* Of run. */
    struct cli_up up;
    const char *repo;
};

static void options_done(struct run_options *options)
{
    cli_list_done(&options->env);
    cli_list_done(&options->metadata);
    cli_list_done(&options->env_files);
    cli_list_done(&options->volumes);
    cli_up_done(&options->up);
}

static json_t *mounts_of(const struct cli_list *volumes)
{
    json_t *mounts = json_array();

    for (size_t i = 0; i < volumes->count; i++) {
        struct str path = str_of(volumes->items[i]), name = str_split(&path, ':');

        (void)json_array_append_new(
            mounts, json_pack("{s:o,s:o}", "name", json_str(name), "path", json_str(path)));
    }
    return mounts;
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
    if (options->volumes.count)
        (void)json_object_set_new(body, "volumeMounts", mounts_of(&options->volumes));
    if (options->cpu)
        (void)json_object_set_new(body, "cpuCount", json_integer(options->cpu));
    if (options->memory_mb)
        (void)json_object_set_new(body, "memoryMB", json_integer(options->memory_mb));
    if (options->disk_mb)
        (void)json_object_set_new(body, "diskSizeMB", json_integer(options->disk_mb));
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

static struct cli_runtime runtime_of(struct cli *cli, const struct run_options *options,
                                     json_t *env, char *const *argv, int argc)
{
    return (struct cli_runtime){.cli = cli,
                                .argv = argv,
                                .argc = argc,
                                .env = env,
                                .cwd = options->cwd,
                                .user = options->user,
                                .timeout_s = options->timeout_s,
                                .no_stdin = options->no_stdin,
                                .interactive = options->interactive,
                                .keep = options->keep};
}

/* ---- run ---- */

static int run_new(struct cli *cli, struct run_options *options, char *const *argv, int argc)
{
    auto_json json_t *env = cli_v1_pairs(&cli_run_command, &options->env, "env", true);
    struct cli_runtime run = runtime_of(cli, options, env, argv, argc);

    if (!env || cli_v1_env_files(&cli_run_command, &options->env_files, env) < 0)
        return CLI_USAGE;
    run.terminal = options->interactive && isatty(STDIN_FILENO);
    options->up.cpu = options->cpu;
    options->up.memory_mb = options->memory_mb;
    options->up.disk_mb = options->disk_mb;
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
        {"env-file", 0, CLI_LIST, &options.env_files, "FILE",
         "environment, a NAME=VALUE on each line"},
        {"cwd", 'w', CLI_TEXT, &options.cwd, "DIR", "where the command starts"},
        {"user", 'u', CLI_TEXT, &options.user, "USER", "who runs it (user)"},
        {"no-stdin", 'n', CLI_FLAG, &options.no_stdin, NULL, "do not forward stdin"},
        {"interactive", 'i', CLI_FLAG, &options.interactive, NULL,
         "in a terminal like ours; without a command, a shell"},
        {"no-internet", 0, CLI_FLAG, &options.no_internet, NULL, "without internet access"},
        {"cpu", 0, CLI_COUNT, &options.cpu, "N", "processors"},
        {"memory", 0, CLI_MB, &options.memory_mb, "SIZE", "memory: 512, 512m or 2g"},
        {"disk", 0, CLI_MB, &options.disk_mb, "SIZE", "disk: 2048, 2048m or 2g"},
        {"peers", 0, CLI_TEXT, &options.up.peers, "NETWORK[/NAME]",
         "in this private network, under this name"},
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

    /* "run -it -- CMD", as others write it: -t has no value there. */
    if (options.interactive && options.template_name && strcmp(options.template_name, "--") == 0)
        options.template_name = NULL;
    if (rc == CLI_ARGS_RUN)
        rc = take_command(command, count, &command, &count) ||
                     (options.interactive && isatty(STDIN_FILENO))
                 ? run_new(cli, &options, command, count)
                 : cli_usage(&cli_run_command, "needs a command");
    options_done(&options);
    return rc;
}

const struct cli_command cli_run_command = {
    "run", "[OPTION...] [--] COMMAND [ARG...]",
    "Run one command in a new sandbox, which is deleted when the command ends.\n"
    "The exit status is the command's; 128+N when signal N ended it. With --json the output and\n"
    "the exit are records, one per line. A single operand with\n"
    "blanks in it is a line for the shell. '-e NAME' passes a variable of ours on.",
    run_run,
    .examples = "quicksand run -- python3 -c 'print(6 * 7)'\n"
                "quicksand run 'git --version | tr a-z A-Z'\n"
                "quicksand run -it python\n"
                "quicksand run --repo https://github.com/o/r.git -- make test"};

/* ---- exec ---- */

static int exec_in(struct cli *cli, const struct run_options *options, char *id, char *const *argv,
                   int argc)
{
    auto_json json_t *env = cli_v1_pairs(&cli_exec_command, &options->env, "env", true);
    auto_close int signal_fd = -1;
    char keys[CLI_TERMINAL_KEYS_SIZE];
    struct error err = {0};
    struct cli_runtime run = runtime_of(cli, options, env, argv, argc);

    if (!env || cli_v1_env_files(&cli_exec_command, &options->env_files, env) < 0)
        return CLI_USAGE;
    if (!cli_terminal_keys(options->detach, keys))
        return cli_usage(&cli_exec_command, "--detach-keys needs keys like ctrl-p,ctrl-q, not '%s'",
                         options->detach);
    if (options->terminal && (options->keep || options->timeout_s || cli->json))
        return cli_usage(&cli_exec_command, "--tty excludes --keep, --timeout and --json");
    if (cli_connect_to(cli, &id, 1, &err) < 0)
        return cli_fail(&err);
    run.id = id;
    if (options->terminal)
        return cli_runtime_terminal(&run, keys);
    run.signal_fd = signal_fd = cli_runtime_signals();
    return cli_runtime_run(&run);
}

static int run_exec(struct cli *cli, int argc, char **argv)
{
    struct run_options options = {.detach = CLI_TERMINAL_DETACH};
    const struct cli_option table[] = {
        {"interactive", 'i', CLI_FLAG, &options.interactive, NULL,
         "pass a terminal's input on, too"},
        {"tty", 't', CLI_FLAG, &options.terminal, NULL, "in a terminal of its own"},
        {"detach-keys", 0, CLI_TEXT, &options.detach, "KEYS",
         "leave a terminal with these (ctrl-p,ctrl-q); '' for none"},
        {"env", 'e', CLI_LIST, &options.env, "NAME[=VALUE]", "environment; may be repeated"},
        {"env-file", 0, CLI_LIST, &options.env_files, "FILE",
         "environment, a NAME=VALUE on each line"},
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
    "A file or pipe as stdin is passed on, a terminal only with -i; -it is for programs that want\n"
    "a terminal themselves.",
    run_exec,
    .examples = "quicksand exec i... -- ls -l /tmp\n"
                "quicksand exec -it i... -- bash\n"
                "quicksand exec key:my-task 'cd repo && make test'\n"
                "tar c src | quicksand exec i... -- tar x"};

/* ---- create ---- */

static int create_one(struct cli *cli, struct run_options *options)
{
    auto_json json_t *env = cli_v1_pairs(&cli_create_command, &options->env, "env", true);
    auto_json json_t *metadata =
        cli_v1_pairs(&cli_create_command, &options->metadata, "metadata", false);
    auto_json json_t *answer = NULL, *row = NULL;
    struct error err = {0};
    struct str id;

    for (size_t i = 0; i < options->volumes.count; i++)
        if (!strstr(options->volumes.items[i], ":/") ||
            !str_valid_utf8(str_of(options->volumes.items[i])))
            return cli_usage(&cli_create_command, "--volume needs NAME:/PATH, not '%s'",
                             options->volumes.items[i]);
    if (!env || !metadata || cli_v1_env_files(&cli_create_command, &options->env_files, env) < 0)
        return CLI_USAGE;
    if (cli_connect(cli, &err) < 0 || !(answer = create(cli, options, env, metadata, &err)))
        return cli_fail(&err);
    id = json_get_str(answer, "sandboxID");
    if (cli->json && !(row = cli_v1_sandbox(cli, id.p, &err)))
        return cli_fail(&err);
    if (cli->json)
        cli_print_json(row);
    else
        printf("%.*s\n", STR_ARG(id));
    return CLI_OK;
}

static int run_create(struct cli *cli, int argc, char **argv)
{
    struct run_options options = {.template_name = "base", .timeout_s = CREATE_TIMEOUT_S};
    const struct cli_option table[] = {
        {"template", 't', CLI_TEXT, &options.template_name, "NAME", "what to make it from (base)"},
        {"timeout", 0, CLI_TIME, &options.timeout_s, "TIME", "how long it lives (300)"},
        {"env", 'e', CLI_LIST, &options.env, "NAME[=VALUE]", "environment; may be repeated"},
        {"env-file", 0, CLI_LIST, &options.env_files, "FILE",
         "environment, a NAME=VALUE on each line"},
        {"metadata", 'm', CLI_LIST, &options.metadata, "NAME=VALUE", "a label; may be repeated"},
        {"volume", 'v', CLI_LIST, &options.volumes, "NAME:PATH",
         "mount a volume there; may be repeated"},
        {"cpu", 0, CLI_COUNT, &options.cpu, "N", "processors"},
        {"memory", 0, CLI_MB, &options.memory_mb, "SIZE", "memory: 512, 512m or 2g"},
        {"disk", 0, CLI_MB, &options.disk_mb, "SIZE", "disk: 2048, 2048m or 2g"},
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
    "create", "[OPTION...]",
    "Create a new sandbox each time, print its id; it ends at its timeout.", run_create,
    .examples = "quicksand create --timeout 1h -m owner=me\n"
                "quicksand create --cpu 2 --memory 4g --env-file .env -m name=web\n"
                "ID=$(quicksand create -t python)"};

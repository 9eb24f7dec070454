/* The table of commands. */
#include "cli/cli.h"

#include <signal.h>
#include <stdarg.h>

#include "cli/cli_internal.h"

static cli_command_fn run_help, run_version;

static const struct cli_command help_command = {
    "help", "[COMMAND]", "Show what there is, or one command in detail.", run_help};
static const struct cli_command version_command = {"version", "", "Print the version.",
                                                   run_version};

static const struct cli_command *const commands[] = {
    &cli_run_command, &cli_create_command, &cli_exec_command,   &cli_cp_command,
    &cli_ls_command,  &cli_show_command,   &cli_rm_command,     &cli_template_command,
    &cli_key_command, &cli_doctor_command, &cli_runner_command, &version_command,
    &help_command,
};
enum { COMMAND_COUNT = sizeof(commands) / sizeof(commands[0]) };

static const struct cli_command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

int cli_fail(const struct error *err)
{
    (void)fflush(stdout);
    (void)fprintf(stderr, "quicksand: %s\n", err->message);
    return CLI_FAILED;
}

int cli_usage(const struct cli_command *command, const char *fmt, ...)
{
    va_list args;

    (void)fflush(stdout);
    (void)fprintf(stderr, "quicksand %s: ", command->name);
    va_start(args, fmt);
    (void)vfprintf(stderr, fmt, args);
    va_end(args);
    (void)fprintf(stderr, "; see 'quicksand %s --help'\n", command->name);
    return CLI_USAGE;
}

int cli_connect(struct cli *cli, struct error *err)
{
    return cli_server_find(cli->url, getenv("HOME"), &cli->server, err);
}

static void print_commands(FILE *to)
{
    (void)fprintf(to,
                  "Usage: quicksand COMMAND [OPTION...]\n\n"
                  "  %-10s %s\n",
                  "serve", "Run the server.");
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        struct str rest = str_of(commands[i]->help);
        struct str first = str_split(&rest, '\n');

        (void)fprintf(to, "  %-10s %.*s\n", commands[i]->name, STR_ARG(first));
    }
    (void)fprintf(to, "\n'quicksand COMMAND --help' tells more. The server is found by --url, "
                      "$QUICKSAND_URL or\n$E2B_API_URL, the key by $QUICKSAND_TOKEN, "
                      "$QUICKSAND_API_KEY or $E2B_API_KEY; else both by\n"
                      "~/" CLI_CREDENTIALS ", which the server's first start writes.\n");
}

static int run_help(struct cli *cli, int argc, char **argv)
{
    const struct cli_command *command;
    char dashes[] = "--help";
    char **operands;
    int count,
        rc = cli_args(cli, &help_command, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count == 0) {
        print_commands(stdout);
        return CLI_OK;
    }
    command = find_command(operands[0]);
    if (!command)
        return cli_usage(&help_command, "there is no command '%s'", operands[0]);
    return command->run(cli, 2, (char *[]){operands[0], dashes, NULL});
}

static int run_version(struct cli *cli, int argc, char **argv)
{
    char **operands;
    int count, rc = cli_args(cli, &version_command, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands,
                             &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count)
        return cli_usage(&version_command, "takes no operand");
    printf(cli->json ? "{\"version\":\"%s\"}\n" : "quicksand %s\n", QUICKSAND_VERSION);
    return CLI_OK;
}

int cli_main(int argc, char **argv)
{
    struct cli cli = {.data_dir = getenv("QUICKSAND_DATA")};
    const struct cli_command *command;
    int rc;

    /* A closed pipe is an ordinary failed write here. */
    (void)signal(SIGPIPE, SIG_IGN);
    if (!cli.data_dir || !cli.data_dir[0])
        cli.data_dir = CLI_DATA_DIR;
    if (argc < 2) {
        print_commands(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_commands(stdout);
        return CLI_OK;
    }
    command = find_command(strcmp(argv[1], "--version") == 0 ? "version" : argv[1]);
    if (!command) {
        (void)fprintf(stderr, "quicksand: there is no command '%s'; see 'quicksand help'\n",
                      argv[1]);
        return CLI_USAGE;
    }
    rc = command->run(&cli, argc - 1, argv + 1);
    cli_server_done(&cli.server);
    if (fflush(stdout) != 0 && rc == CLI_OK) {
        (void)fprintf(stderr, "quicksand: the output could not be written\n");
        rc = CLI_FAILED;
    }
    return rc;
}

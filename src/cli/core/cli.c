/* The table of commands. */
#include "cli/core/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "cli/core/cli_internal.h"
#include "cli/core/cli_table.h"

static cli_command_fn run_help, run_version;

static const struct cli_command help_command = {
    "help", "[COMMAND]", "Show what there is, or one command in detail.", run_help};
static const struct cli_command version_command = {"version", "", "Print the version.",
                                                   run_version};

const struct cli_command *const cli_commands[] = {
    &cli_run_command,      &cli_up_command,       &cli_ls_command,
    &cli_show_command,     &cli_exec_command,     &cli_log_command,
    &cli_cp_command,       &cli_pty_command,      &cli_url_command,
    &cli_pause_command,    &cli_resume_command,   &cli_rm_command,
    &cli_snapshot_command, &cli_create_command,   &cli_job_command,
    &cli_session_command,  &cli_events_command,   &cli_stats_command,
    &cli_prune_command,    &cli_provider_command, &cli_profile_command,
    &cli_template_command, &cli_key_command,      &cli_audit_command,
    &cli_runner_command,   &cli_doctor_command,   &cli_completion_command,
    &version_command,      &help_command,         NULL,
};

/* In a table, by the name itself or by its second word. */
static const struct cli_command *find_command(const struct cli_command *const *table,
                                              const char *name)
{
    for (; *table; table++) {
        const char *blank = strchr((*table)->name, ' ');

        if (strcmp(blank ? blank + 1 : (*table)->name, name) == 0)
            return *table;
    }
    return NULL;
}

int cli_fail(const struct error *err)
{
    auto_free char *text = cli_defuse(xstrdup(err->message), true);

    (void)fflush(stdout);
    if (err->errnum == EPIPE) /* of our output; those of the server have no number */
        return CLI_BROKEN_PIPE;
    (void)fprintf(stderr, "quicksand: %s\n", text);
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

static void print_row(const struct cli_command *command, FILE *to)
{
    struct str rest = str_of(command->help);
    struct str first = str_split(&rest, '\n');

    (void)fprintf(to, "  %-*s %.*s\n", strchr(command->name, ' ') ? 18 : 10, command->name,
                  STR_ARG(first));
}

static void print_table(const struct cli_command *const *table, FILE *to)
{
    for (; *table; table++)
        print_row(*table, to);
}

/* Where a part of the table begins. */
static const struct {
    const struct cli_command *first;
    const char *title;
} parts[] = {
    {&cli_run_command, "Sandboxes"},
    {&cli_job_command, "Jobs and agents"},
    {&cli_events_command, "What happens"},
    {&cli_provider_command, "What there is to use"},
    {&cli_key_command, "The server and this host"},
};

static void print_commands(FILE *to)
{
    (void)fprintf(to, "Usage: quicksand COMMAND [OPTION...]\n");
    for (const struct cli_command *const *at = cli_commands; *at; at++) {
        for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
            if (parts[i].first == *at)
                (void)fprintf(to, "\n%s\n", parts[i].title);
        if (*at == &cli_key_command)
            (void)fprintf(to, "  %-10s %s\n  %-10s %s\n", "serve", "Run the server.", "down",
                          "End all sandboxes of a server that is gone, and what is left of it.");
        print_row(*at, to);
    }
    (void)fprintf(to, "\n'quicksand COMMAND --help' tells more. The server is found by --url, "
                      "$QUICKSAND_URL or\n$E2B_API_URL, the key by $QUICKSAND_TOKEN, "
                      "$QUICKSAND_API_KEY or $E2B_API_KEY; else both by\n"
                      "~/" CLI_CREDENTIALS ", where a server's first start puts them.\n");
}

/* argv[1] is the verb. */
static int run_verb(struct cli *cli, const struct cli_command *group, int argc, char **argv)
{
    const struct cli_command *command;

    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        printf("Usage: quicksand %s VERB [OPTION...]\n%s\n\n", group->name, group->help);
        print_table(group->verbs, stdout);
        printf("\n'quicksand %s VERB --help' tells more.\n", group->name);
        return CLI_OK;
    }
    if (argc < 2)
        return cli_usage(group, "needs one of: %s", group->operands);
    command = find_command(group->verbs, argv[1]);
    if (!command)
        return cli_usage(group, "knows %s, not '%s'", group->operands, argv[1]);
    return command->run(cli, argc - 1, argv + 1);
}

static int dispatch(struct cli *cli, const struct cli_command *command, int argc, char **argv)
{
    return command->verbs ? run_verb(cli, command, argc, argv) : command->run(cli, argc, argv);
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
    command = find_command(cli_commands, operands[0]);
    if (command && command->verbs && count > 1)
        command = find_command(command->verbs, operands[1]);
    if (!command)
        return cli_usage(&help_command, "there is no command '%s%s%s'", operands[0],
                         count > 1 ? " " : "", count > 1 ? operands[1] : "");
    return dispatch(cli, command, 2, (char *[]){operands[0], dashes, NULL});
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
    command = find_command(cli_commands, strcmp(argv[1], "--version") == 0 ? "version" : argv[1]);
    if (!command) {
        (void)fprintf(stderr, "quicksand: there is no command '%s'; see 'quicksand help'\n",
                      argv[1]);
        return CLI_USAGE;
    }
    rc = dispatch(&cli, command, argc - 1, argv + 1);
    cli_server_done(&cli.server);
    if (rc == CLI_OK && (fflush(stdout) != 0 || ferror(stdout))) {
        if (errno == EPIPE)
            return CLI_BROKEN_PIPE;
        (void)fprintf(stderr, "quicksand: the output could not be written\n");
        rc = CLI_FAILED;
    }
    return rc;
}

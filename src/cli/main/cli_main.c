/* The table of commands. */
#include "cli/main/cli_main.h"

#include <errno.h>
#include <signal.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/extra_absent.h"
#include "cli/command/commands.h"
#include "cli/core/cli.h"
#include "cli/core/cli_command.h"
#include "cli/core/cli_find.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_table.h"
#include "cli/doctor/cli_doctor.h"

static cli_command_fn run_help, run_version;

static const struct cli_command help_command = {
    "help", "[COMMAND]", "Show what there is, or one command in detail.", run_help,
    .examples = "quicksand help\n"
                "quicksand help template build"};
static const struct cli_command version_command = {"version", "", "Print the version.", run_version,
                                                   .examples = "quicksand version"};

/* In the order of --help; `groups` below has the titles. Extras add theirs (cli_add.c). */
static const struct cli_command *const commands[] = {
    &cli_run_command,
    &cli_up_command,
    &cli_create_command,

    &cli_exec_command,
    &cli_pty_command,
    &cli_cp_command,

    &cli_url_command,
    &cli_forward_command,
    &cli_open_command,

    &cli_ls_command,
    &cli_show_command,
    &cli_logs_command,
    &cli_top_command,
    &cli_stats_command,
    &cli_events_command,

    &cli_pause_command,
    &cli_resume_command,
    &cli_extend_command,
    &cli_snapshot_command,
    &cli_fork_command,
    &cli_rm_command,
    &cli_prune_command,

    &cli_job_command,
    &cli_session_command,

    &cli_template_command,
    &cli_profile_command,
    &cli_provider_command,
    &cli_volume_command,
    &cli_secret_command,
    &cli_webhook_command,

    &cli_login_command,
    &cli_context_command,
    &cli_key_command,
    &cli_team_command,
    &cli_audit_command,

    &cli_doctor_command,
    &cli_tls_command,
    &cli_runner_command,

    &cli_completion_command,
    &cli_man_command,
    &version_command,
    &help_command,
    NULL,
};

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

/* Titles of --help, and the command with which each group begins. */
static const struct {
    const struct cli_command *first;
    const char *title;
} groups[] = {
    {&cli_run_command, "Get a sandbox"},
    {&cli_exec_command, "Work in a sandbox"},
    {&cli_url_command, "Reach its ports"},
    {&cli_ls_command, "See what there is"},
    {&cli_pause_command, "Keep, copy and end sandboxes"},
    {&cli_job_command, "Background jobs and agents"},
    {&cli_template_command, "Templates, settings and data"},
    {&cli_login_command, "Servers, keys and teams"},
    {&cli_doctor_command, "Run a server on this host"},
    {&cli_completion_command, "This program"},
};

static void print_aliases(FILE *to)
{
    (void)fprintf(to, "\nAlso known\n ");
    for (const struct cli_alias *alias = cli_aliases; alias->name; alias++)
        (void)fprintf(to, " %s (%s)%s", alias->name, alias->command, alias[1].name ? "," : "\n");
}

static void print_commands(FILE *to)
{
    (void)fprintf(to, "Usage: quicksand COMMAND [OPTION...]\n");
    for (const struct cli_command *const *at = cli_commands; *at; at++) {
        for (size_t i = 0; i < sizeof(groups) / sizeof(*groups); i++)
            if (groups[i].first == *at)
                (void)fprintf(to, "\n%s\n", groups[i].title);
        if (*at == &cli_doctor_command)
            print_table(cli_roles, to);
        print_row(*at, to);
    }
    print_aliases(to);
    (void)fprintf(to,
                  "\n'quicksand COMMAND --help' describes a command. The server is found by --url, "
                  "$QUICKSAND_URL,\n$E2B_API_URL or $E2B_DOMAIN, the key by $QUICKSAND_TOKEN, "
                  "$QUICKSAND_API_KEY or\n$E2B_API_KEY; else both by "
                  "~/" CLI_CREDENTIALS ", where a server's first start puts them.\n");
}

/* CLI_FAILED and a message when the command, or the group's verb, is one of an extra that this build lacks. */
static int absent(const struct cli_command *group, const char *word)
{
    auto_free char *name = group ? xasprintf("%s %s", group->name, word) : xstrdup(word);
    const char *extra = extra_absent("command", str_of(name));
    struct error err;

    if (!extra)
        return CLI_OK;
    (void)extra_absent_error(extra, &err);
    return cli_fail(&err);
}

/* argv[1] is the verb. */
static int run_verb(struct cli *cli, const struct cli_command *group, int argc, char **argv)
{
    const struct cli_command *command;

    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        printf("Usage: quicksand %s VERB [OPTION...]\n%s\n\n", group->name, group->help);
        print_table(group->verbs, stdout);
        printf("\n'quicksand %s VERB --help' describes a verb.\n", group->name);
        return CLI_OK;
    }
    if (argc < 2)
        return cli_usage(group, "needs one of: %s", group->operands);
    command = cli_find(group->verbs, argv[1]);
    if (!command) {
        const char *near = cli_guess_command(group->verbs, false, argv[1]);
        int rc = absent(group, argv[1]);

        if (rc != CLI_OK)
            return rc;
        return cli_usage(group, "knows %s, not '%s'%s%s%s", group->operands, argv[1],
                         near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
    }
    return command->run(cli, argc - 1, argv + 1);
}

static int dispatch(struct cli *cli, const struct cli_command *command, int argc, char **argv)
{
    return command->verbs ? run_verb(cli, command, argc, argv) : command->run(cli, argc, argv);
}

static int run_help(struct cli *cli, int argc, char **argv)
{
    const struct cli_command *command, *group;
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
    command = cli_find_first(operands[0], &group);
    if (command && command->verbs && count > 1)
        command = cli_find(command->verbs, operands[1]);
    if (!command && !group && count == 1 && absent(NULL, operands[0]) != CLI_OK)
        return CLI_FAILED;
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
    if (cli->json)
        cli_print_json_new(json_pack("{s:s}", "version", QUICKSAND_VERSION));
    else
        printf("quicksand %s\n", QUICKSAND_VERSION);
    return CLI_OK;
}

static int no_command(const char *word)
{
    const char *near = cli_guess_command(cli_commands, true, word);
    int rc = absent(NULL, word);

    if (rc != CLI_OK)
        return rc;
    (void)fprintf(stderr, "quicksand: there is no command '%s'%s%s%s; see 'quicksand help'\n", word,
                  near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
    return CLI_USAGE;
}

void cli_open(const struct cli_command *const *roles)
{
    cli_commands_set(commands, roles);
}

int cli_main(int argc, char **argv)
{
    struct cli cli = {.data_dir = getenv("QUICKSAND_DATA")};
    const struct cli_command *command, *group;
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
    command = cli_find_first(strcmp(argv[1], "--version") == 0 ? "version" : argv[1], &group);
    if (!command)
        return no_command(argv[1]);
    rc = dispatch(&cli, command, argc - 1, argv + 1);
    cli_server_done(&cli.server);
    for (size_t i = 0; i < cli.name_count; i++)
        free(cli.names[i]);
    free(cli.names);
    if (rc == CLI_OK && (fflush(stdout) != 0 || ferror(stdout))) {
        if (errno == EPIPE)
            return CLI_BROKEN_PIPE;
        (void)fprintf(stderr, "quicksand: the output could not be written\n");
        rc = CLI_FAILED;
    }
    return rc;
}

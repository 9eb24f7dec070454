/* man: manual pages in roff, made of the tables that the commands themselves read. quicksand(1) is the overview; each
 * command has a page quicksand-COMMAND(1), a group one with all of its verbs. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "cli/command/commands.h"
#include "cli/core/cli.h"
#include "cli/core/cli_command.h"
#include "cli/core/cli_find.h"

/* Text as it is: nothing of it is a request, a hyphen is one that can be copied. */
static void put(FILE *to, struct str text)
{
    for (size_t i = 0; i < text.len; i++) {
        bool first = i == 0 || text.p[i - 1] == '\n';

        if (first && (text.p[i] == '.' || text.p[i] == '\''))
            (void)fputs("\\&", to);
        if (text.p[i] == '\\')
            (void)fputs("\\e", to);
        else if (text.p[i] == '-')
            (void)fputs("\\-", to);
        else if (text.p[i] == '\'')
            (void)fputs("\\(aq", to);
        else if (text.p[i] == '~')
            (void)fputs("\\(ti", to);
        else if (text.p[i] == '^')
            (void)fputs("\\(ha", to);
        else
            (void)fputc(text.p[i], to);
    }
}

static void put_line(FILE *to, const char *before, struct str text)
{
    (void)fputs(before, to);
    put(to, text);
    (void)fputc('\n', to);
}

static struct str first_line(const char *text)
{
    struct str rest = str_of(text);

    return str_split(&rest, '\n');
}

static void put_option(void *arg, const struct cli_option *option)
{
    FILE *to = arg;

    (void)fputs(".TP\n\\fB", to);
    if (option->letter)
        (void)fprintf(to, "\\-%c\\fR, \\fB", option->letter);
    (void)fputs("\\-\\-", to);
    put(to, str_of(option->name));
    (void)fputs("\\fR", to);
    if (option->value) {
        (void)fputs(" \\fI", to);
        put(to, str_of(option->value));
        (void)fputs("\\fR", to);
    }
    (void)fputc('\n', to);
    put_line(to, "", str_of(option->help));
}

static void put_usage(FILE *to, const struct cli_command *command)
{
    (void)fputs(".PP\n\\fBquicksand ", to);
    put(to, str_of(command->name));
    (void)fputs("\\fR ", to);
    put_line(to, "", str_of(command->operands));
}

static void put_examples(FILE *to, const struct cli_command *command)
{
    struct str rest = str_of(command->examples);

    if (!rest.len)
        return;
    (void)fputs(".PP\n.EX\n", to);
    while (rest.len)
        put_line(to, "", str_split(&rest, '\n'));
    (void)fputs(".EE\n", to);
}

static void put_aliases(FILE *to, const struct cli_command *command)
{
    for (const struct cli_alias *alias = cli_aliases; alias->name; alias++)
        if (strcmp(alias->command, command->name) == 0) {
            (void)fputs(".PP\nAlso known as \\fBquicksand ", to);
            put(to, str_of(alias->name));
            (void)fputs("\\fR.\n", to);
        }
}

static void put_head(FILE *to, const char *page, struct str what)
{
    (void)fputs(".TH ", to);
    for (const char *c = page; *c; c++)
        (void)fputc(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c, to);
    (void)fprintf(to, " 1 \"\" \"quicksand %s\" \"Quicksand\"\n.SH NAME\n", QUICKSAND_VERSION);
    put(to, str_of(page));
    while (what.len && what.p[what.len - 1] == '.')
        what.len--;
    put_line(to, " \\- ", what);
}

static void put_command(FILE *to, const struct cli *cli, const struct cli_command *command)
{
    (void)fputs(".SH SYNOPSIS\n", to);
    put_usage(to, command);
    (void)fputs(".SH DESCRIPTION\n", to);
    put_line(to, "", str_of(command->help));
    put_aliases(to, command);
    (void)fputs(".SH OPTIONS\n", to);
    cli_options_visit(cli, command, put_option, to);
    if (command->examples)
        (void)fputs(".SH EXAMPLES\n", to);
    put_examples(to, command);
}

static void put_group(FILE *to, const struct cli *cli, const struct cli_command *group)
{
    (void)fputs(".SH SYNOPSIS\n", to);
    for (const struct cli_command *const *verb = group->verbs; *verb; verb++)
        put_usage(to, *verb);
    (void)fputs(".SH DESCRIPTION\n", to);
    put_line(to, "", str_of(group->help));
    for (const struct cli_command *const *verb = group->verbs; *verb; verb++) {
        (void)fputs(".SH \"QUICKSAND ", to);
        for (const char *c = (*verb)->name; *c; c++)
            (void)fputc(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c, to);
        (void)fputs("\"\n", to);
        put_line(to, "", str_of((*verb)->help));
        put_aliases(to, *verb);
        cli_options_visit(cli, *verb, put_option, to);
        put_examples(to, *verb);
    }
}

static void put_page(FILE *to, const struct cli *cli, const struct cli_command *command)
{
    auto_free char *page = xasprintf("quicksand-%s", command->name);

    put_head(to, page, first_line(command->help));
    if (command->verbs)
        put_group(to, cli, command);
    else
        put_command(to, cli, command);
    (void)fputs(".SH SEE ALSO\n.BR quicksand (1)\n", to);
}

static void put_rows(FILE *to, const struct cli_command *const *table)
{
    for (; *table; table++) {
        (void)fputs(".TP\n\\fB", to);
        put_line(to, "", str_of((*table)->name));
        (void)fputs("\\fR", to);
        put_line(to, "", first_line((*table)->help));
    }
}

static void put_overview(FILE *to)
{
    put_head(to, "quicksand", STR("sandboxes for programs that nobody trusts"));
    (void)fputs(
        ".SH SYNOPSIS\n\\fBquicksand\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR...]\n"
        ".SH DESCRIPTION\nServer and command line in one program. Each command has a page of "
        "its own, and \\fBquicksand help\\fR \\fICOMMAND\\fR.\n.SH COMMANDS\n",
        to);
    put_rows(to, cli_roles);
    put_rows(to, cli_commands);
    (void)fputs(
        ".SH \"EXIT STATUS\"\n0, 1 when something was refused or failed, 2 for wrong use, 124 for "
        "a time limit, 128+N for signal N; \\fBrun\\fR, \\fBexec\\fR and \\fBpty\\fR end with "
        "the status of their command.\n"
        ".SH ENVIRONMENT\n.TP\n\\fBQUICKSAND_URL\\fR, \\fBE2B_API_URL\\fR\nThe server.\n"
        ".TP\n\\fBE2B_DOMAIN\\fR\nWithout those, the server is https://api. and this domain.\n"
        ".TP\n\\fBQUICKSAND_TOKEN\\fR, \\fBQUICKSAND_API_KEY\\fR, \\fBE2B_API_KEY\\fR\n"
        "The API key.\n.TP\n\\fBNO_COLOR\\fR\nNo colours, when it is set and not empty.\n"
        ".SH FILES\n.TP\n\\fI\\(ti/" CLI_CREDENTIALS "\\fR\nAddresses of servers and a key "
        "for each.\n",
        to);
}

static int write_page(const char *dir, const char *name, const struct cli *cli,
                      const struct cli_command *command, struct error *err)
{
    auto_free char *path = xasprintf("%s/%s%s.1", dir, command ? "quicksand-" : "", name);
    FILE *file = fopen(path, "we");

    if (!file)
        return error_set_errno(err, errno, "'%s'", path);
    if (command)
        put_page(file, cli, command);
    else
        put_overview(file);
    return fclose(file) == 0 ? 0 : error_set_errno(err, errno, "writing '%s'", path);
}

static int write_all(const struct cli *cli, const char *dir)
{
    struct error err = {0};

    if (mkdir(dir, 0777) < 0 && errno != EEXIST) {
        (void)error_set_errno(&err, errno, "'%s'", dir);
        return cli_fail(&err);
    }
    if (write_page(dir, "quicksand", cli, NULL, &err) < 0)
        return cli_fail(&err);
    for (const struct cli_command *const *role = cli_roles; *role; role++)
        if (write_page(dir, (*role)->name, cli, *role, &err) < 0)
            return cli_fail(&err);
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        if (write_page(dir, (*c)->name, cli, *c, &err) < 0)
            return cli_fail(&err);
    (void)utimensat(AT_FDCWD, dir, NULL,
                    0); /* for build tools, to which it is one thing that was made */
    return CLI_OK;
}

static int run_man(struct cli *cli, int argc, char **argv)
{
    const char *dir = NULL;
    const struct cli_option table[] = {
        {"dir", 'd', CLI_TEXT, &dir, "DIR", "write all pages there, as files"},
        {.name = NULL},
    };
    const struct cli_command *command, *group;
    char **operands;
    int count, rc = cli_args(cli, &cli_man_command, table, CLI_ARGS_ANYWHERE, argc, argv, &operands,
                             &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count > 1 || (dir && count))
        return cli_usage(&cli_man_command, dir ? "--dir takes no command" : "takes one command");
    if (dir)
        return write_all(cli, dir);
    if (count == 0) {
        put_overview(stdout);
        return CLI_OK;
    }
    command = cli_find_first(operands[0], &group);
    if (!command)
        return cli_usage(&cli_man_command, "there is no command '%s'", operands[0]);
    put_page(stdout, cli, group ? group : command);
    return CLI_OK;
}

const struct cli_command cli_man_command = {
    "man", "[OPTION...] [COMMAND]",
    "Print a manual page.\n"
    "It is roff: 'quicksand man ls | man -l -' shows it. Packages install what --dir writes.",
    run_man,
    .examples = "quicksand man exec | man -l -\n"
                "quicksand man --dir /usr/local/share/man/man1"};

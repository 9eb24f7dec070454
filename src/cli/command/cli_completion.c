/* completion: scripts for shells, made of the tables that the commands themselves read. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "cli/command/commands.h"
#include "cli/core/cli_command.h"
#include "cli/core/cli_find.h"

struct words {
    struct buf text;
    void (*add)(struct buf *out, const struct cli_option *option);
};

static void visit(void *arg, const struct cli_option *option)
{
    struct words *words = arg;

    words->add(&words->text, option);
}

/* The options of a command, each written by `add`. */
static char *options_of(const struct cli *cli, const struct cli_command *command,
                        void (*add)(struct buf *out, const struct cli_option *option))
{
    struct words words = {.add = add};

    buf_init(&words.text, 64 * 1024);
    cli_options_visit(cli, command, visit, &words);
    return buf_take(&words.text);
}

static const char *last_word(const struct cli_command *command)
{
    const char *blank = strchr(command->name, ' ');

    return blank ? blank + 1 : command->name;
}

static struct str first_line(const char *text)
{
    struct str rest = str_of(text);

    return str_split(&rest, '\n');
}

static void print_names(const struct cli_command *const *table)
{
    for (const char *between = ""; *table; table++, between = " ")
        printf("%s%s", between, last_word(*table));
}

static void add_dashed(struct buf *out, const struct cli_option *option)
{
    (void)buf_printf(out, "%s--%s", out->len ? " " : "", option->name);
    if (option->letter)
        (void)buf_printf(out, " -%c", option->letter);
}

/* ---- bash ---- */

static void bash_case(const struct cli *cli, const struct cli_command *command)
{
    auto_free char *options = options_of(cli, command, add_dashed);

    printf("        '%s') words='%s'%s ;;\n", command->name, options,
           strstr(command->operands, "SANDBOX") ? " boxes=1" : "");
}

static void print_bash(const struct cli *cli)
{
    printf("# quicksand completion bash\n"
           "_quicksand()\n{\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} words= boxes=\n"
           "    COMPREPLY=()\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        words='");
    print_names(cli_roles);
    printf(" ");
    print_names(cli_commands);
    for (const struct cli_alias *alias = cli_aliases; alias->name; alias++)
        printf(" %s", alias->name);
    printf("'\n    else\n        case $command in\n");
    for (const struct cli_alias *alias = cli_aliases; alias->name; alias++)
        printf("        %s) command='%s' ;;\n", alias->name, alias->command);
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        if ((*c)->verbs)
            printf("        %s) [ \"$COMP_CWORD\" -gt 2 ] && command=\"$command "
                   "${COMP_WORDS[2]}\" ;;\n",
                   (*c)->name);
    printf("        esac\n        case $command in\n");
    for (const struct cli_command *const *role = cli_roles; *role; role++)
        bash_case(cli, *role);
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        if (!(*c)->verbs) {
            bash_case(cli, *c);
            continue;
        }
        printf("        '%s') words='", (*c)->name);
        print_names((*c)->verbs);
        printf("' ;;\n");
        for (const struct cli_command *const *verb = (*c)->verbs; *verb; verb++)
            bash_case(cli, *verb);
    }
    printf("        esac\n    fi\n"
           "    case $cur in\n"
           "    -*) ;;\n"
           "    *) case $words in -*) words= ;; esac\n"
           "       [ -z \"$boxes\" ] || words=$(\"${COMP_WORDS[0]}\" ls -q 2>/dev/null) ;;\n"
           "    esac\n"
           "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
           "    [ -n \"$words\" ] || COMPREPLY=($(compgen -f -- \"$cur\"))\n"
           "}\n"
           "complete -F _quicksand quicksand\n");
}

/* ---- zsh: its own emulation of the above is good enough and needs no second grammar ---- */

static void print_zsh(const struct cli *cli)
{
    printf("#compdef quicksand\n"
           "autoload -U +X bashcompinit && bashcompinit\n");
    print_bash(cli);
    /* As a file in fpath it is loaded by the first completion, which it has to answer too. */
    printf("[ -z \"$words\" ] || _bash_complete -F _quicksand\n");
}

/* ---- fish ---- */

static void fish_quote(struct buf *out, struct str text)
{
    (void)buf_add_char(out, '\'');
    for (size_t i = 0; i < text.len; i++) {
        if (text.p[i] == '\'' || text.p[i] == '\\')
            (void)buf_add_char(out, '\\');
        (void)buf_add_char(out, text.p[i]);
    }
    (void)buf_add_char(out, '\'');
}

/* "-l name [-s x] [-r] -d 'help'", one per line. */
static void add_fish(struct buf *out, const struct cli_option *option)
{
    (void)buf_printf(out, "%s-l %s", out->len ? "\n" : "", option->name);
    if (option->letter)
        (void)buf_printf(out, " -s %c", option->letter);
    if (option->kind != CLI_FLAG)
        (void)buf_add_str(out, STR(" -r"));
    (void)buf_add_str(out, STR(" -d "));
    fish_quote(out, str_of(option->help));
}

static void fish_options(const struct cli *cli, const struct cli_command *command)
{
    auto_free char *text = options_of(cli, command, add_fish);
    struct str rest = str_of(text);

    if (strstr(command->operands, "SANDBOX"))
        printf("complete -c quicksand -n '__quicksand_is %s' -a '(quicksand ls -q 2>/dev/null)'\n",
               command->name);
    while (rest.p) {
        struct str line = str_split(&rest, '\n');

        if (line.len)
            printf("complete -c quicksand -n '__quicksand_is %s' %.*s\n", command->name,
                   STR_ARG(line));
    }
}

static void fish_word(const char *condition, const char *word, const char *help)
{
    auto_buf struct buf quoted = {0};

    buf_init(&quoted, 1024);
    fish_quote(&quoted, first_line(help));
    printf("complete -c quicksand -f -n '%s' -a %s -d %s\n", condition, word, quoted.p);
}

static void print_fish(const struct cli *cli)
{
    printf("# quicksand completion fish\n"
           "function __quicksand_is\n"
           "    set -l words (commandline -opc)\n"
           "    set -l n (math (count $argv) + 1)\n"
           "    test (count $words) -ge $n; and test \"$words[2..$n]\" = \"$argv\"\n"
           "end\n"
           "function __quicksand_at\n"
           "    set -l words (commandline -opc)\n"
           "    test (count $words) -eq (math (count $argv) + 1); and test \"$words[2..-1]\" = "
           "\"$argv\"\n"
           "end\n");
    for (const struct cli_command *const *role = cli_roles; *role; role++) {
        fish_word("test (count (commandline -opc)) -eq 1", (*role)->name, (*role)->help);
        fish_options(cli, *role);
    }
    for (const struct cli_alias *alias = cli_aliases; alias->name; alias++)
        fish_word("test (count (commandline -opc)) -eq 1", alias->name, alias->command);
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        auto_free char *at = xasprintf("__quicksand_at %s", (*c)->name);

        fish_word("test (count (commandline -opc)) -eq 1", (*c)->name, (*c)->help);
        if (!(*c)->verbs) {
            fish_options(cli, *c);
            continue;
        }
        for (const struct cli_command *const *verb = (*c)->verbs; *verb; verb++) {
            fish_word(at, last_word(*verb), (*verb)->help);
            fish_options(cli, *verb);
        }
    }
}

static int run_completion(struct cli *cli, int argc, char **argv)
{
    char **operands;
    int count, rc = cli_args(cli, &cli_completion_command, NULL, CLI_ARGS_ANYWHERE, argc, argv,
                             &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count == 1 && strcmp(operands[0], "bash") == 0)
        print_bash(cli);
    else if (count == 1 && strcmp(operands[0], "zsh") == 0)
        print_zsh(cli);
    else if (count == 1 && strcmp(operands[0], "fish") == 0)
        print_fish(cli);
    else
        return cli_usage(&cli_completion_command, "needs bash, zsh or fish");
    return CLI_OK;
}

const struct cli_command cli_completion_command = {
    "completion", "bash|zsh|fish",
    "Print a script that completes commands and options.\n"
    "bash: source <(quicksand completion bash); likewise in zsh.\n"
    "fish: quicksand completion fish | source",
    run_completion,
    .examples = "source <(quicksand completion bash)\n"
                "quicksand completion fish | source"};

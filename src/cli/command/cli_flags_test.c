/* Every option of every command, wrong in each way that its kind can be: status 2, one line that names it, and nothing is done
 * (an address where nobody listens would be told with status 1). */
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/test.h"
#include "cli/core/cli.h"
#include "cli/core/cli_command.h"
#include "cli/core/cli_find.h"
#include "cli/core/cli_test.h"
#include "cli/main/cli_main.h"

#define ARG(text) (char *)(uintptr_t)(text)

enum { WORDS_MAX = 4 };

/* Stands for what the program itself brings. */
static int run_role(struct cli *cli, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    if (cli->visit)
        cli->visit(cli->visit_arg, &(struct cli_option){"data", 0, CLI_TEXT, NULL, "DIR", "where"});
    return CLI_OK;
}

static const struct cli_command keep_role = {"keep", "FILE", "Keep all.", run_role,
                                             .examples = "quicksand keep x"};
static const struct cli_command *const roles[] = {&keep_role, NULL};

__attribute__((constructor)) static void set_roles(void)
{
    cli_roles = roles;
}

struct option_seen {
    char *name;
    enum cli_option_kind kind;
};

struct seen {
    struct option_seen options[64];
    size_t count;
};

static void see(void *arg, const struct cli_option *option)
{
    struct seen *seen = arg;

    CHECK(seen->count < sizeof(seen->options) / sizeof(*seen->options));
    if (option->kind == CLI_MB || option->kind == CLI_MB_MAX)
        CHECK_STR(str_of(option->value), "SIZE");
    seen->options[seen->count].name = xstrdup(option->name);
    seen->options[seen->count++].kind = option->kind;
}

/* What it wrote to stderr; *out_rc: its status. */
static char *told_by(char **argv, int *out_rc)
{
    char *text = xcalloc(1, 8192);
    FILE *file = tmpfile();
    int argc = 0, saved = dup(STDERR_FILENO);

    CHECK(file && saved >= 0);
    while (argv[argc])
        argc++;
    (void)fflush(stderr);
    CHECK(dup2(fileno(file), STDERR_FILENO) >= 0);
    *out_rc = cli_main(argc, argv);
    (void)fflush(stderr);
    CHECK(dup2(saved, STDERR_FILENO) >= 0);
    (void)close(saved);
    rewind(file);
    CHECK(fread(text, 1, 8191, file) > 0);
    (void)fclose(file);
    return text;
}

/* "COMMAND [VERB] --NAME[=VALUE]". */
static void try_wrong(const struct cli_command *command, const char *name, const char *value)
{
    auto_free char *words = xstrdup(command->name), *told = NULL;
    auto_free char *flag = value ? xasprintf("--%s=%s", name, value) : xasprintf("--%s", name);
    auto_free char *expected = xasprintf("--%s ", name);
    char *argv[WORDS_MAX + 1] = {(char *)(uintptr_t) "quicksand", words};
    char *verb = strchr(words, ' ');
    int rc = 0, n = 2;

    if (verb) {
        *verb = 0;
        argv[n++] = verb + 1;
    }
    argv[n] = flag;
    told = told_by(argv, &rc);
    if (rc != CLI_USAGE || !strstr(told, expected) || strchr(told, '\n') != told + strlen(told) - 1)
        test_fail(__FILE__, __LINE__, "quicksand %s %s: status %d, '%s'", command->name, flag, rc,
                  told);
}

static void try_all(const struct cli_command *command)
{
    static const char *const wrong[][5] = {
        [CLI_FLAG] = {"yes"},
        [CLI_NUMBER] = {"many", "-1", "1.5", "99999999999999999999"},
        [CLI_COUNT] = {"many", "-1", "0", "99999999999999999999"},
        [CLI_TIME] = {"soon", "-5s", "0", "1w"},
        [CLI_TIME_0] = {"soon", "-5s", "1w"},
        [CLI_MB] = {"big", "-1", "0", "1t"},
        [CLI_MB_MAX] = {"big", "-1", "1t"},
    };
    struct seen seen = {0};

    cli_options_visit(&(struct cli){0}, command, see, &seen);
    for (size_t i = 0; i < seen.count; i++) {
        const struct option_seen *option = &seen.options[i];

        if (option->kind < sizeof(wrong) / sizeof(*wrong))
            for (size_t k = 0; k < 5 && wrong[option->kind][k]; k++)
                try_wrong(command, option->name, wrong[option->kind][k]);
        if (option->kind != CLI_FLAG)
            try_wrong(command, option->name, NULL);
        free(option->name);
    }
    CHECK(seen.count >= 3); /* those that all have */
}

TEST(every_option_of_every_command_wrong_in_turn)
{
    size_t tried = 0;

    (void)setenv("QUICKSAND_URL", "http://127.0.0.1:1", 1);
    (void)setenv("QUICKSAND_TOKEN", "e2b_0", 1);
    for (const struct cli_command *const *at = cli_commands; *at; at++) {
        if (!(*at)->verbs)
            try_all(*at);
        for (const struct cli_command *const *verb = (*at)->verbs; verb && *verb; verb++, tried++)
            try_all(*verb);
        tried++;
    }
    CHECK(tried > 80);
    (void)unsetenv("QUICKSAND_URL");
    (void)unsetenv("QUICKSAND_TOKEN");
}

TEST(what_the_program_does_besides_is_in_help_and_guesses)
{
    auto_buf struct buf out = {0};
    auto_free char *told = NULL;
    int rc;

    CHECK_INT(cli_test_run((char *[]){ARG("quicksand"), ARG("help"), NULL}, &out), CLI_OK);
    CHECK(strstr(out.p, "keep       Keep all."));
    for (size_t i = 0; i < 3; i++) {
        static const char *const shells[] = {"bash", "zsh", "fish"};

        CHECK_INT(cli_test_run(
                      (char *[]){ARG("quicksand"), ARG("completion"), ARG(shells[i]), NULL}, &out),
                  CLI_OK);
        CHECK(strstr(out.p, "keep") && strstr(out.p, i < 2 ? "--data" : "-l data"));
    }
    CHECK_INT(cli_test_run((char *[]){ARG("quicksand"), ARG("man"), ARG("keep"), NULL}, &out),
              CLI_OK);
    CHECK(strstr(out.p, "quicksand\\-keep \\- Keep all") && strstr(out.p, "\\-\\-data"));
    told = told_by((char *[]){ARG("quicksand"), ARG("keap"), NULL}, &rc);
    CHECK(strstr(told, "did you mean 'keep'"));
}

TEST(a_message_is_about_the_option_whose_value_or_member_it_names)
{
    static const char *const cases[][2] = {
        {"template 'nope' not found", "template"},
        {"'cpuCount' must be a number from 1 to 2", "cpu"},
        {"volume 'data' not found", "volume"},
        {"'FROM' is no variable", "env"},
        {"--template: there is none", NULL}, /* it says so itself */
        {"the disk is full", NULL},
    };
    auto_buf struct buf out = {0};

    /* What it said stays known; --help does nothing else. */
    CHECK_INT(cli_test_run((char *[]){ARG("quicksand"), ARG("create"), ARG("-t"), ARG("nope"),
                                      ARG("--cpu"), ARG("9"), ARG("-v"), ARG("data:/x"), ARG("-e"),
                                      ARG("FROM=x"), ARG("--help"), NULL},
                           &out),
              CLI_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const char *option = cli_args_blame(cases[i][0]);

        CHECK_STR(str_of(option ? option : "none"), cases[i][1] ? cases[i][1] : "none");
    }
}

/* ---- words ---- */

TEST(guesses_are_close)
{
    static const struct {
        const char *word, *guess; /* NULL: none */
    } rows[] = {{"exce", "exec"},      {"sl", "ls"}, {"snapshit", "snapshot"},
                {"templ", "template"}, {"cd", NULL}, {"mv", NULL},
                {"bake", NULL},        {"vm", NULL}, {"destroy", NULL},
                {"sandbox", NULL},     {"x", NULL}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const char *got = cli_guess_command(cli_commands, true, rows[i].word);

        if (!rows[i].guess != !got || (got && strcmp(got, rows[i].guess) != 0))
            test_fail(__FILE__, __LINE__, "'%s': '%s' and not '%s'", rows[i].word, got ? got : "",
                      rows[i].guess ? rows[i].guess : "");
    }
}

/* Every command is in the help, below one of its titles. */
TEST(help_groups_commands_by_task)
{
    auto_buf struct buf help = {0};
    const char *run, *up, *create, *title;

    CHECK_INT(cli_test_run((char *[]){ARG("quicksand"), ARG("help"), NULL}, &help), 0);
    for (const struct cli_command *const *at = cli_commands; *at; at++) {
        auto_free char *row = xasprintf("\n  %s ", (*at)->name);

        if (!strstr(help.p, row))
            test_fail(__FILE__, __LINE__, "%s is missing", (*at)->name);
    }
    title = strstr(help.p, "\nGet a sandbox\n");
    run = strstr(help.p, "\n  run ");
    up = strstr(help.p, "\n  up ");
    create = strstr(help.p, "\n  create ");
    CHECK(title && run && up && create && title < run && run < up && up < create);
    CHECK(create < strstr(help.p, "\nWork in a sandbox\n"));
}

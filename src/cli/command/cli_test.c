/* Arguments, tables, addresses, doctor. */
#include <fcntl.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/parts.h"
#include "base/path.h"
#include "base/test.h"
#include "cli/command/cli_cp.h"
#include "cli/command/cli_runtime.h"
#include "cli/core/cli.h"
#include "cli/core/cli_command.h"
#include "cli/core/cli_credentials.h"
#include "cli/core/cli_find.h"
#include "cli/core/cli_names.h"
#include "cli/core/cli_pattern.h"
#include "cli/core/cli_table.h"
#include "cli/core/cli_test.h"
#include "cli/main/cli_main.h"
#include "domain/account/api_key.h"
#include "domain/account/team.h"
#include "protocol/json/json_shape.h"
#include "store/core/store.h"

int cli_test_run(char **argv, struct buf *out)
{
    FILE *file = tmpfile();
    int argc = 0, saved = dup(STDOUT_FILENO), rc;

    CHECK(file && saved >= 0);
    while (argv[argc])
        argc++;
    (void)fflush(stdout);
    CHECK(dup2(fileno(file), STDOUT_FILENO) >= 0);
    rc = cli_main(argc, argv);
    (void)fflush(stdout);
    CHECK(dup2(saved, STDOUT_FILENO) >= 0);
    (void)close(saved);
    buf_done(out);
    buf_init(out, 1024 * 1024);
    rewind(file);
    for (;;) {
        char *to = buf_reserve(out, 4096);
        size_t n = fread(to, 1, 4096, file);

        if (n == 0)
            break;
        buf_grew(out, n);
    }
    (void)fclose(file);
    return rc;
}

#define RUN(out, ...) \
    cli_test_run((char *[]){(char *)(uintptr_t) "quicksand", __VA_ARGS__, NULL}, out)
#define ARG(text) (char *)(uintptr_t)(text)

static const struct cli_command sample = {"sample", "", "A sample.", NULL};

struct sample {
    bool flag;
    const char *text;
    int64_t number;
    struct cli_list list;
    char **operands;
    int count;
};

static int parse(struct sample *out, enum cli_args_mode mode, char **argv)
{
    struct cli cli = {0};
    const struct cli_option table[] = {
        {"flag", 'f', CLI_FLAG, &out->flag, NULL, ""},
        {"text", 't', CLI_TEXT, &out->text, "TEXT", ""},
        {"number", 'n', CLI_NUMBER, &out->number, "N", ""},
        {"list", 'l', CLI_LIST, &out->list, "X", ""},
        {.name = NULL},
    };
    int argc = 0;

    while (argv[argc])
        argc++;
    return cli_args(&cli, &sample, table, mode, argc, argv, &out->operands, &out->count);
}

#define PARSE(out, mode, ...) parse(out, mode, (char *[]){ARG("sample"), __VA_ARGS__, NULL})

TEST(options_anywhere)
{
    struct sample out = {0};
    int rc = PARSE(&out, CLI_ARGS_ANYWHERE, ARG("a"), ARG("-f"), ARG("--text=x y"), ARG("b"),
                   ARG("-n12"), ARG("--list"), ARG("1"), ARG("-l"), ARG("2"), ARG("-"), ARG("--"),
                   ARG("-f"));

    CHECK_INT(rc, CLI_ARGS_RUN);
    CHECK(out.flag);
    CHECK_STR(str_of(out.text), "x y");
    CHECK_INT(out.number, 12);
    CHECK_INT(out.list.count, 2);
    CHECK_STR(str_of(out.list.items[1]), "2");
    CHECK_INT(out.count, 4);
    CHECK_STR(str_of(out.operands[0]), "a");
    CHECK_STR(str_of(out.operands[1]), "b");
    CHECK_STR(str_of(out.operands[2]), "-");
    CHECK_STR(str_of(out.operands[3]), "-f");
    cli_list_done(&out.list);
}

TEST(the_first_operand_ends_the_options)
{
    struct sample out = {0};
    int rc = PARSE(&out, CLI_ARGS_FIRST, ARG("-f"), ARG("ls"), ARG("-n"), ARG("--text"));

    CHECK_INT(rc, CLI_ARGS_RUN);
    CHECK(out.flag && !out.text);
    CHECK_INT(out.count, 3);
    CHECK_STR(str_of(out.operands[1]), "-n");
}

TEST(wrong_options)
{
    struct sample out = {0};

    CHECK_INT(PARSE(&out, CLI_ARGS_ANYWHERE, ARG("--nope")), CLI_USAGE);
    CHECK_INT(PARSE(&out, CLI_ARGS_ANYWHERE, ARG("-x")), CLI_USAGE);
    CHECK_INT(PARSE(&out, CLI_ARGS_ANYWHERE, ARG("--text")), CLI_USAGE);
    CHECK_INT(PARSE(&out, CLI_ARGS_ANYWHERE, ARG("--number"), ARG("1x")), CLI_USAGE);
    CHECK_INT(PARSE(&out, CLI_ARGS_ANYWHERE, ARG("--number=-1")), CLI_USAGE);
    CHECK_INT(PARSE(&out, CLI_ARGS_ANYWHERE, ARG("--flag=1")), CLI_USAGE);
}

TEST(letters_of_flags_stand_together)
{
    struct sample out = {0};

    CHECK_INT(PARSE(&out, CLI_ARGS_ANYWHERE, ARG("-ft"), ARG("x"), ARG("a")), CLI_ARGS_RUN);
    CHECK(out.flag && out.count == 1);
    CHECK_STR(str_of(out.text), "x");
    CHECK_INT(PARSE(&out, CLI_ARGS_ANYWHERE, ARG("-fn5")), CLI_ARGS_RUN);
    CHECK_INT(out.number, 5);
    CHECK_INT(PARSE(&out, CLI_ARGS_ANYWHERE, ARG("-fx")), CLI_USAGE);
    CHECK_INT(PARSE(&out, CLI_ARGS_ANYWHERE, ARG("-ft")), CLI_USAGE);
}

TEST(a_slip_is_guessed)
{
    static const char *const rows[][2] = {
        {"lss", "ls"},        {"sl", "ls"},        {"exce", "exec"}, {"tempalte", "template"},
        {"snap", "snapshot"}, {"imags", "images"}, {"zzz", NULL},    {"completely-else", NULL},
        {"", NULL},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *got = cli_guess_command(cli_commands, true, rows[i][0]);

        if (rows[i][1])
            CHECK_STR(str_of(got), rows[i][1]);
        else
            CHECK(!got);
    }
}

TEST(names_of_sandboxes)
{
    auto_json json_t *rows =
        json_pack("[{s:s,s:n},{s:s,s:s,s:{s:s}},{s:s,s:s}]", "id", "iab1", "key", "id", "iab2",
                  "key", "task", "metadata", "name", "web", "id", "ixy", "key", "iab");
    struct error err = {0};

    CHECK_STR(str_of(cli_name_find(rows, "iab1", &err)), "iab1");
    CHECK_STR(str_of(cli_name_find(rows, "task", &err)), "iab2");
    CHECK_STR(str_of(cli_name_find(rows, "web", &err)), "iab2");
    CHECK_STR(str_of(cli_name_find(rows, "ix", &err)), "ixy");
    CHECK_STR(str_of(cli_name_find(rows, "iab", &err)), "ixy"); /* a key is more than a beginning */
    CHECK(!cli_name_find(rows, "ia", &err) && err.code == ERROR_CONFLICT);
    CHECK(!cli_name_find(rows, "", &err) && err.code == ERROR_NOT_FOUND);
    CHECK(!cli_name_find(rows, "we", &err) && err.code == ERROR_NOT_FOUND);
    CHECK(cli_name_is_id(STR("key:x")) && !cli_name_is_id(STR("iab1")));
}

TEST(patterns)
{
    static const struct {
        const char *pattern, *want; /* NULL: refused */
    } rows[] = {
        {"{{.id}}", "i1"},     {"{{ .a.b }}\\t{{.none}}!", "x?\t-!"},
        {"plain", "plain"},    {"{{json .a}}", "{\"b\":\"x\\u0001\"}"},
        {"{{.n}}", "7"},       {"{{.id", NULL},
        {"{{id}}", NULL},      {"{{json id}}", NULL},
        {"a\\nb\\", "a\nb\\"},
    };
    auto_json json_t *row = json_pack("{s:s,s:{s:s},s:i}", "id", "i1", "a", "b", "x\001", "n", 7);
    struct error err = {0};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        auto_free char *got = NULL;

        CHECK_INT(cli_pattern_check(rows[i].pattern, &err), rows[i].want ? 0 : -1);
        if (!rows[i].want)
            continue;
        got = cli_pattern_fill(rows[i].pattern, row);
        CHECK_STR(str_of(got), rows[i].want);
    }
}

TEST(aliases_lead_to_commands)
{
    for (const struct cli_alias *alias = cli_aliases; alias->name; alias++) {
        const struct cli_command *group, *command = cli_find_first(alias->name, &group);

        CHECK(command && command->run);
        CHECK_STR(str_of(command->name), alias->command);
        CHECK(!cli_find(cli_commands, alias->name));
    }
}

/* ---- help, manual pages and completions tell the same ---- */

struct told {
    const struct cli_command *command;
    const char *help, *page;
};

static void check_told(void *arg, const struct cli_option *option)
{
    const struct told *told = arg;
    auto_free char *dashed = xasprintf("--%s", option->name);
    auto_buf struct buf roff = {0};

    buf_init(&roff, 256);
    (void)buf_add_str(&roff, STR("\\-\\-"));
    for (const char *c = option->name; *c; c++)
        (void)buf_printf(&roff, "%s%c", *c == '-' ? "\\" : "", *c);
    if (!strstr(told->help, dashed) || !strstr(told->page, roff.p))
        test_fail(__FILE__, __LINE__, "%s: --%s is not told everywhere", told->command->name,
                  option->name);
}

static void check_command(const struct cli_command *command)
{
    auto_buf struct buf help = {0}, page = {0};
    struct str rest = str_of(command->name);
    auto_free char *first = str_dup(str_split(&rest, ' '));
    struct cli cli = {.data_dir = "/nowhere"};

    if (!command->examples)
        test_fail(__FILE__, __LINE__, "%s has no examples", command->name);
    CHECK_INT(rest.p ? RUN(&help, ARG("help"), first, ARG(rest.p)) : RUN(&help, ARG("help"), first),
              0);
    CHECK_INT(RUN(&page, ARG("man"), first), 0);
    CHECK(strstr(help.p, "Examples:"));
    for (const char *line = page.p; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        CHECK(*line != '\''); /* neither text nor examples are taken for requests */
    }
    cli_options_visit(&cli, command, check_told,
                      &(struct told){.command = command, .help = help.p, .page = page.p});
}

TEST(help_and_manual_pages_come_from_one_table)
{
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        if (!(*c)->verbs)
            check_command(*c);
        for (const struct cli_command *const *verb = (*c)->verbs; verb && *verb; verb++)
            check_command(*verb);
    }
}

TEST(manual_pages_as_files)
{
    char dir[] = "/tmp/cli-test-XXXXXX";
    auto_free char *file = NULL;
    auto_buf struct buf out = {0}, page = {0};

    CHECK(mkdtemp(dir));
    CHECK_INT(RUN(&out, ARG("man"), ARG("--dir"), dir), 0);
    file = xasprintf("%s/quicksand-exec.1", dir);
    buf_init(&page, 64 * 1024);
    CHECK_INT(fd_read_file_at(AT_FDCWD, file, &page), 0);
    CHECK(str_starts(buf_str(&page), STR(".TH QUICKSAND-EXEC 1 ")));
    CHECK_INT(RUN(&out, ARG("man"), ARG("--dir"), dir, ARG("ls")), 2);
    CHECK_INT(RUN(&out, ARG("man"), ARG("nope")), 2);
    CHECK_INT(RUN(&out, ARG("man"), ARG("--dir"), ARG("/nonexistent/x")), 1);
    CHECK_INT(path_remove_tree(AT_FDCWD, dir), 0);
}

TEST(exit_statuses)
{
    static const char *const wrong[][4] = {
        {"nope"},
        {"run"},
        {"run", "--"},
        {"exec"},
        {"exec", "i1"},
        {"ls", "x"},
        {"show"},
        {"rm"},
        {"cp", "a"},
        {"cp", "a", "b"},
        {"key"},
        {"key", "new", "a", "b"},
        {"template"},
        {"doctor", "x"},
        {"run", "-e", "x", "true"},
        {"help", "x"},
        {"exec", "i1", "-x"},
        {"version", "x"},
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char *argv[6] = {ARG("quicksand")};
        auto_buf struct buf out = {0};

        for (size_t k = 0; k < 4; k++)
            argv[k + 1] = ARG(wrong[i][k]);
        if (cli_test_run(argv, &out) != CLI_USAGE)
            test_fail(__FILE__, __LINE__, "'%s %s' is no usage error", wrong[i][0],
                      wrong[i][1] ? wrong[i][1] : "");
        CHECK_INT(out.len, 0);
    }
}

TEST(help_of_every_command)
{
    auto_buf struct buf all = {0};

    CHECK_INT(RUN(&all, ARG("help")), 0);
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        auto_buf struct buf one = {0};

        CHECK(strstr(all.p, (*c)->name));
        CHECK_INT(RUN(&one, ARG("help"), ARG((*c)->name)), 0);
        CHECK(str_starts(buf_str(&one), STR("Usage: quicksand ")));
        CHECK(strstr(one.p, (*c)->verbs ? "describes a verb" : "--json"));
        for (const struct cli_command *const *v = (*c)->verbs; v && *v; v++) {
            auto_buf struct buf verb = {0};
            auto_free char *usage = xasprintf("Usage: quicksand %s", (*v)->name);
            const char *second = strchr((*v)->name, ' ') + 1;

            CHECK(strstr(one.p, (*v)->name) && strstr((*c)->operands, second));
            if (strcmp(second, "build") == 0)
                continue;
            CHECK_INT(RUN(&verb, ARG((*c)->name), ARG(second), ARG("--help")), 0);
            CHECK(strstr(verb.p, usage) && strstr(verb.p, "--json"));
        }
    }
}

TEST(times)
{
    int64_t s = -1;

    CHECK(cli_time_parse("90", &s) && s == 90);
    CHECK(cli_time_parse("90s", &s) && s == 90);
    CHECK(cli_time_parse("30m", &s) && s == 1800);
    CHECK(cli_time_parse("24h", &s) && s == 86400);
    CHECK(cli_time_parse("7d", &s) && s == 604800);
    CHECK(!cli_time_parse("", &s) && !cli_time_parse("h", &s) && !cli_time_parse("1h30m", &s));
    CHECK(!cli_time_parse("-1s", &s) && !cli_time_parse("99999999999d", &s));
}

/* A single operand with blanks is a line for the shell; anything else is as it is. */
TEST(lines_for_the_shell)
{
    char *shell[CLI_RUNTIME_SHELL], *one[] = {ARG("echo hi"), NULL},
                                    *two[] = {ARG("a b"), ARG("c")};
    char *const *argv = one;
    int argc = 1;

    cli_runtime_line(&argv, &argc, shell);
    CHECK(argv == shell && argc == 4);
    CHECK_STR(str_of(argv[3]), "echo hi");
    argv = two;
    argc = 2;
    cli_runtime_line(&argv, &argc, shell);
    CHECK(argv == two && argc == 2);
}

TEST(completion_knows_every_command_and_option)
{
    auto_buf struct buf bash = {0}, zsh = {0}, fish = {0}, none = {0};

    CHECK_INT(RUN(&bash, ARG("completion"), ARG("bash")), 0);
    CHECK_INT(RUN(&zsh, ARG("completion"), ARG("zsh")), 0);
    CHECK_INT(RUN(&fish, ARG("completion"), ARG("fish")), 0);
    CHECK_INT(RUN(&none, ARG("completion"), ARG("csh")), CLI_USAGE);
    CHECK(str_starts(buf_str(&zsh), STR("#compdef quicksand\n")));
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        auto_free char *word = xasprintf("-a %s ", (*c)->name);
        auto_free char *row = xasprintf("'%s') words='", (*c)->name);

        CHECK(strstr(bash.p, row) && strstr(fish.p, word));
    }
    CHECK(strstr(bash.p, "'session new') words='--agent -a --repo"));
    CHECK(strstr(fish.p, "'__quicksand_is up' -l key -s k -r -d 'the same key"));
}

TEST(no_server_is_one_clear_line)
{
    auto_buf struct buf out = {0};

    CHECK_INT(setenv("QUICKSAND_API_KEY", "e2b_00", 1), 0);
    CHECK_INT(setenv("QUICKSAND_URL", "http://127.0.0.1:1", 1), 0);
    CHECK_INT(RUN(&out, ARG("ls")), 1);
    CHECK_INT(out.len, 0);
}

TEST(cp_operands)
{
    const char *path;
    struct str id;

    CHECK(cli_cp_split("i0123456789abcdefghi:/a:b", &id, &path));
    CHECK_STR(id, "i0123456789abcdefghi");
    CHECK_STR(str_of(path), "/a:b");
    CHECK(cli_cp_split("i0123456789abcdefghi:", &id, &path));
    CHECK(!cli_cp_split("./file:1", &id, &path));
    CHECK(!cli_cp_split("i0123456789abcdefghi", &id, &path));
    CHECK(!cli_cp_split("-", &id, &path));
    CHECK(cli_cp_split("sbx_0123456789abcdefghij:a/b", &id, &path));
    CHECK_STR(id, "sbx_0123456789abcdefghij");
    CHECK_STR(str_of(path), "a/b");
    CHECK(cli_cp_split("key:conversation:c1:s1:/tmp/x:y", &id, &path));
    CHECK_STR(id, "key:conversation:c1:s1");
    CHECK_STR(str_of(path), "/tmp/x:y");
    CHECK(cli_cp_split("key:ws_1:notes", &id, &path));
    CHECK_STR(id, "key:ws_1");
    CHECK_STR(str_of(path), "notes");
    CHECK(!cli_cp_split("key:ws_1", &id, &path));
    CHECK(!cli_cp_split("sbx_dir/file:1", &id, &path));
}

TEST(tables_are_aligned)
{
    static const char *const columns[] = {"A", "LONG", "C", NULL};
    struct cli_table *table = cli_table_new(columns);
    auto_free char *text = NULL;
    size_t len;
    FILE *file = open_memstream(&text, &len);

    cli_table_add(table, STR("\xc3\xa9\xc3\xa9"));
    cli_table_addf(table, "%d", 7);
    cli_table_add(table, STR("x\033[2J"));
    cli_table_print(table, file);
    (void)fclose(file);
    cli_table_free(table);
    CHECK_STR(str_of(text), "A   LONG  C\n\xc3\xa9\xc3\xa9  7     x?[2J\n");
}

static void check_age(int64_t seconds, const char *want)
{
    char text[CLI_AGE_SIZE];

    cli_age(seconds * 1000000, text);
    CHECK_STR(str_of(text), want);
}

TEST(ages)
{
    check_age(-5, "0s");
    check_age(59, "59s");
    check_age(60, "1m");
    check_age(3 * 60 + 59, "3m");
    check_age(3600, "1h");
    check_age(47 * 3600, "47h");
    check_age(5 * 86400, "5d");
}

TEST(keys_are_made_listed_and_removed)
{
    char dir[] = "/tmp/cli-test-XXXXXX";
    auto_free char *path = NULL;
    auto_buf struct buf made = {0}, list = {0}, rest = {0};
    auto_json json_t *json = NULL;
    struct store *store = NULL;
    struct error err = {0};

    CHECK(mkdtemp(dir));
    CHECK_INT(RUN(&rest, ARG("key"), ARG("ls"), ARG("--data"), dir), 1); /* no database */
    buf_done(&rest);
    path = xasprintf("%s/store", dir);
    CHECK_INT(mkdir(path, 0700), 0);
    free(path);
    path = xasprintf("%s/" CLI_STORE_FILE, dir);
    CHECK_INT(store_open(path, &store, &err), 0);
    CHECK_INT(team_ensure_default(store, &err), 0);
    store_close(store);
    CHECK_INT(RUN(&made, ARG("key"), ARG("new"), ARG("laptop"), ARG("--data"), dir), 0);
    CHECK(str_starts(buf_str(&made), STR("e2b_")));
    CHECK_INT(made.len, API_KEY_SIZE);
    CHECK_INT(RUN(&list, ARG("key"), ARG("ls"), ARG("--json"), ARG("--data"), dir), 0);
    CHECK_INT(json_parse(buf_str(&list), &json, &err), 0);
    CHECK_INT(json_array_size(json), 1);
    CHECK_STR(json_get_str(json_array_get(json, 0), "name"), "laptop");
    CHECK(!strstr(list.p, made.p));
    CHECK_INT(RUN(&rest, ARG("key"), ARG("rm"), ARG("--data"), dir,
                  ARG(json_get_str(json_array_get(json, 0), "id").p)),
              0);
    buf_done(&rest);
    CHECK_INT(RUN(&rest, ARG("key"), ARG("ls"), ARG("--data"), dir), 0);
    CHECK(!strstr(rest.p, "laptop"));
    CHECK_INT(path_remove_tree(AT_FDCWD, dir), 0);
}

TEST_TIMEOUT(doctor_on_this_machine, 60)
{
    auto_buf struct buf text = {0}, list = {0};
    auto_json json_t *json = NULL;
    char dir[] = "/tmp/cli-test-XXXXXX";
    struct error err = {0};

    test_needs_root();
    CHECK(mkdtemp(dir) != NULL);
    for (size_t i = 0; part_names[i]; i++) {
        auto_free char *path = xasprintf("%s/%s", dir, part_names[i]);

        CHECK(close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0755)) == 0);
    }
    parts_set_dir(dir);
    if (RUN(&text, ARG("doctor"), ARG("--data"), ARG("/tmp")) != 0)
        test_fail(__FILE__, __LINE__, "doctor failed:\n%s", text.p);
    CHECK(strstr(text.p, "overlayfs"));
    CHECK_INT(RUN(&list, ARG("doctor"), ARG("--json"), ARG("--data"), ARG("/nonexistent/x")), 0);
    CHECK_INT(json_parse(buf_str(&list), &json, &err), 0);
    CHECK(json_array_size(json) >= 20);
    for (size_t i = 0; i < json_array_size(json); i++) {
        struct str status = json_get_str(json_array_get(json, i), "status");

        CHECK(json_get_str(json_array_get(json, i), "detail").len > 0);
        CHECK(str_is(status, "ok") || json_get_str(json_array_get(json, i), "fix").len > 0);
    }
    parts_set_dir("");
    CHECK_INT(path_remove_tree(AT_FDCWD, dir), 0);
}

TEST(text_of_others_is_only_shown)
{
    static const struct {
        const char *in, *cell, *lines;
    } rows[] = {
        {"plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
         "plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
         "plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"a\033]52;c;ZXZpbA==\007b", "a?]52;c;ZXZpbA==?b", "a?]52;c;ZXZpbA==?b"},
        {"a\tb\nc\rd", "a?b?c?d", "a\tb\nc?d"},
        {"x\xc2\x9b"
         "2Jy",
         "x??2Jy", "x??2Jy"}, /* CSI in one character */
        {"x\xe2\x80\xaey\xe2\x81\xa6", "x???y???", "x???y???"},
        {"\x7f\xc2", "?\xc2", "?\xc2"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        auto_free char *cell = xstrdup(rows[i].in), *lines = xstrdup(rows[i].in);

        CHECK_STR(str_of(cli_defuse(cell, false)), rows[i].cell);
        CHECK_STR(str_of(cli_defuse(lines, true)), rows[i].lines);
    }
}

/* Options: "--name VALUE", "--name=VALUE", "-x VALUE", "-xVALUE", "-xyz". Operands are moved to the front of
 * argv in their order, so they need no memory of their own. */
#include "cli/core/cli_args.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli/core/cli_command.h"
#include "cli/core/cli_find.h"

enum { COMMON_OPTIONS = 3, LIST_MAX = 4096, GIVEN_MAX = 64 };

/* What this command line said, for messages about it; further ones are not blamed. */
static struct {
    const char *name, *value;
} given[GIVEN_MAX];
static size_t given_count;

static void common_options(struct cli *cli, bool *help, struct cli_option out[COMMON_OPTIONS])
{
    out[0] = (struct cli_option){"json", 0, CLI_FLAG, &cli->json, NULL, "print JSON"};
    out[1] = (struct cli_option){"url",    0,
                                 CLI_TEXT, &cli->url,
                                 "URL",    "the server, or its context (default: $QUICKSAND_URL)"};
    out[2] = (struct cli_option){"help", 'h', CLI_FLAG, help, NULL, "show this text"};
}

static void print_option(void *arg, const struct cli_option *option)
{
    char left[64];

    (void)arg;
    (void)snprintf(left, sizeof(left), "%c%c%s--%s%s%s", option->letter ? '-' : ' ',
                   option->letter ? option->letter : ' ', option->letter ? ", " : "  ",
                   option->name, option->value ? " " : "", option->value ? option->value : "");
    printf("  %-28s %s\n", left, option->help);
}

void cli_help(const struct cli *cli, const struct cli_command *command)
{
    struct str examples = str_of(command->examples);

    printf("Usage: quicksand %s%s%s\n%s\n", command->name, command->operands[0] ? " " : "",
           command->operands, command->help);
    for (const struct cli_alias *alias = cli_aliases; alias->name; alias++)
        if (strcmp(alias->command, command->name) == 0)
            printf("Also known as: quicksand %s\n", alias->name);
    printf("\nOptions:\n");
    cli_options_visit(cli, command, print_option, NULL);
    if (examples.len)
        printf("\nExamples:\n");
    while (examples.len) {
        struct str line = str_split(&examples, '\n');

        printf("  %.*s\n", STR_ARG(line));
    }
}

static bool is_option(const struct cli_option *option, struct str name, bool is_letter)
{
    if (is_letter)
        return name.len && option->letter == name.p[0];
    return str_is(name, option->name);
}

static const struct cli_option *find_option(const struct cli_option *options,
                                            const struct cli_option common[COMMON_OPTIONS],
                                            struct str name, bool is_letter)
{
    for (; options->name; options++)
        if (is_option(options, name, is_letter))
            return options;
    for (size_t i = 0; i < COMMON_OPTIONS; i++)
        if (is_option(&common[i], name, is_letter))
            return &common[i];
    return NULL;
}

static int set_option(const struct cli_command *command, const struct cli_option *option,
                      const char *value)
{
    struct cli_list *list = option->out;
    int64_t number;

    if (value && given_count < GIVEN_MAX) {
        given[given_count].name = option->name;
        given[given_count++].value = value;
    }
    switch (option->kind) {
    case CLI_FLAG:
        *(bool *)option->out = true;
        return CLI_ARGS_RUN;
    case CLI_TEXT:
        *(const char **)option->out = value;
        return CLI_ARGS_RUN;
    case CLI_NUMBER:
        if (!str_to_i64(str_of(value), &number) || number < 0)
            return cli_usage(command, "--%s needs a number, not '%s'", option->name, value);
        *(int64_t *)option->out = number;
        return CLI_ARGS_RUN;
    case CLI_COUNT:
        if (!str_to_i64(str_of(value), &number) || number < 1)
            return cli_usage(command, "--%s needs a number, at least 1, not '%s'", option->name,
                             value);
        *(int64_t *)option->out = number;
        return CLI_ARGS_RUN;
    case CLI_TIME:
    case CLI_TIME_0:
        if (!cli_time_parse(value, &number) || (option->kind == CLI_TIME && number == 0))
            return cli_usage(command, "--%s needs a time like 90s, 30m or 24h, not '%s'",
                             option->name, value);
        *(int64_t *)option->out = number;
        return CLI_ARGS_RUN;
    case CLI_MB:
    case CLI_MB_MAX:
        if (option->kind == CLI_MB_MAX && str_is(str_of(value), "0"))
            *(int64_t *)option->out = 0;
        else if (!cli_mb_parse(value, option->out))
            return cli_usage(command, "--%s needs a size like 512 (MiB), 512m or 2g%s, not '%s'",
                             option->name, option->kind == CLI_MB_MAX ? ", or 0 for no limit" : "",
                             value);
        return CLI_ARGS_RUN;
    case CLI_LIST:
        if (list->count == LIST_MAX)
            return cli_usage(command, "--%s is given too often", option->name);
        list->items = xrealloc(list->items, (list->count + 1) * sizeof(*list->items));
        list->items[list->count++] = value;
        return CLI_ARGS_RUN;
    }
    return CLI_USAGE;
}

/* As APIs call what options say, where that is another word. */
static const struct {
    const char *option, *member;
} members[] = {
    {"cpu", "cpuCount"},
    {"cpu", "limits.cpu"},
    {"memory", "memoryMB"},
    {"memory", "limits.memoryMb"},
    {"disk", "diskSizeMB"},
    {"disk", "limits.diskMb"},
    {"timeout", "Timeout"},
    {"idle", "idleTimeoutSeconds"},
    {"expire-after", "expireAfterSeconds"},
    {"max-lifetime", "maxLifetimeSeconds"},
    {"network", "network.mode"},
    {"peers", "network.peers"},
    {"workspace", "workspaceRoot"},
    {"permission", "permission_mode"},
    {"callback", "callback url"},
    {"event", "'events'"},
    {"key", "key must"},
    {"agent", "an agent's id"},
    {"name", "name has"},
    {"max-sandboxes", "maxSandboxes"},
    {"max-cpu", "maxCpu"},
    {"max-memory", "maxMemoryMB"},
    {"max-disk", "maxDiskMB"},
    {"max-creates", "maxCreatesPerMinute"},
};

static bool is_about(const char *message, const char *name, const char *value)
{
    auto_free char *quoted = xasprintf("'%s'", value), *member = xasprintf("'%s'", name);
    auto_free char *below = xasprintf("'%s/", value); /* a file in a directory that was named */
    /* NAME=VALUE and NAME:PATH are quoted by their names. */
    auto_free char *first = xasprintf("'%.*s'", (int)strcspn(value, "=:"), value);

    if (strstr(message, member) ||
        (value[0] && (strstr(message, quoted) || strstr(message, below))) ||
        (strlen(first) > 2 && strstr(message, first)))
        return true;
    for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++)
        if (strcmp(members[i].option, name) == 0 && strstr(message, members[i].member))
            return true;
    return false;
}

const char *cli_args_blame(const char *message)
{
    const char *found = NULL;

    for (size_t i = 0; i < given_count; i++) {
        auto_free char *itself = xasprintf("--%s", given[i].name);

        if (strstr(message, itself))
            return NULL;
        if (!found && is_about(message, given[i].name, given[i].value))
            found = given[i].name;
    }
    return found;
}

static int unknown_option(const struct cli_command *command, const struct cli_option *options,
                          const struct cli_option common[COMMON_OPTIONS], const char *arg)
{
    auto_free char *word = str_dup(str_of(arg[1] == '-' ? arg + 2 : arg + 1));
    struct cli_guess guess = {.word = word};

    word[strcspn(word, "=")] = 0;
    for (; arg[1] == '-' && options->name; options++)
        cli_guess_try(&guess, options->name);
    for (size_t i = 0; arg[1] == '-' && i < COMMON_OPTIONS; i++)
        cli_guess_try(&guess, common[i].name);
    if (guess.best)
        return cli_usage(command, "unknown option '%s' (did you mean '--%s'?)", arg, guess.best);
    return cli_usage(command, "unknown option '%s'", arg);
}

/* "-abc": letters of flags, of which the last may be an option with a value ("-itu root", "-n5"). */
static int take_letters(const struct cli_command *command, const struct cli_option *options,
                        const struct cli_option common[COMMON_OPTIONS], int argc, char **argv,
                        int *at)
{
    const char *arg = argv[*at];

    for (const char *letter = arg + 1; *letter; letter++) {
        const struct cli_option *option = find_option(options, common, str_n(letter, 1), true);
        int rc;

        if (!option)
            return unknown_option(command, options, common, arg);
        if (option->kind != CLI_FLAG) {
            if (!letter[1] && *at + 1 >= argc)
                return cli_usage(command, "--%s needs a value", option->name);
            return set_option(command, option, letter[1] ? letter + 1 : argv[++*at]);
        }
        rc = set_option(command, option, NULL);
        if (rc != CLI_ARGS_RUN)
            return rc;
    }
    return CLI_ARGS_RUN;
}

/* Reads the option at argv[*at] and its value; *at then is the last argument used. */
static int take_option(const struct cli_command *command, const struct cli_option *options,
                       const struct cli_option common[COMMON_OPTIONS], int argc, char **argv,
                       int *at)
{
    const char *arg = argv[*at], *value = NULL;
    struct str name = str_of(arg + 2);
    const struct cli_option *option;
    ptrdiff_t equals;

    if (arg[1] != '-')
        return take_letters(command, options, common, argc, argv, at);
    equals = str_find(name, '=');
    if (equals >= 0) {
        value = name.p + equals + 1;
        name.len = (size_t)equals;
    }
    option = find_option(options, common, name, false);
    if (!option)
        return unknown_option(command, options, common, arg);
    if (option->kind == CLI_FLAG && value)
        return cli_usage(command, "--%s takes no value", option->name);
    if (option->kind != CLI_FLAG && !value) {
        if (*at + 1 >= argc)
            return cli_usage(command, "--%s needs a value", option->name);
        value = argv[++*at];
    }
    return set_option(command, option, value);
}

int cli_args(struct cli *cli, const struct cli_command *command, const struct cli_option *options,
             enum cli_args_mode mode, int argc, char **argv, char ***out_operands, int *out_count)
{
    static const struct cli_option none[] = {{.name = NULL}};
    struct cli_option common[COMMON_OPTIONS];
    bool help = false;
    int count = 0, i;

    if (!options)
        options = none;
    if (!cli->visit)
        given_count = 0;
    common_options(cli, &help, common);
    if (cli->visit) {
        for (; options->name; options++)
            cli->visit(cli->visit_arg, options);
        for (i = 0; i < COMMON_OPTIONS; i++)
            cli->visit(cli->visit_arg, &common[i]);
        return CLI_OK;
    }
    for (i = 1; i < argc; i++) {
        bool operand = argv[i][0] != '-' || !argv[i][1];

        if (operand && mode == CLI_ARGS_FIRST)
            break;
        if (operand) {
            argv[1 + count++] = argv[i];
        } else if (strcmp(argv[i], "--") == 0) {
            i++;
            break;
        } else {
            int rc = take_option(command, options, common, argc, argv, &i);

            if (rc != CLI_ARGS_RUN)
                return rc;
        }
    }
    for (; i < argc; i++)
        argv[1 + count++] = argv[i];
    if (help) {
        cli_help(cli, command);
        return CLI_OK;
    }
    *out_operands = argv + 1;
    *out_count = count;
    return CLI_ARGS_RUN;
}

bool cli_time_parse(const char *text, int64_t *out_s)
{
    static const struct {
        char letter;
        int64_t seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    struct str number = str_of(text);
    int64_t unit = 1, value;

    for (size_t i = 0; number.len && i < sizeof(units) / sizeof(units[0]); i++)
        if (number.p[number.len - 1] == units[i].letter) {
            unit = units[i].seconds;
            number.len--;
            break;
        }
    if (!str_to_i64(number, &value) || value < 0 || value > INT32_MAX)
        return false;
    *out_s = value * unit;
    return true;
}

bool cli_mb_parse(const char *text, int64_t *out_mb)
{
    struct str number = str_of(text);
    int64_t unit = 1, value;
    char last = number.len ? number.p[number.len - 1] : 0;

    if (last == 'm' || last == 'M' || last == 'g' || last == 'G') {
        unit = last == 'g' || last == 'G' ? 1024 : 1;
        number.len--;
    }
    if (!str_to_i64(number, &value) || value < 1 || value > INT32_MAX)
        return false;
    *out_mb = value * unit;
    return true;
}

void cli_list_done(struct cli_list *list)
{
    free(list->items);
    *list = (struct cli_list){0};
}

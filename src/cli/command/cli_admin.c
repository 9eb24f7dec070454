/* provider, profile, prune, stats. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "cli/command/cli_top.h"
#include "cli/command/commands.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_shape.h"

/* ---- provider ---- */

static const struct cli_column provider_columns[] = {
    {"NAME", "name", false},           {"TYPE", "type", false},
    {"STATE", "state", false},         {"DEFAULT", "default", false},
    {"ISOLATION", "isolation", false}, {"NETWORK", "egress", false},
    {"ERROR", "last_error", false},    {NULL, NULL, false},
};

static const struct cli_command provider_ls, provider_check, provider_add, provider_rm;

static int run_provider_ls(struct cli *cli, int argc, char **argv)
{
    auto_json json_t *answer = NULL;
    struct error err = {0};
    char **operands;
    int count,
        rc = cli_args(cli, &provider_ls, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count)
        return cli_usage(&provider_ls, "takes no operand");
    if (cli_connect(cli, &err) < 0 ||
        cli_v1(cli, "GET", cli_v1_path("providers"), NULL, &answer, &err) < 0)
        return cli_fail(&err);
    cli_print_list(cli, answer, "providers", provider_columns);
    return CLI_OK;
}

/* Asks each, or the named ones; fails when one does not answer. */
static int run_provider_check(struct cli *cli, int argc, char **argv)
{
    auto_json json_t *answer = NULL, *shown = json_array();
    json_t *row;
    struct error err = {0};
    char **operands, *path;
    size_t i;
    int count, status = CLI_OK;
    int rc = cli_args(cli, &provider_check, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    path = xasprintf(CLI_V1 "/providers?check=true");
    if (cli_connect(cli, &err) < 0 || cli_v1(cli, "GET", path, NULL, &answer, &err) < 0)
        return cli_fail(&err);
    json_array_foreach (json_object_get(answer, "providers"), i, row) {
        bool wanted = count == 0;

        for (int k = 0; k < count; k++)
            wanted |= str_eq_nocase(json_get_str(row, "name"), str_of(operands[k]));
        if (!wanted)
            continue;
        (void)json_array_append(shown, row);
        if (!str_is(json_get_str(row, "state"), "ok"))
            status = CLI_FAILED;
    }
    if ((size_t)count > json_array_size(shown)) {
        (void)error_set(&err, ERROR_NOT_FOUND,
                        "not all of these providers are there; see 'quicksand provider ls'");
        return cli_fail(&err);
    }
    if (cli->json)
        cli_print_json(shown);
    else
        cli_print_rows(shown, provider_columns);
    return status;
}

static int run_provider_add(struct cli *cli, int argc, char **argv)
{
    const char *token = NULL;
    int64_t most = 1;
    const struct cli_option table[] = {
        {"token", 0, CLI_TEXT, &token, "TOKEN", "what its envd asks for"},
        {"max", 0, CLI_COUNT, &most, "N", "sandboxes it takes at once (1)"},
        {.name = NULL},
    };
    auto_json json_t *body = json_object(), *answer = NULL;
    struct error err = {0};
    char **operands;
    int count,
        rc = cli_args(cli, &provider_add, table, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count != 2)
        return cli_usage(&provider_add, "needs a name and a URL");
    (void)json_object_set_new(body, "max_sessions", json_integer(most));
    if (cli_v1_set(body, "name", operands[0], &err) < 0 ||
        cli_v1_set(body, "base_url", operands[1], &err) < 0 ||
        cli_v1_set(body, "token", token, &err) < 0 || cli_connect(cli, &err) < 0 ||
        cli_v1(cli, "POST", cli_v1_path("providers"), body, &answer, &err) < 0)
        return cli_fail(&err);
    if (cli->json)
        cli_print_json(answer);
    else
        printf("%s\n", operands[0]);
    return CLI_OK;
}

/* DELETE of each operand in a collection. */
static int remove_all(struct cli *cli, const struct cli_command *command, const char *collection,
                      int argc, char **argv)
{
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, command, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count == 0)
        return cli_usage(command, "needs a name");
    if (cli_connect(cli, &err) < 0)
        return cli_fail(&err);
    return cli_v1_remove(cli, collection, NULL, operands, count);
}

static int run_provider_rm(struct cli *cli, int argc, char **argv)
{
    return remove_all(cli, &provider_rm, "providers", argc, argv);
}

static const struct cli_command provider_ls = {"provider ls", "[OPTION...]",
                                               "List where sandboxes can be.", run_provider_ls,
                                               .examples = "quicksand provider ls"};
static const struct cli_command provider_check = {
    "provider check", "[OPTION...] [NAME...]",
    "Ask providers whether they are there and take our key.\n"
    "Exit status 1 when one does not.",
    run_provider_check,
    .examples = "quicksand provider check\n"
                "quicksand provider check e2b"};
static const struct cli_command provider_add = {
    "provider add", "[OPTION...] NAME URL",
    "Register a runner that serves at URL ('quicksand runner' does so itself).", run_provider_add,
    .examples = "quicksand provider add build-host http://10.0.0.7:49983"};
static const struct cli_command provider_rm = {"provider rm", "[OPTION...] NAME...",
                                               "Remove registered runners.", run_provider_rm,
                                               .examples = "quicksand provider rm build-host"};
const struct cli_command cli_provider_command = {
    "provider", "ls, check, add, rm", "Where sandboxes can be: engines, clouds, runners.", NULL,
    (const struct cli_command *const[]){&provider_ls, &provider_check, &provider_add, &provider_rm,
                                        NULL}};

/* ---- profile ---- */

static const struct cli_command profile_ls, profile_show, profile_set, profile_validate, profile_rm;

/* A record {"name", "config": {...}} has its members in config: one table shows both forms. */
static json_t *plain_profiles(const json_t *rows)
{
    json_t *out = json_array(), *row;
    size_t i;

    json_array_foreach (rows, i, row) {
        const json_t *config = json_object_get(row, "config");
        json_t *plain = json_copy(row);

        if (json_is_object(config))
            (void)json_object_update(plain, (json_t *)(uintptr_t)config);
        (void)json_object_set(plain, "name", json_object_get(row, "name"));
        (void)json_array_append_new(out, plain);
    }
    return out;
}

static int run_profile_ls(struct cli *cli, int argc, char **argv)
{
    static const struct cli_column columns[] = {
        {"NAME", "name", false},
        {"PROVIDER", "provider", false},
        {"TEMPLATE", "template", false},
        {"NETWORK", "network.mode", false},
        {"PERSISTENT", "persistent", false},
        {"READ-ONLY", "readOnly", false},
        {NULL, NULL, false},
    };
    auto_json json_t *answer = NULL, *plain = NULL;
    struct error err = {0};
    char **operands;
    int count,
        rc = cli_args(cli, &profile_ls, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count)
        return cli_usage(&profile_ls, "takes no operand");
    if (cli_connect(cli, &err) < 0 ||
        cli_v1(cli, "GET", cli_v1_path("profiles"), NULL, &answer, &err) < 0)
        return cli_fail(&err);
    plain = plain_profiles(json_object_get(answer, "profiles"));
    if (cli->json)
        cli_print_json(json_object_get(answer, "profiles"));
    else
        cli_print_rows(plain, columns);
    return CLI_OK;
}

static int run_profile_show(struct cli *cli, int argc, char **argv)
{
    auto_json json_t *answer = NULL;
    struct error err = {0};
    char **operands;
    int count,
        rc = cli_args(cli, &profile_show, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count != 1)
        return cli_usage(&profile_show, "needs one profile");
    if (cli_connect(cli, &err) < 0 ||
        cli_v1(cli, "GET", cli_v1_path("profiles", operands[0]), NULL, &answer, &err) < 0)
        return cli_fail(&err);
    if (cli->json)
        cli_print_json(answer);
    else
        cli_print_members(answer);
    return CLI_OK;
}

/* All faults on stderr. CLI_OK when there are none. */
static int validate(struct cli *cli, const char *name, const json_t *record, bool print)
{
    auto_json json_t *answer = NULL, *none = json_object();
    json_t *fault;
    struct error err = {0};
    size_t i;

    if (cli_v1(cli, "POST", cli_v1_path("profiles", name, "validate"), record ? record : none,
               &answer, &err) < 0)
        return cli_fail(&err);
    if (print && cli->json)
        cli_print_json(answer);
    json_array_foreach (json_object_get(answer, "faults"), i, fault) {
        auto_free char *path = cli_print_str(fault, "path");
        auto_free char *message = cli_print_str(fault, "message");

        (void)fflush(stdout);
        (void)fprintf(stderr, "%s: %s%s%s\n", name, path, path[0] ? ": " : "", message);
    }
    if (!json_is_true(json_object_get(answer, "valid")))
        return CLI_FAILED;
    if (print && !cli->json)
        printf("%s: good\n", name);
    return CLI_OK;
}

static int run_profile_set(struct cli *cli, int argc, char **argv)
{
    auto_json json_t *record = NULL, *kept = NULL;
    struct error err = {0};
    char **operands;
    int count,
        rc = cli_args(cli, &profile_set, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count != 2)
        return cli_usage(&profile_set, "needs a name and a file");
    if (cli_v1_read_file(operands[1], &record, &err) < 0 || cli_connect(cli, &err) < 0)
        return cli_fail(&err);
    rc = validate(cli, operands[0], record, false);
    if (rc != CLI_OK)
        return rc;
    if (cli_v1(cli, "PUT", cli_v1_path("profiles", operands[0]), record, &kept, &err) < 0)
        return cli_fail(&err);
    if (cli->json)
        cli_print_json(kept);
    else
        printf("%s\n", operands[0]);
    return CLI_OK;
}

static int run_profile_validate(struct cli *cli, int argc, char **argv)
{
    auto_json json_t *record = NULL;
    auto_free char *name = NULL;
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &profile_validate, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands,
                             &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count != 1)
        return cli_usage(&profile_validate, "needs one file, or the name of a profile");
    /* What is no file here is one that the server has. */
    if (strcmp(operands[0], "-") == 0 || access(operands[0], F_OK) == 0) {
        if (cli_v1_read_file(operands[0], &record, &err) < 0)
            return cli_fail(&err);
        name = json_get_str(record, "name").len ? str_dup(json_get_str(record, "name"))
                                                : xstrdup("profile");
    } else {
        name = xstrdup(operands[0]);
    }
    if (cli_connect(cli, &err) < 0)
        return cli_fail(&err);
    return validate(cli, name, record, true);
}

static int run_profile_rm(struct cli *cli, int argc, char **argv)
{
    return remove_all(cli, &profile_rm, "profiles", argc, argv);
}

static const struct cli_command profile_ls = {"profile ls", "[OPTION...]", "List the profiles.",
                                              run_profile_ls, .examples = "quicksand profile ls"};
static const struct cli_command profile_show = {
    "profile show", "[OPTION...] NAME", "Show a profile; values of its environment are hidden.",
    run_profile_show, .examples = "quicksand profile show reviewer"};
static const struct cli_command profile_set = {
    "profile set", "[OPTION...] NAME FILE", "Keep a profile; FILE is JSON ('-' is stdin).",
    run_profile_set, .examples = "quicksand profile set reviewer reviewer.json"};
static const struct cli_command profile_validate = {
    "profile validate", "[OPTION...] FILE|NAME",
    "Check a profile as a whole.\nAll faults are told at once; exit status 1 when there are any.",
    run_profile_validate, .examples = "quicksand profile validate reviewer.json"};
static const struct cli_command profile_rm = {"profile rm", "[OPTION...] NAME...",
                                              "Remove profiles.", run_profile_rm,
                                              .examples = "quicksand profile rm reviewer"};
const struct cli_command cli_profile_command = {
    "profile", "ls, show, set, validate, rm", "What sandboxes are like.", NULL,
    (const struct cli_command *const[]){&profile_ls, &profile_show, &profile_set, &profile_validate,
                                        &profile_rm, NULL}};

/* ---- prune ---- */

static int run_prune(struct cli *cli, int argc, char **argv)
{
    int64_t older_than_s = 0;
    bool dry_run = false;
    const struct cli_option table[] = {
        {"older-than", 0, CLI_TIME_0, &older_than_s, "TIME",
         "unused for so long, with a key or paused or not"},
        {"dry-run", 0, CLI_FLAG, &dry_run, NULL, "only count them"},
        {.name = NULL},
    };
    auto_json json_t *body = NULL, *answer = NULL;
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &cli_prune_command, table, CLI_ARGS_ANYWHERE, argc, argv,
                             &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count)
        return cli_usage(&cli_prune_command, "takes no operand");
    body = json_pack("{s:b}", "dry_run", (int)dry_run);
    if (older_than_s)
        (void)json_object_set_new(body, "older_than", json_integer(older_than_s));
    if (cli_connect(cli, &err) < 0 ||
        cli_v1(cli, "POST", cli_v1_path("prune"), body, &answer, &err) < 0)
        return cli_fail(&err);
    if (cli->json)
        cli_print_json(answer);
    else
        printf("%s %lld sandboxes and %lld snapshots\n", dry_run ? "would remove" : "removed",
               (long long)json_integer_value(json_object_get(answer, "sandboxes")),
               (long long)json_integer_value(json_object_get(answer, "snapshots")));
    return CLI_OK;
}

const struct cli_command cli_prune_command = {
    "prune", "[OPTION...]",
    "Remove sandboxes nobody used for long, and expired snapshots.\n"
    "Without --older-than, as the server does every hour: sandboxes that run without a key and\n"
    "were not used for 24 hours. With it, all that were not used for so long.",
    run_prune,
    .examples = "quicksand prune --dry-run\n"
                "quicksand prune --older-than 7d"};

/* ---- stats ---- */

/* by: "providers", "agents", "tasks" or "sessions". */
static void print_stats(const json_t *answer, const char *by)
{
    static const struct cli_column columns[] = {
        {"NAME", "name", false},       {"SANDBOXES", "sandboxes", false},
        {"RUNNING", "running", false}, {"SECONDS", "seconds", false},
        {"CPU", "cpu_seconds", false}, {"COMMANDS", "commands", false},
        {"JOBS", "jobs", false},       {"USD", "usd", false},
        {NULL, NULL, false},
    };
    auto_json json_t *rows = json_array(),
                     *total = json_deep_copy(json_object_get(answer, "total"));
    const json_t *create = json_object_get(answer, "create_ms");
    const char *name;
    json_t *row;

    json_object_foreach (json_object_get(answer, by), name, row) {
        auto_json json_t *copy = json_deep_copy(row);

        (void)json_object_set_new(copy, "name", json_string(name));
        (void)json_array_append(rows, copy);
    }
    if (total && strcmp(by, "providers") == 0) {
        (void)json_object_set_new(total, "name", json_string("total"));
        (void)json_array_append(rows, total);
    }
    cli_print_rows(rows, columns);
    if (json_integer_value(json_object_get(create, "count")) > 0)
        printf("create: %lld, p50 %.1f ms, p99 %.1f ms\n",
               (long long)json_integer_value(json_object_get(create, "count")),
               json_number_value(json_object_get(create, "p50")),
               json_number_value(json_object_get(create, "p99")));
}

static const char *stats_of(const char *by)
{
    static const char *const names[][2] = {
        {"provider", "providers"}, {"agent", "agents"}, {"task", "tasks"}, {"session", "sessions"}};

    for (size_t i = 0; by && i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(by, names[i][0]) == 0)
            return names[i][1];
    return by ? NULL : "providers";
}

static int run_stats(struct cli *cli, int argc, char **argv)
{
    const char *by = NULL;
    bool watch = false;
    const struct cli_option table[] = {
        {"by", 0, CLI_TEXT, &by, "WHAT", "provider, agent, task or session"},
        {"watch", 'w', CLI_FLAG, &watch, NULL, "of sandboxes: again every second, until Ctrl-C"},
        {.name = NULL},
    };
    auto_json json_t *answer = NULL;
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &cli_stats_command, table, CLI_ARGS_ANYWHERE, argc, argv,
                             &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (!stats_of(by))
        return cli_usage(&cli_stats_command, "--by is provider, agent, task or session");
    if (count && by)
        return cli_usage(&cli_stats_command, "--by is for what was used in all, without a sandbox");
    if (count)
        return cli_top(cli, operands, count, watch);
    if (watch)
        return cli_usage(&cli_stats_command, "--watch needs a sandbox; 'quicksand top' is for all");
    if (cli_connect(cli, &err) < 0 ||
        cli_v1(cli, "GET", cli_v1_path("stats"), NULL, &answer, &err) < 0)
        return cli_fail(&err);
    if (cli->json)
        cli_print_json(answer);
    else
        print_stats(answer, stats_of(by));
    return CLI_OK;
}

const struct cli_command cli_stats_command = {
    "stats", "[OPTION...] [SANDBOX...]",
    "What was used, and what it cost; of a sandbox, what it uses at the moment.", run_stats,
    .examples = "quicksand stats --by agent\n"
                "quicksand stats -w i..."};

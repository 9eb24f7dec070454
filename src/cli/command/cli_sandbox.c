/* show, rm. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "cli/command/commands.h"
#include "cli/core/cli_command.h"
#include "cli/core/cli_names.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_shape.h"

/* query: "?...", or "". */
static json_t *delete_one(struct cli *cli, const char *id, const char *query, struct error *err)
{
    auto_free char *path = cli_v1_path("sandboxes", id);
    json_t *json = NULL;

    if (cli_v1(cli, "DELETE", xasprintf("%s%s", path, query), NULL, &json, err) < 0)
        return NULL;
    return json ? json : json_object();
}

static int run_show(struct cli *cli, int argc, char **argv)
{
    auto_json json_t *json = NULL;
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &cli_show_command, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands,
                             &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count != 1)
        return cli_usage(&cli_show_command, "needs one sandbox");
    if (cli_connect_to(cli, operands, 1, &err) < 0 ||
        !(json = cli_v1_sandbox(cli, operands[0], &err)))
        return cli_fail(&err);
    if (cli->json)
        cli_print_json(json);
    else
        cli_print_members(json);
    return CLI_OK;
}

const struct cli_command cli_show_command = {"show", "[OPTION...] SANDBOX",
                                             "Show everything about a sandbox.", run_show,
                                             .examples = "quicksand show i...\n"
                                                         "quicksand show --json key:my-task"};

/* All that the filter of --all leaves: their ids. */
static json_t *all_ids(struct cli *cli, struct error *err)
{
    auto_json json_t *rows = cli_sandboxes(cli, &(struct cli_wanted){0}, err);
    json_t *ids, *row;
    size_t i;

    if (!rows)
        return NULL;
    ids = json_array();
    json_array_foreach (rows, i, row)
        (void)json_array_append(ids, json_object_get(row, "id"));
    return ids;
}

static json_t *words_of(char *const *operands, int count)
{
    json_t *words = json_array();

    for (int i = 0; i < count; i++)
        (void)json_array_append_new(words, json_str(str_of(operands[i])));
    return words;
}

/* Failures are told, and the rest goes on. */
static int remove_each(struct cli *cli, const json_t *words, bool force)
{
    auto_json json_t *removed = json_array();
    struct error err = {0};
    int status = CLI_OK;

    for (size_t i = 0; i < json_array_size(words); i++) {
        const char *word = json_string_value(json_array_get(words, i));
        const char *id = word ? cli_name_id(cli, word, &err) : "";
        auto_json json_t *json = id ? delete_one(cli, id, force ? "?force=true" : "", &err) : NULL;

        if (!json) {
            status = cli_fail(&err);
            continue;
        }
        cli_v1_warn_forgotten(id, json);
        (void)json_array_append_new(removed, json_str(str_of(id)));
        if (!cli->json)
            printf("%s\n", id);
    }
    if (cli->json)
        cli_print_json(removed);
    return status;
}

static int run_rm(struct cli *cli, int argc, char **argv)
{
    auto_json json_t *words = NULL;
    struct error err = {0};
    bool force = false, all = false;
    const struct cli_option table[] = {
        {"force", 'f', CLI_FLAG, &force, NULL, "forget it when its machine cannot be reached"},
        {"all", 'a', CLI_FLAG, &all, NULL, "all sandboxes of the team"},
        {.name = NULL},
    };
    char **operands;
    int count, rc = cli_args(cli, &cli_rm_command, table, CLI_ARGS_ANYWHERE, argc, argv, &operands,
                             &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if ((count == 0) != all)
        return cli_usage(&cli_rm_command,
                         all ? "--all takes no sandbox" : "needs a sandbox, or --all");
    if (cli_connect(cli, &err) < 0)
        return cli_fail(&err);
    words = all ? all_ids(cli, &err) : words_of(operands, count);
    return words ? remove_each(cli, words, force) : cli_fail(&err);
}

const struct cli_command cli_rm_command = {
    "rm", "[OPTION...] SANDBOX... | --all",
    "Remove sandboxes, with everything in them.\n"
    "One whose provider is gone, or does not answer, stays in the list until it is removed with\n"
    "--force; whatever it was there is then left alone.",
    run_rm,
    .examples = "quicksand rm i...\n"
                "quicksand rm $(quicksand ls -q --filter label=owner=me)\n"
                "quicksand rm --all"};

/* extend, fork: the life of a sandbox, and copies of it. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "cli/command/commands.h"
#include "cli/core/cli_command.h"
#include "cli/core/cli_ends.h"
#include "cli/core/cli_names.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_shape.h"

enum { FORKS_MAX = 100 };

/* "/sandboxes/ID/TAIL" of the E2B API. */
static char *sandbox_target(const char *id, const char *tail)
{
    struct buf target;

    buf_init(&target, HTTP_URL_MAX);
    (void)buf_add_str(&target, STR("/sandboxes/"));
    cli_escape(&target, id);
    (void)buf_printf(&target, "/%s", tail);
    return buf_take(&target);
}

/* ---- extend ---- */

static int extend_one(struct cli *cli, const char *word, int64_t life_s, json_t *all,
                      struct error *err)
{
    const char *id = cli_name_engine_id(cli, word, err);
    auto_free char *target = id ? sandbox_target(id, "timeout") : NULL;
    auto_json json_t *body = json_pack("{s:I}", "timeout", (json_int_t)life_s), *row = NULL;

    if (!id || cli_call(&cli->server, "POST", target, body, NULL, NULL, err) < 0 ||
        !(row = cli_v1_sandbox(cli, id, err)))
        return -1;
    if (!cli->json) {
        printf("%s ends at %.*s\n", id, STR_ARG(json_get_str(row, CLI_ENDS_AT)));
        return 0;
    }
    (void)json_object_set_new(row, "timeout", json_integer(life_s));
    (void)json_array_append(all, row);
    return 0;
}

static int run_extend(struct cli *cli, int argc, char **argv)
{
    auto_json json_t *all = json_array();
    struct error err = {0};
    int64_t life_s = 0;
    char **operands;
    int count, status = CLI_OK;
    int rc =
        cli_args(cli, &cli_extend_command, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count < 2)
        return cli_usage(&cli_extend_command, "needs a sandbox and a time");
    if (!cli_time_parse(operands[count - 1], &life_s) || life_s == 0)
        return cli_usage(&cli_extend_command, "needs a time like 90s, 30m or 24h, not '%s'",
                         operands[count - 1]);
    if (cli_connect(cli, &err) < 0)
        return cli_fail(&err);
    for (int i = 0; i < count - 1; i++)
        if (extend_one(cli, operands[i], life_s, all, &err) < 0)
            status = cli_fail(&err);
    if (cli->json)
        cli_print_json(all);
    return status;
}

const struct cli_command cli_extend_command = {
    "extend", "[OPTION...] SANDBOX... TIME",
    "Let sandboxes live for so long from now (90s, 30m, 24h), and print their new end.", run_extend,
    .examples = "quicksand extend i... 1h"};

/* ---- fork ---- */

/* Failures of single ones are told; the others are there. */
static int print_forks(struct cli *cli, const json_t *answer)
{
    auto_json json_t *all = json_array();
    int status = CLI_OK;
    json_t *row;
    size_t i;

    json_array_foreach (answer, i, row) {
        struct str id = json_get_str(json_object_get(row, "sandbox"), "sandboxID");
        auto_free char *why = cli_print_str(json_object_get(row, "error"), "message");
        json_t *made = NULL;
        struct error err = {0};

        if (json_object_get(row, "error")) {
            (void)fflush(stdout);
            (void)fprintf(stderr, "quicksand: fork %zu: %s\n", i + 1, why);
            status = CLI_FAILED;
        } else if (!cli->json) {
            printf("%.*s\n", STR_ARG(id));
        } else if ((made = cli_v1_sandbox(cli, id.p, &err))) {
            (void)json_array_append_new(all, made);
        } else {
            status = cli_fail(&err);
        }
    }
    if (cli->json)
        cli_print_json(all);
    return status;
}

static int run_fork(struct cli *cli, int argc, char **argv)
{
    int64_t forks = 1, life_s = 0;
    auto_cli_list struct cli_list labels = {0};
    const struct cli_option table[] = {
        {"count", 'n', CLI_COUNT, &forks, "N", "how many (1)"},
        {"metadata", 'm', CLI_LIST, &labels, "NAME=VALUE",
         "a label besides the source's; may be repeated. Of several forks, name=x becomes x-1, "
         "x-2"},
        {"timeout", 0, CLI_TIME, &life_s, "TIME", "how long they live"},
        {.name = NULL},
    };
    auto_json json_t *body = NULL, *answer = NULL, *metadata = NULL;
    auto_free char *target = NULL;
    struct error err = {0};
    const char *id;
    char **operands;
    int count, rc = cli_args(cli, &cli_fork_command, table, CLI_ARGS_ANYWHERE, argc, argv,
                             &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count != 1)
        return cli_usage(&cli_fork_command, "needs one sandbox");
    if (forks < 1 || forks > FORKS_MAX)
        return cli_usage(&cli_fork_command, "--count must be from 1 to %d", FORKS_MAX);
    metadata = cli_v1_pairs(&cli_fork_command, &labels, "metadata", false);
    if (!metadata)
        return CLI_USAGE;
    body = json_pack("{s:I, s:O}", "count", (json_int_t)forks, "metadata", metadata);
    if (life_s)
        (void)json_object_set_new(body, "timeout", json_integer(life_s));
    if (cli_connect(cli, &err) < 0 || !(id = cli_name_engine_id(cli, operands[0], &err)))
        return cli_fail(&err);
    target = sandbox_target(id, "fork");
    if (cli_call(&cli->server, "POST", target, body, &answer, NULL, &err) < 0)
        return cli_fail(&err);
    return print_forks(cli, answer);
}

const struct cli_command cli_fork_command = {
    "fork", "[OPTION...] SANDBOX",
    "Make new sandboxes with the files of a running one, and print their ids.", run_fork,
    .examples = "quicksand fork i... -n 10\n"
                "quicksand fork i... -n 3 -m name=try"};

/* snapshot: copies of sandboxes to begin from. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "cli/command/commands.h"
#include "cli/core/cli_names.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_shape.h"

static const struct cli_command snapshot_create, snapshot_ls, snapshot_rm;

static int run_create(struct cli *cli, int argc, char **argv)
{
    const char *alias = NULL;
    int64_t ttl_s = -1;
    const struct cli_option table[] = {
        {"alias", 0, CLI_TEXT, &alias, "NAME", "a name to find it by; an older one is replaced"},
        {"ttl", 0, CLI_TIME_0, &ttl_s, "TIME", "deleted after so long (by default never)"},
        {.name = NULL},
    };
    auto_json json_t *body = json_object(), *answer = NULL;
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &snapshot_create, table, CLI_ARGS_ANYWHERE, argc, argv, &operands,
                             &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count != 1)
        return cli_usage(&snapshot_create, "needs one sandbox");
    if (ttl_s >= 0)
        (void)json_object_set_new(body, "ttl", json_integer(ttl_s));
    if (cli_v1_set(body, "alias", alias, &err) < 0 || cli_connect_to(cli, operands, 1, &err) < 0 ||
        cli_v1(cli, "POST", cli_v1_path("sandboxes", operands[0], "snapshots"), body, &answer,
               &err) < 0)
        return cli_fail(&err);
    cli_print_id(cli, answer);
    return CLI_OK;
}

static int run_ls(struct cli *cli, int argc, char **argv)
{
    static const struct cli_column columns[] = {
        {"ID", "id", false},
        {"ALIAS", "alias", false},
        {"PROVIDER", "provider", false},
        {"STATE", "state", false},
        {"SANDBOX", "sandbox_id", false},
        {"AGE", "created_at", true},
        {NULL, NULL, false},
    };
    auto_json json_t *answer = NULL;
    struct error err = {0};
    char **operands, *path;
    int count,
        rc = cli_args(cli, &snapshot_ls, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count > 1)
        return cli_usage(&snapshot_ls, "takes one sandbox, or none for all");
    if (cli_connect_to(cli, operands, count, &err) < 0)
        return cli_fail(&err);
    path = count ? cli_v1_path("sandboxes", operands[0], "snapshots") : cli_v1_path("snapshots");
    if (cli_v1(cli, "GET", path, NULL, &answer, &err) < 0)
        return cli_fail(&err);
    cli_print_list(cli, answer, "snapshots", columns);
    return CLI_OK;
}

static int run_rm(struct cli *cli, int argc, char **argv)
{
    struct error err = {0};
    bool force = false;
    const struct cli_option table[] = {
        {"force", 'f', CLI_FLAG, &force, NULL, "forget it when its provider cannot be reached"},
        {.name = NULL},
    };
    char **operands;
    int count,
        rc = cli_args(cli, &snapshot_rm, table, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count == 0)
        return cli_usage(&snapshot_rm, "needs a snapshot");
    if (cli_connect(cli, &err) < 0)
        return cli_fail(&err);
    return cli_v1_remove(cli, "snapshots", force ? "?force=true" : NULL, operands, count);
}

static const struct cli_command snapshot_create = {
    "snapshot create", "[OPTION...] SANDBOX", "Copy a sandbox as it is and print the id.",
    run_create, .examples = "quicksand snapshot create i... --alias ready --ttl 7d"};
static const struct cli_command snapshot_ls = {"snapshot ls", "[OPTION...] [SANDBOX]",
                                               "List snapshots.", run_ls,
                                               .examples = "quicksand snapshot ls"};
static const struct cli_command snapshot_rm = {"snapshot rm", "[OPTION...] SNAPSHOT...",
                                               "Remove snapshots (by id or alias).", run_rm,
                                               .examples = "quicksand snapshot rm snap_..."};
const struct cli_command cli_snapshot_command = {
    "snapshot", "create, ls, rm", "Copies of sandboxes to begin from.", NULL,
    (const struct cli_command *const[]){&snapshot_create, &snapshot_ls, &snapshot_rm, NULL}};

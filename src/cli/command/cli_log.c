/* log: commands whose output was kept. An execution is found by its id alone: "-" stands for its sandbox
 * in the API. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "cli/core/cli_names.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_shape.h"

static int list(struct cli *cli, const char *sandbox, int64_t limit)
{
    static const struct cli_column columns[] = {
        {"EXECUTION", "id", false},  {"EXIT", "exit_code", false},  {"MS", "duration_ms", false},
        {"AGE", "started_at", true}, {"COMMAND", "command", false}, {NULL, NULL, false},
    };
    auto_free char *path = cli_v1_path("sandboxes", sandbox, "executions");
    auto_json json_t *answer = NULL;
    struct error err = {0};

    if (cli_v1(cli, "GET", xasprintf("%s?limit=%lld", path, (long long)limit), NULL, &answer,
               &err) < 0)
        return cli_fail(&err);
    cli_print_list(cli, answer, "executions", columns);
    return CLI_OK;
}

static int copy(int fd, struct str text, struct error *err)
{
    int rc = text.len ? fd_write_full(fd, text.p, text.len) : 0;

    return rc < 0 ? error_set_errno(err, -rc, "writing what was kept") : 0;
}

static int show(struct cli *cli, const char *id)
{
    auto_json json_t *answer = NULL;
    auto_free char *error = NULL;
    struct error err = {0};

    if (cli_v1(cli, "GET", cli_v1_path("sandboxes", "-", "executions", id), NULL, &answer, &err) <
        0)
        return cli_fail(&err);
    if (cli->json) {
        cli_print_json(answer);
        return CLI_OK;
    }
    if (copy(STDOUT_FILENO, json_get_str(answer, "stdout"), &err) < 0 ||
        copy(STDERR_FILENO, json_get_str(answer, "stderr"), &err) < 0)
        return cli_fail(&err);
    error = cli_print_str(answer, "error");
    if (error[0])
        (void)fprintf(stderr, "quicksand: it failed: %s\n", error);
    if (json_is_true(json_object_get(answer, "truncated")))
        (void)fprintf(stderr, "quicksand: it printed more than was kept\n");
    return CLI_OK;
}

static int run_log(struct cli *cli, int argc, char **argv)
{
    int64_t limit = 100;
    const struct cli_option table[] = {
        {"limit", 0, CLI_COUNT, &limit, "COUNT", "at most so many (100)"},
        {.name = NULL},
    };
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &cli_log_command, table, CLI_ARGS_ANYWHERE, argc, argv, &operands,
                             &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count != 1)
        return cli_usage(&cli_log_command, "needs one sandbox or one execution");
    if (cli_connect_to(cli, operands, strncmp(operands[0], "exe_", 4) == 0 ? 0 : 1, &err) < 0)
        return cli_fail(&err);
    return strncmp(operands[0], "exe_", 4) == 0 ? show(cli, operands[0])
                                                : list(cli, operands[0], limit);
}

const struct cli_command cli_log_command = {
    "log", "[OPTION...] SANDBOX|EXECUTION",
    "List the commands of a sandbox whose output was kept, or print what one of them printed.\n"
    "What is kept is asked for by 'exec --keep' or by a profile; it outlives the sandbox.",
    run_log,
    .examples = "quicksand exec --keep i... -- make test; quicksand log i...\n"
                "quicksand log exe_..."};

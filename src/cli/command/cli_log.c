/* Commands whose output was kept, for `logs`. An execution is found by its id alone: "-" stands for its sandbox in the
 * API. */
#include "cli/command/cli_log.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_shape.h"

int cli_log_list(struct cli *cli, const char *sandbox, int64_t limit)
{
    static const struct cli_column columns[] = {
        {"ID", "id", false},         {"EXIT", "exit_code", false},  {"MS", "duration_ms", false},
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

int cli_log_show(struct cli *cli, const char *id)
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

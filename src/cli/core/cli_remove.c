#include "cli/core/cli_remove.h"

#include <stdio.h>

#include "base/cleanup.h"
#include "cli/core/cli_print.h"
#include "protocol/json/json_shape.h"

int cli_remove_each(struct cli *cli, const struct cli_command *command, const char *what,
                    cli_target_fn *target_of, const void *arg, int argc, char **argv)
{
    auto_json json_t *removed = json_array();
    struct error err = {0};
    char **operands;
    int count, status = CLI_OK;
    int rc = cli_args(cli, command, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count == 0)
        return cli_usage(command, "needs a %s", what);
    if (cli_connect(cli, &err) < 0)
        return cli_fail(&err);
    for (int i = 0; i < count; i++) {
        auto_free char *target = target_of(cli, operands[i], arg, &err);

        if (!target || cli_call(&cli->server, "DELETE", target, NULL, NULL, NULL, &err) < 0) {
            status = cli_fail(&err);
            continue;
        }
        (void)json_array_append_new(removed, json_str(str_of(operands[i])));
        if (!cli->json)
            printf("%s\n", operands[i]);
    }
    if (cli->json)
        cli_print_json(removed);
    return status;
}

#include "cli/core/cli_each.h"

#include <stdio.h>

#include "base/cleanup.h"
#include "cli/core/cli_print.h"
#include "protocol/json/json_shape.h"

int cli_each(struct cli *cli, const struct cli_command *command, const char *what, cli_each_fn *fn,
             const void *arg, int argc, char **argv)
{
    auto_json json_t *all = json_array();
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
        json_t *one = fn(cli, operands[i], arg, &err);

        if (one)
            (void)json_array_append_new(all, one);
        else
            status = cli_fail(&err);
    }
    if (cli->json)
        cli_print_json(all);
    return status;
}

struct removal {
    cli_target_fn *target_of;
    const void *arg;
};

static json_t *remove_one(struct cli *cli, const char *word, const void *arg, struct error *err)
{
    const struct removal *removal = arg;
    auto_free char *target = removal->target_of(cli, word, removal->arg, err);

    if (!target || cli_call(&cli->server, "DELETE", target, NULL, NULL, NULL, err) < 0)
        return NULL;
    if (!cli->json)
        printf("%s\n", word);
    return json_str(str_of(word));
}

int cli_remove_each(struct cli *cli, const struct cli_command *command, const char *what,
                    cli_target_fn *target_of, const void *arg, int argc, char **argv)
{
    const struct removal removal = {target_of, arg};

    return cli_each(cli, command, what, remove_one, &removal, argc, argv);
}

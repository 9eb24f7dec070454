/* How commands report failures and wrong use, and find their server. */
#include "cli/core/cli.h"

#include <errno.h>
#include <stdarg.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "cli/core/cli_command.h"
#include "cli/core/cli_find.h"
#include "cli/core/cli_table.h"

enum { USAGE_MAX = 4096 };

int cli_fail(const struct error *err)
{
    auto_free char *text = cli_defuse(xstrdup(err->message), true);
    const char *option = cli_args_blame(err->message);

    (void)fflush(stdout);
    if (err->errnum == EPIPE) /* of our output; those of the server have no number */
        return CLI_BROKEN_PIPE;
    (void)fprintf(stderr, "quicksand: %s%s%s%s\n", option ? "--" : "", option ? option : "",
                  option ? ": " : "", text);
    return CLI_FAILED;
}

int cli_usage(const struct cli_command *command, const char *fmt, ...)
{
    char text[USAGE_MAX];
    const char *option;
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    option = cli_args_blame(text);
    (void)fflush(stdout);
    (void)fprintf(stderr, "quicksand %s: %s%s%s%s; see 'quicksand %s --help'\n", command->name,
                  option ? "--" : "", option ? option : "", option ? ": " : "", text,
                  command->name);
    return CLI_USAGE;
}

int cli_connect(struct cli *cli, struct error *err)
{
    return cli_server_find(cli->url, getenv("HOME"), &cli->server, err);
}

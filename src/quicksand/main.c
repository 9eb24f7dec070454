/* quicksand: server and command line in one binary. The first argument chooses the role. */
#include <stdio.h>
#include <string.h>

#include "cli/core/cli_command.h"
#include "cli/main/cli_main.h"
#include "egress/process/egress.h"
#include "extra/extras.h"
#include "extra/types/extra_providers.h"
#include "late/late.h"
#include "quicksand/roles.h"
#include "quicksand/serve.h"

/* A library that is missing is told now, not by the first request that needs it. */
static int serve_server(int argc, char **argv)
{
    struct error err;

    if (late_load(&err) < 0) {
        (void)fprintf(stderr, "quicksand: %s\n", err.message);
        return EXIT_CONFIG;
    }
    return server_main(argc, argv);
}

int main(int argc, char **argv)
{
    const char *role = argc > 1 ? argv[1] : "";

    cli_open(quicksand_roles);
    extras_register(extras, extra_providers);
    /* Not by way of the command line, which changes what signals do. */
    for (const struct cli_command *const *at = cli_roles; *at; at++)
        if (strcmp(role, (*at)->name) == 0)
            return (*at)->run(&(struct cli){0}, argc - 1, argv + 1);
    if (strcmp(role, SERVE_SERVER_ROLE) == 0)
        return serve_server(argc - 2, argv + 2);
    if (strcmp(role, EGRESS_ROLE) == 0)
        return egress_main(argc - 2, argv + 2);
    return cli_main(argc, argv);
}

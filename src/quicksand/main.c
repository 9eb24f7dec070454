/* quicksand: server and command line in one binary. The first argument chooses the role. */
#include <stdio.h>
#include <string.h>

#include "cli/core/cli.h"
#include "egress/egress.h"
#include "quicksand/serve.h"

int main(int argc, char **argv)
{
    const char *role = argc > 1 ? argv[1] : "";

    if (strcmp(role, "help") == 0 && argc == 3) { /* of what the command line does not know */
        char help[] = "--help", *asked[] = {help, NULL};

        if (strcmp(argv[2], "serve") == 0)
            return serve_main(1, asked);
        if (strcmp(argv[2], "down") == 0)
            return serve_down(1, asked);
        if (strcmp(argv[2], "backup") == 0 || strcmp(argv[2], "restore") == 0 ||
            strcmp(argv[2], "upgrade") == 0)
            return keep_main(argv[2], 1, asked);
    }
    if (strcmp(role, "serve") == 0)
        return serve_main(argc - 2, argv + 2);
    if (strcmp(role, "down") == 0)
        return serve_down(argc - 2, argv + 2);
    if (strcmp(role, "backup") == 0 || strcmp(role, "restore") == 0 || strcmp(role, "upgrade") == 0)
        return keep_main(role, argc - 2, argv + 2);
    if (strcmp(role, SERVE_SERVER_ROLE) == 0)
        return server_main(argc - 2, argv + 2);
    if (strcmp(role, EGRESS_ROLE) == 0)
        return egress_main(argc - 2, argv + 2);
    return cli_main(argc, argv);
}

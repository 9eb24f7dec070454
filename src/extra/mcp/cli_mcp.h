/* What the files of `mcp` share. */
#pragma once

#include <stdbool.h>

#include "cli/core/cli_command.h"

/* Which sandbox is the caller's own; NULL = not said. */
struct cli_mcp_place {
    const char *key, *profile, *template;
};

/* "/mcp?key=...", malloc()ed. */
char *cli_mcp_target(const struct cli_mcp_place *place);

/* Prints what a client wants to have in its settings. The server is asked nothing. */
int cli_mcp_config(struct cli *cli, const char *client, const struct cli_mcp_place *place);
bool cli_mcp_client_known(const char *client);
/* "claude-code, cursor, ...". */
const char *cli_mcp_clients(void);

extern const struct cli_command cli_mcp_command;

/* Which TCP ports of sandboxes are listened to, for ls --ports. */
#pragma once

#include <jansson.h>

#include "cli/core/cli_command.h"

/* Sets the member "ports" of each row, an array of numbers: of those that run by asking inside, which counts as use of the
 * sandbox; of others, and of those without /proc or cat, it is empty. */
void cli_ports_add(struct cli *cli, const json_t *rows);

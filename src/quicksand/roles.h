/* What the program does besides the commands of a client: `serve` and what works on a data directory. */
#pragma once

#include "cli/core/cli_command.h"

/* Ended by NULL. */
extern const struct cli_command *const quicksand_roles[];

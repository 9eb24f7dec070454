/* What sandboxes use at the moment. */
#pragma once

#include "cli/core/cli_command.h"

/* Of these, or (count 0) of all that run, the busiest first; again every second when watch is set. Returns the exit
 * status. */
int cli_top(struct cli *cli, char **words, int count, bool watch);

/* Our terminal, connected with one in a sandbox. */
#pragma once

#include "cli/core/cli_internal.h"

/* path: without the size. Returns the exit status of the shell; a failure is told. */
int cli_terminal_run(struct cli *cli, const char *path);

/* Commands whose output was kept (exec --keep, or a profile). Both print and return the exit status. */
#pragma once

#include "cli/core/cli_command.h"

/* Those of a sandbox, newest first. */
int cli_log_list(struct cli *cli, const char *sandbox, int64_t limit);
/* What one of them printed. */
int cli_log_show(struct cli *cli, const char *id);

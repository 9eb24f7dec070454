/* The member "ends_at" of sandboxes as commands show them: when a running sandbox will be paused or deleted. */
#pragma once

#include "cli/core/cli_command.h"

#define CLI_ENDS_AT "ends_at"

/* Sets it on each row of /api/v1/sandboxes; null on those that do not run. -1 when the server does not answer. */
int cli_ends_add(struct cli *cli, const json_t *rows, struct error *err);
/* The same for one row, without asking for all others. */
int cli_ends_add_one(struct cli *cli, json_t *row, struct error *err);

/* "rm" of things that a DELETE removes: each one that is named, whatever became of those before. */
#pragma once

#include "cli/core/cli_internal.h"

/* Where the thing that is called so is; malloc()ed, NULL with err. */
typedef char *cli_target_fn(struct cli *cli, const char *word, const void *arg, struct error *err);

/* The exit status. what: of the operands, for who gives none. */
int cli_remove_each(struct cli *cli, const struct cli_command *command, const char *what,
                    cli_target_fn *target_of, const void *arg, int argc, char **argv);

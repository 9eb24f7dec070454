/* Commands that do one thing to each of their operands, whatever became of those before. */
#pragma once

#include "cli/core/cli_command.h"

/* Does it to the one that is called so, and prints a line unless JSON is wanted. What is told of it in JSON; NULL with err. */
typedef json_t *cli_each_fn(struct cli *cli, const char *word, const void *arg, struct error *err);

/* The exit status. what: of the operands, for who gives none. */
int cli_each(struct cli *cli, const struct cli_command *command, const char *what, cli_each_fn *fn,
             const void *arg, int argc, char **argv);

/* Where the thing that is called so is; malloc()ed, NULL with err. */
typedef char *cli_target_fn(struct cli *cli, const char *word, const void *arg, struct error *err);

/* "rm" of things that a DELETE removes. The exit status. */
int cli_remove_each(struct cli *cli, const struct cli_command *command, const char *what,
                    cli_target_fn *target_of, const void *arg, int argc, char **argv);

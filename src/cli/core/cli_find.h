/* Commands by the names that people type: their own, those of other programs for the same, and near misses. */
#pragma once

#include <stddef.h>

#include "cli/core/cli_command.h"

/* A name from elsewhere for a command of ours. */
struct cli_alias {
    const char *name;
    const char *command; /* one word or two */
};
/* Ended by a name of NULL. */
extern const struct cli_alias cli_aliases[];

/* In a table, by the name itself or by its second word; NULL when it is not there. */
const struct cli_command *cli_find(const struct cli_command *const *table, const char *name);
/* The first names of all commands, and the verbs of one, are found by their aliases too. *out_group is the group of a
 * command whose alias stands for two words; NULL otherwise. */
const struct cli_command *cli_find_first(const char *name, const struct cli_command **out_group);

/* What a word was perhaps meant to be: the candidate with the fewest changes to it, few enough to be a slip. */
struct cli_guess {
    const char *word;
    const char *best; /* NULL: nothing is near */
    size_t changes;
};
void cli_guess_try(struct cli_guess *guess, const char *candidate);
/* A name of the table; first: of a first word, which may also be a role or an alias. */
const char *cli_guess_command(const struct cli_command *const *table, bool first, const char *word);

/* Has the command's table of options told to visit(), those that all commands have last. */
void cli_options_visit(const struct cli *cli, const struct cli_command *command,
                       void (*visit)(void *arg, const struct cli_option *option), void *arg);

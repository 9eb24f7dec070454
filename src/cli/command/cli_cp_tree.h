/* Trees and several files into a sandbox or out of it, in one stream. Modes, times and symbolic links are kept; owners are
 * those of who writes. */
#pragma once

#include "cli/core/cli_command.h"

struct cli_cp_tree {
    struct cli *cli;
    const char *id;
    const char *user;        /* inside; NULL = the default */
    const char *const *from; /* here, or inside */
    size_t count;
    const char *to; /* a directory that is there, or will be, or the new name of the one source */
};

/* Both return the exit status; what goes wrong is told. */
int cli_cp_tree_up(const struct cli_cp_tree *tree);
int cli_cp_tree_down(const struct cli_cp_tree *tree);

/* What a name in an archive from inside becomes here: its first part has to be one of those that were asked for, and
 * becomes `name` if that is not NULL. malloc()ed; NULL when it is none that we want. */
char *cli_cp_tree_name(const struct cli_cp_tree *tree, const char *entry, const char *name);

/* A terminal of a sandbox in ours. */
#pragma once

#include <jansson.h>

#include "cli/core/cli_command.h"

#define CLI_TERMINAL_DETACH "ctrl-p,ctrl-q"
enum { CLI_TERMINAL_KEYS_SIZE = 8 };
/* "ctrl-p,ctrl-q" as the bytes that these keys send; "" is none. False when it is neither. */
bool cli_terminal_keys(const char *text, char out[CLI_TERMINAL_KEYS_SIZE]);

struct cli_terminal {
    const char *sandbox;
    const char *cwd, *user, *terminal_id; /* each may be NULL */
    char *const *argv;                    /* instead of a shell */
    int argc;
    const json_t *env;  /* object of strings, or NULL */
    const char *detach; /* bytes of cli_terminal_keys(); NULL: none */
};
int cli_terminal_in(struct cli *cli, const struct cli_terminal *wish);

/* The same at a path of the runtime's API. Returns the exit status; a failure is told. */
int cli_terminal_run(struct cli *cli, const char *path, const char *detach);

/* The command line: everything of the binary but `serve` and its internal roles. */
#pragma once

#include <stddef.h>

/* In the home of whoever starts a server: written when it makes its first key. */
#define CLI_CREDENTIALS ".quicksand/credentials"

/* argv[0] is the program, argv[1] the command. Returns the exit status: 0, 1 when something failed,
 * 2 when the command line was wrong; `run` and `exec` return their command's. */
int cli_main(int argc, char **argv);

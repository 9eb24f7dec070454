/* The command line: everything of the binary but `serve` and its internal roles. */
#pragma once

struct cli_command;

/* First, before extras add their commands. roles: what the program does besides, ended by NULL; or NULL. */
void cli_open(const struct cli_command *const *roles);
/* argv[0] is the program, argv[1] the command. Returns the exit status: 0, 1 when something failed,
 * 2 when the command line was wrong; `run` and `exec` return their command's. */
int cli_main(int argc, char **argv);

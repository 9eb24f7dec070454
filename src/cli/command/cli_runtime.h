/* Commands in sandboxes of the runtime. */
#pragma once

#include "cli/core/cli_command.h"

struct cli_runtime {
    struct cli *cli;
    const char *id;
    char *const *argv;
    int argc;
    const json_t *env; /* object of strings, or NULL */
    const char *cwd, *user;
    int64_t timeout_s; /* 0 = none */
    bool no_stdin;
    bool interactive;     /* pass a terminal's input on, too */
    bool terminal;        /* in a terminal of its own; argc 0: a shell */
    bool keep;            /* its output, on the server */
    int signal_fd;        /* of cli_runtime_signals() */
    bool leave_on_signal; /* end at once: the sandbox is removed anyway */
};

/* Signals become readable, so that none can come between a create and its kill. */
int cli_runtime_signals(void);
/* Is there input to be passed on? */
bool cli_runtime_has_stdin(void);
/* Runs it connected with our stdin, stdout and stderr; returns the exit status. A failure is told. */
int cli_runtime_run(const struct cli_runtime *run);

/* The same in a terminal. detach: bytes of cli_terminal_keys(), or NULL. */
int cli_runtime_terminal(const struct cli_runtime *run, const char *detach);

enum { CLI_RUNTIME_SHELL = 5 };
/* For sandboxes of the engine: one operand with a blank in it is a line for the shell; then `out` is
 * filled and used instead. */
void cli_runtime_line(char *const **argv, int *argc, char *out[CLI_RUNTIME_SHELL]);

/* Up, clone, the command, kill. */
struct cli_up;
int cli_runtime_throw_away(struct cli_runtime *run, struct cli_up *up, const char *repo);

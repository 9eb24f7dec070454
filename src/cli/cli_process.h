/* Runs a command in a sandbox of the engine, one the runtime does not know, and connects it with this
 * program's stdin, stdout and stderr. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "cli/cli_client.h"

struct cli_process {
    const struct cli_server *server;
    const struct cli_sandbox *sandbox;
    char *const *argv; /* command and arguments */
    int argc;
    const json_t *env;      /* object of strings, or NULL */
    const char *cwd, *user; /* NULL = the sandbox's default */
    bool with_stdin;
    int signal_fd;   /* signalfd of SIGINT, SIGTERM, SIGHUP: passed on as SIGTERM, then SIGKILL */
    int64_t limit_s; /* killed after so long, status 124 as of timeout(1); 0 = never */
};

/* *out_status: the exit code, 128+n when signal n ended it (or the third one ended us). */
int cli_process_run(const struct cli_process *process, int *out_status, struct error *err);

/* 128+n for "signal: killed" and the like; 255 when the words are unknown. */
int cli_process_signal_status(struct str status);

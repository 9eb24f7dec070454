/* The log of a build, shown while it runs: on a terminal one line with the step, the time and an estimate of the time
 * left, else the lines of the log. */
#pragma once

#include <jansson.h>
#include <signal.h>

#include "cli/core/cli_command.h"

struct follow {
    const struct cli *cli;
    const char *template_id, *build_id;
    volatile sig_atomic_t *stop; /* set by a signal: the build is cancelled; NULL = never */
    bool cancelled;              /* it was */
    json_t *status;              /* the last answer; the caller's */
};

/* Until the build has ended: 0 when it is ready, 1 when it failed or was cancelled, -1. */
int follow_build(struct follow *follow, struct error *err);
/* One page of status and log entries from `offset` on. */
int follow_page(const struct cli *cli, const char *template_id, const char *build_id, size_t offset,
                json_t **out, struct error *err);

/* A box that was blank becomes somebody's: envd has run since before it had a root. */
#pragma once

#include "base/error.h"

struct envd;

/* A channel to the root process, and the directory with the limits of all disks; -1: this is an ordinary box. */
void claim_init(int channel_fd_consume, int groups_fd);
/* Before anything else that a sandbox is told: takes over what the root process said. ERROR_CONFLICT when it has said
 * nothing yet. */
int claim_take(struct envd *envd, struct error *err);
/* What may wait until the answer to that is on its way, and not longer: nothing runs inside before. */
void claim_finish(void);

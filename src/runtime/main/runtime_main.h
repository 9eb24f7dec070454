/* The runtime as a whole: what opens all of its parts, and closes them. */
#pragma once

#include "runtime/core/runtime.h"

/* All borrowed. Opens the backends and takes up what the last process left: jobs and sessions that
 * were running are watched again. */
int runtime_open(const struct runtime_config *config, struct runtime **out, struct error *err);
/* Sandboxes, jobs and sessions go on. No call may be under way. */
void runtime_close(struct runtime *runtime);

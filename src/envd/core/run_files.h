/* What programs inside read about their sandbox without having its environment, e.g. services that no
 * command has started: /run/e2b/.E2B_SANDBOX and the like, each one value without a newline. */
#pragma once

#include <sys/types.h>

#include "base/error.h"
#include "base/str.h"

#define RUN_FILES_DIR "/run/e2b"

/* dir/name, in the place of what was there; dir is made when it is missing. */
int run_files_write(const char *dir, const char *name, struct str value, mode_t mode,
                    struct error *err);

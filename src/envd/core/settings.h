/* What /init sets. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "envd/core/env.h"
#include "envd/core/users.h"

enum { SETTINGS_TOKEN_SIZE = 512 };

struct settings {
    char token[SETTINGS_TOKEN_SIZE]; /* "" = requests need none */
    char default_user[USER_NAME_SIZE];
    char *default_workdir; /* or NULL */
    const char *run_dir;   /* for files about the sandbox, or NULL: none */
    char *ca_bundle;       /* what /init has installed, or NULL */
    struct env trust; /* where programs find the certificates; /init's envVars come before them */
    struct env internal; /* E2B_SANDBOX and the like: /init's envVars do not touch them */
    struct env user;
    bool initialized;
    int64_t init_at_us; /* timestamp of the newest /init that had one */
};

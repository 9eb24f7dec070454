/* A program's command line, environment and directory, as a request describes them. */
#pragma once

#include <jansson.h>
#include <limits.h>

#include "base/error.h"
#include "envd/core/env.h"
#include "envd/core/settings.h"
#include "envd/core/users.h"

enum { PROCESS_ARGS_MAX = 65536 };

struct process_command {
    char **argv, **candidates; /* NULL-terminated */
    struct env env;
    char cwd[PATH_MAX];
};

#define auto_command __attribute__((cleanup(process_command_done)))

/* config is the request's {cmd, args, envs, cwd}. *out is zeroed by the caller and wants _done()
 * also after a failure. */
int process_command_prepare(struct process_command *out, const struct settings *settings,
                            const struct user *user, const json_t *config, struct error *err);
void process_command_done(struct process_command *command);

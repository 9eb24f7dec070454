/* For tests without the roles of the server. */
#include "cli/core/cli_command.h"

const struct cli_command *const cli_roles[] = {NULL};

/* The verbs of `template` that have a file of their own. */
#pragma once

#include "cli/core/cli_command.h"

extern const struct cli_command cli_template_build;
extern const struct cli_command cli_template_push, cli_template_pull;
extern const struct cli_command cli_template_export, cli_template_import;

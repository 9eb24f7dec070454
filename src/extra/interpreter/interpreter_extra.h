/* What the table of this extra has. */
#pragma once

#include "cli/core/cli_command.h"
#include "edge/api_runtime/v1_types.h"

v1_handler_fn v1_code;
extern const struct cli_command cli_code_command;

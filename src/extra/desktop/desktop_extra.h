/* What the table of this extra has. */
#pragma once

#include "cli/core/cli_command.h"
#include "edge/api_runtime/v1_types.h"

v1_handler_fn v1_desktop_screenshot, v1_desktop_do;
extern const struct cli_command cli_desktop_command;

/* The commands of this folder. */
#pragma once

#include "cli/core/cli_command.h"

extern const struct cli_command cli_ssh_command, cli_ssh_config_command, cli_ssh_proxy_command;

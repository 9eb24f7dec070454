/* The command of this folder. */
#pragma once

#include "cli/core/cli_command.h"

extern const struct cli_command cli_tls_acme_command;

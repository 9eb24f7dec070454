/* Registers the commands, and what extras bring, before the first test. */
#include "extra/extras.h"
#include "cli/core/cli_command.h"
#include "cli/main/cli_main.h"
#include "extra/types/extra_providers.h"

__attribute__((constructor)) static void set(void)
{
    cli_open(cli_roles);
    extras_register(extras, extra_providers);
}

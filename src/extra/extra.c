#include "extra/extra.h"

#include "cli/core/cli_command.h"
#include "extra/extra_providers.h"

void extras_register(void)
{
    provider_types_set(extra_providers);
    for (const struct extra *const *at = extras; *at; at++)
        if ((*at)->commands)
            cli_add((*at)->commands);
}

#include "extra/core/extra.h"

#include "cli/core/cli_command.h"
#include "edge/api_runtime/v1.h"
#include "provider/core/provider_ops.h"

static const struct extra *const *extras = (const struct extra *const[]){NULL};

void extras_register(const struct extra *const *all, const struct provider_type *const *types)
{
    extras = all;
    provider_types_set(types);
    for (const struct extra *const *at = all; *at; at++) {
        if ((*at)->commands)
            cli_add((*at)->commands);
        if ((*at)->v1)
            v1_endpoints_add((*at)->v1);
    }
}

const struct extra *const *extras_all(void)
{
    return extras;
}

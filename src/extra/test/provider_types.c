/* Sets the types of providers before the first test. */
#include "extra/types/extra_providers.h"

__attribute__((constructor)) static void set(void)
{
    provider_types_set(extra_providers);
}

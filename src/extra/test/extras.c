/* Adds what extras bring before the first test. */
#include "extra/extras.h"
#include "extra/types/extra_providers.h"

__attribute__((constructor)) static void set(void)
{
    extras_register(extras, extra_providers);
}

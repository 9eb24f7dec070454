/* Adds what extras bring before the first test. */
#include "extra/extra.h"

__attribute__((constructor)) static void set(void)
{
    extras_register();
}

/* Daytona as a provider. */
#include "extra/extra.h"

const struct extra extra_daytona = {.name = "daytona"};

/* Daytona as a provider. */
#include "extra/core/extra.h"

const struct extra extra_daytona = {.name = "daytona"};

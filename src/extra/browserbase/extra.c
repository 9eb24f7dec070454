/* Browserbase as a provider: browsers of that service. */
#include "extra/core/extra.h"

const struct extra extra_browserbase = {.name = "browserbase"};

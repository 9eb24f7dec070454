/* Browserbase as a provider: browsers of that service. */
#include "extra/extra.h"

const struct extra extra_browserbase = {.name = "browserbase"};

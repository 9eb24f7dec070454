/* The engine in this process as a provider: it calls domain/sandbox, with no wire between. */
#pragma once

#include "provider/core/provider.h"

/* For provider_embedded.open. */
int provider_embedded_open(const struct provider_config *config, struct provider **out,
                           struct error *err);

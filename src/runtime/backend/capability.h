/* What a backend offers: see capability.c. */
#pragma once

#include <jansson.h>

#include "base/error.h"

struct backend;
struct runtime;

/* {code, terminal, files, gui, browser, visual, pause, snapshot, ports, scale, cost}; new reference. */
json_t *backend_capability_json(const struct backend *backend);
/* After the backends are open: every type of agent gets what the configuration says it needs. */
int backend_capabilities_check(struct runtime *runtime, struct error *err);

/* What a backend offers: see agent_capability.c. */
#pragma once

#include <jansson.h>

#include "base/error.h"

struct agent_backend;
struct agents;

/* {code, terminal, files, gui, browser, visual, pause, snapshot, ports, scale, cost}; new reference. */
json_t *agent_capability_json(const struct agent_backend *backend);
/* After the backends are open: every type of agent gets what the configuration says it needs. */
int agent_capabilities_check(struct agents *agents, struct error *err);

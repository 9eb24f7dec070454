/* What a backend offers: see capability.c. */
#pragma once

#include <stdbool.h>

#include <jansson.h>

#include "base/error.h"

struct backend;
struct runtime;

/* {code, terminal, files, gui, browser, visual, pause, snapshot, ports, scale, cost}; new reference. */
json_t *backend_capability_json(const struct backend *backend);
/* After the backends are open: every type of agent gets what the configuration says it needs. */
int backend_capabilities_check(struct runtime *runtime, struct error *err);

/* Words for what a backend offers: those of the seeds' matrix. */
#define BACKEND_CAPABILITIES "code, terminal, files, gui, browser, visual, pause, snapshot, ports"
bool backend_capability_valid(const char *word);

/* Shared by the files of the library. */
#pragma once

#include "agent/agent.h"
#include "agent/agent_sandbox.h"
#include "agent/agent_settings.h"
#include "fetch/fetch.h"
#include "lib/quicksand.h"
#include "store/store.h"

struct qs {
    struct store *store;
    struct fetch *fetch;
    struct agent_settings settings;
    struct agents *agents;
    struct agent_caller caller;
};

/* Keeps err for qs_error() when r < 0; returns 0 or -1. */
int lib_result(int r, const struct error *err);
/* Reads a spec; *out_tree keeps its strings alive. */
int lib_spec_read(const char *text, struct agent_ensure *out, json_t **out_tree, struct error *err);

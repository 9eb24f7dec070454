/* Shared by the files of the library. */
#pragma once

#include "lib/quicksand.h"
#include "protocol/fetch/fetch.h"
#include "protocol/sender/sender.h"
#include "runtime/core/runtime.h"
#include "runtime/core/settings.h"
#include "runtime/sandbox/sandbox.h"

struct qs {
    struct store *store;
    struct fetch *fetch;
    struct sender *sender;
    struct runtime_settings settings;
    struct runtime *runtime;
    struct runtime_caller caller;
};

/* Keeps err for qs_error() when r < 0; returns 0 or -1. */
int lib_result(int r, const struct error *err);
/* Reads a spec; *out_tree keeps its strings alive. */
int lib_spec_read(const char *text, struct runtime_ensure *out, json_t **out_tree,
                  struct error *err);

/* A runtime on a store in memory and a fake provider, for the tests of this folder's core. */
#pragma once

#include "base/test.h"
#include "provider/test/provider_fake.h"
#include "runtime/core/runtime.h"
#include "runtime/core/settings.h"
#include "store/core/store.h"

struct core_env {
    struct store *store;
    struct provider_fake *fake;
    struct runtime_settings settings;
    struct runtime *runtime;
    struct runtime_caller caller;
};

/* file: the configuration, or NULL. change: adjusts settings before the runtime opens, or NULL. */
void core_open(struct core_env *env, const char *file, void (*change)(struct core_env *env));
void core_close(struct core_env *env);
/* Closes and opens the runtime on the same store, as a restart does. */
void core_restart(struct core_env *env);
#define auto_core __attribute__((cleanup(core_close)))

/* The environment that core_getenv() shows: "A=1\0B=2\0". */
extern const char *core_environment;
const char *core_getenv(const char *name);

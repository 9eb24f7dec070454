#include "runtime/core/test/core_env.h"

#include "runtime/config/config.h"
#include "runtime/core/runtime_parts.h"
#include "runtime/job/job.h"
#include "runtime/main/runtime_main.h"
#include "runtime/sandbox/follow.h"
#include "runtime/session/session.h"
#include "store/core/store.h"

const char *core_environment = "";

const char *core_getenv(const char *name)
{
    size_t len = strlen(name);

    for (const char *at = core_environment; *at; at += strlen(at) + 1)
        if (strncmp(at, name, len) == 0 && at[len] == '=')
            return at + len + 1;
    return NULL;
}

static void open_runtime(struct core_env *env)
{
    OK(runtime_open(&(struct runtime_config){.store = env->store,
                                             .settings = &env->settings,
                                             .provider_new = provider_fake_open},
                    &env->runtime, &err));
}

void core_open(struct core_env *env, const char *file, void (*change)(struct core_env *env))
{
    auto_buf struct buf faults = {0};

    *env = (struct core_env){.caller = {.team_id = STR("t1"), .actor = STR("key1")}};
    buf_init(&faults, 65536);
    if (runtime_settings_load(str_of(file), core_getenv, NULL, &env->settings, &faults) < 0)
        test_fail(__FILE__, __LINE__, "settings: %s", faults.p);
    env->fake = provider_fake_new();
    OK(store_open(":memory:", &env->store, &err));
    if (change)
        change(env);
    open_runtime(env);
}

void core_restart(struct core_env *env)
{
    runtime_close(env->runtime);
    env->runtime = NULL;
    open_runtime(env);
}

void core_close(struct core_env *env)
{
    runtime_close(env->runtime);
    store_close(env->store);
    provider_fake_free(env->fake);
    runtime_settings_done(&env->settings);
}

/* These have tests of their own. */
int jobs_open(struct runtime *runtime, struct error *err)
{
    (void)runtime;
    (void)err;
    return 0;
}

void jobs_close(struct runtime *runtime)
{
    (void)runtime;
}

void runtime_follow_init(struct runtime *runtime)
{
    (void)runtime;
}

void runtime_follow_done(struct runtime *runtime)
{
    (void)runtime;
}

int runtime_follow_open(struct runtime *runtime, struct error *err)
{
    (void)runtime;
    (void)err;
    return 0;
}

void runtime_follow_close(struct runtime *runtime)
{
    (void)runtime;
}

int sessions_open(struct runtime *runtime, struct error *err)
{
    (void)runtime;
    (void)err;
    return 0;
}

void sessions_close(struct runtime *runtime)
{
    (void)runtime;
}

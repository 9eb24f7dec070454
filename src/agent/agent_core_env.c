#include "agent/agent_core_env.h"

#include "agent/agent_internal.h"

const char *core_environment = "";

const char *core_getenv(const char *name)
{
    size_t len = strlen(name);

    for (const char *at = core_environment; *at; at += strlen(at) + 1)
        if (strncmp(at, name, len) == 0 && at[len] == '=')
            return at + len + 1;
    return NULL;
}

static void open_agents(struct core_env *env)
{
    OK(agents_open(&(struct agents_config){.store = env->store,
                                           .settings = &env->settings,
                                           .provider_new = provider_fake_open},
                   &env->agents, &err));
}

void core_open(struct core_env *env, const char *file, void (*change)(struct core_env *env))
{
    auto_buf struct buf faults = {0};

    *env = (struct core_env){.caller = {.team_id = STR("t1"), .actor = STR("key1")}};
    buf_init(&faults, 65536);
    if (agent_settings_load(str_of(file), core_getenv, NULL, &env->settings, &faults) < 0)
        test_fail(__FILE__, __LINE__, "settings: %s", faults.p);
    env->fake = provider_fake_new();
    OK(store_open(":memory:", &env->store, &err));
    if (change)
        change(env);
    open_agents(env);
}

void core_restart(struct core_env *env)
{
    agents_close(env->agents);
    env->agents = NULL;
    open_agents(env);
}

void core_close(struct core_env *env)
{
    agents_close(env->agents);
    store_close(env->store);
    provider_fake_free(env->fake);
    agent_settings_done(&env->settings);
}

/* These have tests of their own. */
int agent_jobs_open(struct agents *agents, struct error *err)
{
    (void)agents;
    (void)err;
    return 0;
}

void agent_jobs_close(struct agents *agents)
{
    (void)agents;
}

int agent_follow_open(struct agents *agents, struct error *err)
{
    (void)agents;
    (void)err;
    return 0;
}

void agent_follow_close(struct agents *agents)
{
    (void)agents;
}

int agent_sessions_open(struct agents *agents, struct error *err)
{
    (void)agents;
    (void)err;
    return 0;
}

void agent_sessions_close(struct agents *agents)
{
    (void)agents;
}

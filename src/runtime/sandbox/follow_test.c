/* Why a sandbox of the engine in this process ended: that is the engine's to say, whoever finds it gone
 * first. The fake stands for the engine; its rows are written by the test. */
#include <pthread.h>

#include "base/clock.h"
#include "runtime/command/command.h"
#include "runtime/run/run.h"
#include "runtime/sandbox/follow.h"
#include "runtime/sandbox/sandbox_parts.h"
#include "runtime/sandbox/test/work_env.h"
#include "store/platform/store_event.h"
#include "store/platform/store_sandbox.h"
#include "store/platform/store_team.h"

struct engine {
    struct work_env env;
    struct arena arena;
    struct runtime_sandbox sandbox;
};

static void engine_open(struct engine *engine, const char *key)
{
    int64_t now_us = clock_wall_us();
    struct store *store;

    *engine = (struct engine){0};
    work_open_engine(&engine->env, work_quick);
    store = engine->env.core.store;
    engine->sandbox = work_ensure(&engine->env, key, TIER_CREATED, &engine->arena);
    OK(store_team_insert(
        store, &(struct store_team){.id = STR("t1"), .name = STR("n"), .created_at_us = 1}, &err));
    OK(store_sandbox_insert(
        store,
        &(struct store_sandbox){.id = engine->sandbox.external_id,
                                .team_id = STR("t1"),
                                .template_id = STR("base"),
                                .alias = STR("base"),
                                .started_at_us = now_us,
                                .life = {.state = SANDBOX_RUNNING, .end_at_us = now_us + 60000000},
                                .metadata = STR("{}")},
        &err));
    provider_fake_lose(engine->env.core.fake, engine->sandbox.external_id);
}

static void engine_close(struct engine *engine)
{
    work_close(&engine->env);
    arena_done(&engine->arena);
}
#define auto_engine __attribute__((cleanup(engine_close)))

/* The runtime is told after it, as after every transaction of the engine. */
static void tell_end(struct engine *engine, const char *reason)
{
    struct store_event event = {.type = STR("killed"),
                                .message = STR("Sandbox ended"),
                                .detail = str_of(reason),
                                .at_us = clock_wall_us()};
    bool freed;

    OK(store_sandbox_ended(engine->env.core.store, engine->sandbox.external_id, str_of(reason),
                           &event, event.at_us, &freed, &err));
    runtime_engine_changed(engine->env.core.runtime);
}

static struct runtime_sandbox look(struct engine *engine)
{
    struct runtime_sandbox now = {0};

    OK(runtime_sandbox_get(engine->env.core.runtime, &engine->env.core.caller, engine->sandbox.id,
                           true, &engine->arena, &now, &err));
    return now;
}

static void check_told_once(struct engine *engine, const char *reason)
{
    char text[64];

    (void)snprintf(text, sizeof(text), "\"reason\":\"%s\"", reason);
    CHECK_INT(work_events(&engine->env, "sandbox.killed"), 1);
    CHECK(work_event_has(&engine->env, "sandbox.killed", text));
}

/* Its end is under way, and no event tells of it yet. */
TEST(who_finds_a_machine_gone_asks_the_engine_why)
{
    auto_engine struct engine engine;

    engine_open(&engine, NULL);
    OK(store_sandbox_killing(engine.env.core.store, engine.sandbox.external_id, STR("crashed"),
                             &err));
    CHECK_INT(look(&engine).state, SANDBOX_ENDED);
    check_told_once(&engine, "crashed");
    tell_end(&engine, "crashed");
    runtime_follow_now(engine.env.core.runtime);
    check_told_once(&engine, "crashed");
}

TEST(a_command_in_one_that_crashed_names_the_engines_reason)
{
    auto_engine struct engine engine;
    struct runtime_command command = {.command = STR("true")};
    struct runtime_result result = {0};
    struct error refusal = {0};

    engine_open(&engine, "by key");
    OK(store_sandbox_killing(engine.env.core.store, engine.sandbox.external_id,
                             STR("out of memory"), &err));
    CHECK_INT(runtime_exec(engine.env.core.runtime, &engine.env.core.caller, engine.sandbox.id,
                           &command, &result, &refusal),
              -1);
    CHECK_INT(refusal.code, ERROR_NOT_FOUND);
    CHECK_INT(look(&engine).state, SANDBOX_LOST);
    check_told_once(&engine, "out of memory");
    runtime_result_done(&result);
}

static void *look_thread(void *arg)
{
    (void)look(arg);
    return NULL;
}

/* The machine is gone, and the engine has not written why yet. */
TEST(the_engines_word_is_waited_for)
{
    auto_engine struct engine engine;
    pthread_t thread;

    engine_open(&engine, NULL);
    CHECK(pthread_create(&thread, NULL, look_thread, &engine) == 0);
    WAIT_FOR(provider_fake_calls(engine.env.core.fake, "get") > 0);
    tell_end(&engine, "timeout");
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_INT(look(&engine).state, SANDBOX_ENDED);
    check_told_once(&engine, "timeout");
}

/* Not for ever: the row stays as it is, and the engine's event changes it whenever it comes. */
TEST(an_engine_that_is_slow_tells_later)
{
    auto_engine struct engine engine;

    engine_open(&engine, NULL);
    CHECK_INT(look(&engine).state, SANDBOX_RUNNING);
    CHECK_INT(work_events(&engine.env, "sandbox.killed"), 0);
    tell_end(&engine, "killed");
    runtime_follow_now(engine.env.core.runtime);
    check_told_once(&engine, "killed");
}

TEST(what_the_engine_has_forgotten_is_gone)
{
    auto_engine struct engine engine;
    size_t count;

    engine_open(&engine, NULL);
    tell_end(&engine, "killed");
    OK(store_sandbox_prune(engine.env.core.store, INT64_MAX, 10, &count, &err));
    CHECK_INT(look(&engine).state, SANDBOX_ENDED);
    CHECK_INT(work_events(&engine.env, "sandbox.killed"), 1);
}

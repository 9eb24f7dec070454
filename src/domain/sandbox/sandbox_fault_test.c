/* What is told, and kept, after something died while nobody looked. */
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "domain/sandbox/sandbox_history.h"
#include "domain/sandbox/test/sandbox_test_env.h"
#include "store/platform/store_sandbox.h"

/* Detail of the newest event of a type; "" when there is none. */
static struct str last_event(struct env *env, const char *id, const char *type, struct arena *arena)
{
    struct event_filter filter = {.team_id = TEAM, .sandbox_id = str_of(id), .limit = 20};
    struct event_page page;

    OK(sandbox_events(env->all, &filter, arena, &page, &err));
    for (size_t i = 0; i < page.count; i++)
        if (str_is(page.items[i].type, type))
            return page.items[i].detail;
    return STR("");
}

static void create_pausing(struct env *env, int64_t timeout_s, char out_id[ID_SIZE])
{
    struct sandbox_new request = {.team_id = TEAM,
                                  .template_name = STR("base"),
                                  .timeout_s = timeout_s,
                                  .auto_pause = true,
                                  .auto_resume = true};
    auto_arena struct arena arena = {0};
    struct sandbox_view view;

    OK(sandbox_create(env->all, &request, &arena, &view, &err));
    (void)str_copy(view.id, out_id, ID_SIZE);
}

static void set_end(struct env *env, const char *id, int64_t end_at_us)
{
    struct store_sandbox_end end = {.end_at_us = end_at_us};
    int64_t now, revision;

    OK(store_sandbox_set_end(env->store, str_of(id), &end, &now, &revision, &err));
}

/* A teardown that was cut off says why it had begun, not who finished it. */
TEST(reason_survives_a_crash)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    char crashed[ID_SIZE], oom[ID_SIZE], half[ID_SIZE], killed[ID_SIZE];

    env_open(&env, 0);
    OK(env_create(&env, crashed, &err));
    OK(env_create(&env, oom, &err));
    OK(env_create(&env, half, &err));
    OK(env_create(&env, killed, &err));
    env_stop(&env);
    engine_fake_die(env.engine, crashed, BOX_END_EXITED);
    engine_fake_die(env.engine, oom, BOX_END_OOM);
    OK(store_sandbox_killing(env.store, str_of(half), STR("crashed"), &err));
    OK(store_sandbox_killing(env.store, str_of(killed), STR("killed"), &err));
    routes_free(env.routes);
    env.routes = env.config.routes = routes_new();
    env_start(&env);
    WAIT_FOR(env_live_rows(&env) == 0);
    CHECK_STR(last_event(&env, crashed, "killed", &arena), "crashed");
    CHECK_STR(last_event(&env, oom, "killed", &arena), "out of memory");
    CHECK_STR(last_event(&env, half, "killed", &arena), "crashed");
    CHECK_STR(last_event(&env, killed, "killed", &arena), "killed");
}

/* Ended by its own envd after its time, or crashed, when there was no server: one that is to be paused at its end
 * keeps its files. */
TEST(time_up_without_a_server)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandbox_view view;
    char pauses[ID_SIZE], ends[ID_SIZE], early[ID_SIZE];

    env_open(&env, 0);
    create_pausing(&env, 60, pauses);
    create_pausing(&env, 60, early);
    OK(env_create(&env, ends, &err));
    env_stop(&env);
    set_end(&env, pauses, clock_wall_us() - 1000000);
    set_end(&env, ends, clock_wall_us() - 1000000);
    engine_fake_die(env.engine, pauses, BOX_END_EXITED);
    engine_fake_die(env.engine, ends, BOX_END_EXITED);
    engine_fake_die(env.engine, early, BOX_END_EXITED);
    routes_free(env.routes);
    env.routes = env.config.routes = routes_new();
    env_start(&env);
    WAIT_FOR(env_live_rows(&env) == 2);
    CHECK_STR(last_event(&env, ends, "killed", &arena), "timeout");
    OK(sandbox_get(env.all, TEAM, str_of(early), &arena, &view, &err));
    CHECK_INT(view.state, SANDBOX_PAUSED);
    CHECK_STR(view.paused_to, "disk");
    OK(sandbox_get(env.all, TEAM, str_of(pauses), &arena, &view, &err));
    CHECK_INT(view.state, SANDBOX_PAUSED);
    CHECK_STR(view.paused_to, "disk");
    OK(sandbox_resume(env.all, TEAM, str_of(pauses), &(struct sandbox_resume){.timeout_s = 60},
                      &arena, &view, &err));
    CHECK_STR(view.resumed_from, "disk");
}

TEST(host_restart_keeps_what_is_to_be_paused)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandbox_view view;
    char pauses[ID_SIZE], ends[ID_SIZE];

    env_open(&env, 0);
    create_pausing(&env, 600, pauses);
    OK(env_create(&env, ends, &err));
    env_stop(&env);
    engine_fake_reboot(env.engine);
    routes_free(env.routes);
    env.routes = env.config.routes = routes_new();
    env_start(&env);
    WAIT_FOR(env_live_rows(&env) == 1);
    CHECK_STR(last_event(&env, ends, "killed", &arena), "host restart");
    OK(sandbox_get(env.all, TEAM, str_of(pauses), &arena, &view, &err));
    CHECK_INT(view.state, SANDBOX_PAUSED);
    CHECK_STR(view.paused_to, "disk");
    CHECK_INT(sandboxes_running(env.all), 0);
    OK(sandbox_wake(env.all, pauses, &err)); /* traffic may, as before */
    OK(sandbox_get(env.all, TEAM, str_of(pauses), &arena, &view, &err));
    CHECK_STR(view.resumed_from, "disk");
}

/* While the server runs. */
TEST(crash_keeps_what_is_to_be_paused)
{
    static const enum box_end ends[] = {BOX_END_EXITED, BOX_END_OOM, BOX_END_KILLED};

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        auto_env struct env env;
        auto_arena struct arena arena = {0};
        struct sandbox_view view = {0};
        char pauses[ID_SIZE], plain[ID_SIZE];

        env_open(&env, 0);
        create_pausing(&env, 600, pauses);
        OK(env_create(&env, plain, &err));
        (void)engine_fake_disk(env.engine, pauses, 42);
        engine_fake_die(env.engine, pauses, ends[i]);
        engine_fake_die(env.engine, plain, ends[i]);
        WAIT_FOR(env_live_rows(&env) == 1);
        WAIT_FOR(sandboxes_running(env.all) == 0);
        OK(sandbox_get(env.all, TEAM, str_of(pauses), &arena, &view, &err));
        CHECK_INT(view.state, SANDBOX_PAUSED);
        CHECK_STR(view.paused_to, "disk");
        OK(sandbox_resume(env.all, TEAM, str_of(pauses), &(struct sandbox_resume){.timeout_s = 60},
                          &arena, &view, &err));
        CHECK_STR(view.resumed_from, "disk");
        CHECK_INT(sandboxes_running(env.all), 1);
        /* A second life ends the same way. */
        engine_fake_die(env.engine, pauses, ends[i]);
        WAIT_FOR(sandboxes_running(env.all) == 0);
        OK(sandbox_get(env.all, TEAM, str_of(pauses), &arena, &view, &err));
        CHECK_INT(view.state, SANDBOX_PAUSED);
    }
}

#define HOURS_US ((int64_t)3 * 3600 * 1000000)

static int64_t end_of(struct env *env, const char *id)
{
    auto_arena struct arena arena = {0};
    struct store_sandbox row;

    OK(store_sandbox_get(env->store, str_of(id), &arena, &row, &err));
    return row.life.end_at_us;
}

/* Somebody sets the clock: nobody ends early or late because of that. */
static void jump(int64_t by_us)
{
    auto_env struct env env;
    char longer[ID_SIZE], shorter[ID_SIZE];
    auto_free char *reason = NULL;
    int64_t began = clock_mono_us(), end;

    env_open(&env, 0);
    OK(env_create_timeout(&env, 600, longer, &err));
    OK(env_create_timeout(&env, 2, shorter, &err));
    end = end_of(&env, longer);
    clock_test_step(by_us);
    WAIT_FOR((reason = env_end_reason(&env, shorter)) != NULL);
    CHECK_STR(str_of(reason), "timeout");
    CHECK(clock_mono_us() - began >= 1900000 && clock_mono_us() - began < 6000000);
    CHECK_INT(sandboxes_running(env.all), 1);
    CHECK_INT((end_of(&env, longer) - end - by_us) / 1000000, 0);
    /* And what is asked for from now on. */
    OK(sandbox_set_timeout(env.all, TEAM, str_of(longer), 1, &err));
    WAIT_FOR(sandboxes_running(env.all) == 0);
    clock_test_step(-by_us);
}

TEST_TIMEOUT(clock_jumps_forward, 60)
{
    jump(HOURS_US);
}

TEST_TIMEOUT(clock_jumps_back, 60)
{
    jump(-HOURS_US);
}

TEST_TIMEOUT(clock_jumps_while_no_server_runs, 60)
{
    auto_env struct env env;
    char id[ID_SIZE];
    int64_t end;

    env_open(&env, 0);
    OK(env_create_timeout(&env, 600, id, &err));
    end = end_of(&env, id);
    env_stop(&env);
    clock_test_step(HOURS_US);
    routes_free(env.routes);
    env.routes = env.config.routes = routes_new();
    env_start(&env);
    CHECK_INT(sandboxes_running(env.all), 1);
    CHECK_INT((end_of(&env, id) - end - HOURS_US) / 1000000, 0);
    clock_test_step(-HOURS_US);
}

/* The end of a sandbox's time when something is in its way, and what is told of it. */
#include "domain/sandbox/test/sandbox_test_env.h"

#include "base/cleanup.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_table.h"
#include "protocol/json/json_shape.h"

static const struct sandbox_resume for_an_hour = {.timeout_s = 3600};

static void create_paused_at_end(struct env *env, char id[ID_SIZE])
{
    auto_arena struct arena arena = {0};
    struct sandbox_view view;
    struct sandbox_new request = {
        .team_id = TEAM, .template_name = STR("base"), .timeout_s = 1, .auto_pause = true};

    OK(sandbox_create(env->all, &request, &arena, &view, &err));
    (void)str_copy(view.id, id, ID_SIZE);
}

static void get(struct env *env, const char *id, struct arena *arena, struct sandbox_view *view)
{
    OK(sandbox_get(env->all, TEAM, str_of(id), arena, view, &err));
}

static enum sandbox_state state_of(struct env *env, const char *id)
{
    auto_arena struct arena arena = {0};
    struct sandbox_view view;

    get(env, id, &arena, &view);
    return view.state;
}

TEST(what_does_not_stand_still_at_the_end_is_stopped)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandbox_view view;
    char id[ID_SIZE];
    bool frozen;

    env_open(&env, 0);
    create_paused_at_end(&env, id);
    (void)engine_fake_disk(env.engine, id, 42);
    engine_fake_fail_freezes(env.engine, 100);
    /* Asked for before, a pause fails and leaves it alone. */
    FAILS(sandbox_pause(env.all, TEAM, str_of(id), &(struct sandbox_pause){0}, &err),
          ERROR_TIMEOUT);
    CHECK(engine_fake_runs(env.engine, id, &frozen) && !frozen);
    OK(sandbox_set_timeout(env.all, TEAM, str_of(id), 0, &err));
    CHECK(!engine_fake_runs(env.engine, id, &frozen));
    get(&env, id, &arena, &view);
    CHECK_INT(view.state, SANDBOX_PAUSED);
    CHECK_STR(view.paused_to, "disk");
    OK(sandbox_resume(env.all, TEAM, str_of(id), &(struct sandbox_resume){.timeout_s = 1}, &arena,
                      &view, &err));
    CHECK_STR(view.resumed_from, "disk");
    CHECK_INT(engine_fake_disk(env.engine, id, 0), 42);
    /* And by the clock. */
    WAIT_FOR(state_of(&env, id) == SANDBOX_PAUSED);
    CHECK(!engine_fake_runs(env.engine, id, &frozen));
}

static size_t count_listed(struct env *env, bool running, size_t *out_total)
{
    auto_arena struct arena arena = {0};
    struct sandbox_page page;

    OK(sandbox_list(env->all,
                    &(struct sandbox_filter){
                        .team_id = TEAM, .running = running, .paused = !running, .limit = 10},
                    &arena, &page, &err));
    *out_total = page.total_running;
    return page.count;
}

TEST(a_sandbox_is_reported_as_paused_once_its_processes_stand_still)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandbox_view view;
    char id[ID_SIZE];
    size_t total;
    bool frozen;

    env_open(&env, 0);
    create_paused_at_end(&env, id);
    engine_fake_hold_freezes(env.engine, true);
    WAIT_FOR(engine_fake_waiting(env.engine) == 1);
    get(&env, id, &arena, &view);
    CHECK_INT(view.state, SANDBOX_RUNNING);
    CHECK(!view.paused_to.p);
    CHECK_INT(count_listed(&env, true, &total), 1);
    CHECK_INT(total, 1);
    CHECK_INT(count_listed(&env, false, &total), 0);
    /* Its end has passed: nobody can move it, and traffic does not wake it. */
    FAILS(sandbox_set_timeout(env.all, TEAM, str_of(id), 60, &err), ERROR_CONFLICT);
    CHECK(engine_fake_runs(env.engine, id, &frozen) && !frozen);
    engine_fake_hold_freezes(env.engine, false);
    WAIT_FOR(state_of(&env, id) == SANDBOX_PAUSED);
    CHECK(engine_fake_runs(env.engine, id, &frozen) && frozen);
    CHECK_INT(count_listed(&env, true, &total), 0);
    CHECK_INT(total, 0);
    CHECK_INT(count_listed(&env, false, &total), 1);
}

TEST(processes_that_are_there_are_not_given_up)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandbox_view view;
    struct error refusal = {0};
    char id[ID_SIZE];
    bool frozen;

    env_open(&env, 0);
    OK(env_create(&env, id, &err));
    OK(sandbox_pause(env.all, TEAM, str_of(id), &(struct sandbox_pause){0}, &err));
    engine_fake_envd_status(env.engine, 500);
    CHECK_INT(sandbox_resume(env.all, TEAM, str_of(id), &for_an_hour, &arena, &view, &refusal), -1);
    CHECK(strstr(refusal.message, "it is paused again with them"));
    CHECK(engine_fake_runs(env.engine, id, &frozen) && frozen);
    get(&env, id, &arena, &view);
    CHECK_INT(view.state, SANDBOX_PAUSED);
    CHECK_STR(view.paused_to, "memory");
    engine_fake_envd_status(env.engine, 204);
    OK(sandbox_resume(env.all, TEAM, str_of(id), &for_an_hour, &arena, &view, &err));
    CHECK_STR(view.resumed_from, "memory");
    /* Unless that is what is asked for. */
    OK(sandbox_pause(env.all, TEAM, str_of(id), &(struct sandbox_pause){0}, &err));
    OK(sandbox_resume(env.all, TEAM, str_of(id),
                      &(struct sandbox_resume){.timeout_s = 60, .disk_only = true}, &arena, &view,
                      &err));
    CHECK_STR(view.resumed_from, "disk");
}

static bool box_has_ended(struct env *env, const char *id)
{
    auto_free struct box_info *infos = NULL;
    size_t count = 0;
    bool ended = false;

    OK(env->engine->ops->list(env->engine, &infos, &count, &err));
    for (size_t i = 0; i < count; i++)
        ended |= strcmp(infos[i].id, id) == 0 && !infos[i].running && infos[i].end == BOX_END_NONE;
    return ended;
}

TEST(what_ends_slowly_is_stopped_until_it_has_ended)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandbox_view view;
    struct error refusal = {0};
    char id[ID_SIZE];

    env_open(&env, 0);
    create_paused_at_end(&env, id);
    engine_fake_fail_freezes(env.engine, 1);
    engine_fake_fail_stops(env.engine, 2);
    OK(sandbox_set_timeout(env.all, TEAM, str_of(id), 0, &err));
    CHECK_INT(state_of(&env, id), SANDBOX_PAUSED);
    /* By whoever wants it back, who is told what is going on, */
    CHECK_INT(sandbox_resume(env.all, TEAM, str_of(id), &for_an_hour, &arena, &view, &refusal), -1);
    CHECK_INT(refusal.code, ERROR_UNAVAILABLE);
    CHECK(strstr(refusal.message, "still ending"));
    CHECK_INT(state_of(&env, id), SANDBOX_PAUSED);
    /* and by nobody in particular. */
    WAIT_FOR(box_has_ended(&env, id));
    WAIT_FOR(sandbox_resume(env.all, TEAM, str_of(id), &for_an_hour, &arena, &view, &refusal) == 0);
    CHECK_STR(view.resumed_from, "disk");
}

/* Nobody sees to the ends of sandboxes, or to what the engine tells. */
static void stop_expiry(struct env *env)
{
    expire_stop(env->all);
}

static void start_expiry(struct env *env)
{
    env->all->stopping = false;
    OK(expire_start(env->all, &err));
}

TEST(an_end_that_has_passed_is_not_moved)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandbox_view view;
    char paused[ID_SIZE], ended[ID_SIZE];
    bool resumed = false;

    env_open(&env, 0);
    stop_expiry(&env);
    create_paused_at_end(&env, paused);
    OK(env_create_timeout(&env, 1, ended, &err));
    get(&env, ended, &arena, &view);
    WAIT_FOR(now_us(env.all) > view.end_at_us);
    /* Their envds may have ended their boxes: what waits for its end does not run on. */
    FAILS(sandbox_extend(env.all, TEAM, str_of(paused), 60, &arena, &view, &err), ERROR_CONFLICT);
    FAILS(sandbox_set_timeout(env.all, TEAM, str_of(ended), 60, &err), ERROR_NOT_FOUND);
    start_expiry(&env);
    OK(sandbox_connect(env.all, TEAM, str_of(paused), &for_an_hour, &arena, &view, &resumed, &err));
    CHECK(resumed);
    WAIT_FOR(!engine_fake_spec(env.engine, ended, &(struct box_spec){0}));
}

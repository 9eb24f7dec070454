/* Pausing and resuming: what is kept, who may do it, and what happens when something fails. */
#include "domain/sandbox/test/sandbox_test_env.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/cleanup.h"
#include "protocol/json/json_shape.h"
#include "store/platform/store_sandbox.h"

static const struct sandbox_resume for_an_hour = {.timeout_s = 3600};
static const struct sandbox_pause to_memory = {0};
static const struct sandbox_pause to_disk = {.disk_only = true};

static enum sandbox_state state_of(struct env *env, const char *id)
{
    auto_arena struct arena arena = {0};
    struct sandbox_view view;

    OK(sandbox_get(env->all, TEAM, str_of(id), &arena, &view, &err));
    return view.state;
}

static enum route_state route_of(struct env *env, const char *id)
{
    struct route route;

    CHECK(routes_find(env->routes, str_of(id), &route));
    return route.state;
}

static int resume(struct env *env, const char *id, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct sandbox_view view;

    return sandbox_resume(env->all, TEAM, str_of(id), &for_an_hour, &arena, &view, err);
}

static size_t count_listed(struct env *env, bool running, bool paused)
{
    auto_arena struct arena arena = {0};
    struct sandbox_filter filter = {
        .team_id = TEAM, .running = running, .paused = paused, .limit = 100};
    struct sandbox_page page;

    OK(sandbox_list(env->all, &filter, &arena, &page, &err));
    for (size_t i = 0; i < page.count; i++)
        CHECK(page.items[i].state == SANDBOX_RUNNING ? running : paused);
    return page.count;
}

TEST(pause_keeps_the_processes)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandbox_view before, paused, after;
    struct box_spec spec;
    bool frozen = false;
    char id[ID_SIZE];
    int64_t now;

    env_open(&env, 0);
    OK(env_create(&env, id, &err));
    OK(sandbox_get(env.all, TEAM, str_of(id), &arena, &before, &err));
    CHECK(!before.paused_to.p && !before.resumed_from.p);
    (void)engine_fake_disk(env.engine, id, 42);
    now = clock_wall_us();
    OK(sandbox_pause(env.all, TEAM, str_of(id), &to_memory, &err));
    CHECK(engine_fake_runs(env.engine, id, &frozen) && frozen);
    CHECK_INT(route_of(&env, id), ROUTE_PAUSED);
    OK(sandbox_get(env.all, TEAM, str_of(id), &arena, &paused, &err));
    CHECK_INT(paused.state, SANDBOX_PAUSED);
    CHECK(paused.end_at_us >= now && paused.end_at_us <= clock_wall_us());
    CHECK_STR(paused.paused_to, "memory");
    CHECK(str_eq(paused.access_token, before.access_token));
    CHECK_INT(paused.started_at_us, before.started_at_us);
    CHECK_INT(sandboxes_running(env.all), 0);
    CHECK_INT(count_listed(&env, true, false), 0);
    CHECK_INT(count_listed(&env, false, true), 1);
    CHECK_INT(count_listed(&env, true, true), 1);

    FAILS(sandbox_pause(env.all, TEAM, str_of(id), &to_memory, &err), ERROR_CONFLICT);
    FAILS(sandbox_pause(env.all, OTHER, str_of(id), &to_memory, &err), ERROR_NOT_FOUND);
    FAILS(sandbox_set_timeout(env.all, TEAM, str_of(id), 10, &err), ERROR_CONFLICT);
    FAILS(sandbox_set_timeout(env.all, TEAM, str_of(id), 0, &err), ERROR_CONFLICT);
    FAILS(sandbox_extend(env.all, TEAM, str_of(id), 10, &arena, &after, &err), ERROR_CONFLICT);

    now = clock_wall_us();
    OK(sandbox_resume(env.all, TEAM, str_of(id), &for_an_hour, &arena, &after, &err));
    CHECK(engine_fake_runs(env.engine, id, &frozen) && !frozen);
    CHECK(engine_fake_spec(env.engine, id, &spec) && !spec.keep_disk);
    CHECK_INT(engine_fake_disk(env.engine, id, 0), 42);
    CHECK_INT(route_of(&env, id), ROUTE_RUNNING);
    CHECK_INT(after.state, SANDBOX_RUNNING);
    CHECK_STR(after.resumed_from, "memory");
    CHECK(!after.paused_to.p);
    CHECK(after.end_at_us >= now + 3600000000 && after.end_at_us < now + 3610000000);
    CHECK(str_eq(after.access_token, before.access_token));
    CHECK_INT(sandboxes_running(env.all), 1);
}

TEST(disk_pause_boots_again)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    const struct pair variable = {STR("NAME"), STR("value")};
    const struct pair user = {STR("user"), STR("7")};
    struct sandbox_new request = {.team_id = TEAM,
                                  .template_name = STR("base"),
                                  .timeout_s = 60,
                                  .secure = true,
                                  .env = &variable,
                                  .env_count = 1,
                                  .metadata = &user,
                                  .metadata_count = 1};
    struct sandbox_view view, after;
    struct box_spec spec;
    char sent[1024], id[ID_SIZE];
    bool frozen;

    env_open(&env, 0);
    OK(sandbox_create(env.all, &request, &arena, &view, &err));
    CHECK(str_copy(view.id, id, sizeof(id)));
    (void)engine_fake_disk(env.engine, id, 42);
    OK(sandbox_pause(env.all, TEAM, view.id, &to_disk, &err));
    CHECK(!engine_fake_runs(env.engine, id, &frozen));
    OK(sandbox_get(env.all, TEAM, view.id, &arena, &after, &err));
    CHECK_STR(after.paused_to, "disk");
    OK(sandbox_resume(env.all, TEAM, view.id, &for_an_hour, &arena, &after, &err));
    CHECK(engine_fake_runs(env.engine, id, &frozen) && !frozen);
    CHECK_STR(after.resumed_from, "disk");
    CHECK_STR(after.metadata, "{\"user\":\"7\"}");
    CHECK_INT(engine_fake_disk(env.engine, id, 0), 42);
    CHECK(engine_fake_spec(env.engine, id, &spec));
    CHECK(spec.keep_disk && spec.layer_count == 2 && spec.network.mode == NETWORK_NONE);
    CHECK_STR(str_of(spec.layers[1]), "high");
    CHECK_INT(spec.limits.mem_bytes, 512 << 20);
    engine_fake_last_request(env.engine, sent, sizeof(sent));
    CHECK(strstr(sent, "POST /init ") == sent && strstr(sent, "{\"NAME\":\"value\"}"));
    CHECK(strstr(sent, view.access_token.p));

    /* Processes that are there are thrown away when that is asked for. */
    OK(sandbox_pause(env.all, TEAM, view.id, &to_memory, &err));
    OK(sandbox_resume(env.all, TEAM, view.id,
                      &(struct sandbox_resume){.timeout_s = 60, .disk_only = true}, &arena, &after,
                      &err));
    CHECK_STR(after.resumed_from, "disk");
    CHECK_INT(engine_fake_disk(env.engine, id, 0), 42);
}

TEST(resume_and_connect_rules)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandbox_view view, before;
    struct error refusal = {0};
    char id[ID_SIZE], text[64];
    bool resumed = true;

    env_open(&env, 0);
    OK(env_create_timeout(&env, 100, id, &err));
    OK(sandbox_get(env.all, TEAM, str_of(id), &arena, &before, &err));
    CHECK_INT(resume(&env, id, &refusal), -1);
    (void)snprintf(text, sizeof(text), "Sandbox %s is already running", id);
    CHECK_STR(str_of(refusal.message), text);
    OK(sandbox_connect(env.all, TEAM, str_of(id), &(struct sandbox_resume){.timeout_s = 10}, &arena,
                       &view, &resumed, &err));
    CHECK(!resumed);
    CHECK_INT(view.end_at_us, before.end_at_us);
    OK(sandbox_pause(env.all, TEAM, str_of(id), &to_memory, &err));
    FAILS(sandbox_connect(env.all, TEAM, str_of(id), &(struct sandbox_resume){.timeout_s = 86401},
                          &arena, &view, &resumed, &err),
          ERROR_INVALID);
    FAILS(sandbox_connect(env.all, OTHER, str_of(id), &for_an_hour, &arena, &view, &resumed, &err),
          ERROR_NOT_FOUND);
    OK(sandbox_connect(env.all, TEAM, str_of(id), &(struct sandbox_resume){.timeout_s = 10}, &arena,
                       &view, &resumed, &err));
    CHECK(resumed);
    CHECK(view.end_at_us <= clock_wall_us() + 10000000);
    OK(sandbox_pause(env.all, TEAM, str_of(id), &to_memory, &err));
    OK(sandbox_kill(env.all, TEAM, str_of(id), &err));
    FAILS(resume(&env, id, &err), ERROR_NOT_FOUND);
    FAILS(sandbox_pause(env.all, TEAM, str_of(id), &to_memory, &err), ERROR_NOT_FOUND);
    FAILS(sandbox_connect(env.all, TEAM, str_of(id), &for_an_hour, &arena, &view, &resumed, &err),
          ERROR_NOT_FOUND);
    CHECK_INT(engine_fake_boxes(env.engine), 0);
    CHECK_INT(env_live_rows(&env), 0);
}

TEST(paused_sandboxes_do_not_count)
{
    auto_env struct env env;
    char a[ID_SIZE], b[ID_SIZE];

    env_open(&env, 0);
    env.config.max_running = 1;
    env_reopen(&env);
    OK(env_create(&env, a, &err));
    OK(sandbox_pause(env.all, TEAM, str_of(a), &to_memory, &err));
    OK(env_create(&env, b, &err));
    FAILS(resume(&env, a, &err), ERROR_QUOTA);
    CHECK_INT(state_of(&env, a), SANDBOX_PAUSED);
    OK(sandbox_kill(env.all, TEAM, str_of(b), &err));
    OK(resume(&env, a, &err));
}

TEST_TIMEOUT(a_hundred_times, 60)
{
    auto_env struct env env;
    char id[ID_SIZE];
    bool frozen;

    env_open(&env, 0);
    OK(env_create(&env, id, &err));
    for (unsigned i = 0; i < 100; i++) {
        (void)engine_fake_disk(env.engine, id, 1);
        OK(sandbox_pause(env.all, TEAM, str_of(id), i % 3 ? &to_memory : &to_disk, &err));
        OK(resume(&env, id, &err));
        CHECK_INT(engine_fake_disk(env.engine, id, 0), i + 1);
    }
    CHECK(engine_fake_runs(env.engine, id, &frozen) && !frozen);
    CHECK_INT(engine_fake_boxes(env.engine), 1);
    CHECK_INT(env_live_rows(&env), 1);
}

struct crowd {
    struct env *env;
    char id[ID_SIZE];
    int (*verb)(struct env *env, const char *id, struct error *err);
    pthread_barrier_t start;
    int64_t asked_at_us;
    atomic_int ok, conflict, not_found, other;
};

static int verb_pause(struct env *env, const char *id, struct error *err)
{
    /* All were asked for before the first of them began. */
    struct sandbox_pause request = {.asked_at_us = 1};

    return sandbox_pause(env->all, TEAM, str_of(id), &request, err);
}

static int verb_kill(struct env *env, const char *id, struct error *err)
{
    return sandbox_kill(env->all, TEAM, str_of(id), err);
}

static void *crowd_run(void *arg)
{
    struct crowd *crowd = arg;
    struct error err = {0};

    (void)pthread_barrier_wait(&crowd->start);
    if (crowd->verb(crowd->env, crowd->id, &err) == 0)
        atomic_fetch_add(&crowd->ok, 1);
    else if (err.code == ERROR_CONFLICT)
        atomic_fetch_add(&crowd->conflict, 1);
    else if (err.code == ERROR_NOT_FOUND)
        atomic_fetch_add(&crowd->not_found, 1);
    else
        atomic_fetch_add(&crowd->other, 1);
    return NULL;
}

static void five(struct crowd *crowd)
{
    pthread_t threads[5];

    atomic_init(&crowd->ok, 0);
    atomic_init(&crowd->conflict, 0);
    atomic_init(&crowd->not_found, 0);
    (void)pthread_barrier_init(&crowd->start, NULL, 5);
    for (size_t i = 0; i < 5; i++)
        CHECK(pthread_create(&threads[i], NULL, crowd_run, crowd) == 0);
    for (size_t i = 0; i < 5; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    (void)pthread_barrier_destroy(&crowd->start);
    CHECK_INT(atomic_load(&crowd->other), 0);
}

TEST(five_at_once)
{
    auto_env struct env env;
    struct crowd crowd = {.env = &env};

    env_open(&env, 0);
    for (int round = 0; round < 10; round++) {
        OK(env_create(&env, crowd.id, &err));
        crowd.verb = verb_pause;
        five(&crowd);
        CHECK_INT(atomic_load(&crowd.ok), 5);
        crowd.verb = resume;
        five(&crowd);
        CHECK_INT(atomic_load(&crowd.ok), 1);
        CHECK_INT(atomic_load(&crowd.conflict), 4);
        OK(sandbox_pause(env.all, TEAM, str_of(crowd.id), &to_memory, &err));
        crowd.verb = verb_kill;
        five(&crowd);
        CHECK_INT(atomic_load(&crowd.ok), 1);
        CHECK_INT(atomic_load(&crowd.not_found), 4);
    }
    CHECK_INT(engine_fake_boxes(env.engine), 0);
}

/* Everything at once to one id: whatever the order, nobody is stuck and every answer is one of the
 * three. */
struct mix {
    struct env *env;
    char id[ID_SIZE];
    atomic_int next, odd;
};

static int mix_step(struct mix *mix, int which, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct sandboxes *all = mix->env->all;
    struct str id = str_of(mix->id);
    struct sandbox_view view;
    bool resumed;

    switch (which % 6) {
    case 0:
        return sandbox_pause(all, TEAM, id, &to_memory, err);
    case 1:
        return sandbox_pause(all, TEAM, id, &to_disk, err);
    case 2:
        return sandbox_resume(all, TEAM, id, &for_an_hour, &arena, &view, err);
    case 3:
        return sandbox_connect(all, TEAM, id, &for_an_hour, &arena, &view, &resumed, err);
    case 4:
        return sandbox_set_timeout(all, TEAM, id, 3600, err);
    default:
        return sandbox_get(all, TEAM, id, &arena, &view, err);
    }
}

static void *mix_run(void *arg)
{
    struct mix *mix = arg;

    for (int i = 0; i < 60; i++) {
        struct error err = {0};

        if (mix_step(mix, atomic_fetch_add(&mix->next, 1), &err) < 0 &&
            err.code != ERROR_CONFLICT) {
            (void)fprintf(stderr, "%s\n", err.message);
            atomic_fetch_add(&mix->odd, 1);
        }
    }
    return NULL;
}

TEST_TIMEOUT(everything_at_once, 60)
{
    auto_env struct env env;
    struct mix mix = {.env = &env};
    pthread_t threads[6];
    struct error ignored = {0};
    bool frozen;

    env_open(&env, 0);
    OK(env_create(&env, mix.id, &err));
    (void)engine_fake_disk(env.engine, mix.id, 5);
    for (size_t i = 0; i < 6; i++)
        CHECK(pthread_create(&threads[i], NULL, mix_run, &mix) == 0);
    for (size_t i = 0; i < 6; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK_INT(atomic_load(&mix.odd), 0);
    (void)resume(&env, mix.id, &ignored);
    CHECK_INT(state_of(&env, mix.id), SANDBOX_RUNNING);
    CHECK(engine_fake_runs(env.engine, mix.id, &frozen) && !frozen);
    CHECK_INT(engine_fake_disk(env.engine, mix.id, 0), 5);
    CHECK_INT(route_of(&env, mix.id), ROUTE_RUNNING);
}

TEST(survives_the_server)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandbox_view before, after;
    char frozen_id[ID_SIZE], stopped_id[ID_SIZE];
    bool frozen;

    env_open(&env, 0);
    OK(env_create(&env, frozen_id, &err));
    OK(env_create(&env, stopped_id, &err));
    OK(sandbox_pause(env.all, TEAM, str_of(frozen_id), &to_memory, &err));
    OK(sandbox_pause(env.all, TEAM, str_of(stopped_id), &to_disk, &err));
    OK(sandbox_get(env.all, TEAM, str_of(frozen_id), &arena, &before, &err));
    env_reopen(&env);
    CHECK_INT(count_listed(&env, false, true), 2);
    OK(sandbox_get(env.all, TEAM, str_of(frozen_id), &arena, &after, &err));
    CHECK_INT(after.state, SANDBOX_PAUSED);
    CHECK_INT(after.end_at_us, before.end_at_us);
    CHECK_INT(route_of(&env, frozen_id), ROUTE_PAUSED);
    CHECK(engine_fake_runs(env.engine, frozen_id, &frozen) && frozen);
    OK(sandbox_resume(env.all, TEAM, str_of(frozen_id), &for_an_hour, &arena, &after, &err));
    CHECK_STR(after.resumed_from, "memory");
    CHECK(str_eq(after.access_token, before.access_token));
    OK(sandbox_resume(env.all, TEAM, str_of(stopped_id), &for_an_hour, &arena, &after, &err));
    CHECK_STR(after.resumed_from, "disk");
}

TEST(survives_the_host)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandbox_view view;
    char kept[ID_SIZE], ran[ID_SIZE], lost[ID_SIZE];
    auto_free char *reason = NULL;
    auto_free char *lost_reason = NULL;

    env_open(&env, 0);
    OK(env_create(&env, kept, &err));
    OK(env_create(&env, ran, &err));
    OK(env_create(&env, lost, &err));
    (void)engine_fake_disk(env.engine, kept, 42);
    OK(sandbox_pause(env.all, TEAM, str_of(kept), &to_memory, &err));
    OK(sandbox_pause(env.all, TEAM, str_of(lost), &to_memory, &err));
    env_stop(&env);
    engine_fake_reboot(env.engine);
    OK(env.engine->ops->kill(env.engine, lost, &err)); /* and its disk is gone */
    routes_free(env.routes);
    env.routes = env.config.routes = routes_new();
    env_start(&env);

    WAIT_FOR(env_live_rows(&env) == 1);
    WAIT_FOR((reason = env_end_reason(&env, ran)) != NULL);
    CHECK_STR(str_of(reason), "host restart");
    WAIT_FOR((lost_reason = env_end_reason(&env, lost)) != NULL);
    CHECK_STR(str_of(lost_reason), "files lost");
    OK(sandbox_get(env.all, TEAM, str_of(kept), &arena, &view, &err));
    CHECK_INT(view.state, SANDBOX_PAUSED);
    CHECK_STR(view.paused_to, "disk"); /* which is what is left */
    OK(sandbox_resume(env.all, TEAM, str_of(kept), &for_an_hour, &arena, &view, &err));
    CHECK_STR(view.resumed_from, "disk");
    CHECK_INT(engine_fake_disk(env.engine, kept, 0), 42);
}

static void set_state(struct env *env, const char *id, enum sandbox_state state, bool memory)
{
    auto_arena struct arena arena = {0};
    struct store_sandbox row;
    int64_t revision;

    OK(store_sandbox_get(env->store, str_of(id), &arena, &row, &err));
    row.life.state = SANDBOX_PAUSED;
    row.life.listed = SANDBOX_PAUSED;
    OK(store_sandbox_set_life(env->store, str_of(id), &row.life, NULL, false, &revision, &err));
    row.life.state = state;
    row.life.memory = memory;
    OK(store_sandbox_set_life(env->store, str_of(id), &row.life, NULL, false, &revision, &err));
}

/* The server dies in the middle of a pause or a resume. */
TEST(cut_off_in_the_middle)
{
    auto_env struct env env;
    char ids[4][ID_SIZE];
    bool frozen;

    env_open(&env, 0);
    for (size_t i = 0; i < 4; i++)
        OK(env_create(&env, ids[i], &err));
    for (size_t i = 0; i < 4; i++)
        set_state(&env, ids[i], i % 2 ? SANDBOX_PAUSING : SANDBOX_RESUMING, i < 2);
    env_reopen(&env);
    for (size_t i = 0; i < 4; i++) {
        CHECK_INT(state_of(&env, ids[i]), SANDBOX_PAUSED);
        CHECK_INT(engine_fake_runs(env.engine, ids[i], &frozen), i < 2);
        CHECK_INT(frozen, i < 2);
        CHECK_INT(route_of(&env, ids[i]), ROUTE_PAUSED);
    }
    env_reopen(&env);
    for (size_t i = 0; i < 4; i++) {
        OK(resume(&env, ids[i], &err));
        OK(sandbox_kill(env.all, TEAM, str_of(ids[i]), &err));
    }
    CHECK_INT(engine_fake_boxes(env.engine), 0);
}

TEST(box_that_dies_while_paused)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandbox_view view;
    char id[ID_SIZE];

    env_open(&env, 0);
    OK(env_create(&env, id, &err));
    (void)engine_fake_disk(env.engine, id, 42);
    OK(sandbox_pause(env.all, TEAM, str_of(id), &to_memory, &err));
    engine_fake_die(env.engine, id, BOX_END_OOM);
    WAIT_FOR(engine_fake_told(env.engine) == 1);
    CHECK_INT(state_of(&env, id), SANDBOX_PAUSED);
    /* The news of the death of the first life must not end the second. */
    engine_fake_die(env.engine, id, BOX_END_OOM);
    OK(sandbox_resume(env.all, TEAM, str_of(id), &for_an_hour, &arena, &view, &err));
    CHECK_STR(view.resumed_from, "disk");
    WAIT_FOR(engine_fake_told(env.engine) == 2);
    CHECK_INT(state_of(&env, id), SANDBOX_RUNNING);
    CHECK_INT(engine_fake_disk(env.engine, id, 0), 42);
    engine_fake_die(env.engine, id, BOX_END_OOM);
    WAIT_FOR(engine_fake_boxes(env.engine) == 0);
}

/* Pause, resume, pause to disk, resume, with the n-th call failing. Whatever fails: it says so, the
 * sandbox is in one of its two states, its file is there, it can be connected to and killed. */
static void sweep(void (*fail_at)(struct env *env, int nth), int last)
{
    bool failed = true;

    for (int nth = 1; nth <= last; nth++) {
        auto_env struct env env;
        auto_arena struct arena arena = {0};
        struct error failure = {0};
        struct sandbox_view view;
        bool resumed, frozen;
        char id[ID_SIZE];

        env_open(&env, 0);
        OK(env_create(&env, id, &err));
        (void)engine_fake_disk(env.engine, id, 42);
        fail_at(&env, nth);
        failed = sandbox_pause(env.all, TEAM, str_of(id), &to_memory, &failure) < 0 ||
                 resume(&env, id, &failure) < 0 ||
                 sandbox_pause(env.all, TEAM, str_of(id), &to_disk, &failure) < 0 ||
                 resume(&env, id, &failure) < 0;
        fail_at(&env, 0);
        if (failed)
            CHECK(failure.code != ERROR_NONE && failure.message[0]);
        CHECK_INT(route_of(&env, id),
                  state_of(&env, id) == SANDBOX_RUNNING ? ROUTE_RUNNING : ROUTE_PAUSED);
        env_reopen(&env);
        OK(sandbox_connect(env.all, TEAM, str_of(id), &for_an_hour, &arena, &view, &resumed, &err));
        CHECK(engine_fake_runs(env.engine, id, &frozen) && !frozen);
        CHECK_INT(engine_fake_disk(env.engine, id, 0), 42);
        CHECK_INT(state_of(&env, id), SANDBOX_RUNNING);
        OK(sandbox_kill(env.all, TEAM, str_of(id), &err));
        CHECK_INT(engine_fake_boxes(env.engine), 0);
        CHECK_INT(env_live_rows(&env), 0);
    }
    CHECK(!failed); /* the last is past the last call */
}

static void fail_engine(struct env *env, int nth)
{
    engine_fake_fail_at(env->engine, nth);
}

static void fail_store(struct env *env, int nth)
{
    (void)env;
    env_fail_store_at(nth);
}

TEST_TIMEOUT(pause_engine_failure_sweep, 60)
{
    sweep(fail_engine, 10);
}

TEST_TIMEOUT(pause_store_failure_sweep, 60)
{
    sweep(fail_store, 40);
}

static void create_with(struct env *env, const struct sandbox_new *options, char id[ID_SIZE])
{
    auto_arena struct arena arena = {0};
    struct sandbox_new request = *options;
    struct sandbox_view view;

    request.team_id = TEAM;
    request.template_name = STR("base");
    OK(sandbox_create(env->all, &request, &arena, &view, &err));
    CHECK(str_copy(view.id, id, ID_SIZE));
}

TEST(time_is_up_and_it_is_paused)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandbox_view view;
    char id[ID_SIZE], disk[ID_SIZE];
    bool frozen;

    env_open(&env, 0);
    create_with(&env, &(struct sandbox_new){.timeout_s = 1, .auto_pause = true}, id);
    create_with(&env,
                &(struct sandbox_new){.timeout_s = 1, .auto_pause = true, .auto_pause_disk = true},
                disk);
    (void)engine_fake_disk(env.engine, id, 42);
    WAIT_FOR(state_of(&env, id) == SANDBOX_PAUSED && state_of(&env, disk) == SANDBOX_PAUSED);
    WAIT_FOR(route_of(&env, id) == ROUTE_PAUSED && engine_fake_runs(env.engine, id, &frozen) &&
             frozen);
    WAIT_FOR(!engine_fake_runs(env.engine, disk, &frozen));
    OK(sandbox_get(env.all, TEAM, str_of(id), &arena, &view, &err));
    CHECK(view.auto_pause && !view.auto_resume);
    /* The rule stays, also over a restart. */
    OK(sandbox_resume(env.all, TEAM, str_of(id), &(struct sandbox_resume){.timeout_s = 1}, &arena,
                      &view, &err));
    env_reopen(&env);
    WAIT_FOR(state_of(&env, id) == SANDBOX_PAUSED);
    CHECK_INT(engine_fake_disk(env.engine, id, 0), 42);
    OK(resume(&env, id, &err));
    OK(sandbox_set_timeout(env.all, TEAM, str_of(id), 0, &err));
    CHECK_INT(state_of(&env, id), SANDBOX_PAUSED);
    /* Unless the resume says otherwise. */
    OK(sandbox_resume(env.all, TEAM, str_of(id),
                      &(struct sandbox_resume){.timeout_s = 60, .auto_pause_given = true}, &arena,
                      &view, &err));
    OK(sandbox_set_timeout(env.all, TEAM, str_of(id), 0, &err));
    FAILS(sandbox_get(env.all, TEAM, str_of(id), &arena, &view, &err), ERROR_NOT_FOUND);
}

TEST(auto_pause_that_fails_is_tried_again)
{
    auto_env struct env env;
    char id[ID_SIZE];

    env_open(&env, 0);
    create_with(&env,
                &(struct sandbox_new){.timeout_s = 1, .auto_pause = true, .auto_pause_disk = true},
                id);
    engine_fake_fail_at(env.engine, 1);
    WAIT_FOR(engine_fake_failures(env.engine) == 1);
    WAIT_FOR(state_of(&env, id) == SANDBOX_PAUSED);
}

TEST(traffic_wakes)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandbox_view view;
    char id[ID_SIZE], other[ID_SIZE];
    struct route route;

    env_open(&env, 0);
    create_with(&env, &(struct sandbox_new){.timeout_s = 400, .auto_resume = true}, id);
    OK(env_create(&env, other, &err));
    OK(sandbox_wake(env.all, id, &err)); /* runs */
    OK(sandbox_set_timeout(env.all, TEAM, str_of(id), 5, &err));
    OK(sandbox_pause(env.all, TEAM, str_of(id), &to_memory, &err));
    OK(sandbox_pause(env.all, TEAM, str_of(other), &to_memory, &err));
    CHECK(routes_find(env.routes, str_of(id), &route) && route.wakes);
    CHECK(routes_find(env.routes, str_of(other), &route) && !route.wakes);
    FAILS(sandbox_wake(env.all, other, &err), ERROR_CONFLICT);
    FAILS(sandbox_wake(env.all, "i0000000000000000000", &err), ERROR_NOT_FOUND);
    OK(routes_wake(env.routes, id, &err));
    OK(sandbox_get(env.all, TEAM, str_of(id), &arena, &view, &err));
    CHECK_INT(view.state, SANDBOX_RUNNING);
    CHECK(view.end_at_us > clock_wall_us() + 395000000 &&
          view.end_at_us < clock_wall_us() + 405000000);
    OK(sandbox_pause(env.all, TEAM, str_of(id), &to_disk, &err));
    FAILS(routes_wake(env.routes, id, &err), ERROR_CONFLICT);
    /* The proxy need not ask, also after a restart, until it runs again. */
    CHECK(routes_find(env.routes, str_of(id), &route) && !route.wakes);
    env_reopen(&env);
    CHECK(routes_find(env.routes, str_of(id), &route) && !route.wakes);
    OK(sandbox_resume(env.all, TEAM, str_of(id), &for_an_hour, &arena, &view, &err));
    CHECK(routes_find(env.routes, str_of(id), &route) && route.wakes);
}

TEST(longest_life)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandbox_view view;
    char id[ID_SIZE];

    env_open(&env, 0);
    env.config.max_life_s = 100;
    env_reopen(&env);
    OK(env_create_timeout(&env, 3600, id, &err));
    OK(sandbox_get(env.all, TEAM, str_of(id), &arena, &view, &err));
    CHECK_INT(view.end_at_us - view.started_at_us, 100000000);
    OK(sandbox_extend(env.all, TEAM, str_of(id), 300, &arena, &view, &err));
    CHECK_INT(view.end_at_us - view.started_at_us, 100000000);
    OK(sandbox_set_timeout(env.all, TEAM, str_of(id), 50, &err));
    OK(sandbox_get(env.all, TEAM, str_of(id), &arena, &view, &err));
    CHECK(view.end_at_us - view.started_at_us < 60000000);
    OK(sandbox_pause(env.all, TEAM, str_of(id), &to_memory, &err));
    clock_test_pass(10000);
    OK(sandbox_resume(env.all, TEAM, str_of(id), &for_an_hour, &arena, &view, &err));
    CHECK(view.end_at_us > view.started_at_us + 100000000);
}

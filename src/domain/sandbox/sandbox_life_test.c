/* What goes wrong: failures at every step, crashes, deaths, time, and all of it at once. */
#include "domain/sandbox/test/sandbox_test_env.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/cleanup.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/volume/volume.h"
#include "store/runtime/store_runtime_sandbox.h"

static void check_nothing_left(struct env *env)
{
    struct route route;

    WAIT_FOR(engine_fake_boxes(env->engine) == 0);
    WAIT_FOR(env_live_rows(env) == 0);
    CHECK_INT(sandboxes_running(env->all), 0);
    CHECK(!routes_find(env->routes, STR("x"), &route));
}

/* Create, then kill, with the n-th call failing, until n is past the last call. Whatever fails, it
 * says so, and after that nothing is left. */
static void sweep(void (*fail_at)(struct env *env, int nth))
{
    bool failed = true;
    int runs = 0;

    for (int nth = 1; failed; nth++, runs++) {
        auto_env struct env env;
        char id[ID_SIZE] = "";
        struct error failure = {0};

        env_open(&env, 0);
        fail_at(&env, nth);
        failed = env_create(&env, id, &failure) < 0;
        if (failed) {
            CHECK(failure.code != ERROR_NONE && failure.message[0]);
            CHECK_INT(sandboxes_running(env.all), 0);
        } else {
            CHECK(env_has_route(&env, id));
            CHECK_INT(sandboxes_running(env.all), 1);
            failed = sandbox_kill(env.all, TEAM, str_of(id), &failure) < 0;
            CHECK(!env_has_route(&env, id));
            FAILS(sandbox_kill(env.all, TEAM, str_of(id), &err), ERROR_NOT_FOUND);
        }
        fail_at(&env, 0);
        check_nothing_left(&env);
        /* And the next one works. */
        OK(env_create(&env, id, &err));
        OK(sandbox_kill(env.all, TEAM, str_of(id), &err));
    }
    CHECK(runs >= 3);
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

TEST_TIMEOUT(engine_failure_sweep, 60)
{
    sweep(fail_engine);
}

/* The steps of a kill cope with a store that fails, so the sweep ends there by itself; the rest is
 * covered by failing each step of the kill alone. */
TEST_TIMEOUT(store_failure_sweep, 60)
{
    sweep(fail_store);
    for (int nth = 1; nth <= 2; nth++) {
        auto_env struct env env;
        char id[ID_SIZE];

        env_open(&env, 0);
        OK(env_create(&env, id, &err));
        env_fail_store_at(nth);
        OK(sandbox_kill(env.all, TEAM, str_of(id), &err));
        CHECK_INT(engine_fake_boxes(env.engine), 0);
        check_nothing_left(&env);
    }
}

TEST(kill_that_fails_is_tried_again)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct store_sandbox row;
    char id[ID_SIZE];

    env_open(&env, 0);
    OK(env_create(&env, id, &err));
    engine_fake_fail_kills(env.engine, 3);
    FAILS(sandbox_kill(env.all, TEAM, str_of(id), &err), ERROR_INTERNAL);
    OK(store_sandbox_get(env.store, str_of(id), &arena, &row, &err));
    CHECK_INT(row.life.state, SANDBOX_KILLING);
    CHECK(!env_has_route(&env, id));
    FAILS(sandbox_kill(env.all, TEAM, str_of(id), &err), ERROR_NOT_FOUND);
    check_nothing_left(&env);
}

TEST(failed_create_whose_teardown_fails)
{
    auto_env struct env env;
    char id[ID_SIZE];

    env_open(&env, 0);
    engine_fake_envd_status(env.engine, 500);
    engine_fake_fail_kills(env.engine, 2);
    FAILS(env_create(&env, id, &err), ERROR_INTERNAL);
    CHECK_INT(engine_fake_boxes(env.engine), 1);
    check_nothing_left(&env);
}

TEST(envd_that_does_not_answer)
{
    auto_env struct env env;
    char id[ID_SIZE];

    env_open(&env, 0);
    engine_fake_envd_status(env.engine, 0);
    FAILS(env_create(&env, id, &err), ERROR_UNAVAILABLE);
    engine_fake_envd_status(env.engine, 401);
    FAILS(env_create(&env, id, &err), ERROR_INTERNAL);
    check_nothing_left(&env);
}

TEST(time_is_up)
{
    auto_env struct env env;
    char ids[12][ID_SIZE], longer[ID_SIZE];
    auto_free char *reason = NULL;
    int64_t from;

    env_open(&env, 0);
    OK(env_create_timeout(&env, 60, longer, &err));
    from = clock_mono_us();
    for (size_t i = 0; i < 12; i++)
        OK(env_create_timeout(&env, 1, ids[i], &err));
    WAIT_FOR(engine_fake_boxes(env.engine) == 1);
    CHECK(clock_mono_us() - from >= 1000000 && clock_mono_us() - from < 2000000);
    WAIT_FOR((reason = env_end_reason(&env, ids[0])) != NULL);
    CHECK_STR(str_of(reason), "timeout");
    CHECK(!env_has_route(&env, ids[0]) && env_has_route(&env, longer));
    /* Shortened. */
    from = clock_mono_us();
    OK(sandbox_set_timeout(env.all, TEAM, str_of(longer), 1, &err));
    WAIT_FOR(engine_fake_boxes(env.engine) == 0);
    CHECK(clock_mono_us() - from < 2000000);
    check_nothing_left(&env);
}

/* The threads that end sandboxes sleep by the real clock. */
static void look_again(struct env *env)
{
    (void)pthread_mutex_lock(&env->all->lock);
    (void)pthread_cond_broadcast(&env->all->due);
    (void)pthread_mutex_unlock(&env->all->lock);
}

TEST(each_ends_at_its_time_by_a_moved_clock)
{
    const int64_t minute_us = 60 * INT64_C(1000000);
    auto_env struct env env;
    char soon[ID_SIZE], hour[ID_SIZE], day[ID_SIZE];
    auto_free char *reason = NULL;

    env_open(&env, 0);
    OK(env_create_timeout(&env, 58 * 60, soon, &err));
    OK(env_create_timeout(&env, 60 * 60, hour, &err));
    OK(env_create_timeout(&env, 24 * 3600, day, &err));
    clock_test_pass(59 * minute_us);
    look_again(&env);
    WAIT_FOR((reason = env_end_reason(&env, soon)) != NULL);
    CHECK_STR(str_of(reason), "timeout");
    CHECK(env_has_route(&env, hour));
    clock_test_pass(2 * minute_us);
    look_again(&env);
    WAIT_FOR(!env_has_route(&env, hour));
    CHECK(env_has_route(&env, day));
}

TEST(extended_in_time)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandbox_view view;
    char id[ID_SIZE], other[ID_SIZE];

    env_open(&env, 0);
    OK(env_create_timeout(&env, 1, id, &err));
    OK(sandbox_extend(env.all, TEAM, str_of(id), 60, &arena, &view, &err));
    OK(env_create(&env, other, &err));
    clock_test_pass(1500000);                        /* past its first end */
    engine_fake_die(env.engine, other, BOX_END_OOM); /* wakes who looks for ends */
    WAIT_FOR(env_live_rows(&env) == 1);
    OK(sandbox_get(env.all, TEAM, str_of(id), &arena, &view, &err));
}

static bool was_told(struct env *env)
{
    char sent[4096];

    engine_fake_last_request(env->engine, sent, sizeof(sent));
    return strstr(sent, "POST /init/lease ") != NULL;
}

TEST(envd_that_cannot_be_told_is_told_later)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    char id[ID_SIZE], path[128], away[136];
    struct sandbox_view view;

    env_open(&env, 0);
    OK(env_create(&env, id, &err));
    (void)snprintf(path, sizeof(path), "%s/%s.sock", env.dir, id);
    (void)snprintf(away, sizeof(away), "%s.away", path);
    CHECK_INT(rename(path, away), 0);
    OK(sandbox_extend(env.all, TEAM, str_of(id), 7200, &arena, &view, &err));
    WAIT_FOR(engine_fake_connects_failed(env.engine) >= 2);
    CHECK(!was_told(&env));
    CHECK_INT(rename(away, path), 0);
    WAIT_FOR(was_told(&env));
}

TEST(box_that_dies)
{
    auto_env struct env env;
    char id[ID_SIZE], other[ID_SIZE];
    auto_free char *reason = NULL;

    env_open(&env, 0);
    OK(env_create(&env, id, &err));
    OK(env_create(&env, other, &err));
    engine_fake_die(env.engine, id, BOX_END_OOM);
    WAIT_FOR(engine_fake_boxes(env.engine) == 1);
    WAIT_FOR((reason = env_end_reason(&env, id)) != NULL);
    CHECK_STR(str_of(reason), "out of memory");
    CHECK(!env_has_route(&env, id) && env_has_route(&env, other));
    CHECK_INT(sandboxes_running(env.all), 1);
}

static void start_leftover(struct env *env, char id[ID_SIZE])
{
    struct box_spec spec = {.engine = ENGINE_NATIVE, .layer_count = 1};
    struct box_info info;

    id_make(spec.id);
    memcpy(id, spec.id, ID_SIZE);
    OK(env->engine->ops->start(env->engine, &spec, &info, &err));
}

TEST(recovery)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandbox_view before, after;
    char kept[ID_SIZE], dead[ID_SIZE], gone[ID_SIZE], half[ID_SIZE], left[ID_SIZE], late[ID_SIZE];
    struct route route, old_route;
    int64_t end, revision;
    auto_free char *reason = NULL;
    auto_free char *late_reason = NULL;

    env_open(&env, 0);
    OK(env_create(&env, kept, &err));
    OK(env_create(&env, dead, &err));
    OK(env_create(&env, gone, &err));
    OK(env_create(&env, half, &err));
    OK(env_create(&env, late, &err));
    OK(sandbox_get(env.all, TEAM, str_of(kept), &arena, &before, &err));
    CHECK(routes_find(env.routes, str_of(kept), &old_route));
    env_stop(&env); /* what follows happens while nobody looks */
    engine_fake_die(env.engine, dead, BOX_END_EXITED);
    OK(env.engine->ops->kill(env.engine, gone, &err));
    OK(store_sandbox_killing(env.store, str_of(half), STR("crashed"), &err));
    OK(store_sandbox_set_end(env.store, str_of(late),
                             &(struct store_sandbox_end){.end_at_us = clock_wall_us() - 5}, &end,
                             &revision, &err));
    start_leftover(&env, left);
    routes_free(env.routes);
    env.routes = env.config.routes = routes_new();
    env_start(&env);

    WAIT_FOR(engine_fake_boxes(env.engine) == 1);
    WAIT_FOR(env_live_rows(&env) == 1);
    CHECK_INT(sandboxes_running(env.all), 1);
    OK(sandbox_get(env.all, TEAM, str_of(kept), &arena, &after, &err));
    CHECK_INT(after.end_at_us, before.end_at_us);
    CHECK(str_eq(after.access_token, before.access_token));
    CHECK(routes_find(env.routes, str_of(kept), &route));
    CHECK_STR(after.access_token, route.access_token);
    CHECK(route.generation != old_route.generation);
    reason = env_end_reason(&env, dead);
    CHECK_STR(str_of(reason), "crashed");
    late_reason = env_end_reason(&env, late);
    CHECK_STR(str_of(late_reason), "timeout");
    OK(sandbox_kill(env.all, TEAM, str_of(kept), &err));
    check_nothing_left(&env);
}

static size_t warm_boxes(struct env *env)
{
    struct sandboxes_stats stats;

    sandboxes_stats(env->all, &stats);
    return stats.warm;
}

TEST(warm_boxes)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandbox_new request = {.team_id = TEAM, .template_name = STR("base"), .timeout_s = 60};
    struct sandbox_view view;
    struct box_spec spec;
    char id[ID_SIZE];
    int calls;

    env_open(&env, 3);
    WAIT_FOR(engine_fake_boxes(env.engine) == 6); /* as many blank ones */
    CHECK_INT(env_live_rows(&env), 0);
    WAIT_FOR(warm_boxes(&env) == 6);
    CHECK_INT(engine_fake_calls(env.engine), 14); /* lists, and start + health of each */
    calls = engine_fake_calls(env.engine);
    OK(env_create(&env, id, &err));
    WAIT_FOR(engine_fake_boxes(env.engine) == 7);
    WAIT_FOR(engine_fake_calls(env.engine) == calls + 3); /* init, start and health of a new one */
    CHECK(env_has_route(&env, id));

    /* Without internet: the limits are set anew. */
    OK(sandbox_create(env.all, &request, &arena, &view, &err));
    CHECK(str_copy(view.id, id, sizeof(id)));
    CHECK(engine_fake_spec(env.engine, id, &spec));
    CHECK(spec.network.mode == NETWORK_NONE && spec.layer_count == 2);
    WAIT_FOR(engine_fake_boxes(env.engine) == 8);

    /* After a crash they are leftovers; after a close they are gone. */
    env_reopen(&env);
    CHECK_INT(sandboxes_running(env.all), 2);
    WAIT_FOR(engine_fake_boxes(env.engine) == 8);
    env_stop(&env);
    env.all = NULL;
    CHECK_INT(engine_fake_boxes(env.engine), 2);
}

TEST(two_fill_up_when_few_are_left)
{
    auto_env struct env env;
    char id[ID_SIZE];

    env_open(&env, 4);
    WAIT_FOR(warm_boxes(&env) == 8);
    engine_fake_slow(env.engine, 0, 60 * 1000);
    for (int i = 0; i < 2; i++)
        OK(env_create(&env, id, &err));
    WAIT_FOR(engine_fake_waiting(env.engine) == 1);
    (void)usleep(50 * 1000);
    CHECK_INT(engine_fake_waiting(env.engine), 1);
    for (int i = 0; i < 5; i++)
        OK(env_create(&env, id, &err));
    /* One of eight is left, and one comes; the next start has help. */
    engine_fake_slow(env.engine, 0, 300);
    WAIT_FOR(engine_fake_waiting(env.engine) == 2);
    engine_fake_slow(env.engine, 0, 0);
    WAIT_FOR(warm_boxes(&env) == 8);
    CHECK_INT(engine_fake_boxes(env.engine), 15);
}

TEST(warm_box_that_fails_is_replaced)
{
    auto_env struct env env;
    char id[ID_SIZE];

    env_open(&env, 1);
    WAIT_FOR(warm_boxes(&env) == 2);
    engine_fake_fail_at(env.engine, 1); /* its init */
    OK(env_create(&env, id, &err));
    CHECK(env_has_route(&env, id));
    WAIT_FOR(env_live_rows(&env) == 1);
    WAIT_FOR(engine_fake_boxes(env.engine) == 3);
}

struct joining {
    int calls;
    struct str id; /* of the sandbox it joined last */
};

static int join(void *arg, const struct sandbox_view *view, struct conn *conn, struct error *why)
{
    struct joining *joining = arg;
    struct store_runtime_sandbox row = {.id = view->id,
                                        .team_id = TEAM,
                                        .key = STR("one"),
                                        .spec_hash = STR("spec"),
                                        .provider = STR("here"),
                                        .external_id = view->id,
                                        .token = view->access_token,
                                        .state = SANDBOX_RUNNING,
                                        .created_at_us = view->started_at_us};

    joining->calls++;
    joining->id = view->id;
    return store_runtime_claim_in(conn, &(struct store_runtime_claim){.row = &row}, why);
}

/* And who was refused is not tried with another box. */
TEST(what_joins_a_sandbox_is_there_with_it_or_not_at_all)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct joining joining = {0};
    struct sandbox_joint first = {.run = join, .arg = &joining}, second = first;
    struct sandbox_new request = {
        .team_id = TEAM, .template_name = STR("base"), .timeout_s = 60, .joint = &first};
    struct store_runtime_sandbox row;
    struct sandbox_view view;

    env_open(&env, 2);
    WAIT_FOR(warm_boxes(&env) == 4);
    OK(sandbox_create(env.all, &request, &arena, &view, &err));
    CHECK(first.committed && !first.refused && str_eq(joining.id, view.id));
    OK(store_runtime_sandbox_get(env.store, TEAM, view.id, &arena, &row, &err));
    CHECK_STR(row.key, "one");
    request.joint = &second;
    FAILS(sandbox_create(env.all, &request, &arena, &view, &err), ERROR_EXISTS);
    CHECK(second.refused && !second.committed);
    CHECK_INT(joining.calls, 2);
    WAIT_FOR(env_live_rows(&env) == 1);
    FAILS(store_runtime_sandbox_get(env.store, TEAM, joining.id, &arena, &row, &err),
          ERROR_NOT_FOUND);
}

TEST(warm_box_that_dies_is_replaced)
{
    auto_env struct env env;
    struct box_info *infos = NULL;
    char id[ID_SIZE];
    struct box_spec spec;
    size_t count = 0;

    env_open(&env, 1);
    WAIT_FOR(warm_boxes(&env) == 2);
    OK(env.engine->ops->list(env.engine, &infos, &count, &err));
    CHECK_INT(count, 2);
    for (size_t i = 0; i < count; i++) {
        memcpy(id, infos[i].id, ID_SIZE);
        engine_fake_die(env.engine, id, BOX_END_EXITED);
        WAIT_FOR(!engine_fake_spec(env.engine, id, &spec) && warm_boxes(&env) == 2);
    }
    free(infos);
    CHECK_INT(engine_fake_boxes(env.engine), 2);
    OK(env_create(&env, id, &err));
}

static int create_sized(struct env *env, char id[ID_SIZE], struct error *err)
{
    auto_arena struct arena arena = {0};
    struct sandbox_new request = {
        .team_id = TEAM, .template_name = STR("base"), .timeout_s = 60, .mem_mb = 128};
    struct sandbox_view view;

    if (sandbox_create(env->all, &request, &arena, &view, err) < 0)
        return -1;
    CHECK(str_copy(view.id, id, ID_SIZE));
    return 0;
}

/* What no warm box is kept for is made of a blank one. */
TEST(a_blank_box_becomes_what_is_asked_for)
{
    auto_env struct env env;
    char id[ID_SIZE];
    struct box_spec spec;
    int calls;

    env_open(&env, 1);
    WAIT_FOR(warm_boxes(&env) == 2);
    calls = engine_fake_calls(env.engine);
    OK(create_sized(&env, id, &err));
    CHECK(engine_fake_spec(env.engine, id, &spec));
    CHECK(!spec.blank && spec.layer_count == 2 && spec.limits.mem_bytes == 128 << 20);
    CHECK(spec.network.mode == NETWORK_NONE);
    WAIT_FOR(warm_boxes(&env) == 2);
    /* claim and init; start and health of a new blank one */
    CHECK_INT(engine_fake_calls(env.engine), calls + 4);
    CHECK_INT(engine_fake_boxes(env.engine), 3);
}

TEST(a_blank_box_that_fails_is_replaced)
{
    auto_env struct env env;
    char id[ID_SIZE];

    for (int nth = 1; nth <= 2; nth++) { /* its claim, its init */
        env_open(&env, 1);
        WAIT_FOR(warm_boxes(&env) == 2);
        engine_fake_fail_at(env.engine, nth);
        OK(create_sized(&env, id, &err));
        CHECK(env_has_route(&env, id));
        WAIT_FOR(env_live_rows(&env) == 1);
        WAIT_FOR(warm_boxes(&env) == 2 && engine_fake_boxes(env.engine) == 3);
        if (nth < 2)
            env_close(&env);
    }
}

static void pause_to_disk(struct env *env, char id[ID_SIZE])
{
    env_open(env, 1);
    WAIT_FOR(warm_boxes(env) == 2);
    OK(env_create(env, id, &err));
    WAIT_FOR(warm_boxes(env) == 2);
    (void)engine_fake_disk(env->engine, id, 42);
    OK(sandbox_pause(env->all, TEAM, str_of(id), &(struct sandbox_pause){.disk_only = true}, &err));
}

static void resume_from_disk(struct env *env, const char *id)
{
    const struct sandbox_resume request = {.timeout_s = 60};
    auto_arena struct arena arena = {0};
    struct sandbox_view view;
    struct box_spec spec;

    OK(sandbox_resume(env->all, TEAM, str_of(id), &request, &arena, &view, &err));
    CHECK(engine_fake_spec(env->engine, id, &spec) && spec.keep_disk);
    CHECK_INT(engine_fake_disk(env->engine, id, 0), 42);
    CHECK(env_has_route(env, id));
    WAIT_FOR(warm_boxes(env) == 2);
    CHECK_INT(engine_fake_boxes(env->engine), 3);
}

TEST(a_sandbox_goes_on_from_its_files_in_a_blank_box)
{
    auto_env struct env env;
    char id[ID_SIZE];
    int calls;

    pause_to_disk(&env, id);
    calls = engine_fake_calls(env.engine);
    resume_from_disk(&env, id);
    /* stop, claim and init; start and health of a new blank one */
    CHECK_INT(engine_fake_calls(env.engine), calls + 5);
}

TEST(a_sandbox_goes_on_from_its_files_also_when_the_blank_box_fails)
{
    auto_env struct env env;
    char id[ID_SIZE];

    pause_to_disk(&env, id);
    engine_fake_fail_at(env.engine, 2); /* its claim */
    resume_from_disk(&env, id);
    CHECK_INT(engine_fake_failures(env.engine), 1);
}

/* The first starts anew, and blank boxes with the filter for volumes are kept from then on. */
TEST(a_blank_box_for_volumes_is_kept_once_there_was_a_volume)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    const struct volume_mount mount = {STR("data"), STR("/data")};
    struct sandbox_new request = {.team_id = TEAM,
                                  .template_name = STR("base"),
                                  .timeout_s = 60,
                                  .volumes = &mount,
                                  .volume_count = 1};
    struct store_volume volume;
    struct sandbox_view view;
    struct box_spec spec;
    char id[ID_SIZE];
    int calls;

    env_open(&env, 1);
    WAIT_FOR(warm_boxes(&env) == 2);
    OK(volume_create(env.volumes, TEAM, STR("data"), &arena, &volume, &err));
    OK(sandbox_create(env.all, &request, &arena, &view, &err));
    WAIT_FOR(warm_boxes(&env) == 3);
    calls = engine_fake_calls(env.engine);
    OK(sandbox_create(env.all, &request, &arena, &view, &err));
    CHECK(str_copy(view.id, id, sizeof(id)));
    CHECK(engine_fake_spec(env.engine, id, &spec) && spec.volume_count == 1 && !spec.blank);
    WAIT_FOR(warm_boxes(&env) == 3);
    /* claim and init; start and health of a new blank one */
    CHECK_INT(engine_fake_calls(env.engine), calls + 4);
}

struct crowd {
    struct env *env;
    atomic_int created, killed, errors;
};

static void *crowd_run(void *arg)
{
    struct crowd *crowd = arg;
    struct sandbox_filter filter = {.team_id = TEAM, .running = true, .limit = 10};

    for (int i = 0; i < 25; i++) {
        auto_arena struct arena arena = {0};
        struct sandbox_page page;
        struct sandbox_view view;
        struct error err = {0};
        char id[ID_SIZE];

        if (env_create(crowd->env, id, &err) < 0) {
            (void)fprintf(stderr, "create: %s\n", err.message);
            atomic_fetch_add(&crowd->errors, 1);
            continue;
        }
        atomic_fetch_add(&crowd->created, 1);
        if (sandbox_list(crowd->env->all, &filter, &arena, &page, &err) < 0)
            atomic_fetch_add(&crowd->errors, 1);
        /* Anybody's; another thread may be faster, which is "not found" and nothing else. */
        for (size_t k = 0; k < page.count && k < 2; k++) {
            (void)sandbox_extend(crowd->env->all, TEAM, page.items[k].id, 100, &arena, &view, &err);
            if (sandbox_kill(crowd->env->all, TEAM, page.items[k].id, &err) == 0)
                atomic_fetch_add(&crowd->killed, 1);
            else if (err.code != ERROR_NOT_FOUND)
                atomic_fetch_add(&crowd->errors, 1);
        }
    }
    return NULL;
}

static void run_crowd(size_t warm)
{
    auto_env struct env env;
    struct crowd crowd = {.env = &env};
    pthread_t threads[8];

    env_open(&env, warm);
    for (size_t i = 0; i < 8; i++)
        CHECK(pthread_create(&threads[i], NULL, crowd_run, &crowd) == 0);
    for (size_t i = 0; i < 8; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK_INT(atomic_load(&crowd.errors), 0);
    CHECK_INT(atomic_load(&crowd.created), 200);
    CHECK_INT(sandboxes_running(env.all), 200 - atomic_load(&crowd.killed));
    CHECK_INT(env_live_rows(&env), 200 - atomic_load(&crowd.killed));
    WAIT_FOR(engine_fake_boxes(env.engine) == sandboxes_running(env.all) + 2 * warm);
}

TEST_TIMEOUT(many_at_once_cold, 60)
{
    run_crowd(0);
}

TEST_TIMEOUT(many_at_once_warm, 60)
{
    run_crowd(4);
}

struct killers {
    struct env *env;
    char id[ID_SIZE];
    atomic_int killed, not_found;
};

static void *killer_run(void *arg)
{
    struct killers *killers = arg;
    struct error err = {0};

    if (sandbox_kill(killers->env->all, TEAM, str_of(killers->id), &err) == 0)
        atomic_fetch_add(&killers->killed, 1);
    else if (err.code == ERROR_NOT_FOUND)
        atomic_fetch_add(&killers->not_found, 1);
    return NULL;
}

TEST(only_one_kill_wins)
{
    auto_env struct env env;

    env_open(&env, 0);
    for (int round = 0; round < 20; round++) {
        struct killers killers = {.env = &env};
        pthread_t threads[4];

        OK(env_create(&env, killers.id, &err));
        for (size_t i = 0; i < 4; i++)
            CHECK(pthread_create(&threads[i], NULL, killer_run, &killers) == 0);
        for (size_t i = 0; i < 4; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK_INT(atomic_load(&killers.killed), 1);
        CHECK_INT(atomic_load(&killers.not_found), 3);
    }
    check_nothing_left(&env);
}

/* Boxes that serve the content of volumes: one each, only for the right token, and gone in time. */
#include <pthread.h>

#include "base/cleanup.h"
#include "domain/sandbox/test/sandbox_test_env.h"
#include "domain/volume/volume.h"
#include "domain/volume/volume_internal.h"

static bool served(struct env *env, struct str token, struct route *out)
{
    return routes_find_token(env->routes, token, out) && out->volume;
}

TEST(content_is_served_from_one_box_per_volume)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct store_volume one, two;
    struct route route, again;
    struct box_spec spec;

    env_open(&env, 0);
    OK(volume_create(env.volumes, TEAM, STR("one"), &arena, &one, &err));
    OK(volume_create(env.volumes, OTHER, STR("two"), &arena, &two, &err));
    FAILS(routes_serve_volume(env.routes, STR("no token"), &err), ERROR_UNAUTHORIZED);
    FAILS(routes_serve_volume(env.routes, one.id, &err), ERROR_UNAUTHORIZED);
    CHECK_INT(engine_fake_boxes(env.engine), 0);
    OK(routes_serve_volume(env.routes, one.token, &err));
    CHECK(served(&env, one.token, &route) && route.state == ROUTE_RUNNING);
    CHECK(engine_fake_spec(env.engine, route.id, &spec));
    CHECK(spec.volume_count == 1 && spec.network.mode == NETWORK_NONE);
    CHECK_STR(one.id, spec.volumes[0].name);
    OK(routes_serve_volume(env.routes, one.token, &err));
    CHECK(served(&env, one.token, &again));
    CHECK_STR(str_of(again.id), route.id);
    OK(routes_serve_volume(env.routes, two.token, &err));
    CHECK_INT(engine_fake_boxes(env.engine), 2);
    CHECK_INT(sandboxes_running(env.all), 0);
    /* Nobody's sandbox. */
    CHECK_INT(env_live_rows(&env), 0);
    OK(volume_delete(env.volumes, TEAM, STR("one"), &err));
    CHECK(!served(&env, one.token, &again));
    CHECK_INT(engine_fake_boxes(env.engine), 1);
    FAILS(routes_serve_volume(env.routes, one.token, &err), ERROR_UNAUTHORIZED);
    env_reopen(&env);
    CHECK_INT(engine_fake_boxes(env.engine), 0);
    OK(routes_serve_volume(env.routes, two.token, &err));
    CHECK_INT(engine_fake_boxes(env.engine), 1);
}

TEST(idle_content_boxes_end_and_dead_ones_are_replaced)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct store_volume volume;
    struct route route, again;

    env_open(&env, 0);
    OK(volume_create(env.volumes, TEAM, STR("one"), &arena, &volume, &err));
    OK(routes_serve_volume(env.routes, volume.token, &err));
    CHECK(served(&env, volume.token, &route));
    engine_fake_envd_status(env.engine, 409); /* busy */
    content_reap(env.volumes);
    CHECK(served(&env, volume.token, &again));
    engine_fake_envd_status(env.engine, 204);
    engine_fake_die(env.engine, route.id, BOX_END_EXITED);
    WAIT_FOR(!served(&env, volume.token, &again));
    OK(routes_serve_volume(env.routes, volume.token, &err));
    CHECK(served(&env, volume.token, &again));
    CHECK(strcmp(again.id, route.id) != 0);
    engine_fake_fail_kills(env.engine, 1);
    content_reap(env.volumes);
    CHECK(!served(&env, volume.token, &again));
    WAIT_FOR(engine_fake_boxes(env.engine) == 0);
}

/* Makes a volume and has it served. */
static int serve_one(struct env *env, struct str team, int number, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_volume volume;
    char name[16];

    (void)snprintf(name, sizeof(name), "v%d", number);
    if (volume_create(env->volumes, team, str_of(name), &arena, &volume, err) < 0)
        return -1;
    return routes_serve_volume(env->routes, volume.token, err);
}

TEST(no_team_takes_all_places_and_idle_ones_are_given_up)
{
    auto_env struct env env;

    env_open(&env, 0);
    for (int i = 0; i < 16; i++)
        OK(serve_one(&env, TEAM, i, &err));
    /* Busy, all of them: the team has its share, others have theirs. */
    engine_fake_envd_status(env.engine, 409);
    FAILS(serve_one(&env, TEAM, 16, &err), ERROR_QUOTA);
    engine_fake_envd_status(env.engine, 204);
    OK(serve_one(&env, OTHER, 0, &err));
    CHECK_INT(engine_fake_boxes(env.engine), 17);
    /* At rest: its own make room for it, the other's stays. */
    OK(serve_one(&env, TEAM, 17, &err));
    WAIT_FOR(engine_fake_boxes(env.engine) == 2);
}

static void *wake_run(void *arg)
{
    const void *const *both = arg;
    struct error err = {0};

    return (void *)(intptr_t)routes_serve_volume((struct routes *)(uintptr_t)both[0],
                                                 str_of(both[1]), &err);
}

TEST(many_first_requests_start_one_box)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct store_volume volume;
    const void *both[2];
    pthread_t threads[8];
    void *result;

    env_open(&env, 0);
    OK(volume_create(env.volumes, TEAM, STR("one"), &arena, &volume, &err));
    engine_fake_slow(env.engine, 0, 50);
    both[0] = env.routes;
    both[1] = volume.token.p;
    for (size_t i = 0; i < 8; i++)
        CHECK(pthread_create(&threads[i], NULL, wake_run, both) == 0);
    for (size_t i = 0; i < 8; i++) {
        CHECK(pthread_join(threads[i], &result) == 0);
        CHECK(result == NULL);
    }
    CHECK_INT(engine_fake_boxes(env.engine), 1);
}

/* Whatever call fails: either it is served, or nothing is left and the next try succeeds. */
TEST(every_failure_while_content_is_opened)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct store_volume volume;
    int failures = 0;

    env_open(&env, 0);
    OK(volume_create(env.volumes, TEAM, STR("one"), &arena, &volume, &err));
    for (int nth = 1; nth < 6; nth++) {
        struct route route;
        struct error failed = {0};

        engine_fake_fail_at(env.engine, nth);
        if (routes_serve_volume(env.routes, volume.token, &failed) < 0) {
            failures++;
            CHECK(!served(&env, volume.token, &route));
            engine_fake_fail_at(env.engine, 0);
            WAIT_FOR(engine_fake_boxes(env.engine) == 0);
        }
        engine_fake_fail_at(env.engine, 0);
        OK(routes_serve_volume(env.routes, volume.token, &err));
        CHECK(served(&env, volume.token, &route));
        content_close(env.volumes, volume.id);
        WAIT_FOR(engine_fake_boxes(env.engine) == 0);
    }
    CHECK(failures >= 1);
}

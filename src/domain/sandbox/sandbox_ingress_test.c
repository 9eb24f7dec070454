/* The way in of a sandbox, through all that happens to it. */
#include "domain/sandbox/test/sandbox_test_env.h"

static const struct sandbox_pause to_memory = {0}, to_disk = {.disk_only = true};
static const struct sandbox_resume for_an_hour = {.timeout_s = 3600};

/* The token that ports need, and the way to them, are those of the sandbox for as long as it lives. */
TEST(private_ports_stay_private)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandbox_new request = {.team_id = TEAM,
                                  .template_name = STR("base"),
                                  .timeout_s = 60,
                                  .secure = true,
                                  .is_private = true};
    struct sandbox_view view, after;
    struct fork_result *forks;
    struct route route;

    env_open(&env, 0);
    CHECK(ingress_set_mask(&request.ingress, STR("localhost:${PORT}")));
    OK(sandbox_create(env.all, &request, &arena, &view, &err));
    CHECK_INT(view.traffic_token.len, 67);
    CHECK(!str_eq(str_skip(view.traffic_token, 3), str_skip(view.access_token, 3)));
    CHECK(routes_find(env.routes, view.id, &route));
    CHECK_STR(view.traffic_token, route.traffic_token);
    CHECK_STR(str_of(route.ingress.mask), "localhost:${PORT}");
    for (int disk = 0; disk < 2; disk++) {
        OK(sandbox_pause(env.all, TEAM, view.id, disk ? &to_disk : &to_memory, &err));
        CHECK(routes_find(env.routes, view.id, &route));
        CHECK_STR(view.traffic_token, route.traffic_token);
        OK(sandbox_resume(env.all, TEAM, view.id, &for_an_hour, &arena, &after, &err));
        CHECK(str_eq(after.traffic_token, view.traffic_token));
        CHECK(routes_find(env.routes, view.id, &route));
        CHECK_STR(view.traffic_token, route.traffic_token);
        CHECK_STR(str_of(route.ingress.mask), "localhost:${PORT}");
    }
    OK(sandbox_fork(env.all, TEAM, view.id, &(struct sandbox_fork){.count = 1, .timeout_s = 100},
                    &arena, &forks, &err));
    CHECK(forks[0].ok && forks[0].view.traffic_token.len == 67);
    CHECK(!str_eq(forks[0].view.traffic_token, view.traffic_token));
    CHECK_STR(forks[0].view.ingress, "mask localhost:${PORT}\n");
    env_reopen(&env);
    CHECK(routes_find(env.routes, view.id, &route));
    CHECK_STR(view.traffic_token, route.traffic_token);
    CHECK_STR(str_of(route.ingress.mask), "localhost:${PORT}");
}

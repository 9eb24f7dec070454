/* Use over time, of what sandboxes told. */
#include "base/clock.h"
#include "runtime/sandbox/test/work_env.h"
#include "store/runtime/store_runtime.h"

enum { HOUR_S = 3600 };

/* A sandbox tells how long it ran in all, and what that costs. */
static void tell(struct work_env *env, const char *team, const char *sandbox, int64_t at_s,
                 int seconds, int usd)
{
    char json[200];
    struct store_runtime_event event = {.id = at_s * 1000000,
                                        .team_id = str_of(team),
                                        .type = STR("usage"),
                                        .sandbox_id = str_of(sandbox),
                                        .agent_id = STR("a")};

    (void)snprintf(json, sizeof(json),
                   "{\"task\":\"%s-task\",\"data\":{\"provider\":\"p\",\"seconds\":%d,\"usd\":%d}}",
                   sandbox, seconds, usd);
    event.json = str_of(json);
    OK(store_runtime_event_insert(env->core.store, &event, 1, &err));
}

static struct runtime_usage_steps steps(struct work_env *env, const struct runtime_caller *caller,
                                        enum runtime_usage_by by, size_t count, struct arena *arena)
{
    struct runtime_usage_steps out = {0};

    OK(runtime_usage_steps(env->core.runtime, caller, by, HOUR_S, count, arena, &out, &err));
    return out;
}

TEST(usage_is_spread_over_the_time_it_was_made_in)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_caller all = {0};
    struct runtime_usage_steps out;
    int64_t hour_s;

    work_open(&env, NULL, work_quick);
    hour_s = clock_wall_us() / 1000000 / HOUR_S * HOUR_S;
    /* 1000 s before the window, then 600 s of which a half was in each of two hours. */
    tell(&env, "t1", "one", hour_s - 2 * HOUR_S - 100, 1000, 10);
    tell(&env, "t1", "one", hour_s - HOUR_S + 300, 1600, 16);
    tell(&env, "t2", "two", hour_s - 60, 30, 3);
    out = steps(&env, &all, BY_TEAM, 3, &arena);
    CHECK_INT(out.first_s, hour_s - 2 * HOUR_S);
    CHECK_INT(out.count, 2);
    CHECK(!out.partial);
    CHECK_STR(out.items[0].name, "t1");
    CHECK_INT((int64_t)(out.items[0].seconds[0] + 0.5), 300);
    CHECK_INT((int64_t)(out.items[0].seconds[1] + 0.5), 300);
    CHECK_INT((int64_t)(out.items[0].seconds[2] + 0.5), 0);
    CHECK_INT((int64_t)(out.items[0].usd[0] + out.items[0].usd[1] + 0.5), 6);
    CHECK_STR(out.items[1].name, "t2");
    CHECK_INT((int64_t)(out.items[1].seconds[1] + 0.5), 30);
    /* A team sees its own. */
    out = steps(&env, &(struct runtime_caller){.team_id = STR("t2")}, BY_TASK, 3, &arena);
    CHECK_INT(out.count, 1);
    CHECK_STR(out.items[0].name, "two-task");
    out = steps(&env, &all, BY_PROVIDER, 3, &arena);
    CHECK_INT(out.count, 1);
    CHECK_INT((int64_t)(out.items[0].total_seconds + 0.5), 630);
}

TEST(usage_of_too_many_is_partial)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_usage_steps out;
    int64_t now_s;

    work_open(&env, NULL, work_quick);
    now_s = clock_wall_us() / 1000000;
    for (int i = 0; i < RUNTIME_SERIES_MAX + 5; i++) {
        char name[32];

        (void)snprintf(name, sizeof(name), "box%d", i);
        tell(&env, "t1", name, now_s - i, 10, 1);
    }
    out = steps(&env, &(struct runtime_caller){.team_id = STR("t1")}, BY_TASK, 2, &arena);
    CHECK_INT(out.count, RUNTIME_SERIES_MAX);
    CHECK(out.partial);
}

/* 28 cents added up one by one are 0.2800000000000001 in binary fractions. */
TEST(usage_costs_are_rounded_to_billionths)
{
    double sum = 0;

    for (int i = 0; i < 28; i++)
        sum += 0.01;
    CHECK(sum != 0.28);
    CHECK(runtime_usage_round(sum) == 0.28);
    CHECK(runtime_usage_round(0.1 + 0.2) == 0.3);
    CHECK(runtime_usage_round(1234.0000000004) == 1234);
    CHECK(runtime_usage_round(0.0000000016) == 0.000000002);
    CHECK(runtime_usage_round(0) == 0);
}

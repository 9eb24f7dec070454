/* Rows in 'creating': a maker may work as long as it needs, and a row that nobody works on is ended. Time is
 * moved by clock_test_pass(). */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/periodic.h"
#include "protocol/json/json_shape.h"
#include "runtime/main/runtime_main.h"
#include "runtime/sandbox/sandbox_parts.h"
#include "runtime/sandbox/test/work_env.h"

#define SECOND_US INT64_C(1000000)
#define REMOTE                                                                      \
    "{\"providers\":{\"e2b\":{\"type\":\"e2b\",\"api_url\":\"http://127.0.0.1:1\"," \
    "\"api_key\":\"secret-key-1\"}}}"

static pthread_barrier_t entered, leave;

/* onCreate has so many hooks "slow", each of which runs from one barrier to the other. A hook may take 300 s. */
enum { HOOKS = 5 };

static void run_slow(void *arg, const struct provider_command *command,
                     struct provider_fake_run *out)
{
    (void)arg;
    (void)out;
    for (size_t i = 0; command->argv[i]; i++)
        if (strcmp(command->argv[i], "slow") == 0) {
            (void)pthread_barrier_wait(&entered);
            (void)pthread_barrier_wait(&leave);
        }
}

static void barriers_open(void)
{
    CHECK_INT(pthread_barrier_init(&entered, NULL, 2), 0);
    CHECK_INT(pthread_barrier_init(&leave, NULL, 2), 0);
}

static void barriers_close(void)
{
    (void)pthread_barrier_destroy(&entered);
    (void)pthread_barrier_destroy(&leave);
}

struct maker {
    pthread_t thread;
    struct work_env *env;
    struct runtime *runtime;
    struct runtime_ensure request;
    struct arena arena;
    struct runtime_sandbox sandbox;
    enum runtime_tier tier;
    int64_t ended_us;
    int r;
    struct error err;
};

static void *make(void *arg)
{
    struct maker *maker = arg;

    maker->r = runtime_sandbox_ensure(maker->runtime, &maker->env->core.caller, &maker->request,
                                      &maker->arena, &maker->sandbox, &maker->tier, &maker->err);
    maker->ended_us = clock_mono_us();
    return NULL;
}

static void maker_start(struct maker *maker, struct work_env *env, struct runtime *runtime)
{
    maker->env = env;
    maker->runtime = runtime;
    CHECK_INT(pthread_create(&maker->thread, NULL, make, maker), 0);
}

static void maker_join(struct maker *maker)
{
    (void)pthread_join(maker->thread, NULL);
    if (maker->r < 0)
        test_fail(__FILE__, __LINE__, "%s", maker->err.message);
}

static void clean_up(struct runtime *runtime)
{
    struct runtime_caller everybody = {.actor = STR("prune")};
    size_t sandboxes = 0, snapshots = 0;

    runtime_prune_overdue(runtime, STR_NONE, 0);
    OK(runtime_sandbox_prune(runtime, &everybody, 0, false, &sandboxes, &snapshots, &err));
}

/* And what `prune --older-than` does. */
static void clean_up_all(struct runtime *runtime)
{
    struct runtime_caller everybody = {.actor = STR("prune")};
    size_t sandboxes = 0, snapshots = 0;

    clean_up(runtime);
    OK(runtime_sandbox_prune(runtime, &everybody, 1, false, &sandboxes, &snapshots, &err));
    CHECK_INT(sandboxes, 0);
}

static void put_profile(struct work_env *env)
{
    auto_json json_t *faults = NULL,
                     *slow = json_pack("{s:s, s:{s:s}, s:[sssss], s:b, s:{s:i}}", "provider", "e2b",
                                       "network", "mode", "allow-all", "onCreate", "slow", "slow",
                                       "slow", "slow", "slow", "persistent", 1, "lifecycle",
                                       "expireAfterSeconds", 60);

    OK(profile_put(env->core.runtime, &env->core.caller, STR("slow"), slow, &faults, &err));
    env->core.fake->run = run_slow;
}

static void make_with_slow_hooks(struct str key)
{
    auto_work struct work_env env;
    struct maker maker = {.request = {.key = key, .overrides = {.profile = STR("slow")}}};

    barriers_open();
    work_open(&env, REMOTE, work_quick);
    put_profile(&env);
    maker_start(&maker, &env, env.core.runtime);
    for (int hook = 0; hook < HOOKS; hook++) {
        (void)pthread_barrier_wait(&entered);
        clock_test_pass(250 * SECOND_US);
        clean_up_all(env.core.runtime);
        CHECK_INT(provider_fake_calls(env.core.fake, "kill"), 0);
        (void)pthread_barrier_wait(&leave);
    }
    maker_join(&maker);
    CHECK_INT(maker.tier, TIER_CREATED);
    clean_up(env.core.runtime);
    CHECK_INT(provider_fake_calls(env.core.fake, "kill"), 0);
    CHECK_INT(provider_fake_count(env.core.fake, PROVIDER_RUNNING), 1);
    arena_done(&maker.arena);
    barriers_close();
}

TEST(cleanup_leaves_slow_hooks_alone)
{
    make_with_slow_hooks(STR("k"));
    make_with_slow_hooks(STR_NONE);
}

static struct store_runtime_sandbox row_of(struct work_env *env, struct str id, struct arena *arena)
{
    struct store_runtime_sandbox row;

    OK(store_runtime_sandbox_get(env->core.store, STR("t1"), id, arena, &row, &err));
    return row;
}

TEST(cleanup_leaves_a_slow_restore_alone)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct maker maker = {.request = {.key = STR("k")}};
    struct runtime_sandbox first;
    struct runtime_snapshot snapshot;
    pthread_barrier_t meeting;

    work_open(&env, REMOTE, work_quick);
    first = work_ensure(&env, "k", TIER_CREATED, &arena);
    OK(runtime_snapshot_create(env.core.runtime, &env.core.caller, first.id, STR_NONE, 0, &arena,
                               &snapshot, &err));
    provider_fake_lose(env.core.fake, STR_NONE);
    CHECK_INT(pthread_barrier_init(&meeting, NULL, 2), 0);
    env.core.fake->meeting = &meeting;
    maker_start(&maker, &env, env.core.runtime);
    WAIT_FOR(row_of(&env, first.id, &arena).state == SANDBOX_CREATING);
    clock_test_pass(3600 * SECOND_US);
    clean_up_all(env.core.runtime);
    (void)pthread_barrier_wait(&meeting);
    maker_join(&maker);
    CHECK_INT(maker.tier, TIER_RESTORED);
    CHECK(str_eq(maker.sandbox.id, first.id));
    CHECK_INT(provider_fake_count(env.core.fake, PROVIDER_RUNNING), 1);
    env.core.fake->meeting = NULL;
    (void)pthread_barrier_destroy(&meeting);
    arena_done(&maker.arena);
}

static struct runtime *open_other(struct work_env *env)
{
    struct runtime *other = NULL;

    OK(runtime_open(&(struct runtime_config){.store = env->core.store,
                                             .settings = &env->core.settings,
                                             .fetch = env->fetch,
                                             .sender = env->sender,
                                             .provider_new = provider_fake_open},
                    &other, &err));
    return other;
}

static int compare_times(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

    return (left > right) - (left < right);
}

enum { ROUNDS = 11, OTHERS = 3, LATE_US = 5000 };

/* Callers at three other runtimes, two at each. Who looked every 20 ms would come 10 ms after the maker. */
TEST(callers_are_woken_when_another_runtime_has_made_the_sandbox)
{
    auto_work struct work_env env;
    struct runtime *others[OTHERS];
    int64_t late_us[ROUNDS] = {0};
    pthread_barrier_t meeting;

    work_open(&env, REMOTE, work_quick);
    for (size_t i = 0; i < OTHERS; i++)
        others[i] = open_other(&env);
    CHECK_INT(pthread_barrier_init(&meeting, NULL, 2), 0);
    env.core.fake->meeting = &meeting;
    for (int round = 0; round < ROUNDS; round++) {
        auto_arena struct arena arena = {0};
        struct str key = str_of(arena_printf(&arena, "key-%d", round));
        struct maker maker = {.request = {.key = key}}, callers[2 * OTHERS];

        maker_start(&maker, &env, env.core.runtime);
        WAIT_FOR(provider_fake_calls(env.core.fake, "create") == round + 1);
        for (size_t i = 0; i < 2 * OTHERS; i++) {
            callers[i] = (struct maker){.request = {.key = key}};
            maker_start(&callers[i], &env, others[i % OTHERS]);
        }
        work_sleep_ms(30); /* none of them returns within that time */
        for (size_t i = 0; i < 2 * OTHERS; i++)
            CHECK_INT(callers[i].ended_us, 0);
        (void)pthread_barrier_wait(&meeting);
        maker_join(&maker);
        CHECK_INT(maker.tier, TIER_CREATED);
        for (size_t i = 0; i < 2 * OTHERS; i++) {
            maker_join(&callers[i]);
            CHECK_INT(callers[i].tier, TIER_RESUMED);
            CHECK(str_eq(callers[i].sandbox.id, maker.sandbox.id));
            if (callers[i].ended_us - maker.ended_us > late_us[round])
                late_us[round] = callers[i].ended_us - maker.ended_us;
            arena_done(&callers[i].arena);
        }
        arena_done(&maker.arena);
    }
    CHECK_INT(provider_fake_calls(env.core.fake, "create"), ROUNDS);
    qsort(late_us, ROUNDS, sizeof(*late_us), compare_times);
    CHECK(late_us[ROUNDS / 2] < LATE_US * (int64_t)test_patience());
    env.core.fake->meeting = NULL;
    (void)pthread_barrier_destroy(&meeting);
    for (size_t i = 0; i < OTHERS; i++)
        runtime_close(others[i]);
}

/* Another process on the same store sees the claim in the row. */
TEST(a_claim_is_renewed_for_other_processes)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct maker maker = {.request = {.key = STR("k"), .overrides = {.profile = STR("slow")}}};
    struct maker late = {.request = {.key = STR("k"), .overrides = {.profile = STR("slow")}}};
    struct runtime *other;

    barriers_open();
    work_open(&env, REMOTE, work_quick);
    put_profile(&env);
    other = open_other(&env);
    maker_start(&maker, &env, env.core.runtime);
    for (int hook = 0; hook < HOOKS; hook++) {
        auto_arena struct arena own = {0};
        struct store_runtime_sandbox row;

        (void)pthread_barrier_wait(&entered);
        clock_test_pass((RUNTIME_CLAIM_S - 10) * SECOND_US);
        periodic_test_wake();
        WAIT_FOR(store_runtime_sandbox_find(env.core.store, STR("t1"), STR("k"), STR_NONE, &own,
                                            &row, &(struct error){0}) == 0 &&
                 clock_wall_us() - row.last_used_at_us < 50 * SECOND_US);
        clean_up_all(other);
        if (hook == HOOKS - 1) {
            maker_start(&late, &env, other);
            work_sleep_ms(100); /* it does not take over within that time */
        }
        (void)pthread_barrier_wait(&leave);
    }
    maker_join(&maker);
    maker_join(&late);
    CHECK_INT(late.tier, TIER_RESUMED);
    CHECK(str_eq(maker.sandbox.id, late.sandbox.id));
    CHECK_INT(provider_fake_calls(env.core.fake, "create"), 1);
    CHECK_INT(provider_fake_calls(env.core.fake, "kill"), 0);
    CHECK_INT(work_events(&env, "sandbox.created"), 1);
    arena_done(&maker.arena);
    arena_done(&late.arena);
    runtime_close(other);
    barriers_close();
}

/* The server was killed while it restored a key: the key still has its snapshot. */
TEST(an_abandoned_restore_keeps_its_key)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_sandbox first;
    struct runtime_snapshot snapshot;
    bool changed = false;

    work_open(&env, REMOTE, work_quick);
    first = work_ensure(&env, "k", TIER_CREATED, &arena);
    OK(runtime_snapshot_create(env.core.runtime, &env.core.caller, first.id, STR_NONE, 0, &arena,
                               &snapshot, &err));
    work_restart(&env); /* nothing is in memory any more */
    OK(store_runtime_sandbox_state(env.core.store, first.id, SANDBOX_LOST, STR("gone"),
                                   clock_wall_us(), &changed, &err));
    OK(store_runtime_sandbox_state(env.core.store, first.id, SANDBOX_CREATING, STR_NONE,
                                   clock_wall_us(), &changed, &err));
    CHECK(changed);
    clock_test_pass((RUNTIME_CLAIM_S - 10) * SECOND_US);
    clean_up(env.core.runtime);
    CHECK_INT(row_of(&env, first.id, &arena).state, SANDBOX_CREATING);
    clock_test_pass(20 * SECOND_US);
    clean_up(env.core.runtime);
    CHECK_INT(row_of(&env, first.id, &arena).state, SANDBOX_LOST);
    CHECK_INT(provider_fake_count(env.core.fake, PROVIDER_RUNNING), 0);
    CHECK(str_eq(work_ensure(&env, "k", TIER_RESTORED, &arena).id, first.id));
}

/* What is kept and what is deleted as time passes: keys, idle times, expireAfterSeconds, lifetimes, retention, the
 * clean-up. Time is moved by clock_test_pass(). */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/periodic.h"
#include "protocol/json/json_shape.h"
#include "runtime/command/command.h"
#include "runtime/run/run.h"
#include "runtime/sandbox/sandbox_parts.h"
#include "runtime/sandbox/test/work_env.h"
#include "store/runtime/store_execution.h"
#include "store/runtime/store_runtime.h"

#define DAY_US (24 * 3600 * INT64_C(1000000))
/* Not the engine in this process. */
#define REMOTE                                                                      \
    "{\"providers\":{\"e2b\":{\"type\":\"e2b\",\"api_url\":\"http://127.0.0.1:1\"," \
    "\"api_key\":\"secret-key-1\"}}}"

/* What the timers of a server do each minute and each hour. */
static void clean_up(struct work_env *env)
{
    struct runtime_caller everybody = {.actor = STR("prune")};
    size_t sandboxes = 0, snapshots = 0;

    runtime_prune_overdue(env->core.runtime, STR_NONE, 0);
    OK(runtime_sandbox_prune(env->core.runtime, &everybody, 0, false, &sandboxes, &snapshots,
                             &err));
}

/* As each hour, which may come first. */
static void forget_history(struct work_env *env)
{
    size_t count = 0;

    OK(store_runtime_sandbox_forget(env->core.store, clock_wall_us() - 30 * DAY_US, 5000, &count,
                                    &err));
}

static void pass_days(struct work_env *env, int days)
{
    for (int i = 0; i < days; i++) {
        clock_test_pass(DAY_US);
        clean_up(env);
    }
}

static struct runtime_sandbox ensure(struct work_env *env, const struct runtime_ensure *request,
                                     enum runtime_tier expected, struct arena *arena)
{
    struct runtime_sandbox sandbox = {0};
    enum runtime_tier tier = TIER_CREATED;

    OK(runtime_sandbox_ensure(env->core.runtime, &env->core.caller, request, arena, &sandbox, &tier,
                              &err));
    CHECK_INT(tier, expected);
    return sandbox;
}

static void pause_it(struct work_env *env, struct str id)
{
    OK(runtime_sandbox_pause(env->core.runtime, &env->core.caller, id, &err));
}

static int64_t store_runtime_event_count(struct work_env *env)
{
    int64_t last = 0, count = 0;

    OK(store_runtime_event_last(env->core.store, &last, &count, &err));
    return count;
}

TEST(keys_and_paused_sandboxes_survive_a_year)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    auto_json json_t *lifecycle = json_pack("{s:i}", "idleTimeoutSeconds", 1);
    struct runtime_ensure idle = {.key = STR("idle"), .overrides = {.lifecycle = lifecycle}};
    struct runtime_sandbox key, asked, keyless, runs;

    work_open(&env, NULL, work_quick);
    key = work_ensure(&env, "k", TIER_CREATED, &arena);
    asked = ensure(&env, &idle, TIER_CREATED, &arena);
    keyless = work_ensure(&env, NULL, TIER_CREATED, &arena);
    runs = work_ensure(&env, "runs", TIER_CREATED, &arena);
    pause_it(&env, key.id);
    pause_it(&env, asked.id);
    pause_it(&env, keyless.id);
    pass_days(&env, 366);
    CHECK_INT(provider_fake_calls(env.core.fake, "kill"), 0);
    CHECK(str_eq(work_ensure(&env, "k", TIER_RESUMED, &arena).id, key.id));
    CHECK(str_eq(ensure(&env, &idle, TIER_RESUMED, &arena).id, asked.id));
    CHECK(str_eq(work_ensure(&env, "runs", TIER_RESUMED, &arena).id, runs.id));
    OK(runtime_sandbox_resume(env.core.runtime, &env.core.caller, keyless.id, &err));
}

TEST(expire_after_deletes_what_nobody_used_for_so_long)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    auto_json json_t *lifecycle =
        json_pack("{s:i, s:i}", "idleTimeoutSeconds", 600, "expireAfterSeconds", 7200);
    struct runtime_ensure one = {.key = STR("one"), .overrides = {.lifecycle = lifecycle}};
    struct runtime_ensure two = {.key = STR("two"), .overrides = {.lifecycle = lifecycle}};
    struct runtime_sandbox first, second, again;
    struct runtime_snapshot snapshot;

    work_open(&env, NULL, work_quick);
    first = ensure(&env, &one, TIER_CREATED, &arena);
    second = ensure(&env, &two, TIER_CREATED, &arena);
    CHECK_INT(first.expire_s, 7200);
    /* An old snapshot does not come back in the place of what was deleted. */
    OK(runtime_snapshot_create(env.core.runtime, &env.core.caller, first.id, STR_NONE, 0, &arena,
                               &snapshot, &err));
    OK(runtime_snapshot_create(env.core.runtime, &env.core.caller, second.id, STR_NONE, 0, &arena,
                               &snapshot, &err));
    pause_it(&env, first.id);
    pause_it(&env, second.id);
    clock_test_pass(7100 * INT64_C(1000000));
    clean_up(&env);
    CHECK(str_eq(ensure(&env, &one, TIER_RESUMED, &arena).id, first.id));
    pause_it(&env, first.id);
    clock_test_pass(7300 * INT64_C(1000000));
    /* One is found out when somebody asks for it again, the other by the clean-up, unless the clean-up of the runtime's own
     * timer, which sees the new time, was there first. */
    again = ensure(&env, &one, TIER_CREATED, &arena);
    CHECK(!str_eq(again.id, first.id));
    CHECK(str_eq(again.previous.id, first.id));
    CHECK(!again.previous.kept);
    CHECK(str_find_str(again.previous.reason, STR("expireAfterSeconds")) >= 0);
    clean_up(&env);
    CHECK_INT(work_events(&env, "sandbox.killed"), 2);
    CHECK(work_event_has(&env, "sandbox.killed", "expired"));
    FAILS(runtime_sandbox_resume(env.core.runtime, &env.core.caller, second.id, &err),
          ERROR_NOT_FOUND, "expireAfterSeconds");
    again = ensure(&env, &two, TIER_CREATED, &arena);
    CHECK(str_find_str(again.previous.reason, STR("expireAfterSeconds")) >= 0);
    OK(runtime_snapshot_get(env.core.runtime, &env.core.caller, snapshot.id, &arena, &snapshot,
                            &err));
}

TEST(max_lifetime_ends_a_key_and_says_so)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    auto_json json_t *lifecycle = json_pack("{s:i}", "maxLifetimeSeconds", 1000);
    struct runtime_ensure request = {.key = STR("k"), .overrides = {.lifecycle = lifecycle}};
    struct runtime_sandbox first, second, third;

    work_open(&env, NULL, work_quick);
    first = ensure(&env, &request, TIER_CREATED, &arena);
    CHECK(!first.previous.id.p);
    pause_it(&env, first.id);
    clock_test_pass(1001 * INT64_C(1000000));
    second = ensure(&env, &request, TIER_CREATED, &arena);
    CHECK(!str_eq(second.id, first.id));
    CHECK(str_eq(second.previous.id, first.id));
    CHECK_STR(second.previous.reason, "older than its lifecycle.maxLifetimeSeconds");
    CHECK(!second.previous.kept);
    CHECK(!ensure(&env, &request, TIER_RESUMED, &arena).previous.id.p);
    /* It ends too, and its row stays longer than that of the first. */
    clock_test_pass(1001 * INT64_C(1000000));
    clean_up(&env);
    pass_days(&env, 40);
    forget_history(&env);
    third = ensure(&env, &request, TIER_CREATED, &arena);
    CHECK(str_eq(third.previous.id, second.id));
    CHECK_STR(third.previous.reason, "older than its lifecycle.maxLifetimeSeconds");
    pass_days(&env, 370);
    forget_history(&env);
    CHECK(!ensure(&env, &request, TIER_CREATED, &arena).previous.id.p);
}

TEST(rows_that_remember_keys_are_bounded)
{
    enum { KEYS = 1000 };
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    auto_json json_t *lifecycle = json_pack("{s:i}", "maxLifetimeSeconds", 1000);
    struct runtime_sandbox one;
    size_t count;

    work_open(&env, NULL, work_quick);
    for (int i = 0; i < KEYS + 2; i++) {
        struct runtime_ensure request = {.key = str_of(arena_printf(&arena, "k%d", i)),
                                         .overrides = {.lifecycle = lifecycle}};

        one = ensure(&env, &request, TIER_CREATED, &arena);
        clock_test_pass(1000);
        OK(runtime_sandbox_kill(env.core.runtime, &env.core.caller, one.id, NULL, &err));
    }
    clock_test_pass(40 * DAY_US);
    OK(store_runtime_usage(env.core.store, USAGE_BY_TEAM, STR("t1"), clock_wall_us(), &arena,
                           &(struct store_runtime_usage *){0}, &count, &err));
    CHECK_INT(count, 0);
    forget_history(&env);
    CHECK(!work_ensure(&env, "k1", TIER_CREATED, &arena).previous.id.p);
    CHECK(work_ensure(&env, "k2", TIER_CREATED, &arena).previous.id.p);
}

TEST(previous_names_what_became_of_a_key)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_ensure other = {.key = STR("k"), .overrides = {.image = STR("another")}};
    struct runtime_sandbox first, second, third;

    work_open(&env, NULL, work_quick);
    first = work_ensure(&env, "k", TIER_CREATED, &arena);
    clock_test_pass(1000);
    second = ensure(&env, &other, TIER_CREATED, &arena);
    CHECK(str_eq(second.previous.id, first.id));
    CHECK(second.previous.kept);
    clock_test_pass(1000);
    OK(runtime_sandbox_kill(env.core.runtime, &env.core.caller, first.id, NULL, &err));
    OK(runtime_sandbox_kill(env.core.runtime, &env.core.caller, second.id, NULL, &err));
    third = ensure(&env, &other, TIER_CREATED, &arena);
    CHECK(str_eq(third.previous.id, second.id));
    CHECK_STR(third.previous.reason, "on request");
    CHECK(third.previous.ended_at_us > 0);
    /* Lost by its provider. */
    provider_fake_lose(env.core.fake, third.external_id);
    first = ensure(&env, &other, TIER_CREATED, &arena);
    CHECK(str_eq(first.previous.id, third.id));
    CHECK(str_find_str(first.previous.reason, STR("gone from provider")) >= 0);
    /* One that never ran had no files. */
    provider_fake_fail(env.core.fake, "create", 9, ERROR_INVALID, "not today");
    other.key = STR("new");
    FAILS(runtime_sandbox_ensure(env.core.runtime, &env.core.caller, &other, &arena, &third,
                                 &(enum runtime_tier){0}, &err),
          ERROR_INVALID, "not today");
    provider_fake_fail(env.core.fake, "create", 0, ERROR_INVALID, "");
    CHECK(!ensure(&env, &other, TIER_CREATED, &arena).previous.id.p);
}

TEST(idle_on_a_provider_without_a_clock)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};

    /* One that can pause, as Docker. */
    work_open(&env, NULL, work_quick);
    env.core.fake->caps.features &= ~(unsigned)PROVIDER_TTL;
    work_restart(&env);
    (void)work_ensure(&env, "k", TIER_CREATED, &arena);
    (void)work_ensure(&env, NULL, TIER_CREATED, &arena);
    clock_test_pass(601 * INT64_C(1000000));
    clean_up(&env);
    CHECK_INT(provider_fake_count(env.core.fake, PROVIDER_PAUSED), 1);
    CHECK_INT(provider_fake_count(env.core.fake, PROVIDER_RUNNING), 0);
    (void)work_ensure(&env, "k", TIER_RESUMED, &arena);
    /* One that cannot: what has a key runs on. */
    env.core.fake->caps.features &= ~(unsigned)PROVIDER_PAUSE;
    work_restart(&env);
    (void)work_ensure(&env, NULL, TIER_CREATED, &arena);
    pass_days(&env, 40);
    CHECK_INT(provider_fake_count(env.core.fake, PROVIDER_RUNNING), 1);
    (void)work_ensure(&env, "k", TIER_RESUMED, &arena);
}

static void keep_ten_days(struct core_env *env)
{
    work_quick(env);
    env->settings.retention_days = 10;
}

TEST(retention_announces_a_deletion_a_day_before)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_sandbox unused, used;

    work_open(&env, NULL, keep_ten_days);
    unused = work_ensure(&env, "unused", TIER_CREATED, &arena);
    used = work_ensure(&env, "used", TIER_CREATED, &arena);
    pause_it(&env, unused.id);
    pause_it(&env, used.id);
    pass_days(&env, 8);
    CHECK_INT(work_events(&env, "sandbox.expiring"), 0);
    pass_days(&env, 1);
    CHECK_INT(work_events(&env, "sandbox.expiring"), 2);
    CHECK(work_event_has(&env, "sandbox.expiring", "retention"));
    (void)work_ensure(&env, "used", TIER_RESUMED, &arena);
    pause_it(&env, used.id);
    clean_up(&env);
    CHECK_INT(work_events(&env, "sandbox.expiring"), 2);
    CHECK_INT(provider_fake_calls(env.core.fake, "kill"), 0);
    pass_days(&env, 2);
    CHECK_INT(work_events(&env, "sandbox.killed"), 1);
    CHECK(work_event_has(&env, "sandbox.killed", "retention"));
    CHECK(str_eq(work_ensure(&env, "used", TIER_RESUMED, &arena).id, used.id));
    CHECK_STR(work_ensure(&env, "unused", TIER_CREATED, &arena).previous.reason,
              "unused for longer than the server's retention_days");
}

/* The server was off for a year, or the setting is new: nothing is deleted without a day's notice. */
TEST(retention_gives_notice_also_when_it_is_overdue)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};

    work_open(&env, NULL, keep_ten_days);
    pause_it(&env, work_ensure(&env, "k", TIER_CREATED, &arena).id);
    clock_test_pass(365 * DAY_US);
    clean_up(&env);
    clock_test_pass(DAY_US / 2);
    clean_up(&env);
    CHECK_INT(work_events(&env, "sandbox.expiring"), 1);
    CHECK_INT(provider_fake_calls(env.core.fake, "kill"), 0);
    clock_test_pass(DAY_US / 2);
    clean_up(&env);
    CHECK_INT(work_events(&env, "sandbox.killed"), 1);
}

TEST(snapshots_expire_only_when_that_was_asked_for)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_snapshot kept, week, checkpoint, got;
    struct runtime_sandbox sandbox;

    work_open(&env, NULL, work_quick);
    sandbox = work_ensure(&env, "k", TIER_CREATED, &arena);
    OK(runtime_snapshot_create(env.core.runtime, &env.core.caller, sandbox.id, STR_NONE, 0, &arena,
                               &kept, &err));
    OK(runtime_snapshot_create(env.core.runtime, &env.core.caller, sandbox.id, STR("week"),
                               7 * 24 * 3600, &arena, &week, &err));
    OK(runtime_snapshot_create(env.core.runtime, &env.core.caller, sandbox.id, STR("a#b"), -1,
                               &arena, &checkpoint, &err));
    pass_days(&env, 6);
    CHECK_INT(work_events(&env, "snapshot.expired"), 0);
    pass_days(&env, 2);
    CHECK_INT(work_events(&env, "snapshot.expired"), 1);
    CHECK(work_event_has(&env, "snapshot.expired", "week"));
    FAILS(runtime_snapshot_get(env.core.runtime, &env.core.caller, week.id, &arena, &got, &err),
          ERROR_NOT_FOUND, "not found");
    pass_days(&env, 23);
    CHECK(work_event_has(&env, "snapshot.expired", "a#b"));
    pass_days(&env, 340);
    CHECK_INT(provider_fake_calls(env.core.fake, "snapshot_delete"), 2);
    OK(runtime_snapshot_get(env.core.runtime, &env.core.caller, kept.id, &arena, &got, &err));
}

/* A machine with our label whose sandbox is deleted, or that no row knows: of the latter only those without a key,
 * because a store that was lost finds the others again. */
TEST(orphan_machines_are_killed_ten_minutes_after_their_start)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_sandbox deleted, unknown, lost, used;
    size_t count = 0;
    bool changed;

    work_open(&env, REMOTE, work_quick);
    deleted = work_ensure(&env, "deleted", TIER_CREATED, &arena);
    unknown = work_ensure(&env, NULL, TIER_CREATED, &arena);
    lost = work_ensure(&env, "lost", TIER_CREATED, &arena);
    used = work_ensure(&env, "used", TIER_CREATED, &arena);
    /* Two rows go; the machines do not know. */
    OK(store_runtime_sandbox_state(env.core.store, unknown.id, SANDBOX_ENDED, STR("test"), 1,
                                   &changed, &err));
    OK(store_runtime_sandbox_state(env.core.store, lost.id, SANDBOX_ENDED, STR("test"), 1, &changed,
                                   &err));
    OK(store_runtime_sandbox_forget(env.core.store, 2, 10, &count, &err));
    CHECK_INT(count, 2);
    OK(store_runtime_sandbox_state(env.core.store, deleted.id, SANDBOX_ENDED, STR("test"),
                                   clock_wall_us(), &changed, &err));
    clock_test_pass(590 * INT64_C(1000000));
    clean_up(&env);
    CHECK_INT(provider_fake_calls(env.core.fake, "kill"), 0);
    clock_test_pass(20 * INT64_C(1000000));
    clean_up(&env);
    CHECK_INT(provider_fake_calls(env.core.fake, "kill"), 2);
    CHECK(str_eq(work_ensure(&env, "lost", TIER_RESUMED, &arena).external_id, lost.external_id));
    CHECK(str_eq(work_ensure(&env, "used", TIER_RESUMED, &arena).id, used.id));
    CHECK(!str_eq(work_ensure(&env, "deleted", TIER_CREATED, &arena).id, deleted.id));
}

/* The timers: rows of what has ended, their jobs, kept output and events are history, and go after 30 days. */
TEST(history_is_forgotten_after_thirty_days)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_command command = {.command = STR("echo x"), .keep = KEEP_YES};
    struct runtime_result result = {0};
    struct runtime_sandbox ended, kept, got;
    struct store_execution execution;
    struct store_runtime_job job = {
        .id = STR("job"), .team_id = STR("t1"), .command = STR("x"), .started_at_us = 1};

    work_open(&env, NULL, work_quick);
    ended = work_ensure(&env, NULL, TIER_CREATED, &arena);
    kept = work_ensure(&env, "k", TIER_CREATED, &arena);
    job.sandbox_id = ended.id;
    OK(store_runtime_job_insert(env.core.store, &job, 10, &err));
    OK(runtime_exec(env.core.runtime, &env.core.caller, kept.id, &command, &result, &err));
    CHECK(result.kept);
    runtime_result_done(&result);
    pause_it(&env, kept.id);
    OK(runtime_sandbox_kill(env.core.runtime, &env.core.caller, ended.id, NULL, &err));
    clock_test_pass(29 * DAY_US);
    periodic_test_wake();
    clean_up(&env);
    OK(runtime_sandbox_get(env.core.runtime, &env.core.caller, ended.id, false, &arena, &got,
                           &err));
    OK(store_execution_get(env.core.store, STR("t1"), str_of(result.keep_id), &arena, &execution,
                           &err));
    OK(store_runtime_job_get(env.core.store, STR("t1"), STR("job"), &arena, &job, &err));
    CHECK_INT(work_events(&env, "sandbox.created"), 2);
    clock_test_pass(2 * DAY_US);
    periodic_test_wake();
    WAIT_FOR(runtime_sandbox_get(env.core.runtime, &env.core.caller, ended.id, false, &arena, &got,
                                 &(struct error){0}) < 0);
    FAILS(store_runtime_job_get(env.core.store, STR("t1"), STR("job"), &arena, &job, &err),
          ERROR_NOT_FOUND, "not found");
    WAIT_FOR(store_execution_get(env.core.store, STR("t1"), str_of(result.keep_id), &arena,
                                 &execution, &(struct error){0}) < 0);
    WAIT_FOR(store_runtime_event_count(&env) == 0);
    (void)work_ensure(&env, "k", TIER_RESUMED, &arena);
}

static void pass_and_wake(int64_t seconds)
{
    clock_test_pass(seconds * 1000000);
    periodic_test_wake();
}

/* The timer itself: it has its first turn after an hour, and ends what runs without a key and was not used for a day,
 * however old it is. */
TEST(hourly_cleanup_ends_what_was_unused_for_a_day)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    auto_json json_t *lifecycle = json_pack("{s:i}", "maxLifetimeSeconds", 600);
    struct runtime_ensure brief = {.key = STR("brief"), .overrides = {.lifecycle = lifecycle}};
    struct runtime_sandbox used;
    struct runtime_snapshot first, second;

    work_open(&env, NULL, work_quick);
    (void)work_ensure(&env, NULL, TIER_CREATED, &arena);
    used = work_ensure(&env, NULL, TIER_CREATED, &arena);
    (void)work_ensure(&env, "kept", TIER_CREATED, &arena);
    (void)ensure(&env, &brief, TIER_CREATED, &arena);
    OK(runtime_snapshot_create(env.core.runtime, &env.core.caller, used.id, STR("a"), 60, &arena,
                               &first, &err));
    OK(runtime_snapshot_create(env.core.runtime, &env.core.caller, used.id, STR("b"), 4000, &arena,
                               &second, &err));
    pass_and_wake(59 * 60);
    WAIT_FOR(provider_fake_calls(env.core.fake, "kill") == 1); /* by the timer of each minute */
    work_sleep_ms(200); /* the other one was woken, too, and must not have its turn */
    CHECK_INT(provider_fake_calls(env.core.fake, "snapshot_delete"), 0);
    pass_and_wake(60);
    WAIT_FOR(provider_fake_calls(env.core.fake, "snapshot_delete") == 1);
    pass_and_wake(3600);
    WAIT_FOR(provider_fake_calls(env.core.fake, "snapshot_delete") == 2);
    for (int hour = 2; hour < 23; hour++) {
        pass_and_wake(3600);
        (void)work_exec(&env, used.id, "true", 0, &arena);
    }
    CHECK_INT(provider_fake_calls(env.core.fake, "kill"), 1);
    clock_test_pass(2 * 3600 * INT64_C(1000000));
    (void)work_exec(&env, used.id, "true", 0, &arena);
    periodic_test_wake();
    WAIT_FOR(provider_fake_calls(env.core.fake, "kill") == 2);
    CHECK(work_event_has(&env, "sandbox.killed", "stale"));
    CHECK_INT(provider_fake_count(env.core.fake, PROVIDER_RUNNING), 2);
    (void)work_exec(&env, used.id, "true", 0, &arena);
}

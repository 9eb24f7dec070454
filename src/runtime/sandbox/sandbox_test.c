/* Sandboxes on the fake provider: tiers, races, quotas, owners, what vanishes. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "protocol/json/json_shape.h"
#include "runtime/command/command.h"
#include "runtime/main/runtime_main.h"
#include "runtime/run/run.h"
#include "runtime/sandbox/sandbox_parts.h"
#include "runtime/sandbox/test/work_env.h"
#include "store/core/store.h"

/* Not the engine in this process. */
#define REMOTE                                                                      \
    "{\"providers\":{\"e2b\":{\"type\":\"e2b\",\"api_url\":\"http://127.0.0.1:1\"," \
    "\"api_key\":\"secret-key-1\"}}}"

static ssize_t source_text(void *arg, void *p, size_t size)
{
    struct str *rest = arg;
    size_t n = rest->len < size ? rest->len : size;

    memcpy(p, rest->p, n);
    *rest = str_skip(*rest, n);
    return (ssize_t)n;
}

static void put(struct work_env *env, struct str id, const char *text)
{
    struct str rest = str_of(text);

    OK(runtime_file_write(env->core.runtime, &env->core.caller, id, "/x", source_text, &rest,
                          (int64_t)rest.len, &err));
}

static int sink_text(void *arg, struct str data)
{
    return buf_add_str(arg, data) ? 0 : -1;
}

static bool has(struct work_env *env, struct str id, const char *text)
{
    auto_buf struct buf got = {0};
    struct error err = {0};

    buf_init(&got, 4096);
    return runtime_file_read(env->core.runtime, &env->core.caller, id, "/x", sink_text, &got,
                             &err) == 0 &&
           str_is(buf_str(&got), text);
}

TEST(ensure_three_tiers)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_sandbox first, again, restored, fresh;
    struct runtime_snapshot snapshot;

    work_open(&env, NULL, work_quick);
    first = work_ensure(&env, "conversation:c1:s1", TIER_CREATED, &arena);
    CHECK_INT(first.spec_hash.len, 16);
    CHECK_INT(first.state, SANDBOX_RUNNING);
    put(&env, first.id, "kept");
    CHECK_INT(work_events(&env, "sandbox.created"), 1);
    CHECK_INT(work_events(&env, "sandbox.started"), 1);

    again = work_ensure(&env, "conversation:c1:s1", TIER_RESUMED, &arena);
    CHECK(str_eq(again.id, first.id));
    CHECK_INT(provider_fake_calls(env.core.fake, "connect"), 0);
    CHECK_INT(work_events(&env, "sandbox.resumed"), 0);

    OK(runtime_sandbox_pause(env.core.runtime, &env.core.caller, first.id, &err));
    OK(runtime_sandbox_pause(env.core.runtime, &env.core.caller, first.id, &err));
    CHECK_INT(provider_fake_calls(env.core.fake, "pause"), 1);
    work_restart(&env);
    again = work_ensure(&env, "conversation:c1:s1", TIER_RESUMED, &arena);
    CHECK(str_eq(again.id, first.id));
    CHECK(str_eq(again.external_id, first.external_id));
    CHECK(has(&env, first.id, "kept"));
    CHECK_INT(work_events(&env, "sandbox.created"), 1);
    CHECK_INT(work_events(&env, "sandbox.resumed"), 1);

    OK(runtime_snapshot_create(env.core.runtime, &env.core.caller, first.id, STR_NONE, 0, &arena,
                               &snapshot, &err));
    provider_fake_lose(env.core.fake, STR_NONE);
    restored = work_ensure(&env, "conversation:c1:s1", TIER_RESTORED, &arena);
    CHECK(str_eq(restored.id, first.id));
    CHECK(!str_eq(restored.external_id, first.external_id));
    CHECK(str_eq(restored.snapshot_id, snapshot.id));
    CHECK(has(&env, first.id, "kept"));
    CHECK_INT(work_events(&env, "sandbox.created"), 1);
    CHECK_INT(work_events(&env, "sandbox.started"), 2);
    CHECK(work_event_has(&env, "sandbox.started", "snapshot_id"));

    OK(runtime_snapshot_delete(env.core.runtime, &env.core.caller, snapshot.id, NULL, &err));
    provider_fake_lose(env.core.fake, STR_NONE);
    fresh = work_ensure(&env, "conversation:c1:s1", TIER_CREATED, &arena);
    CHECK(!str_eq(fresh.id, first.id));
    CHECK(!has(&env, fresh.id, "kept"));
    CHECK_INT(work_events(&env, "sandbox.created"), 2);
    CHECK_INT(work_events(&env, "sandbox.started"), 3);
    CHECK_INT(provider_fake_count(env.core.fake, PROVIDER_RUNNING), 1);
}

TEST(ensure_another_spec_is_another_sandbox)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_ensure request = {.key = STR("k"), .overrides = {.image = STR("other")}};
    struct runtime_sandbox first, second;
    enum runtime_tier tier;

    work_open(&env, NULL, work_quick);
    first = work_ensure(&env, "k", TIER_CREATED, &arena);
    OK(runtime_sandbox_ensure(env.core.runtime, &env.core.caller, &request, &arena, &second, &tier,
                              &err));
    CHECK_INT(tier, TIER_CREATED);
    CHECK(!str_eq(first.id, second.id));
    CHECK(str_eq(work_ensure(&env, "k", TIER_RESUMED, &arena).id, first.id));
    CHECK(!str_eq(work_ensure(&env, NULL, TIER_CREATED, &arena).id, first.id));
}

/* ---- races ---- */

struct racer {
    pthread_t thread;
    struct work_env *env;
    struct runtime *runtime;
    struct arena arena;
    struct runtime_sandbox sandbox;
    enum runtime_tier tier;
    int r;
    struct error err;
};

static void *race(void *arg)
{
    struct racer *racer = arg;
    struct runtime_ensure request = {.key = STR("race")};

    racer->r = runtime_sandbox_ensure(racer->runtime, &racer->env->core.caller, &request,
                                      &racer->arena, &racer->sandbox, &racer->tier, &racer->err);
    return NULL;
}

enum { RACERS = 20 };

TEST(ensure_twenty_at_once)
{
    auto_work struct work_env env;
    struct racer racers[RACERS] = {0};
    int created = 0;

    work_open(&env, NULL, work_quick);
    env.core.fake->hang_ms = 20;
    for (int i = 0; i < RACERS; i++) {
        racers[i].env = &env;
        racers[i].runtime = env.core.runtime;
        CHECK_INT(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    }
    for (int i = 0; i < RACERS; i++) {
        (void)pthread_join(racers[i].thread, NULL);
        CHECK_INT(racers[i].r, 0);
        created += racers[i].tier == TIER_CREATED;
        CHECK(str_eq(racers[i].sandbox.id, racers[0].sandbox.id));
    }
    CHECK_INT(created, 1);
    CHECK_INT(provider_fake_calls(env.core.fake, "create"), 1);
    CHECK_INT(work_events(&env, "sandbox.created"), 1);
    for (int i = 0; i < RACERS; i++)
        arena_done(&racers[i].arena);
}

/* Two processes on one store: the row decides, no second machine is made. */
TEST(ensure_two_processes_one_store)
{
    auto_work struct work_env env;
    struct racer racers[2] = {0};
    struct runtime *other = NULL;

    work_open(&env, REMOTE, work_quick);
    OK(runtime_open(&(struct runtime_config){.store = env.core.store,
                                             .settings = &env.core.settings,
                                             .fetch = env.fetch,
                                             .sender = env.sender,
                                             .provider_new = provider_fake_open},
                    &other, &err));
    env.core.fake->hang_ms = 50;
    for (int i = 0; i < 2; i++) {
        racers[i].env = &env;
        racers[i].runtime = i ? other : env.core.runtime;
        CHECK_INT(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        (void)pthread_join(racers[i].thread, NULL);
        CHECK_INT(racers[i].r, 0);
    }
    CHECK(str_eq(racers[0].sandbox.id, racers[1].sandbox.id));
    CHECK_INT(provider_fake_calls(env.core.fake, "create"), 1);
    for (int i = 0; i < 2; i++)
        arena_done(&racers[i].arena);
    runtime_close(other);
}

/* Two servers with stores of their own on one provider: the older machine stays. */
TEST(ensure_two_stores_one_provider)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct racer racers[2] = {0};
    struct runtime *other = NULL;
    auto_store struct store *store = NULL;
    struct runtime_sandbox seen;
    pthread_barrier_t meeting;

    work_open(&env, REMOTE, work_quick);
    OK(store_open(":memory:", &store, &err));
    OK(runtime_open(&(struct runtime_config){.store = store,
                                             .settings = &env.core.settings,
                                             .fetch = env.fetch,
                                             .sender = env.sender,
                                             .provider_new = provider_fake_open},
                    &other, &err));
    CHECK_INT(pthread_barrier_init(&meeting, NULL, 2), 0);
    env.core.fake->meeting = &meeting; /* neither sees the machine of the other before it creates */
    for (int i = 0; i < 2; i++) {
        racers[i].env = &env;
        racers[i].runtime = i ? other : env.core.runtime;
        CHECK_INT(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        (void)pthread_join(racers[i].thread, NULL);
        if (racers[i].r < 0)
            test_fail(__FILE__, __LINE__, "%s", racers[i].err.message);
    }
    env.core.fake->meeting = NULL;
    (void)pthread_barrier_destroy(&meeting);
    CHECK_INT(provider_fake_calls(env.core.fake, "create"), 2);
    CHECK(str_eq(racers[0].sandbox.external_id, racers[1].sandbox.external_id));
    CHECK_INT(provider_fake_count(env.core.fake, PROVIDER_RUNNING), 1);
    CHECK_INT((racers[0].tier == TIER_CREATED) + (racers[1].tier == TIER_CREATED), 1);

    /* A store that was lost finds what it had. */
    runtime_close(other);
    store_close(store);
    store = NULL;
    OK(store_open(":memory:", &store, &err));
    OK(runtime_open(&(struct runtime_config){.store = store,
                                             .settings = &env.core.settings,
                                             .fetch = env.fetch,
                                             .sender = env.sender,
                                             .provider_new = provider_fake_open},
                    &other, &err));
    OK(runtime_sandbox_ensure(other, &env.core.caller, &(struct runtime_ensure){.key = STR("race")},
                              &arena, &seen, &racers[0].tier, &err));
    CHECK_INT(racers[0].tier, TIER_RESUMED);
    CHECK(str_eq(seen.external_id, racers[1].sandbox.external_id));
    CHECK_INT(provider_fake_calls(env.core.fake, "create"), 2);
    for (int i = 0; i < 2; i++)
        arena_done(&racers[i].arena);
    runtime_close(other);
}

/* ---- failures ---- */

TEST(create_tries_again_and_leaves_nothing)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_ensure request = {.key = STR("k")};
    struct runtime_sandbox sandbox, *list = NULL;
    enum runtime_tier tier;
    size_t count = 0;

    work_open(&env, NULL, work_quick);
    provider_fake_fail(env.core.fake, "create", 2, ERROR_UNAVAILABLE, "no answer");
    (void)work_ensure(&env, "first", TIER_CREATED, &arena);
    CHECK_INT(provider_fake_calls(env.core.fake, "create"), 3);
    provider_fake_fail(env.core.fake, "create", 9, ERROR_UNAVAILABLE, "no answer");
    FAILS(runtime_sandbox_ensure(env.core.runtime, &env.core.caller, &request, &arena, &sandbox,
                                 &tier, &err),
          ERROR_UNAVAILABLE, "no answer");
    CHECK_INT(work_events(&env, "sandbox.error"), 1);
    provider_fake_fail(env.core.fake, "create", 9, ERROR_QUOTA, "429");
    FAILS(runtime_sandbox_ensure(env.core.runtime, &env.core.caller, &request, &arena, &sandbox,
                                 &tier, &err),
          ERROR_QUOTA, "429");
    CHECK_INT(provider_fake_calls(env.core.fake, "create"), 7);
    provider_fake_fail(env.core.fake, "create", 0, ERROR_QUOTA, "");
    (void)work_ensure(&env, "k", TIER_CREATED, &arena);
    OK(runtime_sandbox_list(env.core.runtime, &env.core.caller, &(struct runtime_sandbox_filter){0},
                            &arena, &list, &count, &err));
    CHECK_INT(count, 2);
    CHECK_INT(provider_fake_count(env.core.fake, PROVIDER_RUNNING), 2);
}

TEST(max_sandboxes_is_a_quota)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_sandbox first, second, sandbox;
    enum runtime_tier tier;

    work_open(&env, "{\"providers\":{\"e2b\":{\"type\":\"e2b\",\"max_sandboxes\":2}}}", work_quick);
    first = work_ensure(&env, "a", TIER_CREATED, &arena);
    second = work_ensure(&env, "b", TIER_CREATED, &arena);
    FAILS(runtime_sandbox_ensure(env.core.runtime, &env.core.caller,
                                 &(struct runtime_ensure){.key = STR("c")}, &arena, &sandbox, &tier,
                                 &err),
          ERROR_QUOTA, "max_sandboxes");
    CHECK_INT(provider_fake_calls(env.core.fake, "create"), 2);
    OK(runtime_sandbox_pause(env.core.runtime, &env.core.caller, first.id, &err));
    (void)work_ensure(&env, "c", TIER_CREATED, &arena);
    FAILS(runtime_sandbox_resume(env.core.runtime, &env.core.caller, first.id, &err), ERROR_QUOTA,
          "max_sandboxes");
    OK(runtime_sandbox_kill(env.core.runtime, &env.core.caller, second.id, NULL, &err));
    OK(runtime_sandbox_resume(env.core.runtime, &env.core.caller, first.id, &err));
}

TEST(kill_is_idempotent_and_vanished_ones_say_so)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_command command = {.command = STR("true")};
    struct runtime_sandbox killed, gone, now;
    struct runtime_result result;

    work_open(&env, NULL, work_quick);
    killed = work_ensure(&env, NULL, TIER_CREATED, &arena);
    OK(runtime_sandbox_kill(env.core.runtime, &env.core.caller, killed.id, NULL, &err));
    OK(runtime_sandbox_kill(env.core.runtime, &env.core.caller, killed.id, NULL, &err));
    CHECK_INT(work_events(&env, "sandbox.killed"), 1);
    CHECK(work_event_has(&env, "sandbox.killed", "runtime_seconds"));
    OK(runtime_sandbox_get(env.core.runtime, &env.core.caller, killed.id, true, &arena, &now,
                           &err));
    CHECK_INT(now.state, SANDBOX_ENDED);
    CHECK(now.destroyed_at_us > 0);
    FAILS(runtime_exec(env.core.runtime, &env.core.caller, killed.id, &command, &result, &err),
          ERROR_NOT_FOUND, "was killed at");

    gone = work_ensure(&env, "key", TIER_CREATED, &arena);
    provider_fake_lose(env.core.fake, STR_NONE);
    FAILS(runtime_exec(env.core.runtime, &env.core.caller, gone.id, &command, &result, &err),
          ERROR_NOT_FOUND, "gone");
    CHECK_INT(work_events(&env, "sandbox.killed"), 2);
    CHECK(work_event_has(&env, "sandbox.killed", "\"gone\""));
    OK(runtime_sandbox_get(env.core.runtime, &env.core.caller, gone.id, false, &arena, &now, &err));
    CHECK_INT(now.state, SANDBOX_LOST);
    FAILS(runtime_sandbox_pause(env.core.runtime, &env.core.caller, gone.id, &err), ERROR_NOT_FOUND,
          "does not exist any more");
    FAILS(runtime_sandbox_kill(env.core.runtime, &env.core.caller, STR("sbx_none"), NULL, &err),
          ERROR_NOT_FOUND, "not found");
}

TEST(owner_and_team_are_checked)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_caller stranger, other;
    struct runtime_sandbox mine, *list = NULL;
    struct runtime_ensure request = {.agent_id = STR("a1"), .task_id = STR("t"), .key = STR("k")};
    enum runtime_tier tier;
    size_t count = 9;

    work_open(&env, NULL, work_quick);
    OK(runtime_sandbox_ensure(env.core.runtime, &env.core.caller, &request, &arena, &mine, &tier,
                              &err));
    other = env.core.caller;
    other.agent_id = STR("a2");
    FAILS(runtime_sandbox_kill(env.core.runtime, &other, mine.id, NULL, &err), ERROR_FORBIDDEN,
          "another");
    FAILS(runtime_sandbox_ensure(env.core.runtime, &other, &request, &arena, &mine, &tier, &err),
          ERROR_FORBIDDEN, "another");
    OK(runtime_sandbox_list(env.core.runtime, &other, &(struct runtime_sandbox_filter){0}, &arena,
                            &list, &count, &err));
    CHECK_INT(count, 0);
    stranger = (struct runtime_caller){.team_id = STR("t2")};
    FAILS(runtime_sandbox_kill(env.core.runtime, &stranger, mine.id, NULL, &err), ERROR_NOT_FOUND,
          "not found");
    other.agent_id = STR("a1");
    OK(runtime_sandbox_kill(env.core.runtime, &other, STR("key:k"), NULL, &err));
    CHECK_INT(provider_fake_count(env.core.fake, PROVIDER_RUNNING), 0);
}

static void poor(struct core_env *env)
{
    work_quick(env);
    env->fake->caps.features &=
        ~(unsigned)(PROVIDER_SNAPSHOT | PROVIDER_PAUSE | PROVIDER_FILES | PROVIDER_PTY);
    env->fake->caps.snapshot_kind = NULL;
}

TEST(unsupported_is_said_before_any_call)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_snapshot snapshot;
    struct runtime_sandbox sandbox;
    auto_buf struct buf got = {0};

    work_open(&env, NULL, poor);
    sandbox = work_ensure(&env, NULL, TIER_CREATED, &arena);
    buf_init(&got, 64);
    FAILS(runtime_snapshot_create(env.core.runtime, &env.core.caller, sandbox.id, STR_NONE, 0,
                                  &arena, &snapshot, &err),
          ERROR_UNSUPPORTED, "snapshot");
    FAILS(runtime_sandbox_pause(env.core.runtime, &env.core.caller, sandbox.id, &err),
          ERROR_UNSUPPORTED, "pause");
    FAILS(runtime_file_read(env.core.runtime, &env.core.caller, sandbox.id, "/x", sink_text, &got,
                            &err),
          ERROR_UNSUPPORTED, "files");
    CHECK_INT(provider_fake_calls(env.core.fake, "snapshot"), 0);
    CHECK_INT(provider_fake_calls(env.core.fake, "pause"), 0);
    CHECK_INT(provider_fake_calls(env.core.fake, "read"), 0);
}

/* The maker died: before its machine was there, or after. */
static void abandon(struct work_env *env, struct str id)
{
    auto_arena struct arena arena = {0};
    struct store_runtime_sandbox row;
    bool changed;

    OK(store_runtime_sandbox_get(env->core.store, STR("t1"), id, &arena, &row, &err));
    OK(store_runtime_sandbox_state(env->core.store, id, SANDBOX_ENDED, STR("test"), 1, &changed,
                                   &err));
    row.id = str_of(arena_printf(&arena, "%.*s", STR_ARG(id)));
    OK(store_runtime_sandbox_forget(env->core.store, 2, 10, &(size_t){0}, &err));
    row.state = SANDBOX_CREATING;
    row.external_id = STR_NONE;
    row.last_used_at_us = row.created_at_us = clock_wall_us() - (int64_t)1000 * 1000000;
    row.running_since_us = 0;
    OK(store_runtime_claim(env->core.store, &(struct store_runtime_claim){.row = &row}, &err));
}

TEST(abandoned_rows_are_taken_over)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_sandbox first, second;
    size_t sandboxes = 0, snapshots = 0;

    work_open(&env, REMOTE, work_quick);
    first = work_ensure(&env, "k", TIER_CREATED, &arena);
    work_restart(&env); /* nothing is in memory any more */
    abandon(&env, first.id);
    second = work_ensure(&env, "k", TIER_RESUMED, &arena);
    CHECK(str_eq(first.id, second.id));
    CHECK(str_eq(first.external_id, second.external_id));
    work_restart(&env);
    abandon(&env, first.id);
    provider_fake_lose(env.core.fake, STR_NONE);
    second = work_ensure(&env, "k", TIER_CREATED, &arena);
    CHECK(!str_eq(first.id, second.id));
    work_restart(&env);
    abandon(&env, second.id);
    OK(runtime_sandbox_prune(env.core.runtime, &env.core.caller, 0, false, &sandboxes, &snapshots,
                             &err));
    CHECK_INT(sandboxes, 1);
    CHECK_INT(provider_fake_count(env.core.fake, PROVIDER_RUNNING), 0);
}

/* ---- snapshots ---- */

TEST(snapshots_by_alias)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_ensure request = {.snapshot = STR("github/o/r#main")};
    struct runtime_snapshot first, second, got;
    struct runtime_sandbox sandbox, copy;
    struct store_runtime_snapshot foreign;
    enum runtime_tier tier;
    int creates;

    work_open(&env, NULL, work_quick);
    sandbox = work_ensure(&env, NULL, TIER_CREATED, &arena);
    put(&env, sandbox.id, "one");
    OK(runtime_snapshot_create(env.core.runtime, &env.core.caller, sandbox.id, request.snapshot, -1,
                               &arena, &first, &err));
    CHECK(first.expires_at_us > first.created_at_us);
    put(&env, sandbox.id, "two");
    OK(runtime_snapshot_create(env.core.runtime, &env.core.caller, sandbox.id, request.snapshot, -1,
                               &arena, &second, &err));
    OK(runtime_snapshot_get(env.core.runtime, &env.core.caller, request.snapshot, &arena, &got,
                            &err));
    CHECK(str_eq(got.id, second.id));
    FAILS(runtime_snapshot_get(env.core.runtime, &env.core.caller, first.id, &arena, &got, &err),
          ERROR_NOT_FOUND, "not found");
    CHECK_INT(provider_fake_calls(env.core.fake, "snapshot_delete"), 1);
    OK(runtime_sandbox_ensure(env.core.runtime, &env.core.caller, &request, &arena, &copy, &tier,
                              &err));
    CHECK_INT(tier, TIER_RESTORED);
    CHECK(has(&env, copy.id, "two"));
    CHECK_INT(work_events(&env, "snapshot.succeeded"), 2);

    /* Of another kind: refused, and nobody is asked. */
    OK(store_runtime_snapshot_get(env.core.store, STR("t1"), second.id, &arena, &foreign, &err));
    foreign.id = STR("snap_foreign");
    foreign.kind = STR("docker-image");
    foreign.alias = STR("foreign");
    OK(store_runtime_snapshot_insert(env.core.store, &foreign, &err));
    OK(store_runtime_snapshot_ready(env.core.store, &foreign, clock_wall_us(), &err));
    creates = provider_fake_calls(env.core.fake, "create");
    request.snapshot = STR("foreign");
    FAILS(runtime_sandbox_ensure(env.core.runtime, &env.core.caller, &request, &arena, &copy, &tier,
                                 &err),
          ERROR_UNSUPPORTED, "docker-image");
    CHECK_INT(provider_fake_calls(env.core.fake, "create"), creates);
}

/* ---- time ---- */

TEST(prune_kills_what_nobody_uses)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_snapshot snapshot;
    struct runtime_sandbox old, used;
    size_t sandboxes = 9, snapshots = 9;

    work_open(&env, NULL, work_quick);
    old = work_ensure(&env, "old", TIER_CREATED, &arena);
    used = work_ensure(&env, "used", TIER_CREATED, &arena);
    OK(runtime_snapshot_create(env.core.runtime, &env.core.caller, used.id, STR("a"), 1, &arena,
                               &snapshot, &err));
    OK(runtime_sandbox_prune(env.core.runtime, &env.core.caller, 0, false, &sandboxes, &snapshots,
                             &err));
    CHECK_INT(sandboxes + snapshots, 0);
    clock_test_pass(1100000);
    (void)work_exec(&env, used.id, "true", 0, &arena);
    OK(runtime_sandbox_prune(env.core.runtime, &env.core.caller, 1, true, &sandboxes, &snapshots,
                             &err));
    CHECK_INT(sandboxes, 1);
    CHECK_INT(provider_fake_count(env.core.fake, PROVIDER_RUNNING), 2);
    OK(runtime_sandbox_prune(env.core.runtime, &env.core.caller, 1, false, &sandboxes, &snapshots,
                             &err));
    CHECK_INT(sandboxes, 1);
    CHECK_INT(snapshots, 1);
    CHECK_INT(provider_fake_count(env.core.fake, PROVIDER_RUNNING), 1);
    CHECK(!str_eq(work_ensure(&env, "old", TIER_CREATED, &arena).id, old.id));
    CHECK_INT(provider_fake_calls(env.core.fake, "snapshot_delete"), 1);
}

TEST(a_sandbox_at_the_end_of_its_time_is_paused_once_its_provider_says_so)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_sandbox sandbox, now;
    struct str machine;

    work_open(&env, NULL, work_quick);
    sandbox = work_ensure(&env, "k", TIER_CREATED, &arena);
    machine = sandbox.external_id;
    provider_fake_set_state(env.core.fake, machine, PROVIDER_PAUSING);
    OK(runtime_sandbox_get(env.core.runtime, &env.core.caller, sandbox.id, true, &arena, &now,
                           &err));
    CHECK_INT(now.state, SANDBOX_RUNNING);
    CHECK_INT(work_events(&env, "sandbox.paused"), 0);
    provider_fake_set_state(env.core.fake, machine, PROVIDER_PAUSED);
    OK(runtime_sandbox_get(env.core.runtime, &env.core.caller, sandbox.id, true, &arena, &now,
                           &err));
    CHECK_INT(now.state, SANDBOX_PAUSED);
    CHECK_INT(work_events(&env, "sandbox.paused"), 1);
    /* A command that finds it on its way to be paused waits for that and resumes it. */
    (void)work_exec(&env, sandbox.id, "true", 0, &arena);
    CHECK_INT(work_events(&env, "sandbox.resumed"), 1);
    provider_fake_set_state(env.core.fake, machine, PROVIDER_PAUSING);
    (void)work_exec(&env, sandbox.id, "true", 0, &arena);
    CHECK_INT(work_events(&env, "sandbox.paused"), 2);
    CHECK_INT(work_events(&env, "sandbox.resumed"), 2);
    CHECK_INT(provider_fake_count(env.core.fake, PROVIDER_RUNNING), 1);
}

TEST(life_is_extended_only_when_half_is_gone)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    auto_json json_t *lifecycle = json_pack("{s:i}", "idleTimeoutSeconds", 2);
    struct runtime_ensure request = {.overrides = {.lifecycle = lifecycle}};
    struct runtime_sandbox sandbox;
    enum runtime_tier tier;
    int asked;

    work_open(&env, NULL, work_quick);
    OK(runtime_sandbox_ensure(env.core.runtime, &env.core.caller, &request, &arena, &sandbox, &tier,
                              &err));
    for (int i = 0; i < 5; i++)
        (void)work_exec(&env, sandbox.id, "true", 0, &arena);
    CHECK_INT(provider_fake_calls(env.core.fake, "extend"), 0);
    asked = provider_fake_calls(env.core.fake, "get");
    clock_test_pass(1100000);
    for (int i = 0; i < 5; i++)
        (void)work_exec(&env, sandbox.id, "true", 0, &arena);
    CHECK_INT(provider_fake_calls(env.core.fake, "extend"), 1);
    CHECK_INT(provider_fake_calls(env.core.fake, "get"), asked);
}

/* ---- hooks and usage ---- */

static void run_hook(void *arg, const struct provider_command *command,
                     struct provider_fake_run *out)
{
    (void)arg;
    for (size_t i = 0; command->argv[i]; i++)
        if (strcmp(command->argv[i], "fail") == 0) {
            out->exit_code = 3;
            (void)buf_printf(&out->err, "it broke");
        }
}

TEST(hooks_run_and_their_failure_kills)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    auto_json json_t *good = NULL, *bad = NULL, *faults = NULL, *more = NULL;
    struct runtime_ensure request = {.overrides = {.profile = STR("good")}, .key = STR("k")};
    struct runtime_sandbox sandbox;
    enum runtime_tier tier;
    int starts;

    work_open(&env, NULL, work_quick);
    env.core.fake->run = run_hook;
    good = json_pack("{s:s, s:b, s:{s:s}, s:[s, s], s:[s]}", "provider", "e2b", "persistent", 1,
                     "network", "mode", "allow-all", "onCreate", "one", "two", "onResume", "three");
    bad = json_pack("{s:s, s:b, s:{s:s}, s:[s]}", "provider", "e2b", "persistent", 1, "network",
                    "mode", "allow-all", "onCreate", "fail");
    OK(profile_put(env.core.runtime, &env.core.caller, STR("good"), good, &faults, &err));
    OK(profile_put(env.core.runtime, &env.core.caller, STR("bad"), bad, &more, &err));
    OK(runtime_sandbox_ensure(env.core.runtime, &env.core.caller, &request, &arena, &sandbox, &tier,
                              &err));
    starts = provider_fake_calls(env.core.fake, "start");
    CHECK_INT(starts, 3); /* is there a bash? and two hooks */
    OK(runtime_sandbox_pause(env.core.runtime, &env.core.caller, sandbox.id, &err));
    OK(runtime_sandbox_ensure(env.core.runtime, &env.core.caller, &request, &arena, &sandbox, &tier,
                              &err));
    CHECK_INT(provider_fake_calls(env.core.fake, "start"), starts + 1);
    request = (struct runtime_ensure){.overrides = {.profile = STR("bad")}};
    FAILS(runtime_sandbox_ensure(env.core.runtime, &env.core.caller, &request, &arena, &sandbox,
                                 &tier, &err),
          ERROR_CONFLICT, "it broke");
    CHECK_INT(provider_fake_count(env.core.fake, PROVIDER_RUNNING), 1);
}

TEST(stats_count_and_cost)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    auto_json json_t *stats = NULL;
    struct runtime_sandbox sandbox;
    const json_t *total, *creates;

    work_open(&env, "{\"providers\":{\"e2b\":{\"type\":\"e2b\",\"usd_per_second\":100}}}",
              work_quick);
    sandbox = work_ensure(&env, NULL, TIER_CREATED, &arena);
    (void)work_exec(&env, sandbox.id, "true", 0, &arena);
    (void)work_exec(&env, sandbox.id, "true", 0, &arena);
    clock_test_pass(50000);
    OK(runtime_sandbox_kill(env.core.runtime, &env.core.caller, sandbox.id, NULL, &err));
    (void)work_ensure(&env, NULL, TIER_CREATED, &arena);
    OK(runtime_stats(env.core.runtime, &env.core.caller, &stats, &err));
    total = json_object_get(stats, "total");
    creates = json_object_get(stats, "create_ms");
    CHECK_INT(json_integer_value(json_object_get(total, "sandboxes")), 2);
    CHECK_INT(json_integer_value(json_object_get(total, "running")), 1);
    CHECK_INT(json_integer_value(json_object_get(total, "commands")), 2);
    CHECK(json_number_value(json_object_get(total, "seconds")) >= 0.05);
    CHECK(json_number_value(json_object_get(total, "usd")) >= 5);
    CHECK_INT(json_integer_value(json_object_get(creates, "count")), 2);
}

#include "base/clock.h"
#include "base/test.h"
#include "store/core/store.h"
#include "store/core/test/store_env.h"
#include "store/runtime/store_runtime_sandbox.h"

static struct store_runtime_sandbox row_of(const char *id, const char *key, const char *hash)
{
    return (struct store_runtime_sandbox){
        .id = str_of(id),
        .team_id = STR("t"),
        .key = str_of(key),
        .spec_hash = str_of(hash),
        .provider = STR("p"),
        .settings = STR("{}"),
        .state = SANDBOX_CREATING,
        .created_at_us = 1000000,
        .last_used_at_us = 1000000,
        .cpu = 2,
    };
}

static int claim(struct store *store, const struct store_runtime_sandbox *row, const char *replaces,
                 int64_t max, struct error *err)
{
    return store_runtime_claim(store,
                               &(struct store_runtime_claim){.row = row,
                                                             .replaces = str_of(replaces),
                                                             .reason = STR("gone"),
                                                             .max = max,
                                                             .durable = true},
                               err);
}

TEST(runtime_claims)
{
    auto_store struct store *store = NULL;
    auto_arena struct arena arena = {0};
    struct store_runtime_sandbox a, b, c, got;

    store = store_env_new();
    a = row_of("a", "k", "h1");
    b = row_of("b", "k", "h1");
    c = row_of("c", "k", "h2");
    OK(claim(store, &a, NULL, 0, &err));
    FAILS(claim(store, &b, NULL, 0, &err), ERROR_EXISTS);
    OK(claim(store, &c, NULL, 0, &err)); /* another spec */
    FAILS(claim(store, &b, "a", 1, &err), ERROR_QUOTA);
    OK(store_runtime_sandbox_get(store, STR("t"), STR("a"), &arena, &got, &err));
    CHECK_INT(got.state, SANDBOX_CREATING); /* nothing of what failed is left */
    OK(claim(store, &b, "a", 2, &err));
    OK(store_runtime_sandbox_get(store, STR("t"), STR("a"), &arena, &got, &err));
    CHECK_INT(got.state, SANDBOX_ENDED);
    CHECK(got.destroyed_at_us > 0);
    OK(store_runtime_sandbox_find(store, STR("t"), STR("k"), STR("h1"), &arena, &got, &err));
    CHECK_STR(got.id, "b");
    FAILS(store_runtime_sandbox_get(store, STR("other"), STR("b"), &arena, &got, &err),
          ERROR_NOT_FOUND);
    FAILS(store_runtime_sandbox_ready(store, STR("a"), &(struct store_runtime_ready){.at_us = 5},
                                      &err),
          ERROR_NOT_FOUND);
    a = row_of("d", NULL, "h");
    b = row_of("e", NULL, "h");
    OK(claim(store, &a, NULL, 0, &err)); /* without keys they do not meet */
    OK(claim(store, &b, NULL, 0, &err));
}

TEST(runtime_usage_adds_up)
{
    auto_store struct store *store = NULL;
    auto_arena struct arena arena = {0};
    struct store_runtime_sandbox a = row_of("a", NULL, "h"), got;
    struct store_runtime_usage *usage = NULL;
    size_t count = 0;
    bool changed = false;

    store = store_env_new();
    OK(claim(store, &a, NULL, 0, &err));
    OK(store_runtime_sandbox_ready(
        store, STR("a"),
        &(struct store_runtime_ready){.external_id = STR("x"), .at_us = 2000000, .create_ms = 7},
        &err));
    /* What was seen of a machine that it has no more. */
    OK(store_runtime_sandbox_seen(store, STR("a"), STR("w"), SANDBOX_LOST, STR("gone"), 3000000,
                                  &changed, &err));
    CHECK(!changed);
    FAILS(store_runtime_sandbox_ready(
              store, STR("a"),
              &(struct store_runtime_ready){
                  .machine = STR("w"), .external_id = STR("w"), .at_us = 3000000, .create_ms = -1},
              &err),
          ERROR_NOT_FOUND);
    OK(store_runtime_sandbox_seen(store, STR("a"), STR("x"), SANDBOX_PAUSED, STR_NONE, 5000000,
                                  &changed, &err));
    CHECK(changed);
    OK(store_runtime_sandbox_state(store, STR("a"), SANDBOX_PAUSED, STR_NONE, 9000000, &changed,
                                   &err));
    CHECK(!changed);
    OK(store_runtime_sandbox_state(store, STR("a"), SANDBOX_RUNNING, STR_NONE, 10000000, &changed,
                                   &err));
    OK(store_runtime_sandbox_used(store, STR("a"), 500, 3, 1, &err));
    OK(store_runtime_usage(store, USAGE_BY_PROVIDER, STR("t"), 11000000, &arena, &usage, &count,
                           &err));
    CHECK_INT(count, 1);
    CHECK_INT(usage->ran_us, 4000000);
    CHECK_INT(usage->cpu_us, 8000000);
    CHECK_INT(usage->running, 1);
    CHECK_INT(usage->commands, 3);
    OK(store_runtime_sandbox_get(store, STR("t"), STR("a"), &arena, &got, &err));
    CHECK_INT(got.last_used_at_us, 2000000); /* only grows */
    OK(store_runtime_sandbox_state(store, STR("a"), SANDBOX_ENDED, STR("r"), 12000000, &changed,
                                   &err));
    OK(store_runtime_sandbox_state(store, STR("a"), SANDBOX_RUNNING, STR_NONE, 13000000, &changed,
                                   &err));
    CHECK(!changed);
    OK(store_runtime_sandbox_get(store, STR("t"), STR("a"), &arena, &got, &err));
    CHECK_INT(got.ran_us, 5000000);
    OK(store_runtime_sandbox_forget(store, 12000001, 10, &count, &err));
    CHECK_INT(count, 1);
}

TEST(job_ends_once)
{
    auto_store struct store *store = NULL;
    auto_arena struct arena arena = {0};
    struct store_runtime_job row = {.id = STR("j"),
                                    .team_id = STR("t"),
                                    .sandbox_id = STR("s"),
                                    .callback_url = STR("http://x"),
                                    .callback_token = STR("token")};
    struct store_runtime_job second = {
        .id = STR("j2"), .team_id = STR("t"), .sandbox_id = STR("s")};
    struct store_runtime_job_end end = {.state = JOB_FAILED,
                                        .has_exit_code = true,
                                        .exit_code = 137,
                                        .at_us = 10,
                                        .body = STR("{}")};
    struct store_runtime_callback callback, other;
    struct error failure;
    bool ended = false, told = false;

    store = store_env_new();
    OK(store_runtime_job_insert(store, &row, 1, &err));
    FAILS(store_runtime_job_insert(store, &second, 1, &err), ERROR_QUOTA);
    FAILS(store_runtime_callback_next(store, STR(","), &arena, &callback, &err), ERROR_NOT_FOUND);
    OK(store_runtime_job_ended(store, STR("j"), &end, &ended, &told, &err));
    CHECK(ended && told);
    end.exit_code = 0;
    OK(store_runtime_job_ended(store, STR("j"), &end, &ended, &told, &err));
    CHECK(!ended && !told);
    OK(store_runtime_job_get(store, STR("t"), STR("j"), &arena, &row, &err));
    CHECK_INT(row.exit_code, 137);
    CHECK_INT(row.callback_state, CALLBACK_PENDING);
    FAILS(store_runtime_callback_next(store, STR(",x,t,"), &arena, &callback, &err),
          ERROR_NOT_FOUND);
    OK(store_runtime_callback_next(store, STR(",x,"), &arena, &callback, &err));
    CHECK_STR(callback.token, "token");
    CHECK_INT(callback.next_at_us, 10);
    other = callback;
    CHECK_INT(store_runtime_callback_take(store, &callback, 200, &failure), 1);
    CHECK_INT(callback.attempts, 1);
    CHECK_INT(store_runtime_callback_take(store, &other, 300, &failure), 0);
    OK(store_runtime_callback_next(store, STR(","), &arena, &callback, &err));
    CHECK_INT(callback.next_at_us, 200);
    CHECK_INT(store_runtime_callback_take(store, &callback, 300, &failure), 1);
    CHECK_INT(callback.attempts, 2);
    OK(store_runtime_callback_set(store, STR("j"), CALLBACK_DELIVERED, 0, &err));
    FAILS(store_runtime_callback_next(store, STR(","), &arena, &callback, &err), ERROR_NOT_FOUND);
}

TEST(runtime_snapshot_alias_changes_hands)
{
    auto_store struct store *store = NULL;
    auto_arena struct arena arena = {0};
    struct store_runtime_snapshot a = {.id = STR("a"),
                                       .team_id = STR("t"),
                                       .alias = STR("main"),
                                       .kind = STR("k"),
                                       .sandbox_id = STR("s")};
    struct store_runtime_snapshot b = a, got, *list = NULL;
    size_t count = 0;

    store = store_env_new();
    b.id = STR("b");
    b.created_at_us = 5;
    OK(store_runtime_snapshot_insert(store, &a, &err));
    FAILS(store_runtime_snapshot_get(store, STR("t"), STR("main"), &arena, &got, &err),
          ERROR_NOT_FOUND);
    OK(store_runtime_snapshot_ready(store, &a, 100, &err));
    OK(store_runtime_snapshot_insert(store, &b, &err));
    OK(store_runtime_snapshot_get(store, STR("t"), STR("main"), &arena, &got, &err));
    CHECK_STR(got.id, "a");
    OK(store_runtime_snapshot_ready(store, &b, 100, &err));
    OK(store_runtime_snapshot_get(store, STR("t"), STR("main"), &arena, &got, &err));
    CHECK_STR(got.id, "b");
    OK(store_runtime_snapshot_list(store, STR("t"), STR("s"),
                                   &(enum snapshot_state){SNAPSHOT_READY}, &arena, &list, &count,
                                   &err));
    CHECK_INT(count, 1);
    OK(store_runtime_snapshot_expired(store, STR_NONE, 100, 10, &arena, &list, &count, &err));
    CHECK_INT(count, 1);
    CHECK_STR(list[0].id, "a");
}

TEST(a_state_that_is_not_known_is_an_error)
{
    auto_store_env struct store_env env = {0};
    auto_store struct store *store = NULL;
    auto_arena struct arena arena = {0};
    struct store_runtime_sandbox row = row_of("a", "k", "h"), got, *list;
    struct error refusal = {0};
    size_t count;

    store_env_make(&env);
    store = store_env_open(&env);
    OK(claim(store, &row, NULL, 0, &err));
    store_env_exec(&env, "UPDATE runtime_sandboxes SET state = 'dreaming'");
    CHECK_INT(store_runtime_sandbox_get(store, STR("t"), STR("a"), &arena, &got, &refusal), -1);
    CHECK_INT(refusal.code, ERROR_INTERNAL);
    CHECK(strstr(refusal.message, "state of a sandbox 'dreaming'") &&
          strstr(refusal.message, "ended or lost"));
    FAILS(store_runtime_sandbox_list(store, &(struct store_runtime_sandbox_query){.limit = 10},
                                     &arena, &list, &count, &err),
          ERROR_INTERNAL);
}

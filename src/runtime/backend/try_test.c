#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "protocol/json/json_shape.h"
#include "runtime/backend/backend.h"
#include "runtime/backend/backend_internal.h"
#include "runtime/core/test/core_env.h"

static void quick(struct core_env *env)
{
    env->settings.retry.min_ms = 2;
    env->settings.retry.max_ms = 4;
    env->settings.breaker.open_ms = 60000;
    env->settings.runner_ttl_ms = 60000;
}

static struct backend *find(struct core_env *env, const char *name)
{
    struct backend *backend = NULL;

    OK(backend_find(env->runtime, &env->caller, str_of(name), &backend, &err));
    return backend;
}

/* One operation as callers write it. */
static int check(struct core_env *env, struct backend *backend, bool safe, struct error *err)
{
    struct backend_try try = {.once_more_is_safe = safe};
    int r;

    if (backend_try_begin(&try, env->runtime, backend, err) < 0)
        return -1;
    do
        r = provider_check(backend_provider(backend), err);
    while (backend_try_again(&try, r, err));
    return r;
}

TEST(try_again_when_it_may_pass)
{
    auto_core struct core_env env;
    struct backend *backend;

    core_open(&env, NULL, quick);
    backend = find(&env, NULL);
    provider_fake_fail(env.fake, "check", 2, ERROR_UNAVAILABLE, "no answer");
    OK(check(&env, backend, false, &err));
    CHECK_INT(provider_fake_calls(env.fake, "check"), 3);
    provider_fake_fail(env.fake, "check", 9, ERROR_UNAVAILABLE, "no answer");
    FAILS(check(&env, backend, false, &err), ERROR_UNAVAILABLE, "no answer");
    CHECK_INT(provider_fake_calls(env.fake, "check"), 6);
}

TEST(try_once_when_it_will_not)
{
    auto_core struct core_env env;
    struct backend *backend;
    enum error_code once[] = {ERROR_QUOTA,        ERROR_NOT_FOUND, ERROR_INVALID,
                              ERROR_UNAUTHORIZED, ERROR_CONFLICT,  ERROR_TIMEOUT};

    core_open(&env, NULL, quick);
    backend = find(&env, NULL);
    for (size_t i = 0; i < sizeof(once) / sizeof(once[0]); i++) {
        provider_fake_fail(env.fake, "check", 9, once[i], "said no");
        FAILS(check(&env, backend, false, &err), once[i], "said no");
        CHECK_INT(provider_fake_calls(env.fake, "check"), i + 1);
    }
    provider_fake_fail(env.fake, "check", 2, ERROR_TIMEOUT, "slow");
    OK(check(&env, backend, true, &err));
    env.settings.retry.on_quota = true;
    provider_fake_fail(env.fake, "check", 2, ERROR_QUOTA, "full");
    OK(check(&env, backend, false, &err));
}

TEST(try_waits_as_asked)
{
    auto_core struct core_env env;
    int64_t began;

    core_open(&env, NULL, quick);
    env.settings.retry.on_quota = true;
    env.settings.retry.max_ms = 300; /* but not for longer than this */
    env.fake->retry_after_s = 9;
    provider_fake_fail(env.fake, "check", 1, ERROR_QUOTA, "full");
    began = clock_mono_ms();
    OK(check(&env, find(&env, NULL), false, &err));
    CHECK(clock_mono_ms() - began >= 295);
    CHECK(clock_mono_ms() - began < 3000);
}

/* Three attempts, and waits of 1 to 10 s that double, where nobody set anything else. */
TEST(try_waits_double_from_one_to_ten_seconds)
{
    static const int64_t from_ms[] = {1000, 2000, 4000, 6666, 6666, 6666};
    static const int64_t to_ms[] = {1500, 3000, 6000, 10000, 10000, 10000};
    auto_core struct core_env env;

    core_open(&env, NULL, NULL);
    CHECK_INT(env.settings.retry.attempts, 3);
    for (int attempt = 1; attempt <= 6; attempt++) {
        int64_t least = INT64_MAX, most = 0;

        for (int i = 0; i < 1000; i++) {
            int64_t ms = backend_retry_wait_ms(&env.settings, attempt, 0);

            least = ms < least ? ms : least;
            most = ms > most ? ms : most;
        }
        CHECK(least >= from_ms[attempt - 1] && most <= to_ms[attempt - 1]);
        CHECK(most - least > (to_ms[attempt - 1] - from_ms[attempt - 1]) / 2);
    }
    /* Retry-After, up to the longest wait. */
    CHECK_INT(backend_retry_wait_ms(&env.settings, 1, 7000), 7000);
    CHECK_INT(backend_retry_wait_ms(&env.settings, 1, 60000), 10000);
}

TEST(breaker_opens_and_closes)
{
    auto_core struct core_env env;
    struct backend *backend;
    struct error why = {0};

    core_open(&env, NULL, quick);
    env.settings.retry.attempts = 1;
    backend = find(&env, "e2b");
    provider_fake_fail(env.fake, "check", 1000, ERROR_UNAVAILABLE, "no answer");
    for (int i = 0; i < 5; i++)
        FAILS(check(&env, backend, false, &err), ERROR_UNAVAILABLE, "no answer");
    CHECK_INT(backend_state(env.runtime, backend), BACKEND_OPEN);
    FAILS(check(&env, backend, false, &err), ERROR_UNAVAILABLE,
          "provider 'e2b' failed 5 times in a row");
    CHECK_INT(check(&env, backend, false, &why), -1);
    CHECK_INT(why.errnum, EBUSY);
    CHECK_INT(provider_fake_calls(env.fake, "check"), 5); /* not asked */
    CHECK_INT(backend_state(env.runtime, find(&env, "docker")), BACKEND_OK);
    clock_test_pass(61000000);
    FAILS(check(&env, backend, false, &err), ERROR_UNAVAILABLE, "no answer"); /* the probe */
    CHECK_INT(provider_fake_calls(env.fake, "check"), 6);
    FAILS(check(&env, backend, false, &err), ERROR_UNAVAILABLE, "in a row"); /* open again */
    CHECK_INT(provider_fake_calls(env.fake, "check"), 6);
    provider_fake_fail(env.fake, "check", 0, ERROR_NONE, "");
    clock_test_pass(61000000);
    OK(check(&env, backend, false, &err));
    CHECK_INT(backend_state(env.runtime, backend), BACKEND_OK);
}

TEST(breaker_lets_one_probe_through)
{
    auto_core struct core_env env;
    struct backend *backend;
    struct backend_try first = {0}, second = {0};

    core_open(&env, NULL, quick);
    backend = find(&env, NULL);
    for (int i = 0; i < 5; i++)
        breaker_count(env.runtime, backend, CALL_OTHER, false, "down");
    clock_test_pass(61000000);
    OK(backend_try_begin(&first, env.runtime, backend, &err));
    FAILS(backend_try_begin(&second, env.runtime, backend, &err), ERROR_UNAVAILABLE, "down");
    CHECK(!backend_try_again(&first, 0, NULL));
    OK(backend_try_begin(&second, env.runtime, backend, &err));
}

/* Making always fails, lists work in between. */
TEST(breaker_of_one_kind_of_call)
{
    auto_core struct core_env env;
    struct backend *backend;
    struct backend_try create = {.kind = CALL_CREATE}, other = {0};
    struct error failure = {.code = ERROR_UNAVAILABLE, .message = "no room"}, why = {0};

    core_open(&env, NULL, quick);
    env.settings.retry.attempts = 1;
    backend = find(&env, "e2b");
    for (int i = 0; i < 5; i++) {
        OK(backend_try_begin(&create, env.runtime, backend, &err));
        CHECK(!backend_try_again(&create, -1, &failure));
        OK(backend_try_begin(&other, env.runtime, backend, &err));
        CHECK(!backend_try_again(&other, 0, NULL));
    }
    FAILS(backend_try_begin(&create, env.runtime, backend, &err), ERROR_UNAVAILABLE,
          "failed to create 5 times in a row and is not asked to create for another ");
    CHECK_INT(backend_try_begin(&create, env.runtime, backend, &why), -1);
    CHECK_INT(why.errnum, EBUSY);
    CHECK(strstr(why.message, " s (last: no room)"));
    CHECK(why.retry_after_s > 30 && why.retry_after_s <= 60);
    CHECK_INT(backend_state(env.runtime, backend), BACKEND_OPEN);
    OK(backend_try_begin(&other, env.runtime, backend, &err)); /* the rest goes on */
    CHECK(!backend_try_again(&other, 0, NULL));
    clock_test_pass(61000000);
    OK(backend_try_begin(&create, env.runtime, backend, &err)); /* the probe */
    CHECK_INT(backend_try_begin(&create, env.runtime, backend, &why), -1);
    CHECK(!backend_try_again(&create, 0, NULL));
    OK(backend_try_begin(&create, env.runtime, backend, &err));
    CHECK_INT(backend_state(env.runtime, backend), BACKEND_OK);
}

TEST(breaker_takes_answers_for_health)
{
    auto_core struct core_env env;
    struct backend *backend;

    core_open(&env, NULL, quick);
    backend = find(&env, NULL);
    provider_fake_fail(env.fake, "check", 1000, ERROR_NOT_FOUND, "no such thing");
    for (int i = 0; i < 10; i++)
        FAILS(check(&env, backend, false, &err), ERROR_NOT_FOUND, "no such thing");
    CHECK_INT(backend_state(env.runtime, backend), BACKEND_OK);
}

TEST(backend_names)
{
    auto_core struct core_env env;
    struct backend *backend;

    core_environment = "BROWSERBASE_API_KEY=bb_secret\0";
    core_open(&env, "{\"providers\":{\"mine\":{\"type\":\"daytona\",\"api_key\":\"dtn_key\"}}}",
              NULL);
    CHECK_STR(str_of(backend_name(find(&env, NULL))), "e2b");
    CHECK_STR(str_of(backend_name(find(&env, " E2B "))), "e2b");
    CHECK_STR(str_of(backend_name(find(&env, "bb"))), "browserbase");
    CHECK_STR(str_of(backend_name(find(&env, "daytona"))), "mine"); /* the type */
    FAILS(backend_find(env.runtime, &env.caller, STR("lambda"), &backend, &err), ERROR_INVALID,
          "unknown provider 'lambda'; there are: mine, e2b, docker, browserbase");
    FAILS(backend_find(env.runtime, &env.caller, STR(""), &backend, &err), ERROR_INVALID, "");
    FAILS(backend_find(env.runtime, &env.caller, STR("e2b#000000000000"), &backend, &err),
          ERROR_INVALID, "no profile has the key");
}

TEST(backend_features)
{
    auto_core struct core_env env;
    struct backend *backend;

    core_open(&env, NULL, NULL);
    backend = find(&env, NULL);
    OK(backend_require(backend, PROVIDER_PAUSE | PROVIDER_SNAPSHOT, &err));
    FAILS(backend_require(backend, PROVIDER_PAUSE | PROVIDER_CDP, &err), ERROR_UNSUPPORTED,
          "provider 'e2b' does not support cdp");
    CHECK_INT(provider_fake_calls(env.fake, "check"), 0);
}

TEST(backend_health)
{
    auto_core struct core_env env;
    auto_json json_t *list = NULL, *later = NULL;
    const json_t *first;

    core_environment = "";
    core_open(&env, NULL, NULL);
    list = backends_json(env.runtime, &env.caller, false);
    first = json_array_get(list, 0);
    CHECK_STR(json_get_str(first, "name"), "e2b");
    CHECK_STR(json_get_str(first, "state"), "ok");
    CHECK(json_is_true(json_object_get(first, "default")));
    CHECK_STR(json_get_str(first, "isolation"), "strong");
    CHECK(json_is_null(json_object_get(first, "last_check_at")));
    CHECK_INT(json_array_size(json_object_get(first, "egress")), 3);
    provider_fake_fail(env.fake, "check", 2, ERROR_UNAUTHORIZED,
                       "key refused for e2b_0123456789abcdef0");
    later = backends_json(env.runtime, &env.caller, true);
    first = json_array_get(later, 0);
    CHECK_STR(json_get_str(first, "state"), "degraded");
    CHECK_STR(json_get_str(first, "last_error"), "key refused for ***");
    CHECK(json_is_string(json_object_get(first, "last_check_at")));
}

static void often(struct core_env *env)
{
    env->settings.health_interval_s = 1;
}

TEST(backend_health_by_timer)
{
    auto_core struct core_env env;

    core_open(&env, NULL, often);
    WAIT_FOR(provider_fake_calls(env.fake, "check") >= 2); /* both of them */
}

TEST(backend_that_hangs_delays_nobody)
{
    auto_core struct core_env env;
    auto_json json_t *list = NULL;
    int64_t began;

    core_open(&env, NULL, NULL);
    env.fake->hang_ms = 300;
    began = clock_mono_ms();
    backends_check(env.runtime);
    list = backends_json(env.runtime, &env.caller, false);
    CHECK(clock_mono_ms() - began < 200);
    json_decref(list);
    list = backends_json(env.runtime, &env.caller, true);
    CHECK(clock_mono_ms() - began < 1500); /* side by side */
}

/* ---- runners ---- */

static void put_runner(struct core_env *env, const char *name, int64_t max)
{
    OK(runner_register(env->runtime, &env->caller,
                       &(struct runner){.name = str_of(name),
                                        .base_url = STR("http://10.0.0.1:9"),
                                        .token = STR("runner-token"),
                                        .max_sessions = max},
                       &err));
}

TEST(runner_life)
{
    auto_core struct core_env env;
    struct backend *backend;
    struct runtime_caller stranger = {.team_id = STR("t2")};

    core_open(&env, NULL, quick);
    FAILS(backend_find(env.runtime, &env.caller, STR("runner"), &backend, &err), ERROR_CONFLICT,
          "no runner is free: 0 registered");
    FAILS(runner_heartbeat(env.runtime, &env.caller, STR("r1"), 0, &err), ERROR_NOT_FOUND, "r1");
    put_runner(&env, "r1", 1);
    CHECK_STR(str_of(backend_name(find(&env, "runner"))), "r1");
    FAILS(backend_find(env.runtime, &env.caller, STR("local-runner"), &backend, &err),
          ERROR_CONFLICT, "1 registered"); /* its one place is taken */
    OK(runner_heartbeat(env.runtime, &env.caller, STR("r1"), 0, &err));
    CHECK_STR(str_of(backend_name(find(&env, "local-runner"))), "r1");
    OK(runner_heartbeat(env.runtime, &env.caller, STR("r1"), 1, &err));
    FAILS(backend_find(env.runtime, &env.caller, STR("runner"), &backend, &err), ERROR_CONFLICT,
          "no runner is free");
    CHECK_STR(str_of(backend_name(find(&env, "r1"))), "r1"); /* its sandboxes stay reachable */
    FAILS(backend_find(env.runtime, &stranger, STR("r1"), &backend, &err), ERROR_INVALID,
          "unknown provider 'r1'");
    FAILS(runner_remove(env.runtime, &stranger, STR("r1"), &err), ERROR_NOT_FOUND, "r1");
    OK(runner_remove(env.runtime, &env.caller, STR("r1"), &err));
    FAILS(backend_find(env.runtime, &env.caller, STR("r1"), &backend, &err), ERROR_INVALID,
          "unknown provider 'r1'");
}

TEST(runner_newest_heartbeat_first)
{
    auto_core struct core_env env;
    auto_json json_t *list = NULL;
    struct backend *backend;
    size_t offline = 0, i;
    json_t *item;

    core_open(&env, NULL, quick);
    put_runner(&env, "r1", 5);
    put_runner(&env, "r2", 5);
    OK(runner_heartbeat(env.runtime, &env.caller, STR("r1"), 0, &err));
    CHECK_STR(str_of(backend_name(find(&env, "runner"))), "r1");
    OK(runner_heartbeat(env.runtime, &env.caller, STR("r2"), 4, &err));
    CHECK_STR(str_of(backend_name(find(&env, "runner"))), "r2");
    CHECK_STR(str_of(backend_name(find(&env, "runner"))), "r1"); /* r2 is full now */
    core_restart(&env);
    CHECK_STR(str_of(backend_name(find(&env, "runner"))), "r2"); /* found again */
    clock_test_pass(61000000);
    FAILS(backend_find(env.runtime, &env.caller, STR("runner"), &backend, &err), ERROR_CONFLICT,
          "2 registered, 0 with a heartbeat");
    list = backends_json(env.runtime, &env.caller, false);
    json_array_foreach (list, i, item)
        offline += str_is(json_get_str(item, "state"), "offline") ? 1 : 0;
    CHECK_INT(offline, 2);
}

TEST(runner_faults)
{
    auto_core struct core_env env;
    struct runner good = {.name = STR("r1"), .base_url = STR("http://h"), .max_sessions = 1};
    struct runner bad;
    auto_json json_t *list = NULL;
    auto_free char *text = NULL;

    core_open(&env, NULL, quick);
    bad = good;
    bad.name = STR("R 1");
    FAILS(runner_register(env.runtime, &env.caller, &bad, &err), ERROR_INVALID, "name:");
    bad.name = STR("runner");
    FAILS(runner_register(env.runtime, &env.caller, &bad, &err), ERROR_INVALID, "any free");
    bad.name = STR("docker");
    FAILS(runner_register(env.runtime, &env.caller, &bad, &err), ERROR_EXISTS, "docker");
    bad = good;
    bad.base_url = STR("ftp://h");
    FAILS(runner_register(env.runtime, &env.caller, &bad, &err), ERROR_INVALID, "base_url:");
    bad.base_url = STR("http://u:p@h");
    FAILS(runner_register(env.runtime, &env.caller, &bad, &err), ERROR_INVALID, "base_url:");
    /* Nothing that would make a query of the paths of ours. */
    bad.base_url = STR("http://h/latest/meta-data?x=");
    FAILS(runner_register(env.runtime, &env.caller, &bad, &err), ERROR_INVALID, "base_url:");
    bad.base_url = STR("http://h/#");
    FAILS(runner_register(env.runtime, &env.caller, &bad, &err), ERROR_INVALID, "base_url:");
    bad.base_url = STR("http://h/ x");
    FAILS(runner_register(env.runtime, &env.caller, &bad, &err), ERROR_INVALID, "base_url:");
    bad = good;
    bad.max_sessions = 0;
    FAILS(runner_register(env.runtime, &env.caller, &bad, &err), ERROR_INVALID, "max_sessions:");
    for (int i = 0; i < 3; i++)
        put_runner(&env, "r1", 2); /* again and again is the same one */
    list = backends_json(env.runtime, &env.caller, false);
    CHECK_INT(json_array_size(list), 3);
    text = json_text(list);
    CHECK(!strstr(text, "runner-token"));
}

/* They stay until the process ends: one team must not take the place of all. */
TEST(runners_of_a_team_are_bounded)
{
    auto_core struct core_env env;
    struct runner runner = {.name = STR("r1"), .base_url = STR("http://h"), .max_sessions = 1};
    struct error why = {0};
    int r = 0, made = 0;

    core_open(&env, NULL, quick);
    for (int i = 0; i < 2000 && r == 0; i++) {
        char token[32];

        (void)snprintf(token, sizeof(token), "token-%d", i);
        runner.token = str_of(token);
        r = runner_register(env.runtime, &env.caller, &runner, &why);
        made += r == 0;
    }
    CHECK_INT(made, 256);
    CHECK_INT(why.code, ERROR_QUOTA);
    env.caller.team_id = STR("t2");
    runner.token = STR_NONE;
    OK(runner_register(env.runtime, &env.caller, &runner, &err));
}

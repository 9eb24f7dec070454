/* Limits of teams, and creates that are repeated. */
#include "domain/sandbox/test/sandbox_test_env.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/cleanup.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/volume/volume.h"

static void limit(struct env *env, struct store_limits limits)
{
    struct store_team team = {.id = TEAM, .name = STR("n"), .limits = limits};

    OK(store_team_update(env->store, &team, &err));
}

static int resume(struct env *env, const char *id, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct sandbox_view view;

    return sandbox_resume(env->all, TEAM, str_of(id), &(struct sandbox_resume){.timeout_s = 60},
                          &arena, &view, err);
}

static int create_other(struct env *env, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct sandbox_new request = {.team_id = OTHER, .template_name = STR("base"), .timeout_s = 60};
    struct sandbox_view view;

    return sandbox_create(env->all, &request, &arena, &view, err);
}

/* The template has 2 cpus, 512 MB of memory and 1024 MB of disk. */
TEST(team_limits)
{
    static const struct store_limits two[] = {
        {.sandboxes = 2}, {.cpu = 5}, {.mem_mb = 1024}, {.disk_mb = 2048}};
    static const char *const told[] = {"limit of 2 running sandboxes is", "limit of 5 CPUs is",
                                       "limit of 1 GiB of memory is", "limit of 2 GiB of disk is"};

    for (size_t i = 0; i < 4; i++) {
        auto_env struct env env;
        char a[ID_SIZE], b[ID_SIZE], c[ID_SIZE];

        env_open(&env, 1);
        limit(&env, two[i]);
        OK(env_create(&env, a, &err));
        OK(env_create(&env, b, &err));
        FAILS(env_create(&env, c, &err), ERROR_QUOTA, told[i]);
        OK(create_other(&env, &err)); /* not their limit */
        env_reopen(&env);             /* and still after a restart */
        FAILS(env_create(&env, c, &err), ERROR_QUOTA);
        OK(sandbox_pause(env.all, TEAM, str_of(a), &(struct sandbox_pause){0}, &err));
        if (two[i].disk_mb) {
            FAILS(env_create(&env, c, &err), ERROR_QUOTA);
            OK(resume(&env, a, &err));
        } else {
            OK(env_create(&env, c, &err));
            FAILS(resume(&env, a, &err), ERROR_QUOTA);
        }
        OK(sandbox_kill(env.all, TEAM, str_of(b), &err));
        if (two[i].disk_mb)
            OK(env_create(&env, c, &err));
        else
            OK(resume(&env, a, &err));
        limit(&env, (struct store_limits){0});
        OK(env_create(&env, b, &err));
    }
}

static int volume(struct env *env, const char *name, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_volume made;

    return volume_create(env->volumes, TEAM, str_of(name), &arena, &made, err);
}

static int snapshot(struct env *env, const char *id, const char *name, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct snapshot_view view;

    return sandbox_snapshot(env->all, TEAM, str_of(id), str_of(name), &arena, &view, err);
}

/* Volumes have 100 MB here, and the sandbox has written 300. */
TEST(disk_is_what_sandboxes_volumes_and_snapshots_take)
{
    auto_env struct env env;
    char a[ID_SIZE], b[ID_SIZE];

    env_open(&env, 1);
    env.all->volume_bytes = 100 << 20;
    limit(&env, (struct store_limits){.disk_mb = 2048});
    OK(env_create(&env, a, &err)); /* 1024 */
    (void)engine_fake_disk(env.engine, a, 300 << 20);
    OK(volume(&env, "one", &err));
    OK(volume(&env, "two", &err));
    FAILS(env_create(&env, b, &err), ERROR_QUOTA); /* 1024 + 200 + 1024 */
    OK(snapshot(&env, a, "first", &err));          /* + 300 */
    OK(snapshot(&env, a, "second", &err));         /* + 300: 1824 */
    FAILS(snapshot(&env, a, "third", &err), ERROR_QUOTA);
    OK(volume(&env, "three", &err));
    OK(volume(&env, "four", &err)); /* 2024 */
    FAILS(volume(&env, "five", &err), ERROR_QUOTA);
    env_reopen(&env); /* and still after a restart */
    env.all->volume_bytes = 100 << 20;
    FAILS(volume(&env, "five", &err), ERROR_QUOTA);
    OK(volume_delete(env.volumes, TEAM, STR("four"), &err));
    OK(volume(&env, "five", &err));
    OK(sandbox_pause(env.all, TEAM, str_of(a), &(struct sandbox_pause){0}, &err));
    OK(resume(&env, a, &err));
    limit(&env, (struct store_limits){0});
    OK(volume(&env, "six", &err));
    OK(env_create(&env, b, &err));
}

TEST(creates_per_minute)
{
    auto_env struct env env;
    struct error refusal = {0};
    char id[ID_SIZE];

    env_open(&env, 0);
    limit(&env, (struct store_limits){.creates_per_minute = 120});
    for (int i = 0; i < 120; i++)
        OK(env_create(&env, id, &err));
    while (env_create(&env, id, &refusal) == 0)
        ;
    CHECK_INT(refusal.code, ERROR_QUOTA);
    CHECK(strstr(refusal.message, "per minute"));
    clock_test_pass(600000);
    OK(env_create(&env, id, &err));
}

static int create_key(struct env *env, const char *key, const char *text, char id[ID_SIZE],
                      struct error *err)
{
    auto_arena struct arena arena = {0};
    struct sandbox_new request = {.team_id = TEAM,
                                  .template_name = STR("base"),
                                  .timeout_s = 60,
                                  .secure = true,
                                  .idempotency_key = str_of(key),
                                  .request_text = str_of(text)};
    struct sandbox_view view;

    if (sandbox_create(env->all, &request, &arena, &view, err) < 0)
        return -1;
    CHECK_INT(view.access_token.len, 67);
    CHECK(str_copy(view.id, id, ID_SIZE));
    return 0;
}

TEST(repeated_creates)
{
    auto_env struct env env;
    char a[ID_SIZE], b[ID_SIZE], long_key[300];

    env_open(&env, 0);
    OK(create_key(&env, "k1", "{}", a, &err));
    OK(create_key(&env, "k1", "{}", b, &err));
    CHECK_STR(str_of(b), a);
    FAILS(create_key(&env, "k1", "{ }", b, &err), ERROR_INVALID);
    env_reopen(&env);
    OK(create_key(&env, "k1", "{}", b, &err));
    CHECK_STR(str_of(b), a);
    OK(create_key(&env, "k2", "{}", b, &err));
    CHECK(strcmp(a, b) != 0);
    OK(sandbox_kill(env.all, TEAM, str_of(a), &err));
    FAILS(create_key(&env, "k1", "{}", b, &err), ERROR_CONFLICT);
    memset(long_key, 'x', sizeof(long_key) - 1);
    long_key[299] = '\0';
    FAILS(create_key(&env, long_key, "{}", b, &err), ERROR_INVALID);
    CHECK_INT(engine_fake_boxes(env.engine), 1);

    /* One that failed leaves the key free. */
    engine_fake_envd_status(env.engine, 500);
    FAILS(create_key(&env, "k3", "{}", b, &err), ERROR_INTERNAL);
    engine_fake_envd_status(env.engine, 204);
    OK(create_key(&env, "k3", "{}", b, &err));
}

/* The keeper, hourly. */
TEST(an_idempotency_key_is_remembered_for_a_day)
{
    const int64_t hour_us = 3600 * INT64_C(1000000);
    auto_env struct env env;
    char first[ID_SIZE], again[ID_SIZE];

    env_open(&env, 0);
    OK(create_key(&env, "k1", "{}", first, &err));
    OK(sandbox_kill(env.all, TEAM, str_of(first), &err));
    clock_test_pass(23 * hour_us);
    env_keeper_works(&env);
    FAILS(create_key(&env, "k1", "{}", again, &err), ERROR_CONFLICT);
    clock_test_pass(2 * hour_us);
    env_keeper_works(&env);
    OK(create_key(&env, "k1", "{}", again, &err));
    CHECK(strcmp(first, again) != 0);
}

struct crowd {
    struct env *env;
    char ids[8][ID_SIZE];
    atomic_int next;
};

static void *crowd_run(void *arg)
{
    struct crowd *crowd = arg;
    int i = atomic_fetch_add(&crowd->next, 1);

    OK(create_key(crowd->env, "same", "{}", crowd->ids[i], &err));
    return NULL;
}

TEST(repeated_at_once)
{
    auto_env struct env env;
    struct crowd crowd = {.env = &env};
    pthread_t threads[8];

    env_open(&env, 0);
    engine_fake_slow(env.engine, 0, 50);
    for (size_t i = 0; i < 8; i++)
        CHECK(pthread_create(&threads[i], NULL, crowd_run, &crowd) == 0);
    for (size_t i = 0; i < 8; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (size_t i = 1; i < 8; i++)
        CHECK_STR(str_of(crowd.ids[i]), crowd.ids[0]);
    CHECK_INT(engine_fake_boxes(env.engine), 1);
}

/* Also from the warm pool; what is there goes on. */
TEST(a_full_disk)
{
    auto_env struct env env;
    char a[ID_SIZE], b[ID_SIZE];
    struct sandboxes_stats stats;

    env_open(&env, 2);
    OK(env_create(&env, a, &err));
    engine_fake_full(env.engine, true);
    clock_test_pass(300000); /* it is not asked each time */
    FAILS(env_create(&env, b, &err), ERROR_NO_SPACE);
    sandboxes_stats(env.all, &stats);
    CHECK(stats.space.held);
    OK(sandbox_pause(env.all, TEAM, str_of(a), &(struct sandbox_pause){0}, &err));
    OK(resume(&env, a, &err));
    engine_fake_full(env.engine, false);
    clock_test_pass(300000);
    OK(env_create(&env, b, &err));
}

/* It fills up between two questions to the engine. */
TEST(a_disk_that_fills_up_while_a_box_starts)
{
    auto_env struct env env;
    char a[ID_SIZE], b[ID_SIZE];
    struct error why;

    env_open(&env, 0);
    OK(env_create(&env, a, &err));
    OK(sandbox_pause(env.all, TEAM, str_of(a), &(struct sandbox_pause){.disk_only = true}, &err));
    engine_fake_full(env.engine, true);
    CHECK(env_create(&env, b, &why) < 0);
    CHECK_INT(why.code, ERROR_NO_SPACE);
    CHECK(strstr(why.message, "the disk is full: ") && strstr(why.message, "delete sandboxes"));
    CHECK(strstr(why.message, "No space left on device"));
    CHECK(resume(&env, a, &why) < 0);
    CHECK_INT(why.code, ERROR_NO_SPACE);
    CHECK(strstr(why.message, "the disk is full: ") && strstr(why.message, "delete sandboxes"));
    engine_fake_full(env.engine, false);
    OK(resume(&env, a, &err));
}

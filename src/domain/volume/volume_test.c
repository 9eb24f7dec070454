/* Volumes: who may have them where, and how long they stay. */
#include "domain/sandbox/test/sandbox_test_env.h"

#include "base/cleanup.h"
#include "domain/volume/volume.h"

static int create_with(struct env *env, const struct volume_mount *mounts, size_t count,
                       char id[ID_SIZE], struct error *err)
{
    auto_arena struct arena arena = {0};
    struct sandbox_new request = {.team_id = TEAM,
                                  .template_name = STR("base"),
                                  .timeout_s = 600,
                                  .volumes = mounts,
                                  .volume_count = count};
    struct sandbox_view view;

    if (sandbox_create(env->all, &request, &arena, &view, err) < 0)
        return -1;
    CHECK(str_copy(view.id, id, ID_SIZE));
    return 0;
}

TEST(volumes)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    const struct volume_mount mounts[] = {{STR("data"), STR("/mnt/data")},
                                          {STR("Other_1"), STR("/home/user/o")}};
    struct volume_mount seen[SANDBOX_VOLUMES_MAX];
    struct store_volume volume, other, found, *list;
    struct fork_result *results;
    struct sandbox_view view;
    struct box_spec spec;
    char id[ID_SIZE], child[ID_SIZE];
    size_t count;

    env_open(&env, 2);
    OK(volume_create(env.volumes, TEAM, STR("data"), &arena, &volume, &err));
    OK(volume_create(env.volumes, TEAM, STR("Other_1"), &arena, &other, &err));
    CHECK(volume.token.len == 48 && str_starts(volume.id, STR("vol")));
    FAILS(volume_create(env.volumes, TEAM, STR("data"), &arena, &found, &err), ERROR_INVALID);
    FAILS(volume_create(env.volumes, TEAM, STR("a b"), &arena, &found, &err), ERROR_INVALID);
    FAILS(volume_create(env.volumes, TEAM, STR(""), &arena, &found, &err), ERROR_INVALID);
    OK(volume_create(env.volumes, OTHER, STR("data"), &arena, &found, &err));
    OK(volume_list(env.volumes, TEAM, &arena, &list, &count, &err));
    CHECK_INT(count, 2);
    OK(volume_get(env.volumes, TEAM, volume.id, &arena, &found, &err));
    FAILS(volume_get(env.volumes, OTHER, volume.id, &arena, &found, &err), ERROR_NOT_FOUND);

    OK(create_with(&env, mounts, 2, id, &err));
    CHECK(engine_fake_spec(env.engine, id, &spec));
    CHECK_INT(spec.volume_count, 2);
    CHECK_STR(volume.id, spec.volumes[0].name);
    CHECK_STR(str_of(spec.volumes[0].path), "/mnt/data");
    OK(sandbox_get(env.all, TEAM, str_of(id), &arena, &view, &err));
    CHECK_INT(sandbox_view_volumes(&view, seen), 2);
    CHECK_STR(seen[1].name, "Other_1");
    CHECK_STR(seen[1].path, "/home/user/o");

    /* A boot and a fork have them too. */
    OK(sandbox_pause(env.all, TEAM, str_of(id), &(struct sandbox_pause){.disk_only = true}, &err));
    FAILS(volume_delete(env.volumes, TEAM, STR("data"), &err), ERROR_CONFLICT);
    OK(sandbox_resume(env.all, TEAM, str_of(id), &(struct sandbox_resume){.timeout_s = 60}, &arena,
                      &view, &err));
    CHECK(engine_fake_spec(env.engine, id, &spec) && spec.volume_count == 2);
    OK(sandbox_fork(env.all, TEAM, str_of(id), &(struct sandbox_fork){.count = 1, .timeout_s = 60},
                    &arena, &results, &err));
    CHECK(results[0].ok && str_copy(results[0].view.id, child, sizeof(child)));
    CHECK(engine_fake_spec(env.engine, child, &spec) && spec.volume_count == 2);
    OK(sandbox_kill(env.all, TEAM, str_of(id), &err));
    FAILS(volume_delete(env.volumes, TEAM, STR("data"), &err), ERROR_CONFLICT);
    OK(sandbox_kill(env.all, TEAM, str_of(child), &err));
    OK(volume_delete(env.volumes, TEAM, STR("data"), &err));
    FAILS(volume_delete(env.volumes, TEAM, STR("data"), &err), ERROR_NOT_FOUND);
    FAILS(create_with(&env, mounts, 2, id, &err), ERROR_INVALID);
    OK(volume_create(env.volumes, TEAM, STR("data"), &arena, &found, &err));
    CHECK(!str_eq(found.id, volume.id));
}

TEST(bad_mounts)
{
    static const char *const bad[] = {"",      "/",      "relative", "/a/../b", "/a//b", "/a/",
                                      "/proc", "/sys/x", "/dev",     "/a b",    "/./a",  "/a\nb"};
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct volume_mount mounts[9];
    struct store_volume volume;
    char id[ID_SIZE];

    env_open(&env, 0);
    OK(volume_create(env.volumes, TEAM, STR("v"), &arena, &volume, &err));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        mounts[0] = (struct volume_mount){STR("v"), str_of(bad[i])};
        FAILS(create_with(&env, mounts, 1, id, &err), ERROR_INVALID);
    }
    for (size_t i = 0; i < 9; i++)
        mounts[i] = (struct volume_mount){STR("v"), STR("/same")};
    FAILS(create_with(&env, mounts, 2, id, &err), ERROR_INVALID);
    FAILS(create_with(&env, mounts, 9, id, &err), ERROR_INVALID);
    mounts[0].name = STR("unknown");
    FAILS(create_with(&env, mounts, 1, id, &err), ERROR_INVALID);
    CHECK_INT(engine_fake_boxes(env.engine), 0);
}

TEST(volume_failures)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct store_volume volume, *list;
    size_t count;

    env_open(&env, 0);
    engine_fake_fail_at(env.engine, 1);
    FAILS(volume_create(env.volumes, TEAM, STR("v"), &arena, &volume, &err), ERROR_INTERNAL);
    OK(volume_list(env.volumes, TEAM, &arena, &list, &count, &err));
    CHECK_INT(count, 0);
    OK(volume_create(env.volumes, TEAM, STR("v"), &arena, &volume, &err));
    engine_fake_fail_at(env.engine, 1);
    OK(volume_delete(env.volumes, TEAM, STR("v"), &err)); /* gone for the client */
    OK(volume_list(env.volumes, TEAM, &arena, &list, &count, &err));
    CHECK_INT(count, 0);
    env_reopen(&env); /* its files, at the latest now */
    OK(store_volume_list(env.store, STR_NONE, &arena, &list, &count, &err));
    CHECK_INT(count, 0);
}

static size_t rows_of_volumes(struct env *env)
{
    auto_arena struct arena arena = {0};
    struct store_volume *list;
    size_t count;

    OK(store_volume_list(env->store, STR_NONE, &arena, &list, &count, &err));
    return count;
}

/* The engine refuses at first: its files must not stay until a restart. */
TEST(a_volume_that_could_not_be_deleted)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct store_volume volume, *list;
    size_t count = 1;

    env_open(&env, 0);
    OK(volume_create(env.volumes, TEAM, STR("data"), &arena, &volume, &err));
    engine_fake_fail_at(env.engine, 1);
    OK(volume_delete(env.volumes, TEAM, STR("data"), &err));
    OK(volume_list(env.volumes, TEAM, &arena, &list, &count, &err));
    CHECK_INT(count, 0);
    WAIT_FOR(rows_of_volumes(&env) == 0);
}

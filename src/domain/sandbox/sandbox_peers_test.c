/* Private networks: which group boxes are in, through all that happens to their sandboxes. */
#include "domain/network/egress_link.h"
#include "domain/network/network_policy.h"
#include "domain/sandbox/test/sandbox_test_env.h"
#include "protocol/json/json_shape.h"

static const struct sandbox_pause to_memory = {0}, to_disk = {.disk_only = true};
static const struct sandbox_resume for_an_hour = {.timeout_s = 3600};
static struct arena arena;

/* With a link to an egress process that nobody waits for. */
static void open_with_egress(struct env *env, size_t warm)
{
    env_open(env, warm);
    env->config.egress = egress_link_open("/nowhere");
    env_reopen(env);
}

static void close_with_egress(struct env *env)
{
    struct egress_link *link = env->config.egress;

    env_close(env);
    egress_link_close(link);
    arena_done(&arena);
}
#define auto_member_env __attribute__((cleanup(close_with_egress)))

static struct network_policy *policy_of(const char *text)
{
    struct network_policy *policy = arena_alloc(&arena, sizeof(*policy));
    auto_json json_t *tree = NULL;

    OK(json_parse(str_of(text), &tree, &err));
    OK(network_policy_read(tree, true, &arena, policy, &err));
    return policy;
}

static int create(struct env *env, struct str team, const char *text, struct sandbox_view *out,
                  struct error *err)
{
    const struct network_policy *policy = policy_of(text);
    struct sandbox_new request = {.team_id = team,
                                  .template_name = STR("base"),
                                  .timeout_s = 3600,
                                  .network = policy,
                                  .internet = policy->internet};

    return sandbox_create(env->all, &request, &arena, out, err);
}

static uint32_t group_of(struct env *env, struct str id)
{
    struct box_spec spec;
    char copy[ID_SIZE];

    CHECK(str_copy(id, copy, sizeof(copy)) && engine_fake_spec(env->engine, copy, &spec));
    return spec.network.group;
}

#define DB  "{\"peers\":{\"network\":\"shop\",\"name\":\"db\"}}"
#define WEB "{\"peers\":{\"network\":\"shop\",\"name\":\"web\"},\"denyOut\":[\"0.0.0.0/0\"]}"

TEST(members_of_a_network_have_its_group)
{
    auto_member_env struct env env;
    struct sandbox_view db, web, theirs, plain;
    uint32_t group;

    open_with_egress(&env, 2);
    OK(create(&env, TEAM, DB, &db, &err));
    OK(create(&env, TEAM, WEB, &web, &err));
    OK(create(&env, OTHER, DB, &theirs, &err));
    OK(create(&env, TEAM, "{}", &plain, &err));
    group = group_of(&env, db.id);
    CHECK(group != 0);
    CHECK_INT(group_of(&env, web.id), group);
    CHECK(group_of(&env, theirs.id) != group && group_of(&env, theirs.id) != 0);
    CHECK_INT(group_of(&env, plain.id), 0);
    FAILS(create(&env, TEAM, DB, &plain, &err), ERROR_CONFLICT, "the name 'db'");
    OK(sandbox_kill(env.all, TEAM, db.id, &err));
    OK(create(&env, TEAM, DB, &db, &err));
    CHECK_INT(group_of(&env, db.id), group);
}

TEST(who_is_paused_is_in_no_group_and_keeps_its_name)
{
    auto_member_env struct env env;
    struct sandbox_view db, after;

    open_with_egress(&env, 0);
    OK(create(&env, TEAM, DB, &db, &err));
    for (int disk = 0; disk < 2; disk++) {
        OK(sandbox_pause(env.all, TEAM, db.id, disk ? &to_disk : &to_memory, &err));
        if (!disk)
            CHECK_INT(group_of(&env, db.id), 0);
        FAILS(create(&env, TEAM, DB, &after, &err), ERROR_CONFLICT, "the name 'db'");
        env_reopen(&env);
        if (!disk)
            CHECK_INT(group_of(&env, db.id), 0);
        FAILS(create(&env, TEAM, DB, &after, &err), ERROR_CONFLICT, "the name 'db'");
        OK(sandbox_resume(env.all, TEAM, db.id, &for_an_hour, &arena, &after, &err));
        CHECK(group_of(&env, db.id) != 0);
    }
}

TEST(a_server_that_starts_again_goes_on_with_the_groups_of_boxes)
{
    auto_member_env struct env env;
    struct sandbox_view db, web, fresh;
    uint32_t group;

    open_with_egress(&env, 0);
    OK(create(&env, TEAM, DB, &db, &err));
    OK(create(&env, TEAM, WEB, &web, &err));
    group = group_of(&env, db.id);
    env_reopen(&env);
    CHECK_INT(group_of(&env, db.id), group);
    OK(create(&env, TEAM, "{\"peers\":{\"network\":\"other\"}}", &fresh, &err));
    CHECK(group_of(&env, fresh.id) != group);
    OK(create(&env, TEAM, "{\"peers\":{\"network\":\"shop\"}}", &fresh, &err));
    CHECK_INT(group_of(&env, fresh.id), group);
    /* A box that has another one than its row says, as after a crash in the middle of a change. */
    OK(env.engine->ops->network(env.engine, web.id.p, &(struct box_network){.group = 99}, &err));
    env_reopen(&env);
    CHECK_INT(group_of(&env, web.id), group_of(&env, db.id));
}

TEST(forks_are_in_the_network_without_the_name)
{
    auto_member_env struct env env;
    struct fork_result *forks;
    struct sandbox_view db;

    open_with_egress(&env, 0);
    OK(create(&env, TEAM, DB, &db, &err));
    OK(sandbox_fork(env.all, TEAM, db.id, &(struct sandbox_fork){.count = 2, .timeout_s = 100},
                    &arena, &forks, &err));
    for (int i = 0; i < 2; i++) {
        CHECK(forks[i].ok);
        CHECK_INT(group_of(&env, forks[i].view.id), group_of(&env, db.id));
        CHECK_STR(forks[i].view.network, "{\"peers\":{\"network\":\"shop\"}}");
    }
}

TEST(a_change_that_fails_changes_nothing)
{
    auto_member_env struct env env;
    struct sandbox_view db, web, after;
    uint32_t group;

    open_with_egress(&env, 0);
    OK(create(&env, TEAM, DB, &db, &err));
    OK(create(&env, TEAM, WEB, &web, &err));
    group = group_of(&env, db.id);
    FAILS(sandbox_set_network(env.all, TEAM, web.id, policy_of(DB), &err), ERROR_CONFLICT);
    CHECK_INT(group_of(&env, web.id), group);
    engine_fake_fail_at(env.engine, 1);
    FAILS(sandbox_set_network(env.all, TEAM, web.id,
                              policy_of("{\"peers\":{\"network\":\"other\",\"name\":\"x\"}}"),
                              &err),
          ERROR_INTERNAL, "network fails");
    CHECK_INT(group_of(&env, web.id), group);
    OK(sandbox_get(env.all, TEAM, web.id, &arena, &after, &err));
    CHECK(str_find_str(after.network, STR("\"web\"")) >= 0);
    FAILS(create(&env, TEAM, WEB, &after, &err), ERROR_CONFLICT, "the name 'web'");
    /* And one that does not: the name is free. */
    OK(sandbox_set_network(env.all, TEAM, web.id, policy_of("{}"), &err));
    CHECK_INT(group_of(&env, web.id), 0);
    OK(create(&env, TEAM, WEB, &after, &err));
}

TEST(without_an_egress_process_there_are_no_private_networks)
{
    auto_env struct env env;
    struct sandbox_view view;

    env_open(&env, 0);
    FAILS(create(&env, TEAM, DB, &view, &err), ERROR_UNSUPPORTED,
          "'peers' needs the egress process");
    arena_done(&arena);
}

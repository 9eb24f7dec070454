/* Secrets of teams, with a store in memory. */
#include "domain/secret/team_secret.h"

#include <fcntl.h>

#include "base/path.h"
#include "base/test.h"
#include "domain/network/network_secret.h"
#include "domain/secret/secret.h"

struct env {
    char directory[40];
    struct secrets *secrets;
    struct store *store;
    struct arena arena;
};

static void open_env(struct env *env)
{
    *env = (struct env){.directory = "/tmp/team-secret-test-XXXXXX"};
    CHECK(mkdtemp(env->directory) != NULL);
    OK(secrets_open(env->directory, &env->secrets, &err));
    OK(store_open(":memory:", &env->store, &err));
}

static void close_env(struct env *env)
{
    secrets_close(env->secrets);
    store_close(env->store);
    arena_done(&env->arena);
    CHECK_INT(path_remove_tree(AT_FDCWD, env->directory), 0);
}

static enum error_code create(struct env *env, const char *team, const char *name,
                              const char *value)
{
    const struct team_secret_words words = {.name = str_of(name), .value = str_of(value)};
    struct store_secret made;
    struct error err = {0};

    return team_secret_create(env->store, env->secrets, str_of(team), &words, &env->arena, &made,
                              &err) < 0
               ? err.code
               : ERROR_NONE;
}

static struct str value_of(struct env *env, const char *team, const char *name)
{
    struct store_secret secret;
    struct str value;

    OK(team_secret_find(env->store, str_of(team), str_of(name), &env->arena, &secret, &err));
    OK(team_secret_value(env->secrets, &secret, &env->arena, &value, &err));
    return value;
}

TEST(a_value_is_encrypted_and_comes_back_for_its_team_only)
{
    struct store_secret row;
    struct str value;
    struct error refusal = {0};
    struct env env;

    open_env(&env);
    CHECK_INT(create(&env, "t1", "OpenAI-Key", "correct horse"), ERROR_NONE);
    OK(team_secret_find(env.store, STR("t1"), STR("openai-KEY"), &env.arena, &row, &err));
    CHECK_STR(row.name, "openai-key");
    CHECK(str_starts(row.id, STR("sec_")) && row.version == 1);
    CHECK(str_find_str(row.value, STR("horse")) < 0);
    CHECK_STR(value_of(&env, "t1", row.id.p), "correct horse");
    CHECK_INT(team_secret_find(env.store, STR("t2"), STR("openai-key"), &env.arena, &row, &refusal),
              -1);
    CHECK_INT(refusal.code, ERROR_NOT_FOUND);
    CHECK_INT(
        team_secret_delete(env.store, STR("t2"), STR("openai-key"), &env.arena, &row, &refusal),
        -1);
    CHECK_INT(refusal.code, ERROR_NOT_FOUND);
    /* A row that somebody moved to another team. */
    OK(team_secret_find(env.store, STR("t1"), STR("openai-key"), &env.arena, &row, &err));
    row.team_id = STR("t2");
    CHECK_INT(team_secret_value(env.secrets, &row, &env.arena, &value, &refusal), -1);
    close_env(&env);
}

TEST(a_change_is_a_version)
{
    const struct str host = STR("*.Example.com");
    struct team_secret_words words = {.value = STR("two"),
                                      .hosts = &host,
                                      .host_count = 1,
                                      .hosts_given = true,
                                      .metadata = STR("{\"a\":\"b\"}")};
    struct store_secret row;
    struct env env;

    open_env(&env);
    CHECK_INT(create(&env, "t", "a", "one"), ERROR_NONE);
    CHECK_INT(create(&env, "t", "A", "one"), ERROR_EXISTS);
    OK(team_secret_change(env.store, env.secrets, STR("t"), STR("a"), &words, &env.arena, &row,
                          &err));
    CHECK_INT(row.version, 2);
    CHECK_STR(value_of(&env, "t", "a"), "two");
    /* What is not given stays. */
    words = (struct team_secret_words){.value = STR("three")};
    OK(team_secret_change(env.store, env.secrets, STR("t"), STR("a"), &words, &env.arena, &row,
                          &err));
    CHECK_INT(row.version, 3);
    CHECK_STR(row.hosts, "*.example.com");
    CHECK_STR(row.metadata, "{\"a\":\"b\"}");
    OK(team_secret_delete(env.store, STR("t"), STR("a"), &env.arena, &row, &err));
    CHECK_INT(create(&env, "t", "a", "four"), ERROR_NONE);
    close_env(&env);
}

TEST(a_secret_is_for_its_hosts_only)
{
    const struct store_secret any = {.hosts = STR("")},
                              some = {.hosts = STR("a.example\n*.b.example")};

    CHECK(team_secret_is_for(&any, STR("*.com")));
    CHECK(team_secret_is_for(&some, STR("a.example")));
    CHECK(team_secret_is_for(&some, STR("x.y.b.example")));
    CHECK(team_secret_is_for(&some, STR("*.b.example")));
    CHECK(team_secret_is_for(&some, STR("*.x.b.example")));
    CHECK(!team_secret_is_for(&some, STR("b.example")));
    CHECK(!team_secret_is_for(&some, STR("*.a.example")));
    CHECK(!team_secret_is_for(&some, STR("*.example")));
    CHECK(!team_secret_is_for(&some, STR("a.example.evil")));
    CHECK(!team_secret_is_for(&some, STR("xb.example")));
}

TEST(secrets_that_nothing_can_be_made_of)
{
    static const char *const names[] = {"", "sec_1", ".a", "a b", "a}", "a/b", "ä", "-a"};
    static const char *const values[] = {"", "a\nb", "a\rb", "\x01", "\x7f", "\xff"};
    const struct str bad_host = STR("https://x");
    struct team_secret_words words = {.value = STR("x"),
                                      .name = STR("b"),
                                      .hosts = &bad_host,
                                      .host_count = 1,
                                      .hosts_given = true};
    struct store_secret row;
    struct error refusal = {0};
    struct env env;

    open_env(&env);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        CHECK_INT(create(&env, "t", names[i], "x"), ERROR_INVALID);
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        CHECK_INT(create(&env, "t", "a", values[i]), ERROR_INVALID);
    CHECK_INT(
        team_secret_create(env.store, env.secrets, STR("t"), &words, &env.arena, &row, &refusal),
        -1);
    CHECK(strstr(refusal.message, "https://x") != NULL);
    close_env(&env);
}

TEST(secrets_have_a_number_and_a_length)
{
    char name[NETWORK_SECRET_NAME_MAX + 2], value[NETWORK_SECRET_VALUE_MAX + 2];
    struct env env;

    open_env(&env);
    memset(name, 'n', sizeof(name));
    memset(value, 'v', sizeof(value));
    name[NETWORK_SECRET_NAME_MAX] = value[NETWORK_SECRET_VALUE_MAX] = '\0';
    CHECK_INT(create(&env, "t", name, value), ERROR_NONE);
    name[NETWORK_SECRET_NAME_MAX] = value[NETWORK_SECRET_VALUE_MAX] = 'x';
    name[NETWORK_SECRET_NAME_MAX + 1] = value[NETWORK_SECRET_VALUE_MAX + 1] = '\0';
    CHECK_INT(create(&env, "t", name, "x"), ERROR_INVALID);
    CHECK_INT(create(&env, "t", "x", value), ERROR_INVALID);
    for (int i = 1; i < TEAM_SECRETS_MAX; i++) {
        (void)snprintf(name, sizeof(name), "s%d", i);
        CHECK_INT(create(&env, "t", name, "x"), ERROR_NONE);
    }
    CHECK_INT(create(&env, "t", "more", "x"), ERROR_QUOTA);
    CHECK_INT(create(&env, "other", "more", "x"), ERROR_NONE);
    close_env(&env);
}

TEST(secrets_are_listed_by_name)
{
    struct store_secret *rows;
    struct env env;
    size_t count;

    open_env(&env);
    CHECK_INT(create(&env, "t", "b", "x"), ERROR_NONE);
    CHECK_INT(create(&env, "t", "a", "x"), ERROR_NONE);
    CHECK_INT(create(&env, "u", "c", "x"), ERROR_NONE);
    OK(store_secret_list(env.store, STR("t"), STR(""), 10, &env.arena, &rows, &count, &err));
    CHECK_INT(count, 2);
    CHECK_STR(rows[0].name, "a");
    OK(store_secret_list(env.store, STR("t"), STR("a"), 10, &env.arena, &rows, &count, &err));
    CHECK_INT(count, 1);
    CHECK_STR(rows[0].name, "b");
    OK(store_secret_list(env.store, STR("t"), STR(""), 1, &env.arena, &rows, &count, &err));
    CHECK_INT(count, 1);
    close_env(&env);
}

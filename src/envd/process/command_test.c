#include "base/cleanup.h"
#include "base/test.h"
#include "envd/files/guest_path.h"
#include "envd/process/process_command.h"
#include "protocol/json/json_shape.h"

static const struct user tester = {.name = "tester", .home = "/tmp"};

static const char *resolve(const char *path, const char *workdir)
{
    static char out[PATH_MAX];
    static struct error err;

    err = (struct error){0};
    return guest_path_resolve(str_of(path), &tester, workdir, out, &err) == 0 ? out : err.message;
}

TEST(path_resolve)
{
    CHECK_STR(str_of(resolve("", NULL)), "/tmp");
    CHECK_STR(str_of(resolve("", "/work")), "/work");
    CHECK_STR(str_of(resolve("a/b", "/work")), "/tmp/a/b");
    CHECK_STR(str_of(resolve("./a//../b/", NULL)), "/tmp/b");
    CHECK_STR(str_of(resolve("../../..", NULL)), "/");
    CHECK_STR(str_of(resolve("~", NULL)), "/tmp");
    CHECK_STR(str_of(resolve("~/x", NULL)), "/tmp/x");
    CHECK_STR(str_of(resolve("/a/../b", NULL)), "/a/../b");
    CHECK(strstr(resolve("~bob", NULL), "cannot expand user-specific home dir"));
}

TEST(path_too_long)
{
    char out[PATH_MAX], name[PATH_MAX + 10];
    struct error err = {0};

    memset(name, 'a', sizeof(name));
    CHECK_INT(guest_path_resolve(str_n(name, sizeof(name)), &tester, NULL, out, &err), -1);
    name[0] = '/';
    CHECK_INT(guest_path_resolve(str_n(name, sizeof(name)), &tester, NULL, out, &err), -1);
    CHECK_INT(guest_path_resolve(STR("/a\0b"), &tester, NULL, out, &err), -1);
    CHECK_INT(err.code, ERROR_INVALID);
}

TEST(path_parts)
{
    char dir[PATH_MAX];

    CHECK_STR(guest_path_base("/a/b"), "b");
    CHECK_STR(guest_path_base("/a/b//"), "b");
    CHECK_STR(guest_path_base("/"), "/");
    guest_path_dir("/a/b//", dir);
    CHECK_STR(str_of(dir), "/a");
    guest_path_dir("/a", dir);
    CHECK_STR(str_of(dir), "/");
    guest_path_dir("/", dir);
    CHECK_STR(str_of(dir), "/");
}

TEST(env_last_one_wins)
{
    auto_env struct env env = {0};
    struct error err = {0};

    CHECK_INT(env_set(&env, STR("A"), STR("1"), &err), 0);
    CHECK_INT(env_set(&env, STR("AB"), STR("2"), &err), 0);
    CHECK_INT(env_set(&env, STR("A"), STR("3"), &err), 0);
    CHECK_INT(env.count, 2);
    CHECK_STR(env_get(&env, "A"), "3");
    CHECK_STR(env_get(&env, "AB"), "2");
    CHECK(!env.items[2]);
    CHECK_INT(env_set(&env, STR("X=Y"), STR("3"), &err), -1);
    CHECK_INT(env_set(&env, STR(""), STR("3"), &err), -1);
    CHECK_INT(env_set(&env, STR("N"), STR("a\0b"), &err), -1);
}

static int prepare(struct process_command *command, const char *text, struct error *err)
{
    auto_json json_t *config = NULL;
    struct settings settings = {0};
    int r;

    CHECK_INT(json_parse(str_of(text), &config, err), 0);
    CHECK_INT(env_set(&settings.internal, STR("E2B_SANDBOX"), STR("true"), err), 0);
    CHECK_INT(env_set(&settings.user, STR("HOME"), STR("/h"), err), 0);
    CHECK_INT(env_set(&settings.user, STR("X"), STR("default"), err), 0);
    r = process_command_prepare(command, &settings, &tester, config, err);
    env_done(&settings.internal);
    env_done(&settings.user);
    return r;
}

TEST(command_prepared)
{
    auto_command struct process_command command = {0};
    struct error err = {0};

    CHECK_INT(prepare(&command,
                      "{\"cmd\":\"ls\",\"args\":[\"-l\",\"a b\"],"
                      "\"envs\":{\"PATH\":\"/x::/y\",\"X\":\"mine\"}}",
                      &err),
              0);
    CHECK_STR(str_of(command.argv[0]), "ls");
    CHECK_STR(str_of(command.argv[2]), "a b");
    CHECK(!command.argv[3]);
    CHECK_STR(str_of(command.candidates[0]), "/x/ls");
    CHECK_STR(str_of(command.candidates[1]), "/y/ls");
    CHECK(!command.candidates[2]);
    CHECK_STR(env_get(&command.env, "HOME"), "/h");
    CHECK_STR(env_get(&command.env, "USER"), "tester");
    CHECK_STR(env_get(&command.env, "X"), "mine");
    CHECK_STR(env_get(&command.env, "E2B_SANDBOX"), "true");
    CHECK_STR(str_of(command.cwd), "/tmp");
}

TEST(command_refused)
{
    static const char *const bad[] = {
        "{}",
        "{\"cmd\":\"\"}",
        "{\"cmd\":\"a\",\"args\":[1]}",
        "{\"cmd\":\"a\",\"args\":{}}",
        "{\"cmd\":\"a\",\"envs\":{\"A\":1}}",
        "{\"cmd\":\"a\",\"envs\":{\"A=B\":\"c\"}}",
        "{\"cmd\":\"a\",\"cwd\":\"/nowhere\"}",
        "{\"cmd\":\"a\",\"cwd\":\"/etc/passwd\"}",
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        auto_command struct process_command command = {0};
        struct error err = {0};

        CHECK_INT(prepare(&command, bad[i], &err), -1);
        CHECK_INT(err.code, ERROR_INVALID);
    }
}

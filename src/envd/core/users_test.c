#include "base/test.h"
#include "envd/core/users.h"

static const char passwd[] = "root:x:0:0:root:/root:/bin/bash\n"
                             "broken\n"
                             "user:x:1000:1000::/home/user:/bin/bash\n"
                             "nohome:x:5:5:::/bin/sh\n"
                             "huge:x:4294967295:1::/:\n"
                             "last:x:7:8::/l:/bin/sh";
static const char group[] = "root:x:0:\n"
                            "sudo:x:27:user,other\n"
                            "user:x:1000:\n"
                            "users:x:100:other, user\n"
                            "nothere:x:9:user2\n";

static bool find(const char *name, struct user *out)
{
    return users_find_in(str_of(passwd), str_of(group), str_of(name), out);
}

TEST(users_found_with_groups)
{
    struct user user;

    CHECK(find("user", &user));
    CHECK_STR(str_of(user.name), "user");
    CHECK_STR(str_of(user.home), "/home/user");
    CHECK_INT(user.uid, 1000);
    CHECK_INT(user.gid, 1000);
    CHECK_INT(user.group_count, 3);
    CHECK_INT(user.groups[0], 1000);
    CHECK_INT(user.groups[1], 27);
    CHECK_INT(user.groups[2], 100);
    CHECK(find("last", &user));
    CHECK_INT(user.gid, 8);
    CHECK(find("nohome", &user));
    CHECK_STR(str_of(user.home), "/");
}

TEST(users_not_found)
{
    struct user user;
    struct error err = {0};

    CHECK(!find("use", &user));
    CHECK(!find("broken", &user));
    CHECK(!find("huge", &user));
    CHECK(!find("", &user));
    CHECK_INT(users_find(STR("no such user"), &user, &err), -1);
    CHECK_INT(err.code, ERROR_UNAUTHORIZED);
    CHECK_STR(str_of(err.message), "invalid username: 'no such user'");
}

TEST(users_names_of_ids)
{
    struct user_names names = {0};

    buf_init(&names.passwd, 1000);
    buf_init(&names.group, 1000);
    buf_add_str(&names.passwd, str_of(passwd));
    buf_add_str(&names.group, str_of(group));
    CHECK_STR(str_of(user_names_of_uid(&names, 1000)), "user");
    CHECK_STR(str_of(user_names_of_gid(&names, 27)), "sudo");
    CHECK_STR(str_of(user_names_of_uid(&names, 4711)), "4711");
    user_names_done(&names);
}

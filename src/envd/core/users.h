/* Users and groups of the sandbox, read from its /etc/passwd and /etc/group at each lookup: programs
 * inside change them, and a static binary cannot use the guest's name services. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

enum {
    USER_NAME_SIZE = 128,
    USER_HOME_SIZE = 1024,
    USER_GROUPS_MAX = 64,
};

#define USER_SELF "self" /* whoever envd runs as, when that is not root */

struct user {
    char name[USER_NAME_SIZE];
    char home[USER_HOME_SIZE];
    uid_t uid;
    gid_t gid;
    gid_t groups[USER_GROUPS_MAX]; /* supplementary, gid included */
    size_t group_count;
};

/* ERROR_UNAUTHORIZED "invalid username: 'x'" when there is none. */
int users_find(struct str name, struct user *out, struct error *err);

/* Both files as text, for looking up many ids. Zeroed is empty. */
struct user_names {
    struct buf passwd, group;
    struct {
        bool known;
        uint32_t id;
        char name[USER_NAME_SIZE];
    } last_user, last_group; /* most files of a directory have the same */
};

void user_names_load(struct user_names *names);
void user_names_done(struct user_names *names);
/* The name, or the number as text when nobody has it. Valid until the next call. */
const char *user_names_of_uid(struct user_names *names, uid_t uid);
const char *user_names_of_gid(struct user_names *names, gid_t gid);

/* For tests: the same from given texts; false when there is no such user. */
bool users_find_in(struct str passwd, struct str group, struct str name, struct user *out);

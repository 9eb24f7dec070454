#include "envd/core/users.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/fd.h"

enum {
    FILE_MAX = 1024 * 1024,
    FIELDS_MAX = 7,
};

/* A missing, oversized or irregular file counts as empty: then nobody is found. O_NONBLOCK because
 * root inside may have put a FIFO there. */
static void read_table(const char *path, struct buf *out)
{
    auto_close int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    ssize_t n;

    buf_init(out, FILE_MAX);
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > FILE_MAX)
        return;
    if (!buf_reserve(out, (size_t)st.st_size))
        return;
    n = fd_read_full(fd, out->p, (size_t)st.st_size);
    if (n > 0)
        buf_grew(out, (size_t)n);
}

/* Fields of one "a:b:c" line; missing ones are STR_NONE. */
static size_t split_line(struct str line, struct str fields[FIELDS_MAX])
{
    size_t count = 0;

    while (count < FIELDS_MAX && line.p)
        fields[count++] = str_split(&line, ':');
    for (size_t i = count; i < FIELDS_MAX; i++)
        fields[i] = STR_NONE;
    return count;
}

static bool parse_id(struct str text, uint32_t *out)
{
    uint64_t id;

    /* The highest id means "no change" to the kernel. */
    if (!str_to_u64(text, &id) || id >= UINT32_MAX)
        return false;
    *out = (uint32_t)id;
    return true;
}

static bool parse_user(struct str line, struct user *out)
{
    struct str fields[FIELDS_MAX];

    if (split_line(line, fields) < 6 || fields[0].len == 0)
        return false;
    if (!parse_id(fields[2], &out->uid) || !parse_id(fields[3], &out->gid))
        return false;
    return str_copy(fields[0], out->name, sizeof(out->name)) &&
           str_copy(fields[5].len ? fields[5] : STR("/"), out->home, sizeof(out->home));
}

static bool list_has(struct str list, struct str name)
{
    while (list.p)
        if (str_eq(str_trim(str_split(&list, ',')), name))
            return true;
    return false;
}

static void add_group(struct user *user, gid_t gid)
{
    for (size_t i = 0; i < user->group_count; i++)
        if (user->groups[i] == gid)
            return;
    if (user->group_count < USER_GROUPS_MAX)
        user->groups[user->group_count++] = gid;
}

bool users_find_in(struct str passwd, struct str group, struct str name, struct user *out)
{
    bool found = false;

    while (passwd.p && !found) {
        struct str line = str_split(&passwd, '\n');
        struct str rest = line;

        if (!str_eq(str_split(&rest, ':'), name))
            continue;
        *out = (struct user){0};
        found = parse_user(line, out);
    }
    if (!found)
        return false;
    add_group(out, out->gid);
    while (group.p) {
        struct str fields[FIELDS_MAX];
        uint32_t gid;

        if (split_line(str_split(&group, '\n'), fields) >= 4 && list_has(fields[3], name) &&
            parse_id(fields[2], &gid))
            add_group(out, gid);
    }
    return true;
}

/* An envd that is not root acts as nobody else; its home is where it was told to work. */
static int find_self(struct str name, struct user *out, struct error *err)
{
    struct str home = str_of(getenv("HOME"));
    struct user_names names;

    *out = (struct user){.uid = geteuid(), .gid = getegid()};
    user_names_load(&names);
    (void)str_copy(str_of(user_names_of_uid(&names, out->uid)), out->name, sizeof(out->name));
    user_names_done(&names);
    if (!str_is(name, USER_SELF) && !str_is(name, out->name))
        return error_set(err, ERROR_UNAUTHORIZED, "invalid username: '%.*s'", STR_ARG(name));
    if (!str_copy(home.len ? home : STR("/"), out->home, sizeof(out->home)))
        return error_set(err, ERROR_INTERNAL, "HOME is too long");
    return 0;
}

int users_find(struct str name, struct user *out, struct error *err)
{
    struct user_names names;
    bool found;

    if (geteuid() != 0)
        return find_self(name, out, err);
    user_names_load(&names);
    found = name.len > 0 && users_find_in(buf_str(&names.passwd), buf_str(&names.group), name, out);
    user_names_done(&names);
    if (!found)
        return error_set(err, ERROR_UNAUTHORIZED, "invalid username: '%.*s'", STR_ARG(name));
    return 0;
}

void user_names_load(struct user_names *names)
{
    *names = (struct user_names){0};
    read_table("/etc/passwd", &names->passwd);
    read_table("/etc/group", &names->group);
}

void user_names_done(struct user_names *names)
{
    buf_done(&names->passwd);
    buf_done(&names->group);
}

/* passwd and group lines both have the id in their third field. */
static void name_of(struct str table, uint32_t id, char *out)
{
    while (table.p) {
        struct str fields[FIELDS_MAX];
        uint32_t found;

        if (split_line(str_split(&table, '\n'), fields) >= 3 && parse_id(fields[2], &found) &&
            found == id && str_copy(fields[0], out, USER_NAME_SIZE))
            return;
    }
    (void)snprintf(out, USER_NAME_SIZE, "%u", id);
}

const char *user_names_of_uid(struct user_names *names, uid_t uid)
{
    if (!names->last_user.known || names->last_user.id != uid) {
        name_of(buf_str(&names->passwd), uid, names->last_user.name);
        names->last_user.known = true;
        names->last_user.id = uid;
    }
    return names->last_user.name;
}

const char *user_names_of_gid(struct user_names *names, gid_t gid)
{
    if (!names->last_group.known || names->last_group.id != gid) {
        name_of(buf_str(&names->group), gid, names->last_group.name);
        names->last_group.known = true;
        names->last_group.id = gid;
    }
    return names->last_group.name;
}

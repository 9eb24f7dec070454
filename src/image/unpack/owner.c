#include "image/unpack/owner.h"

#include <fcntl.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/path.h"

static const int64_t id_max = 0xfffffffe;

void accounts_read(int root, const char *path, struct buf *out)
{
    auto_close int fd = path_open_in_root(root, path, O_RDONLY | O_NONBLOCK, 0);
    ssize_t got;
    char *p;

    buf_init(out, ACCOUNTS_MAX + 1);
    if (fd < 0)
        return;
    p = buf_reserve(out, ACCOUNTS_MAX);
    got = fd_read_full(fd, p, ACCOUNTS_MAX);
    if (got > 0)
        buf_grew(out, (size_t)got);
}

struct str account_field(struct str line, int n)
{
    struct str field = str_split(&line, ':');

    for (; n > 0 && field.p; n--)
        field = line.p ? str_split(&line, ':') : STR_NONE;
    return field;
}

struct str account_find(struct str file, int n, struct str text)
{
    while (file.p && file.len > 0) {
        struct str line = str_split(&file, '\n');

        if (str_eq(account_field(line, n), text))
            return line;
    }
    return STR_NONE;
}

static bool to_id(struct str text, uint32_t *out)
{
    int64_t n;

    if (!str_to_i64(text, &n) || n < 0 || n > id_max)
        return false;
    *out = (uint32_t)n;
    return true;
}

static int find_user(int root, struct str name, struct owner *out, struct error *err)
{
    auto_buf struct buf file = {0};
    struct str line;

    if (to_id(name, &out->uid)) {
        out->gid = out->uid;
        return 0;
    }
    accounts_read(root, "etc/passwd", &file);
    line = account_find(buf_str(&file), 0, name);
    if (str_is(name, "root") && !line.p)
        return 0;
    if (!line.p || !to_id(account_field(line, 2), &out->uid) ||
        !to_id(account_field(line, 3), &out->gid))
        return error_set(err, ERROR_NOT_FOUND, "no user '%.*s' in /etc/passwd", STR_ARG(name));
    return 0;
}

static int find_group(int root, struct str name, struct owner *out, struct error *err)
{
    auto_buf struct buf file = {0};
    struct str line;

    if (to_id(name, &out->gid))
        return 0;
    accounts_read(root, "etc/group", &file);
    line = account_find(buf_str(&file), 0, name);
    if (str_is(name, "root") && !line.p) {
        out->gid = 0;
        return 0;
    }
    if (!line.p || !to_id(account_field(line, 2), &out->gid))
        return error_set(err, ERROR_NOT_FOUND, "no group '%.*s' in /etc/group", STR_ARG(name));
    return 0;
}

int owner_find(int root, const char *text, struct owner *out, struct error *err)
{
    struct str group = str_of(text), user = str_split(&group, ':');

    *out = (struct owner){0, 0};
    if (user.len > 0 && find_user(root, user, out, err) < 0)
        return -1;
    return group.len > 0 ? find_group(root, group, out, err) : 0;
}

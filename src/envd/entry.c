#include "envd/entry.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "envd/guest_path.h"
#include "envd/guest_stat.h"
#include "json/json_shape.h"

/* The kernel has no longer ones. */
enum { XATTR_MAX = 64 * 1024 };

void entry_permissions(mode_t mode, char out[32])
{
    static const char bits[] = "rwxrwxrwx";
    size_t n = 0;

    if (S_ISDIR(mode))
        out[n++] = 'd';
    if (S_ISLNK(mode))
        out[n++] = 'L';
    if (S_ISBLK(mode) || S_ISCHR(mode))
        out[n++] = 'D';
    if (S_ISFIFO(mode))
        out[n++] = 'p';
    if (S_ISSOCK(mode))
        out[n++] = 'S';
    if (mode & S_ISUID)
        out[n++] = 'u';
    if (mode & S_ISGID)
        out[n++] = 'g';
    if (S_ISCHR(mode))
        out[n++] = 'c';
    if (mode & S_ISVTX)
        out[n++] = 't';
    if (n == 0)
        out[n++] = '-';
    for (unsigned i = 0; i < 9; i++)
        out[n++] = mode & 0400u >> i ? bits[i] : '-';
    out[n] = '\0';
}

static const char *type_name(mode_t mode)
{
    if (S_ISREG(mode))
        return "FILE_TYPE_FILE";
    if (S_ISDIR(mode))
        return "FILE_TYPE_DIRECTORY";
    if (S_ISLNK(mode))
        return "FILE_TYPE_SYMLINK";
    return "FILE_TYPE_UNSPECIFIED";
}

static void add_attribute(struct buf *out, const char *path, const char *name, bool *any)
{
    static char value[XATTR_MAX];
    ssize_t len = lgetxattr(path, name, value, sizeof(value));

    if (len < 0)
        return;
    buf_add_str(out, *any ? STR(",") : STR(",\"metadata\":{"));
    *any = true;
    json_add_str(out, str_of(name + sizeof(ENTRY_METADATA_PREFIX) - 1));
    buf_add_char(out, ':');
    json_add_str(out, str_n(value, (size_t)len));
}

void entry_add_metadata(struct buf *out, const char *path)
{
    static char names[XATTR_MAX];
    ssize_t len = llistxattr(path, names, sizeof(names));
    bool any = false;

    for (const char *name = names; len > 0 && name < names + len; name += strlen(name) + 1)
        if (str_starts(str_of(name), STR(ENTRY_METADATA_PREFIX)))
            add_attribute(out, path, name, &any);
    if (any)
        buf_add_char(out, '}');
}

/* Links report their target's kind and mode, and where it is; a broken one points at itself. */
static void add_kind(struct buf *out, const char *path, const struct guest_stat *st)
{
    struct guest_stat target = *st;
    char real[PATH_MAX];
    bool is_link = S_ISLNK(st->mode), found = true;

    if (is_link)
        found = realpath(path, real) && guest_stat(real, false, &target) == 0;
    if (!found)
        target.mode = 0;
    buf_printf(out, ",\"type\":\"%s\",\"mode\":%u", type_name(target.mode),
               (unsigned)(target.mode & 0777));
    if (is_link) {
        buf_add_str(out, STR(",\"symlinkTarget\":"));
        json_add_str(out, str_of(found ? real : path));
    }
}

int entry_add(struct buf *out, const char *path, struct str shown, const struct user_names *names,
              struct error *err)
{
    char permissions[32], time[CLOCK_TEXT_SIZE];
    char owner[USER_NAME_SIZE], group[USER_NAME_SIZE];
    struct guest_stat st;
    int r = guest_stat(path, false, &st);

    if (r == -ENOENT || r == -ENOTDIR)
        return error_set(err, ERROR_NOT_FOUND, "file not found: '%s' does not exist", path);
    if (r != 0)
        return error_set_errno(err, -r, "error getting file info of '%s'", path);
    entry_permissions(st.mode, permissions);
    clock_format(st.mtime_s * 1000000 + st.mtime_ns / 1000, time);
    user_names_of_uid(names, st.uid, owner);
    user_names_of_gid(names, st.gid, group);
    buf_add_str(out, STR("{\"name\":"));
    json_add_str(out, guest_path_base(path));
    buf_add_str(out, STR(",\"path\":"));
    json_add_str(out, shown);
    add_kind(out, path, &st);
    buf_printf(out, ",\"size\":\"%lld\",\"permissions\":\"%s\",\"owner\":", (long long)st.size,
               permissions);
    json_add_str(out, str_of(owner));
    buf_add_str(out, STR(",\"group\":"));
    json_add_str(out, str_of(group));
    buf_printf(out, ",\"modifiedTime\":\"%s\"", time);
    if ((S_ISREG(st.mode) || S_ISDIR(st.mode)) && !guest_stat_is_own(&st))
        entry_add_metadata(out, path);
    if (!buf_add_char(out, '}'))
        return error_set(err, ERROR_LIMIT, "the listing is too long");
    return 0;
}

#include "envd/files/entry.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "envd/files/guest_path.h"
#include "envd/files/guest_stat.h"
#include "protocol/json/json_out.h"

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
    if (!*any)
        json_out_open(out, "metadata", '{');
    *any = true;
    json_out_name(out, str_of(name + sizeof(ENTRY_METADATA_PREFIX) - 1));
    json_out_str(out, NULL, str_n(value, (size_t)len));
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
        json_out_close(out, "}");
}

/* Neighbours are often as old as each other, to the second. */
static void add_time(struct buf *out, int64_t seconds, uint32_t nanoseconds)
{
    static char text[CLOCK_TEXT_SIZE];
    static int64_t last = INT64_MIN;
    uint32_t micros = nanoseconds / 1000;
    char *fraction;

    /* What the text can hold: the years 1 to 9999. */
    if (seconds > 253402300799 || seconds < -62135596800)
        seconds = seconds > 0 ? 253402300799 : -62135596800;
    if (seconds != last) {
        clock_format(seconds * 1000000, text);
        last = seconds;
    }
    fraction = strchr(text, '.');
    for (int i = 6; fraction && i > 0; i--, micros /= 10)
        fraction[i] = (char)('0' + micros % 10);
    json_out_str(out, "modifiedTime", str_of(text));
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
    json_out_str(out, "type", str_of(type_name(target.mode)));
    json_out_uint(out, "mode", target.mode & 0777);
    if (is_link)
        json_out_str(out, "symlinkTarget", str_of(found ? real : path));
}

int entry_add(struct buf *out, const char *path, struct str shown, struct user_names *names,
              bool *is_dir, struct error *err)
{
    char permissions[32];
    struct guest_stat st;
    int r = guest_stat(path, false, &st);

    if (r == -ENOENT || r == -ENOTDIR)
        return error_set(err, ERROR_NOT_FOUND, "file not found: '%s' does not exist", path);
    if (r != 0)
        return error_set_errno(err, -r, "error getting file info of '%s'", path);
    entry_permissions(st.mode, permissions);
    json_out_open(out, NULL, '{');
    json_out_str(out, "name", guest_path_base(path));
    json_out_str(out, "path", shown);
    add_kind(out, path, &st);
    json_out_uint_str(out, "size", (uint64_t)st.size);
    json_out_str(out, "permissions", str_of(permissions));
    json_out_str(out, "owner", str_of(user_names_of_uid(names, st.uid)));
    json_out_str(out, "group", str_of(user_names_of_gid(names, st.gid)));
    add_time(out, st.mtime_s, st.mtime_ns);
    if ((S_ISREG(st.mode) || S_ISDIR(st.mode)) && !guest_stat_is_own(&st))
        entry_add_metadata(out, path);
    json_out_close(out, "}");
    if (out->overflowed)
        return error_set(err, ERROR_LIMIT, "the listing is too long");
    if (is_dir)
        *is_dir = S_ISDIR(st.mode);
    return 0;
}

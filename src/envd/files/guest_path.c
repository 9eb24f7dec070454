#include "envd/files/guest_path.h"

#include <errno.h>
#include <sys/stat.h>

#include "envd/files/guest_stat.h"

/* Appends the components of path to out (a clean absolute path or ""), taking "." and ".." away
 * as text, as clients expect of relative paths. */
static bool join(char out[PATH_MAX], struct str path)
{
    size_t len = strlen(out);

    while (path.p) {
        struct str part = str_split(&path, '/');

        if (part.len == 0 || str_is(part, "."))
            continue;
        if (str_is(part, "..")) {
            while (len > 0 && out[--len] != '/')
                continue;
            out[len] = '\0';
            continue;
        }
        if (len + 1 + part.len >= PATH_MAX)
            return false;
        out[len] = '/';
        memcpy(out + len + 1, part.p, part.len);
        len += 1 + part.len;
        out[len] = '\0';
    }
    return true;
}

int guest_path_resolve(struct str path, const struct user *user, const char *workdir,
                       char out[PATH_MAX], struct error *err)
{
    struct str given = path;
    bool fits;

    if (path.len == 0 && workdir)
        path = str_of(workdir);
    if (path.len > 0 && memchr(path.p, '\0', path.len))
        return error_set(err, ERROR_INVALID, "path has a NUL character");
    if (path.len > 1 && path.p[0] == '~' && path.p[1] != '/')
        return error_set(err, ERROR_INVALID,
                         "failed to expand path '%.*s' for user '%s': cannot expand user-specific "
                         "home dir",
                         STR_ARG(path), user->name);
    if (path.len > 0 && path.p[0] == '/') {
        fits = str_copy(path, out, PATH_MAX);
    } else {
        if (path.len > 0 && path.p[0] == '~')
            path = str_skip(path, 1);
        out[0] = '\0';
        fits = join(out, str_of(user->home)) && join(out, path);
        if (fits && out[0] == '\0')
            memcpy(out, "/", 2);
    }
    if (!fits)
        return error_set(err, ERROR_INVALID, "path is too long: '%.*s...'", 64, given.p);
    return 0;
}

struct str guest_path_base(const char *path)
{
    struct str s = str_of(path);
    size_t start;

    while (s.len > 1 && s.p[s.len - 1] == '/')
        s.len--;
    for (start = s.len; start > 0 && s.p[start - 1] != '/'; start--)
        continue;
    return start == s.len ? STR("/") : str_skip(s, start);
}

void guest_path_dir(const char *path, char out[PATH_MAX])
{
    struct str base = guest_path_base(path);
    size_t len = str_is(base, "/") ? 0 : (size_t)(base.p - path);

    while (len > 1 && path[len - 1] == '/')
        len--;
    if (len == 0 || len >= PATH_MAX) {
        memcpy(out, "/", 2);
        return;
    }
    memcpy(out, path, len);
    out[len] = '\0';
}

static int make_one(const char *path, const struct user *user, struct error *err)
{
    struct guest_stat st;
    int r;

    if (mkdir(path, 0755) == 0) {
        /* The mode must not depend on anybody's umask. */
        if (chmod(path, 0755) != 0 || chown(path, user->uid, user->gid) != 0)
            return error_set_errno(err, errno, "cannot hand directory '%s' to its user", path);
        return 0;
    }
    if (errno != EEXIST)
        return error_set_errno(err, errno, "failed to create directory '%s'", path);
    r = guest_stat(path, true, &st);
    if (r != 0)
        return error_set_errno(err, -r, "failed to stat directory '%s'", path);
    if (!S_ISDIR(st.mode))
        return error_set(err, ERROR_INVALID, "path is a file: %s", path);
    return 0;
}

int guest_path_make_dirs(const char *path, const struct user *user, struct error *err)
{
    char copy[PATH_MAX];
    struct guest_stat st;

    if (guest_stat(path, true, &st) == 0 && S_ISDIR(st.mode))
        return 0;
    if (!str_copy(str_of(path), copy, sizeof(copy)) || copy[0] != '/')
        return error_set(err, ERROR_INVALID, "path is too long or not absolute");
    for (char *p = copy + 1;; p++) {
        char c = *p;

        if (c != '/' && c != '\0')
            continue;
        *p = '\0';
        if (make_one(copy, user, err) != 0)
            return -1;
        *p = c;
        if (c == '\0')
            return 0;
    }
}

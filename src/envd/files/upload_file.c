/* How it works: an existing regular file keeps its mode. Written in place, and so without the
 * guarantee of being all or nothing, are only things that cannot be replaced by renaming: devices,
 * files with several names, dangling links, and files in directories where nothing can be
 * created, as in /proc and /sys. */
#include "envd/files/upload_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/log.h"
#include "envd/files/entry.h"
#include "envd/files/guest_path.h"
#include "envd/files/guest_stat.h"

enum { NEW_FILE_MODE = 0644 };

static int no_space(struct error *err)
{
    return error_set(err, ERROR_NO_SPACE, "not enough disk space available");
}

static bool is_no_space(int errnum)
{
    return errnum == ENOSPC || errnum == EDQUOT;
}

static int open_in_place(struct upload_file *file, const struct user *user, struct error *err)
{
    file->temp[0] = '\0';
    file->fd =
        open(file->path, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, NEW_FILE_MODE);
    if (file->fd < 0 && is_no_space(errno))
        return no_space(err);
    if (file->fd < 0)
        return error_set_errno(err, errno, "error opening file '%s'", file->path);
    /* Ownership of kernel files cannot change, and need not. */
    if (fchown(file->fd, user->uid, user->gid) != 0)
        log_debug("envd", "file written in place keeps its owner: errno %d", errno);
    return 0;
}

/* 1: no file can be created beside it. */
static int open_temp(struct upload_file *file, const struct user *user, bool replaces, mode_t mode,
                     struct error *err)
{
    char dir[PATH_MAX], id[17];
    int len;

    guest_path_dir(file->path, dir);
    id_hex(id, 8);
    len = snprintf(file->temp, sizeof(file->temp), "%s/" UPLOAD_TEMP_PREFIX "%c-%s",
                   strcmp(dir, "/") == 0 ? "" : dir, replaces ? 'r' : 'n', id);
    if (len < 0 || (size_t)len >= sizeof(file->temp))
        return 1;
    file->fd = open(file->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file->fd < 0 && is_no_space(errno))
        return no_space(err);
    if (file->fd < 0)
        return 1;
    if (fchown(file->fd, user->uid, user->gid) != 0 || fchmod(file->fd, mode & 07777) != 0) {
        error_set_errno(err, errno, "error changing file ownership of '%s'", file->path);
        upload_file_abort(file);
        return -1;
    }
    return 0;
}

/* Resolves links and tells what is there: 0 and st, or 1 for nothing. */
static int look(struct upload_file *file, const char *path, struct guest_stat *st,
                struct error *err)
{
    int r = guest_stat(path, true, st);
    bool resolved;

    if (r != 0 && r != -ENOENT)
        return error_set_errno(err, -r, "error getting file info of '%s'", path);
    if (r == 0 && S_ISDIR(st->mode))
        return error_set(err, ERROR_INVALID, "path is a directory: %s", path);
    /* Nobody knows when somebody would read them. */
    if (r == 0 && (S_ISFIFO(st->mode) || S_ISSOCK(st->mode)))
        return error_set(err, ERROR_INVALID, "path '%s' is not a regular file", path);
    if (r == 0 && guest_stat_is_own(st))
        return error_set(err, ERROR_FORBIDDEN, "'%s' cannot be written", path);
    resolved = r == 0 && S_ISREG(st->mode) && realpath(path, file->path);
    if (!resolved && !str_copy(str_of(path), file->path, sizeof(file->path)))
        return error_set(err, ERROR_INVALID, "path is too long");
    return r == 0 ? 0 : 1;
}

int upload_file_open(struct upload_file *file, const char *path, const struct user *user,
                     struct error *err)
{
    struct guest_stat st, link;
    char parent[PATH_MAX];
    int found, r;

    file->fd = -1;
    file->temp[0] = '\0';
    guest_path_dir(path, parent);
    if (guest_path_make_dirs(parent, user, err) != 0)
        return error_prefix(err, "error ensuring directories");
    found = look(file, path, &st, err);
    if (found < 0)
        return -1;
    if (found == 0 && (!S_ISREG(st.mode) || st.nlink > 1))
        return open_in_place(file, user, err);
    if (found == 1 && guest_stat(path, false, &link) == 0)
        return open_in_place(file, user, err);
    r = open_temp(file, user, found == 0, found == 0 ? st.mode : NEW_FILE_MODE, err);
    return r > 0 ? open_in_place(file, user, err) : r;
}

int upload_file_write(struct upload_file *file, struct str data, struct error *err)
{
    int r = fd_write_full(file->fd, data.p, data.len);

    if (is_no_space(-r))
        return no_space(err);
    if (r != 0)
        return error_set_errno(err, -r, "error writing file '%s'", file->path);
    return 0;
}

static int set_attribute(const struct upload_file *file, struct str key, struct str value,
                         struct error *err)
{
    char name[XATTR_NAME_MAX + 1];
    int len = snprintf(name, sizeof(name), ENTRY_METADATA_PREFIX "%.*s", STR_ARG(key));

    if (len < 0 || (size_t)len >= sizeof(name))
        return error_set(err, ERROR_INVALID, "invalid metadata: the key is too long");
    str_lower(str_of(name), name);
    /* The first of several headers of one name counts. */
    if (fsetxattr(file->fd, name, value.p ? value.p : "", value.len, XATTR_CREATE) == 0 ||
        errno == EEXIST)
        return 0;
    if (errno == ENOTSUP)
        return error_set(err, ERROR_INVALID, "the file system of '%s' cannot hold metadata",
                         file->path);
    if (errno == E2BIG || errno == ERANGE)
        return error_set(err, ERROR_INVALID, "invalid metadata: the value of '%.*s' is too long",
                         STR_ARG(key));
    return error_set_errno(err, errno, "error writing file metadata");
}

/* Only a file written in place can have any. */
static void clear_metadata(int fd)
{
    auto_free char *names = NULL;
    ssize_t len = flistxattr(fd, NULL, 0);

    if (len <= 0)
        return;
    names = xmalloc((size_t)len);
    len = flistxattr(fd, names, (size_t)len);
    for (const char *name = names; len > 0 && name < names + len; name += strlen(name) + 1)
        if (str_starts(str_of(name), STR(ENTRY_METADATA_PREFIX)))
            (void)fremovexattr(fd, name);
}

static int set_metadata(const struct upload_file *file, const struct http_headers *headers,
                        struct error *err)
{
    static const struct str prefix = STR_INIT("x-metadata-");

    if (!file->temp[0])
        clear_metadata(file->fd);
    for (size_t i = 0; i < headers->count; i++) {
        struct str name = headers->items[i].name;

        if (name.len <= prefix.len || !str_eq_nocase(str_n(name.p, prefix.len), prefix))
            continue;
        if (set_attribute(file, str_skip(name, prefix.len), headers->items[i].value, err) != 0)
            return -1;
    }
    return 0;
}

/* A mount point (a file bound over another) cannot be renamed over: its content is replaced. */
static int copy_over(const struct upload_file *file)
{
    auto_close int in = open(file->temp, O_RDONLY | O_CLOEXEC);
    auto_close int out = open(file->path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    char bytes[16 * 1024];
    ssize_t n;

    if (in < 0 || out < 0)
        return -errno;
    while ((n = fd_read_full(in, bytes, sizeof(bytes))) > 0) {
        int r = fd_write_full(out, bytes, (size_t)n);

        if (r != 0)
            return r;
    }
    return (int)n;
}

int upload_file_commit(struct upload_file *file, const struct http_headers *headers,
                       struct error *err)
{
    int r = 0;

    if (set_metadata(file, headers, err) != 0)
        return -1;
    if (file->temp[0] && rename(file->temp, file->path) != 0) {
        if (errno != EBUSY)
            return error_set_errno(err, errno, "error replacing file '%s'", file->path);
        r = copy_over(file);
        (void)unlink(file->temp);
    }
    close_fd(&file->fd);
    file->temp[0] = '\0';
    return r == 0 ? 0 : error_set_errno(err, -r, "error writing file '%s'", file->path);
}

void upload_file_abort(struct upload_file *file)
{
    close_fd(&file->fd);
    if (file->temp[0])
        (void)unlink(file->temp);
    file->temp[0] = '\0';
}

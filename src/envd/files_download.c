/* GET /files: one file, sent by the kernel. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "envd/files_query.h"
#include "envd/guest_path.h"
#include "envd/guest_stat.h"
#include "envd/meminfo.h"

enum { UNSIZED_MAX = 4 * 1024 * 1024 };

/* Opens without waiting for anybody: a FIFO's writer, a lease, or the agent itself. */
static int open_regular(const char *path, int *out_fd, struct guest_stat *st, struct error *err)
{
    auto_close int place = open(path, O_PATH | O_CLOEXEC);
    char by_fd[64];
    int r = place < 0 ? -errno : guest_stat_fd(place, st);

    if (r == -ENOENT || r == -ENOTDIR)
        return error_set(err, ERROR_NOT_FOUND, "path '%s' does not exist", path);
    if (r != 0)
        return error_set_errno(err, -r, "error checking if path exists '%s'", path);
    if (S_ISDIR(st->mode)) /* NOLINT: set when r is 0 */
        return error_set(err, ERROR_INVALID, "path '%s' is a directory", path);
    if (!S_ISREG(st->mode))
        return error_set(err, ERROR_INVALID, "path '%s' is not a regular file", path);
    *out_fd = -1;
    if (guest_stat_is_own(st))
        return 0;
    (void)snprintf(by_fd, sizeof(by_fd), "/proc/self/fd/%d", place);
    *out_fd = open(by_fd, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (*out_fd < 0)
        return error_set_errno(err, errno, "error opening file '%s'", path);
    return 0;
}

static bool is_token_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c != '\0' && strchr("!#$&+-.^_`|~", c));
}

/* inline; filename=plain, filename="with blanks", or filename*=utf-8''%-escaped */
static struct str disposition(struct arena *arena, struct str name)
{
    struct buf value;
    struct str copy;
    bool token = true, ascii = true;

    for (size_t i = 0; i < name.len; i++) {
        token &= is_token_char(name.p[i]);
        ascii &= name.p[i] >= 0x20 && name.p[i] < 0x7f;
    }
    buf_init(&value, 4096);
    buf_add_str(&value, STR("inline; filename"));
    if (token) {
        buf_printf(&value, "=%.*s", STR_ARG(name));
    } else if (ascii) {
        buf_add_str(&value, STR("=\""));
        for (size_t i = 0; i < name.len; i++) {
            if (name.p[i] == '"' || name.p[i] == '\\')
                buf_add_char(&value, '\\');
            buf_add_char(&value, name.p[i]);
        }
        buf_add_char(&value, '"');
    } else {
        buf_add_str(&value, STR("*=utf-8''"));
        for (size_t i = 0; i < name.len; i++) {
            if (is_token_char(name.p[i]))
                buf_add_char(&value, name.p[i]);
            else
                buf_printf(&value, "%%%02X", (unsigned char)name.p[i]);
        }
    }
    copy = arena_str(arena, buf_str(&value));
    buf_done(&value);
    return copy;
}

/* Files of /proc say size 0 and have content all the same. */
static void reply_unsized(struct http_exchange *ex, int fd, const struct http_header *headers,
                          size_t count)
{
    auto_buf struct buf content;
    int r = 0;

    buf_init(&content, UNSIZED_MAX);
    if (fd < 0) {
        r = meminfo_read_own(&content);
    } else {
        char *to = buf_reserve(&content, UNSIZED_MAX);
        ssize_t n = fd_read_full(fd, to, UNSIZED_MAX);

        if (n < 0)
            r = (int)n;
        else
            buf_grew(&content, (size_t)n);
    }
    if (r < 0)
        envd_reply_error(ex, 500, "error reading file");
    else
        http_reply(ex, 200, headers, count, buf_str(&content));
}

static void send_file(struct http_exchange *ex, int fd_consume, const struct guest_stat *st,
                      const char *path)
{
    struct http_header headers[] = {
        {STR("content-type"), STR("application/octet-stream")},
        {STR("content-disposition"), disposition(http_arena(ex), guest_path_base(path))},
        {STR("vary"), STR("Accept-Encoding")},
        {STR("access-control-allow-origin"), STR("*")},
    };
    size_t count = sizeof(headers) / sizeof(headers[0]);
    auto_close int fd = fd_consume;

    if (fd < 0 || st->size == 0) {
        reply_unsized(ex, fd, headers, count);
        return;
    }
    http_begin(ex, 200, headers, count, st->size);
    http_write_file(ex, take_fd(&fd), 0, st->size);
    http_end(ex);
}

void files_download(struct envd *envd, struct http_exchange *ex)
{
    auto_files_query struct files_query query = {0};
    struct guest_stat st;
    char path[PATH_MAX];
    struct error err = {0};
    int fd = -1;

    if (files_query_read(&query, envd, ex, "read") != 0)
        return;
    if (guest_path_resolve(buf_str(&query.path), &query.user, envd->settings.default_workdir, path,
                           &err) != 0 ||
        open_regular(path, &fd, &st, &err) != 0)
        envd_reply_failure(ex, &err);
    else
        send_file(ex, fd, &st, path);
}

/* See cli_tls_files.h. */
#include "cli/command/cli_tls_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/path.h"
#include "cli/core/cli_command.h"

enum { FILE_MAX = 256 * 1024, ANSWER_S = 15 };

char *cli_tls_path(const struct cli *cli, const char *name)
{
    return xasprintf("%s/tls/%s", cli->data_dir, name);
}

int cli_tls_make_dir(const struct cli *cli, struct error *err)
{
    auto_free char *path = xasprintf("%s/tls", cli->data_dir);
    int r = path_make_dirs(path, 0755);

    if (r == 0 && chmod(path, 0755) < 0)
        r = -errno;
    return r < 0 ? error_set_errno(err, -r, "make '%s'", path) : 0;
}

int cli_tls_write(const struct cli *cli, const char *name, struct str text, bool secret,
                  struct error *err)
{
    auto_free char *path = cli_tls_path(cli, name), *draft = xasprintf("%s.new", path);
    auto_close int fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int r = fd < 0 ? -errno : 0;

    if (r == 0 && fchmod(fd, secret ? 0600 : 0644) < 0)
        r = -errno;
    if (r == 0)
        r = fd_write_full(fd, text.p, text.len);
    if (r == 0 && (fsync(fd) < 0 || rename(draft, path) < 0))
        r = -errno;
    return r < 0 ? error_set_errno(err, -r, "write '%s'", path) : 0;
}

int cli_tls_read(const struct cli *cli, const char *name, struct buf *out, struct error *err)
{
    auto_free char *path = cli_tls_path(cli, name);
    int r;

    buf_init(out, FILE_MAX);
    r = fd_read_file_at(AT_FDCWD, path, out);
    return r < 0 ? error_set_errno(err, -r, "read '%s'", path) : 0;
}

static int connect_to(const char *path, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval limit = {.tv_sec = ANSWER_S};
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (!str_copy(str_of(path), address.sun_path, sizeof(address.sun_path)))
        return error_set(err, ERROR_INVALID, "the path '%s' is too long", path);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        if (errno == ENOENT || errno == ECONNREFUSED)
            return error_set(err, ERROR_NOT_FOUND,
                             "no server with --listen-tls runs with this data directory: nobody "
                             "listens at '%s'",
                             path);
        return error_set_errno(err, errno, "reach the server at '%s'", path);
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    return take_fd(&fd);
}

int cli_tls_reload(const struct cli *cli, struct buf *out, struct error *err)
{
    auto_free char *path = xasprintf("%s/run/tls.sock", cli->data_dir);
    auto_close int fd = connect_to(path, err);
    char part[1024];
    ssize_t len;

    if (fd < 0)
        return -1;
    while ((len = recv(fd, part, sizeof(part), 0)) > 0)
        (void)buf_add(out, part, (size_t)len);
    if (len < 0 || !out->len)
        return error_set(err, ERROR_UNAVAILABLE, "the server does not answer; see its log");
    if (!str_starts(buf_str(out), STR("ok")))
        return error_set(err, ERROR_INVALID, "%.*s", STR_ARG(str_trim(buf_str(out))));
    return 0;
}

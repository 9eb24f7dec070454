/* What another user can reach: asked by a child process of that user, because root may pass everywhere and mode bits
 * alone do not say it (access control lists, groups). */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/path.h"

/* In the child process. */
static bool denied(uid_t uid, const char *path, int mode, char *out, size_t size)
{
    if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
        return false;
    if (path_barred(path, out, size))
        return true;
    if (access(path, mode) == 0 || errno != EACCES)
        return false;
    (void)snprintf(out, size, "%s", path);
    return true;
}

int path_denied_to(uid_t uid, const char *path, int mode, char *out, size_t size)
{
    int fds[2], status = 0;
    ssize_t len = 0, n;
    pid_t pid;

    if (geteuid() != 0)
        return -EPERM;
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    pid = _Fork();
    if (pid == 0) {
        if (denied(uid, path, mode, out, size) && write(fds[1], out, strlen(out)) < 0)
            _exit(1);
        _exit(0);
    }
    (void)close(fds[1]);
    if (pid < 0) {
        (void)close(fds[0]);
        return -EAGAIN;
    }
    while ((n = read(fds[0], out + len, size - 1 - (size_t)len)) > 0)
        len += n;
    out[len] = '\0';
    (void)close(fds[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return -EIO;
    return len > 0;
}

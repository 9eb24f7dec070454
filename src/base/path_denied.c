/* What another user can reach: asked by a child process of that user, because root may pass everywhere and mode bits
 * alone do not say it (access control lists, groups). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/process.h"

struct question {
    const char *path;
    int mode, answer_fd;
    char *out;
    size_t size;
};

static int answer(void *arg)
{
    const struct question *of = arg;

    if (!path_barred(of->path, of->out, of->size)) {
        if (access(of->path, of->mode) == 0 || errno != EACCES)
            return 0;
        (void)snprintf(of->out, of->size, "%s", of->path);
    }
    return write(of->answer_fd, of->out, strlen(of->out)) < 0;
}

int path_denied_to(uid_t uid, const char *path, int mode, char *out, size_t size)
{
    struct question question = {path, mode, -1, out, size};
    const struct process_spec spec = {.run = answer, .arg = &question, .uid = uid};
    ssize_t len;
    pid_t pid;
    int fds[2], r;

    if (geteuid() != 0)
        return -EPERM;
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    question.answer_fd = fds[1];
    r = process_spawn(&spec, &pid);
    (void)close(fds[1]);
    len = r < 0 ? 0 : fd_read_full(fds[0], out, size - 1);
    (void)close(fds[0]);
    out[len < 0 ? 0 : len] = '\0';
    return r < 0 ? r : process_await(pid, 0) == 0 ? len > 0 : -EIO;
}

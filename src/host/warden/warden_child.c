/* A child of the root process: watched by its descriptor, which says when it ended, and ended with us. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "host/warden/warden_internal.h"

int warden_child_watch(struct warden_child *child, pid_t pid, const char *what, struct error *err)
{
    child->pid = pid;
    child->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    return child->pidfd < 0 ? error_set_errno(err, errno, "watch %s", what) : 0;
}

int warden_child_poll(const struct warden_child *child)
{
    return child->pid ? child->pidfd : -1;
}

static int reap(struct warden_child *child)
{
    int status = 0;

    (void)waitpid(child->pid, &status, 0);
    child->pid = 0;
    close_fd(&child->pidfd);
    return status;
}

int warden_child_ended(struct warden_child *child, char how[WARDEN_HOW_SIZE])
{
    int status = reap(child);

    if (WIFSIGNALED(status))
        (void)snprintf(how, WARDEN_HOW_SIZE, "signal %d", WTERMSIG(status));
    else
        (void)snprintf(how, WARDEN_HOW_SIZE, "status %d", WEXITSTATUS(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void warden_child_kill(struct warden_child *child)
{
    if (child->pid == 0)
        return;
    (void)kill(child->pid, SIGKILL);
    (void)reap(child);
}

#include "provider/process/process_envd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"

enum { FIRST_FD = 3, FDS = 3, STOP_MS = 5000 };

/* The child's ends, above the numbers they will have there. */
static int lift(int fd, struct error *err)
{
    int lifted = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FD + FDS);

    return lifted < 0 ? error_set_errno(err, errno, "descriptors for envd") : lifted;
}

static int spawn_envd(const struct process_envd_spec *spec, const char *root, const int fds[FDS],
                      pid_t *out, struct error *err)
{
    char program[PATH_MAX], home[PATH_MAX + 8];
    char listen_name[] = "--listen-fd", listen_fd[] = "3", token_name[] = "--token-fd",
         token_fd[] = "4", parent_name[] = "--parent-fd", parent_fd[] = "5";
    /* The token is the last pair, left out when there is none. */
    char *argv[] = {program,   listen_name, listen_fd, parent_name,
                    parent_fd, token_name,  token_fd,  NULL};
    char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    char *envp[] = {path, home, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int r;

    if (!spec->token.len)
        argv[5] = NULL;
    if (!str_copy(str_of(spec->program), program, sizeof(program)))
        return error_set(err, ERROR_INVALID, "envd's path is too long");
    (void)snprintf(home, sizeof(home), "HOME=%s", root);
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawnattr_init(&attributes);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    for (int i = 0; i < FDS; i++)
        if (fds[i] >= 0)
            (void)posix_spawn_file_actions_adddup2(&actions, fds[i], FIRST_FD + i);
    r = posix_spawn(out, program, &actions, &attributes, argv, envp);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)posix_spawnattr_destroy(&attributes);
    return r == 0 ? 0 : error_set_errno(err, r, "start envd '%.200s'", program);
}

int process_envd_start(const struct process_envd_spec *spec, struct process_envd *out,
                       struct error *err)
{
    auto_close int token_read = -1, token_write = -1, parent_read = -1, parent_write = -1;
    int pipes[2], fds[FDS] = {-1, -1, -1}, r = -1;
    char root[PATH_MAX];

    *out = (struct process_envd){.parent_fd = -1};
    if (mkdir(spec->root, 0700) < 0 && errno != EEXIST)
        return error_set_errno(err, errno, "make '%.200s'", spec->root);
    if (!realpath(spec->root, root))
        return error_set_errno(err, errno, "find '%.200s'", spec->root);
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return error_set_errno(err, errno, "pipe");
    parent_read = pipes[0];
    parent_write = pipes[1];
    if (spec->token.len) {
        if (pipe2(pipes, O_CLOEXEC) < 0)
            return error_set_errno(err, errno, "pipe");
        token_read = pipes[0];
        token_write = pipes[1];
        if (spec->token.len > 256 || fd_write_full(token_write, spec->token.p, spec->token.len) < 0)
            return error_set(err, ERROR_INVALID, "envd's token is too long");
        close_fd(&token_write);
    }
    if ((fds[0] = lift(spec->listen_fd, err)) >= 0 &&
        (!spec->token.len || (fds[1] = lift(token_read, err)) >= 0) &&
        (fds[2] = lift(parent_read, err)) >= 0)
        r = spawn_envd(spec, root, fds, &out->pid, err);
    for (int i = 0; i < FDS; i++)
        close_fd(&fds[i]);
    if (r == 0)
        out->parent_fd = take_fd(&parent_write);
    return r;
}

void process_envd_stop(struct process_envd *envd)
{
    int64_t end_ms = clock_mono_ms() + STOP_MS;

    if (envd->pid <= 0)
        return;
    close_fd(&envd->parent_fd);
    while (waitpid(envd->pid, NULL, WNOHANG) == 0) {
        if (clock_mono_ms() > end_ms)
            (void)kill(envd->pid, SIGKILL);
        (void)usleep(2000);
    }
    envd->pid = 0;
}

#include "base/program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"

enum { PATH_SIZE = 64, WAIT_MS = 120 * 1000 };

static bool find(const char *name, char path[PATH_SIZE])
{
    static const char *const folders[] = {"/usr/sbin", "/usr/bin", "/sbin", "/bin",
                                          "/usr/local/sbin"};

    for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
        (void)snprintf(path, PATH_SIZE, "%s/%s", folders[i], name);
        if (access(path, X_OK) == 0)
            return true;
    }
    return false;
}

static int spawn(const struct program *program, const char *path, const int fds[2], pid_t *out_pid)
{
    char *argv[PROGRAM_ARGS_MAX + 2] = {(char *)(uintptr_t)program->name};
    char *const no_environment[] = {NULL};
    posix_spawn_file_actions_t actions;
    int r = posix_spawn_file_actions_init(&actions);

    if (r != 0)
        return r;
    for (size_t i = 0; program->args[i]; i++)
        argv[i + 1] = (char *)(uintptr_t)program->args[i];
    r = posix_spawn_file_actions_adddup2(&actions, fds[0], 0);
    for (int fd = 1; r == 0 && fd <= 2; fd++)
        r = posix_spawn_file_actions_adddup2(&actions, fds[1], fd);
    if (r == 0)
        r = posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    if (r == 0)
        r = posix_spawn(out_pid, path, &actions, NULL, argv, no_environment);
    (void)posix_spawn_file_actions_destroy(&actions);
    return r;
}

static int wait_for(const struct program *program, pid_t pid, struct error *err)
{
    auto_close int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    bool late = fd >= 0 && poll(&pfd, 1, WAIT_MS) == 0;
    int status;

    if (late)
        (void)kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return error_set_errno(err, errno, "wait for '%s'", program->name);
    if (late)
        return error_set(err, ERROR_TIMEOUT, "'%s' did not end within %d s", program->name,
                         WAIT_MS / 1000);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int program_run(const struct program *program, struct buf *out, struct error *err)
{
    auto_close int input = memfd_create("input", MFD_CLOEXEC);
    auto_close int output = memfd_create("output", MFD_CLOEXEC);
    char path[PATH_SIZE], said[1024];
    ssize_t n;
    pid_t pid = -1;
    int r;

    if (!find(program->name, path))
        return error_set(err, ERROR_UNAVAILABLE, "'%s' is missing (package %s)", program->name,
                         program->package);
    if (input < 0 || output < 0)
        return error_set_errno(err, errno, "memfd_create");
    r = fd_write_full(input, program->input.p, program->input.len);
    if (r == 0)
        r = lseek(input, 0, SEEK_SET) < 0 ? -errno
                                          : -spawn(program, path, (int[]){input, output}, &pid);
    if (r < 0)
        return error_set_errno(err, -r, "start '%s'", path);
    r = wait_for(program, pid, err);
    if (lseek(output, 0, SEEK_SET) == 0)
        while ((n = fd_read_full(output, said, sizeof(said))) > 0 && buf_add(out, said, (size_t)n))
            ;
    return r;
}

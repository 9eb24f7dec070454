/* CLONE_VFORK without CLONE_VM: the parent waits until the child has executed its program or ended, and the child says what
 * failed in a page that both share. A pipe would not do: children that other threads start meanwhile hold its end, too. */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"

enum { PATH_SIZE = 64, WAIT_MS = 120 * 1000 };

/* All of them are lifted first, so that none is overwritten before its turn. */
static int place_fds(const struct process_spec *spec)
{
    int count = (int)spec->fd_count, first = spec->first_fd;

    for (int i = 0; i < count; i++)
        if (spec->fds[i] >= 0 &&
            (spec->fds[i] = fcntl(spec->fds[i], F_DUPFD_CLOEXEC, first + count)) < 0)
            return -1;
    for (int i = 0; i < count; i++)
        if (spec->fds[i] >= 0 && syscall(SYS_dup3, spec->fds[i], first + i, 0) < 0)
            return -1;
    return 0;
}

/* The signal is set after the change of user, which clears it. */
static int enter(const struct process_spec *spec, pid_t parent)
{
    int end = spec->first_fd + (int)spec->fd_count;
    uid_t uid = spec->uid;

    if ((spec->prepare && spec->prepare(spec->arg) < 0) || place_fds(spec) < 0 ||
        (spec->session && setsid() < 0) || (spec->dir && chdir(spec->dir) < 0) ||
        (spec->close_rest && syscall(SYS_close_range, end, ~0U, 0) < 0))
        return -1;
    if (uid &&
        (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, uid, uid, uid) < 0 ||
         syscall(SYS_setresuid, uid, uid, uid) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
         prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0))
        return -1;
    if (spec->end_with_parent &&
        (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent))
        return -1;
    return spec->unblock ? sigprocmask(SIG_SETMASK, &(sigset_t){0}, NULL) : 0;
}

static void execute(const struct process_spec *spec)
{
    char *const *argv = (char *const *)(uintptr_t)spec->argv;
    char *const *env = spec->env ? spec->env : environ;

    if (spec->program_fd && fcntl(spec->program_fd, F_SETFD, FD_CLOEXEC) == 0)
        (void)syscall(SYS_execveat, spec->program_fd, "", argv, env, AT_EMPTY_PATH);
    else if (!spec->program_fd)
        (void)(spec->path ? execve(spec->path, argv, env) : execvpe(argv[0], argv, env));
}

int process_spawn(const struct process_spec *spec, pid_t *out_pid)
{
    volatile int *failed =
        mmap(NULL, sizeof(*failed), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t parent = getpid(), pid;
    int r;

    if (failed == MAP_FAILED)
        return -errno;
    pid = spec->run
              ? _Fork()
              : (pid_t)syscall(SYS_clone, CLONE_VFORK | spec->namespaces | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        if (enter(spec, parent) == 0) {
            if (spec->run)
                _exit(spec->run(spec->arg));
            execute(spec);
        }
        *failed = errno;
        _exit(127);
    }
    r = pid < 0 ? -errno : -*failed;
    (void)munmap((void *)(uintptr_t)failed, sizeof(*failed));
    if (r == 0)
        *out_pid = pid;
    else if (pid > 0)
        (void)process_await(pid, 0);
    return r;
}

int process_await(pid_t pid, int timeout_ms)
{
    auto_close int fd = timeout_ms ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    int status, n = 1;

    while (fd >= 0 && (n = poll(&pfd, 1, timeout_ms)) < 0 && errno == EINTR)
        ;
    if (n == 0)
        (void)kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    if (n == 0)
        return -ETIME;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int process_run(const struct process_spec *spec, int timeout_ms)
{
    pid_t pid;
    int r = process_spawn(spec, &pid);

    return r < 0 ? r : process_await(pid, timeout_ms);
}

/* ---- programs of the host ---- */

static bool find_program(const char *name, char path[PATH_SIZE])
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

int program_run(const struct program *program, struct buf *out, struct error *err)
{
    auto_close int input = memfd_create("input", MFD_CLOEXEC);
    auto_close int output = memfd_create("output", MFD_CLOEXEC);
    const char *argv[PROGRAM_ARGS_MAX + 2] = {program->name};
    char path[PATH_SIZE], said[1024], *no_environment[] = {NULL};
    int fds[] = {input, output, output};
    const struct process_spec spec = {.argv = argv,
                                      .path = path,
                                      .fds = fds,
                                      .fd_count = 3,
                                      .close_rest = true,
                                      .env = no_environment};
    ssize_t n;
    pid_t pid = -1;
    int r;

    if (!find_program(program->name, path))
        return error_set(err, ERROR_UNAVAILABLE, "'%s' is missing (package %s)", program->name,
                         program->package);
    if (input < 0 || output < 0)
        return error_set_errno(err, errno, "memfd_create");
    memcpy(argv + 1, program->args, sizeof(program->args));
    r = fd_write_full(input, program->input.p, program->input.len);
    if (r == 0)
        r = lseek(input, 0, SEEK_SET) < 0 ? -errno : process_spawn(&spec, &pid);
    if (r < 0)
        return error_set_errno(err, -r, "start '%s'", path);
    r = process_await(pid, WAIT_MS);
    if (r == -ETIME)
        r = error_set(err, ERROR_TIMEOUT, "'%s' did not end within %d s", program->name,
                      WAIT_MS / 1000);
    else if (r < 0)
        r = error_set_errno(err, -r, "wait for '%s'", program->name);
    if (lseek(output, 0, SEEK_SET) == 0)
        while ((n = fd_read_full(output, said, sizeof(said))) > 0 && buf_add(out, said, (size_t)n))
            ;
    return r;
}

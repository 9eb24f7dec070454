/* envd outside of any sandbox, for those who want plain processes on this host. Only when the
 * operator asks for it.
 *
 * It runs as an own user (the server's uid + 1): what it is asked to run can read neither the server's
 * store nor the sandboxes' files. It has a pid namespace, not for isolation but so that the kernel
 * ends all it has started when it ends; and it ends with us, by a pipe. The socket stays ours, so that
 * callers wait while it is started again. */
#include "host/warden/warden_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"

enum { FIRST_FD = 3, FDS = 4, BACKLOG = 128 };

static int make_root(const struct warden *warden, char *out, size_t size, struct error *err)
{
    uid_t uid = warden->config->server_uid + 1;

    (void)snprintf(out, size, "%s/process", warden->config->data_dir);
    if (mkdir(out, 0700) < 0 && errno != EEXIST)
        return error_set_errno(err, errno, "make '%s'", out);
    if (chown(out, uid, uid) < 0 || chmod(out, 0700) < 0)
        return error_set_errno(err, errno, "give '%s' to uid %u", out, uid);
    return 0;
}

/* The other threads are not there, but the C library does not know: only bare system calls for what
 * it would tell them about. */
static _Noreturn void exec_envd(const struct warden *warden, const char *root, int parent_fd)
{
    char program[] = "envd", listen_name[] = "--listen-fd", listen_fd[] = "3",
         parent_name[] = "--parent-fd", parent[] = "4", oom_name[] = "--oom-fd", oom_fd[] = "6";
    char *argv[] = {program, listen_name, listen_fd, parent_name, parent, oom_name, oom_fd, NULL};
    char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    char home[WARDEN_PATH_SIZE + 16], pool[WARDEN_PATH_SIZE + 16];
    char *envp[] = {path, home, NULL};
    uid_t uid = warden->config->server_uid + 1;
    int fds[FDS] = {warden->process_fd, parent_fd, warden->boxes.envd_fd, -1};
    sigset_t none;

    (void)snprintf(home, sizeof(home), "HOME=%s", root);
    (void)snprintf(pool, sizeof(pool), "%s/pool", warden->config->data_dir);
    if (mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        _exit(126);
    /* Not its business, and a copy of the mount would keep the pool alive after us. On a btrfs there is none. */
    (void)umount2(pool, MNT_DETACH | UMOUNT_NOFOLLOW);
    fds[3] = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    for (int i = 0; i < FDS; i++)
        if ((fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, FIRST_FD + FDS)) < 0)
            _exit(126);
    for (int i = 0; i < FDS; i++)
        if (dup2(fds[i], FIRST_FD + i) < 0)
            _exit(126);
    if (chdir(root) < 0 || syscall(SYS_close_range, FIRST_FD + FDS, ~0U, 0) < 0 ||
        syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, uid, uid, uid) < 0 ||
        syscall(SYS_setresuid, uid, uid, uid) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        _exit(126);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    /* By descriptor: the program may stand where its user cannot go. */
    (void)fcntl(FIRST_FD + 2, F_SETFD, FD_CLOEXEC);
    (void)syscall(SYS_execveat, FIRST_FD + 2, "", argv, envp, AT_EMPTY_PATH);
    _exit(127);
}

int warden_process_start(struct warden *warden, struct error *err)
{
    char root[WARDEN_PATH_SIZE];
    auto_close int parent_read = -1, parent_write = -1;
    int pipes[2];
    pid_t pid;

    if (make_root(warden, root, sizeof(root), err) < 0 ||
        (warden->process_fd < 0 &&
         warden_listen_at(warden, WARDEN_PROCESS_SOCKET, warden->config->server_uid, BACKLOG,
                          &warden->process_fd, err) < 0))
        return -1;
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return error_set_errno(err, errno, "pipe");
    parent_read = pipes[0];
    parent_write = pipes[1];
    pid = (pid_t)syscall(SYS_clone, CLONE_NEWPID | CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        exec_envd(warden, root, parent_read);
    if (warden_child_watch(&warden->process, pid, "envd for processes", err) < 0)
        return -1;
    warden->process_parent_fd = take_fd(&parent_write);
    log_info("warden", "processes outside of sandboxes are served, as uid %u in '%s'",
             warden->config->server_uid + 1, root);
    return 0;
}

void warden_process_ended(struct warden *warden)
{
    char how[WARDEN_HOW_SIZE];

    (void)warden_child_ended(&warden->process, how);
    close_fd(&warden->process_parent_fd);
    log_error("warden", "envd for processes ended (%s)", how);
}

void warden_process_stop(struct warden *warden)
{
    warden_child_kill(&warden->process);
    close_fd(&warden->process_parent_fd);
    warden_unlisten_at(warden, WARDEN_PROCESS_SOCKET, &warden->process_fd);
}

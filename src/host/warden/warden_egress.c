/* The egress process (egress/process/egress.h): its sockets are made here, for each start anew, and nobody else has them: when it dies the
 * kernel refuses whoever comes and whoever waited, at once. It runs as an own user (the server's uid + 2), in the gateway's network
 * namespace.
 *
 * Its socket for the server is a path of the file system: only the server may connect. That one outlives it. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "egress/process/egress.h"
#include "host/warden/warden_internal.h"

enum { FDS = EGRESS_FD_END - EGRESS_FIRST_FD, DESCRIPTORS = 1 << 20, BACKLOG = 8 };

static int make_sockets(struct warden *warden, struct network_egress *out, struct error *err)
{
    *out = NETWORK_EGRESS_NONE;
    if (warden->egress_fd < 0 &&
        warden_listen_at(warden, WARDEN_EGRESS_SOCKET, warden->config->server_uid, BACKLOG,
                         &warden->egress_fd, err) < 0)
        return -1;
    return network_egress_listen(warden->boxes.network, out, err);
}

/* As many as it may have: each connection takes six. */
static void raise_descriptors(void)
{
    struct rlimit limit = {DESCRIPTORS, DESCRIPTORS};

    if (setrlimit(RLIMIT_NOFILE, &limit) == 0 || getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* The other threads are not there, but the C library does not know: only bare system calls for what
 * it would tell them about. */
static _Noreturn void exec_egress(const struct warden *warden, const struct network_egress *egress,
                                  pid_t parent)
{
    char mark[] = EGRESS_ENV "=1", *envp[] = {mark, NULL};
    uid_t uid = warden->config->server_uid + 2;
    int fds[FDS] = {egress->tcp_fd, egress->dns_fd, egress->dns_tcp_fd, warden->egress_fd,
                    egress->log_fd};
    sigset_t none;

    for (int i = 0; i < FDS; i++)
        if ((fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, EGRESS_FD_END)) < 0)
            _exit(126);
    if (setns(network_gateway_fd(warden->boxes.network), CLONE_NEWNET) < 0)
        _exit(126);
    for (int i = 0; i < FDS; i++)
        if (dup2(fds[i], EGRESS_FIRST_FD + i) < 0)
            _exit(126);
    raise_descriptors();
    if (chdir("/") < 0 || syscall(SYS_close_range, EGRESS_FD_END, ~0U, 0) < 0 ||
        syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, uid, uid, uid) < 0 ||
        syscall(SYS_setresuid, uid, uid, uid) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 ||
        getppid() != parent)
        _exit(126);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)execve("/proc/self/exe", warden->config->egress_argv, envp);
    _exit(127);
}

int warden_egress_start(struct warden *warden, struct error *err)
{
    struct network_egress egress;
    pid_t parent = getpid(), pid;

    if (make_sockets(warden, &egress, err) < 0)
        return -1;
    pid = fork();
    if (pid == 0)
        exec_egress(warden, &egress, parent);
    network_egress_close(&egress);
    return warden_child_watch(&warden->egress, pid, "the egress process", err);
}

void warden_egress_ended(struct warden *warden)
{
    char how[WARDEN_HOW_SIZE];

    (void)warden_child_ended(&warden->egress, how);
    log_error("warden",
              "the egress process ended (%s); until it runs again sandboxes with names in "
              "their policies reach nothing",
              how);
}

void warden_egress_stop(struct warden *warden)
{
    warden_child_kill(&warden->egress);
    warden_unlisten_at(warden, WARDEN_EGRESS_SOCKET, &warden->egress_fd);
}

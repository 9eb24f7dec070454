/* The egress process (egress/process/egress.h): its sockets are made here, for each start anew, and nobody else has them: when it dies the
 * kernel refuses whoever comes and whoever waited, at once. It runs as an own user (the server's uid + 2), in the gateway's network
 * namespace.
 *
 * Its socket for the server is a path of the file system: only the server may connect. That one outlives it. */
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/process.h"
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

/* In the child: the gateway's network, and as many descriptors as it may have, since each connection takes six. */
static int prepare_egress(void *arg)
{
    struct rlimit limit = {DESCRIPTORS, DESCRIPTORS};

    if (setns(*(int *)arg, CLONE_NEWNET) < 0)
        return -1;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0 || getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 0;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    return 0;
}

int warden_egress_start(struct warden *warden, struct error *err)
{
    char mark[] = EGRESS_ENV "=1", *envp[] = {mark, NULL};
    int gateway_fd = network_gateway_fd(warden->boxes.network), r;
    struct network_egress egress;
    pid_t pid;

    if (make_sockets(warden, &egress, err) < 0)
        return -1;
    r = process_spawn(
        &(struct process_spec){.argv = (const char *const *)(uintptr_t)warden->config->egress_argv,
                               .path = "/proc/self/exe",
                               .prepare = prepare_egress,
                               .arg = &gateway_fd,
                               .fds = (int[FDS]){egress.tcp_fd, egress.dns_fd, egress.dns_tcp_fd,
                                                 warden->egress_fd, egress.log_fd},
                               .fd_count = FDS,
                               .first_fd = EGRESS_FIRST_FD,
                               .dir = "/",
                               .close_rest = true,
                               .uid = warden->config->server_uid + 2,
                               .end_with_parent = true,
                               .unblock = true,
                               .env = envp},
        &pid);
    network_egress_close(&egress);
    if (r < 0)
        return error_set_errno(err, -r, "start the egress process");
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

/* Ending a box, and the other operations on one that runs. */
#include "warden/box.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "disk/disk.h"
#include "network/network.h"

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

enum { KILL_TIMEOUT_MS = 10000 };

static int end_processes(struct boxes *all, struct box *box, struct error *err)
{
    struct pollfd poll_fd = {.fd = box->pidfd, .events = POLLIN};
    siginfo_t ignored;
    int r;

    if (box_cgroup_kill(all->cgroups, box->id, err) < 0)
        return -1;
    if (box->pidfd < 0)
        return 0;
    (void)epoll_ctl(all->exit_epoll_fd, EPOLL_CTL_DEL, box->pidfd, NULL);
    /* The first process is the last to go: when it has ended, the pid namespace is empty. */
    do
        r = poll(&poll_fd, 1, KILL_TIMEOUT_MS);
    while (r < 0 && errno == EINTR);
    if (r == 0)
        return error_set(err, ERROR_TIMEOUT, "its processes did not end in %d s",
                         KILL_TIMEOUT_MS / 1000);
    if (box->child)
        (void)waitid(P_PIDFD, (id_t)box->pidfd, &ignored, WEXITED);
    box->child = false;
    box->pid = 0;
    close_fd(&box->pidfd);
    return 0;
}

static int remove_cgroup(struct boxes *all, struct box *box, struct error *err)
{
    return box_cgroup_remove(all->cgroups, box->id, err);
}

static int remove_network(struct boxes *all, struct box *box, struct error *err)
{
    close_fd(&box->netns_fd);
    return box->slot ? network_release(all->network, box->slot, err) : 0;
}

static int remove_disk(struct boxes *all, struct box *box, struct error *err)
{
    return disk_box_delete(all->disk, box->id, err);
}

/* Last: as long as the record is there, a restarted warden knows that something may be left. */
static int remove_files(struct boxes *all, struct box *box, struct error *err)
{
    static const char *const kinds[] = {"sock", "new", "box"};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        char name[ID_SIZE + 8];

        (void)snprintf(name, sizeof(name), "%s.%s", box->id, kinds[i]);
        if (unlinkat(all->run_fd, name, 0) < 0 && errno != ENOENT)
            return error_set_errno(err, errno, "remove '%s'", name);
    }
    return 0;
}

struct step {
    const char *name;
    int (*run)(struct boxes *all, struct box *box, struct error *err);
};

static const struct step steps[] = {
    {"processes", end_processes},
    {"cgroup removal", remove_cgroup},
    {"network release", remove_network},
    {"disk removal", remove_disk},
    {"files", remove_files},
};

static void set_dead(struct boxes *all, struct box *box)
{
    (void)pthread_mutex_lock(&all->lock);
    box->state = BOX_DEAD;
    (void)pthread_mutex_unlock(&all->lock);
}

int box_teardown(struct boxes *all, struct box *box, struct error *err)
{
    const size_t count = sizeof(steps) / sizeof(*steps);
    bool failed = false;

    for (size_t i = 0; i < count; i++) {
        struct error step_err;

        /* The record must outlast every other trace. */
        if (failed && i == count - 1)
            break;
        if (box_fault(steps[i].name, &step_err) == 0 && steps[i].run(all, box, &step_err) == 0)
            continue;
        log_warn("warden", "box=%s removal: %s: %s", box->id, steps[i].name, step_err.message);
        if (!failed)
            *err = step_err;
        failed = true;
        /* Nothing else can go while processes live. */
        if (i == 0)
            break;
    }
    if (failed) {
        set_dead(all, box);
        return error_prefix(err, "remove box '%s'", box->id);
    }
    boxes_remove(all, box);
    return 0;
}

int box_kill(struct boxes *all, const char *id, struct error *err)
{
    struct box *box;

    if (boxes_take(all, id, &box, err) < 0)
        return -1;
    return box ? box_teardown(all, box, err) : 0;
}

static int find_running(struct boxes *all, const char *id, uint32_t *out_slot, struct error *err)
{
    struct box *box;
    bool running;

    (void)pthread_mutex_lock(&all->lock);
    box = map_get(&all->table, str_of(id));
    running = box && box->state == BOX_RUNNING;
    if (running)
        *out_slot = box->slot;
    (void)pthread_mutex_unlock(&all->lock);
    return running ? 0 : error_set(err, ERROR_NOT_FOUND, "no running box '%s'", id);
}

int box_limit(struct boxes *all, const char *id, const struct box_limits *limits, bool internet,
              struct error *err)
{
    uint32_t slot = 0;

    if (find_running(all, id, &slot, err) < 0 ||
        box_cgroup_limit(all->cgroups, id, limits, err) < 0 ||
        disk_box_limit(all->disk, id, limits->disk_bytes, err) < 0)
        return -1;
    return network_set_online(all->network, slot, internet, err);
}

int box_freeze(struct boxes *all, const char *id, bool frozen, struct error *err)
{
    uint32_t slot = 0;

    if (find_running(all, id, &slot, err) < 0)
        return -1;
    return box_cgroup_freeze(all->cgroups, id, frozen, err);
}

/* setns, socket, setns back: a few microseconds, none of which can block, so the lock that keeps
 * the box from going away is held throughout. */
static int socket_inside(struct boxes *all, const char *id, int home_fd, bool v6)
{
    struct box *box;
    int fd = -ENOENT;

    (void)pthread_mutex_lock(&all->lock);
    box = map_get(&all->table, str_of(id));
    if (box && box->state == BOX_RUNNING && box->netns_fd >= 0) {
        if (setns(box->netns_fd, CLONE_NEWNET) < 0) {
            fd = -errno;
        } else {
            fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
            if (fd < 0)
                fd = -errno;
            /* A thread lost in a sandbox's network must not serve anybody else. */
            if (setns(home_fd, CLONE_NEWNET) < 0)
                abort();
        }
    }
    (void)pthread_mutex_unlock(&all->lock);
    return fd;
}

static _Thread_local int home_netns = -1;

int box_dial(struct boxes *all, const char *id, uint16_t port, bool v6, int *out_fd,
             struct error *err)
{
    struct sockaddr_in v4_address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 v6_address = {
        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    auto_close int fd = -1;
    int on = 1, r;

    if (home_netns < 0)
        home_netns = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home_netns < 0)
        return error_set_errno(err, errno, "open our own network namespace");
    r = socket_inside(all, id, home_netns, v6);
    if (r < 0)
        return error_set_errno(err, -r, "socket in '%s'", id);
    fd = r;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    r = v6 ? connect(fd, (struct sockaddr *)&v6_address, sizeof(v6_address))
           : connect(fd, (struct sockaddr *)&v4_address, sizeof(v4_address));
    if (r < 0 && errno != EINPROGRESS)
        return error_set_errno(err, errno, "connect to port %u of '%s'", port, id);
    *out_fd = take_fd(&fd);
    return 0;
}

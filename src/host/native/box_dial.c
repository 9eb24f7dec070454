/* Sockets inside a box, for connections from outside. */
#include "host/native/box.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"

/* setns, socket, setns back: a few microseconds, none of which can block, so the lock that keeps
 * the box from going away is held throughout. */
static int socket_inside(struct boxes *all, const char *id, int home_fd, enum engine_dial_kind kind)
{
    struct box *box;
    int fd = -ENOENT;

    (void)pthread_mutex_lock(&all->lock);
    box = map_get(&all->table, str_of(id));
    if (box && box->state == BOX_RUNNING && box->netns_fd >= 0) {
        if (setns(box->netns_fd, CLONE_NEWNET) < 0) {
            fd = -errno;
        } else {
            fd = socket(kind == ENGINE_DIAL_TCP6 ? AF_INET6 : AF_INET,
                        (kind == ENGINE_DIAL_UDP ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC |
                            SOCK_NONBLOCK,
                        0);
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

int box_dial(struct boxes *all, const char *id, uint16_t port, enum engine_dial_kind kind,
             int *out_fd, struct error *err)
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
    r = socket_inside(all, id, home_netns, kind);
    if (r < 0)
        return error_set_errno(err, -r, "socket in '%s'", id);
    fd = r;
    if (kind != ENGINE_DIAL_UDP)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    r = kind == ENGINE_DIAL_TCP6 ? connect(fd, (struct sockaddr *)&v6_address, sizeof(v6_address))
                                 : connect(fd, (struct sockaddr *)&v4_address, sizeof(v4_address));
    if (r < 0 && errno != EINPROGRESS)
        return error_set_errno(err, errno, "connect to port %u of '%s'", port, id);
    *out_fd = take_fd(&fd);
    return 0;
}

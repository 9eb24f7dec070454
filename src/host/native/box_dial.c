/* Sockets inside a box, for connections from outside. */
#include "host/native/box.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"

struct inside {
    enum engine_dial_kind kind;
    const char *file;
};

static int make_socket(const struct inside *what)
{
    return socket(what->kind == ENGINE_DIAL_TCP6 ? AF_INET6 : AF_INET,
                  (what->kind == ENGINE_DIAL_UDP ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC |
                      SOCK_NONBLOCK,
                  0);
}

/* On a host without IPv6 there is no tcp6: it reads as empty. */
static int open_file(const struct inside *what)
{
    int fd = open(what->file, O_RDONLY | O_CLOEXEC);

    return fd < 0 && errno == ENOENT ? open("/dev/null", O_RDONLY | O_CLOEXEC) : fd;
}

static _Thread_local int home_netns = -1;

/* setns, one call that returns a descriptor, setns back: a few microseconds, none of which can block, so the lock that
 * keeps the box from going away is held throughout. Returns the descriptor or -errno. */
static int open_inside(struct boxes *all, const char *id, int (*call)(const struct inside *what),
                       const struct inside *what)
{
    struct box *box;
    int fd = -ENOENT;

    if (home_netns < 0)
        home_netns = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home_netns < 0)
        return -errno;
    (void)pthread_mutex_lock(&all->lock);
    box = map_get(&all->table, str_of(id));
    if (box && box->state == BOX_RUNNING && box->netns_fd >= 0) {
        if (setns(box->netns_fd, CLONE_NEWNET) < 0) {
            fd = -errno;
        } else {
            fd = call(what);
            if (fd < 0)
                fd = -errno;
            /* A thread lost in a sandbox's network must not serve anybody else. */
            if (setns(home_netns, CLONE_NEWNET) < 0)
                abort();
        }
    }
    (void)pthread_mutex_unlock(&all->lock);
    return fd;
}

int box_open_net(struct boxes *all, const char *id, const char *name, int *out_fd,
                 struct error *err)
{
    char path[64];
    struct inside what = {.file = path};
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/thread-self/net/%s", name);
    fd = open_inside(all, id, open_file, &what);
    if (fd == -ENOENT)
        return error_set(err, ERROR_NOT_FOUND, "no running box '%s'", id);
    if (fd < 0)
        return error_set_errno(err, -fd, "open %s of '%s'", path, id);
    *out_fd = fd;
    return 0;
}

int box_dial(struct boxes *all, const char *id, uint16_t port, enum engine_dial_kind kind,
             int *out_fd, struct error *err)
{
    struct sockaddr_in v4_address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 v6_address = {
        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    auto_close int fd = -1;
    int on = 1, r;

    r = open_inside(all, id, make_socket, &(struct inside){.kind = kind});
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

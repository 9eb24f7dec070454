#include "protocol/http/http_dial.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "protocol/http/http_address.h"

enum { RETRY_MS = 5 };

void http_dial_unpaced(int fd)
{
    static const char plain[] = "reno"; /* every kernel has it and lets everybody use it */

    (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, plain, sizeof(plain) - 1);
}

int http_dial_wait(int fd, short events, int64_t deadline_ms, struct error *err)
{
    struct pollfd pfd = {.fd = fd, .events = events};

    for (;;) {
        int64_t left = deadline_ms ? deadline_ms - clock_mono_ms() : -1;
        int ready;

        if (deadline_ms && left <= 0)
            return error_set(err, ERROR_TIMEOUT, "no answer in time");
        ready = poll(&pfd, 1, left > INT32_MAX ? INT32_MAX : (int)left);
        if (ready > 0)
            return 0;
        if (ready < 0 && errno != EINTR)
            return error_set_errno(err, errno, "poll");
    }
}

static int unavailable(struct error *err, int errnum)
{
    (void)error_set_errno(err, errnum, "connect");
    err->code = ERROR_UNAVAILABLE;
    return -1;
}

int http_dial_unix(const char *path, int64_t deadline_ms, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    auto_close int fd = -1;

    if (!str_copy(str_of(path), address.sun_path, sizeof(address.sun_path)))
        return error_set(err, ERROR_INVALID, "socket path '%s' is too long", path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set_errno(err, errno, "socket");
    while (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        if (errno != EAGAIN && errno != EINTR)
            return unavailable(err, errno);
        /* The listener's queue is full; there is nothing to poll for. */
        if (deadline_ms && clock_mono_ms() + RETRY_MS >= deadline_ms)
            return error_set(err, ERROR_TIMEOUT, "connect: no answer in time");
        (void)poll(NULL, 0, RETRY_MS);
    }
    return take_fd(&fd);
}

static int connect_address(const struct addrinfo *address, int64_t deadline_ms, struct error *err)
{
    auto_close int fd = -1;
    socklen_t size = sizeof(int);
    int one = 1, errnum = 0;

    fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set_errno(err, errno, "socket");
    if (connect(fd, address->ai_addr, address->ai_addrlen) < 0) {
        if (errno != EINPROGRESS)
            return unavailable(err, errno);
        if (http_dial_wait(fd, POLLOUT, deadline_ms, err) < 0)
            return error_prefix(err, "connect");
        (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &errnum, &size);
        if (errnum)
            return unavailable(err, errnum);
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (http_address_loopback(address->ai_addr))
        http_dial_unpaced(fd);
    return take_fd(&fd);
}

int http_dial_host(const char *host, const char *port, int64_t deadline_ms, struct error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int result = getaddrinfo(host, port, &hints, &list), fd = -1;

    if (result != 0)
        return error_set(err, ERROR_UNAVAILABLE, "cannot find '%s': %s", host,
                         gai_strerror(result));
    for (struct addrinfo *at = list; at && fd < 0; at = at->ai_next)
        fd = connect_address(at, deadline_ms, err);
    freeaddrinfo(list);
    return fd;
}

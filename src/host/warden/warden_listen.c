/* The sockets of the server: bound before anything else is done, so that a wrong or taken address is
 * told at once, and listening once there is somebody to serve them. */
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "host/warden/warden_internal.h"

enum { PORT_WAIT_MS = 1000, BACKLOG = 1024 };

static int bind_one(const union address *address, bool shared, int *out_fd, struct error *err)
{
    auto_close int fd =
        socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1, off = 0;

    if (fd < 0)
        return error_set_errno(err, errno, "socket");
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (shared)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
    /* [::] takes IPv4 too, whatever the host's default is. */
    if (address->any.sa_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, &address->any, address_size(address)) < 0)
        return error_set_errno(err, errno, "listen on port %u", address_port(address));
    *out_fd = take_fd(&fd);
    return 0;
}

/* Whether somebody else listens there already: only a socket without SO_REUSEPORT finds out. Gives
 * the port that was chosen for port 0. */
static int try_one(union address *address, struct error *err)
{
    auto_close int fd = -1;
    socklen_t len = sizeof(*address);

    if (bind_one(address, false, &fd, err) < 0)
        return -1;
    if (listen(fd, 1) < 0 || getsockname(fd, &address->any, &len) < 0)
        return error_set_errno(err, errno, "listen on port %u", address_port(address));
    return 0;
}

/* The server of a warden that was just killed may take a moment to go. */
static int wait_until_free(union address *address, struct error *err)
{
    int64_t deadline = clock_mono_ms() + PORT_WAIT_MS;

    while (try_one(address, err) < 0) {
        if (err->errnum != EADDRINUSE || clock_mono_ms() > deadline)
            return -1;
        (void)usleep(20000);
    }
    return 0;
}

static bool host_has_ipv6(void)
{
    auto_close int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

    return fd >= 0;
}

int warden_bind(const char *flag, const char *text, size_t loops, struct warden_sockets *out,
                struct error *err)
{
    union address *address = &out->address;

    *out = (struct warden_sockets){.count = 0};
    if (!address_parse(text, address))
        return error_set(err, ERROR_INVALID,
                         "--%s '%s' is not ADDRESS:PORT: an IPv4 address, an IPv6 address in "
                         "brackets, localhost, or nothing for all addresses",
                         flag, text);
    /* All addresses of a host that has no IPv6 are those of IPv4. */
    if (text[0] == ':' && !host_has_ipv6()) {
        uint16_t port = address_port(address);

        *address = (union address){.v4 = {.sin_family = AF_INET, .sin_port = htons(port)}};
    }
    if (wait_until_free(address, err) < 0)
        return error_prefix(err, "--%s '%s'", flag, text);
    for (; out->count < loops; out->count++)
        if (bind_one(address, true, &out->fds[out->count], err) < 0)
            return error_prefix(err, "--%s '%s'", flag, text);
    address_url(address, out->url);
    return 0;
}

/* One socket per loop on the same port: the kernel spreads connections over them. */
int warden_listen(const struct warden_sockets *sockets, struct error *err)
{
    union address address = sockets->address;

    if (wait_until_free(&address, err) < 0)
        return -1;
    for (size_t i = 0; i < sockets->count; i++)
        if (listen(sockets->fds[i], BACKLOG) < 0)
            return error_set_errno(err, errno, "listen on port %u", address_port(&address));
    return 0;
}

int warden_listen_at(const struct warden *warden, const char *name, uid_t uid, int backlog,
                     int *out_fd, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int len = snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s",
                       warden->config->data_dir, name);

    if (len < 0 || (size_t)len >= sizeof(address.sun_path))
        return error_set(err, ERROR_INVALID, "the data directory's path is too long");
    (void)unlink(address.sun_path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        chmod(address.sun_path, 0600) < 0 || chown(address.sun_path, uid, uid) < 0 ||
        listen(fd, backlog) < 0)
        return error_set_errno(err, errno, "listen on '%s'", address.sun_path);
    *out_fd = take_fd(&fd);
    return 0;
}

void warden_unlisten_at(const struct warden *warden, const char *name, int *fd)
{
    char path[WARDEN_PATH_SIZE];

    if (*fd < 0)
        return;
    (void)snprintf(path, sizeof(path), "%s/%s", warden->config->data_dir, name);
    (void)unlink(path);
    close_fd(fd);
}

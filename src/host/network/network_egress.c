/* The sockets of the egress process, made in the gateway: what filtered boxes send is redirected to them. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "host/network/network_internal.h"
#include "protocol/netlink/netns.h"

enum { QUEUE = 4096, DATAGRAM_BYTES = 4 * 1024 * 1024 };

static int bind_socket(int type, uint16_t port, int *out, struct error *err)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(NETWORK_ROUTER)};
    auto_close int fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int one = 1, size = DATAGRAM_BYTES;

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        (type == SOCK_STREAM && listen(fd, QUEUE) < 0))
        return error_set_errno(err, errno, "listen on port %u of the gateway", port);
    if (type == SOCK_DGRAM)
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
    *out = take_fd(&fd);
    return 0;
}

/* A kernel that cannot tell was told of when the rules were loaded (network_rules.c). */
static int open_log(const struct network *network, int *out, struct error *err)
{
    int r = network_log_open(network, out);

    if (r == -EBUSY)
        return error_set_errno(err, -r, "listen to what the gateway refuses");
    if (r < 0)
        *out = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return *out < 0 ? error_set_errno(err, errno, "open /dev/null") : 0;
}

int network_egress_listen(const struct network *network, struct network_egress *out,
                          struct error *err)
{
    auto_netns struct netns_visit visit = NETNS_HOME;
    int r;

    *out = NETWORK_EGRESS_NONE;
    r = netns_enter(network->gateway_fd, &visit);
    if (r < 0)
        return error_set_errno(err, -r, "enter the gateway");
    if (bind_socket(SOCK_STREAM, NETWORK_EGRESS_TCP_PORT, &out->tcp_fd, err) < 0 ||
        bind_socket(SOCK_DGRAM, NETWORK_EGRESS_DNS_PORT, &out->dns_fd, err) < 0 ||
        bind_socket(SOCK_STREAM, NETWORK_EGRESS_DNS_PORT, &out->dns_tcp_fd, err) < 0 ||
        open_log(network, &out->log_fd, err) < 0) {
        network_egress_close(out);
        return error_prefix(err, "network");
    }
    return 0;
}

void network_egress_close(struct network_egress *egress)
{
    close_fd(&egress->tcp_fd);
    close_fd(&egress->dns_fd);
    close_fd(&egress->dns_tcp_fd);
    close_fd(&egress->log_fd);
}

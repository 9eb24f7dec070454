/* The socket on which the kernel tells what the gateway's rules refused (netlink group NETWORK_LOG_GROUP): made here, with the right
 * to, and read by whoever it is handed to, without. A message holds the head of a packet that a guest made: root reads none. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "host/network/network_internal.h"
#include "protocol/netlink/netlink.h"

enum { MESSAGE_BYTES = 1024, ROOM_BYTES = 1 << 20 };

static struct nlmsghdr *put_setting(struct netlink_batch *batch)
{
    struct nlmsghdr *message;
    struct nfgenmsg *head;
    void *header;

    message = netlink_batch_add(batch, NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_CONFIG, NLM_F_ACK,
                                sizeof(*head), &header);
    head = header;
    head->nfgen_family = AF_UNSPEC;
    head->version = NFNETLINK_V0;
    head->res_id = htons(NETWORK_LOG_GROUP);
    return message;
}

int network_log_open(const struct network *network, int *out_fd)
{
    const struct nfulnl_msg_config_cmd bind = {.command = NFULNL_CFG_CMD_BIND};
    const struct nfulnl_msg_config_mode mode = {.copy_range = htonl(NETWORK_LOG_BYTES),
                                                .copy_mode = NFULNL_COPY_PACKET};
    auto_netlink struct netlink netlink = NETLINK_CLOSED;
    struct netlink_batch batch;
    struct nlmsghdr *message;
    int on = 1, room = ROOM_BYTES,
        r = netlink_open_in(&netlink, NETLINK_NETFILTER, network->gateway_fd);

    netlink_batch_init(&batch);
    mnl_attr_put(put_setting(&batch), NFULA_CFG_CMD, sizeof(bind), &bind);
    message = put_setting(&batch);
    mnl_attr_put(message, NFULA_CFG_MODE, sizeof(mode), &mode);
    mnl_attr_put_u32(message, NFULA_CFG_QTHRESH, htonl(1)); /* each at once, not a hundred later */
    mnl_attr_put_u32(message, NFULA_CFG_NLBUFSIZ, htonl(MESSAGE_BYTES));
    if (r == 0)
        r = netlink_send(&netlink, &batch);
    if (r < 0)
        return r;
    /* Whoever reads too slowly misses some, and is not told so by an error. */
    if (setsockopt(netlink.fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)) < 0 ||
        setsockopt(netlink.fd, SOL_NETLINK, NETLINK_NO_ENOBUFS, &on, sizeof(on)) < 0 ||
        fcntl(netlink.fd, F_SETFL, O_NONBLOCK) < 0)
        return -errno;
    *out_fd = take_fd(&netlink.fd);
    return 0;
}

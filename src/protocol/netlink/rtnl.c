#include "protocol/netlink/rtnl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/if.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <stddef.h>
#include <string.h>

enum {
    CREATE = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL,
    REPLACE = NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE
};

/* One queue each: the default is one per possible CPU of the host, on both ends. */
static void put_end(struct nlmsghdr *message, const struct rtnl_end *end, uint32_t mtu)
{
    mnl_attr_put_strz(message, IFLA_IFNAME, end->name);
    mnl_attr_put_u32(message, IFLA_MTU, mtu);
    mnl_attr_put_u32(message, IFLA_NUM_TX_QUEUES, 1);
    mnl_attr_put_u32(message, IFLA_NUM_RX_QUEUES, 1);
    if (end->mac)
        mnl_attr_put(message, IFLA_ADDRESS, RTNL_MAC_SIZE, end->mac);
}

void rtnl_put_veth(struct netlink_batch *batch, const struct rtnl_veth *veth)
{
    struct nlattr *info, *data, *peer;
    struct ifinfomsg *link, *peer_link;
    struct nlmsghdr *message;
    void *header;

    message = netlink_batch_add(batch, RTM_NEWLINK, CREATE, sizeof(*link), &header);
    link = header;
    link->ifi_index = (int)veth->near.index;
    if (veth->up)
        link->ifi_flags = link->ifi_change = IFF_UP;
    put_end(message, &veth->near, veth->mtu);
    info = mnl_attr_nest_start(message, IFLA_LINKINFO);
    mnl_attr_put_str(message, IFLA_INFO_KIND, "veth");
    data = mnl_attr_nest_start(message, IFLA_INFO_DATA);
    peer = mnl_attr_nest_start(message, VETH_INFO_PEER);
    peer_link = mnl_nlmsg_put_extra_header(message, sizeof(*peer_link));
    peer_link->ifi_index = (int)veth->peer.index;
    put_end(message, &veth->peer, veth->mtu);
    mnl_attr_put_u32(message, IFLA_NET_NS_FD, (uint32_t)veth->peer_netns_fd);
    mnl_attr_nest_end(message, peer);
    mnl_attr_nest_end(message, data);
    mnl_attr_nest_end(message, info);
}

static void put_flags(struct netlink_batch *batch, uint32_t index, unsigned flags)
{
    struct ifinfomsg *link;
    void *header;

    (void)netlink_batch_add(batch, RTM_NEWLINK, NLM_F_ACK, sizeof(*link), &header);
    link = header;
    link->ifi_index = (int)index;
    link->ifi_flags = link->ifi_change = flags;
}

void rtnl_put_up(struct netlink_batch *batch, uint32_t index)
{
    put_flags(batch, index, IFF_UP);
}

void rtnl_put_up_without_arp(struct netlink_batch *batch, uint32_t index)
{
    put_flags(batch, index, IFF_UP | IFF_NOARP);
}

void rtnl_put_delete(struct netlink_batch *batch, const char *name)
{
    struct nlmsghdr *message;
    void *header;

    message = netlink_batch_add(batch, RTM_DELLINK, NLM_F_ACK, sizeof(struct ifinfomsg), &header);
    mnl_attr_put_strz(message, IFLA_IFNAME, name);
}

void rtnl_put_address(struct netlink_batch *batch, uint32_t index, uint32_t address, uint8_t prefix)
{
    struct ifaddrmsg *head;
    struct nlmsghdr *message;
    void *header;

    message = netlink_batch_add(batch, RTM_NEWADDR, REPLACE, sizeof(*head), &header);
    head = header;
    head->ifa_family = AF_INET;
    head->ifa_prefixlen = prefix;
    head->ifa_index = index;
    mnl_attr_put_u32(message, IFA_LOCAL, htonl(address));
    mnl_attr_put_u32(message, IFA_ADDRESS, htonl(address));
}

void rtnl_put_route(struct netlink_batch *batch, const struct rtnl_route *route)
{
    struct nlmsghdr *message;
    struct rtmsg *head;
    void *header;

    message = netlink_batch_add(batch, RTM_NEWROUTE, REPLACE, sizeof(*head), &header);
    head = header;
    head->rtm_family = AF_INET;
    head->rtm_dst_len = route->prefix;
    head->rtm_table = RT_TABLE_MAIN;
    head->rtm_protocol = RTPROT_STATIC;
    head->rtm_type = RTN_UNICAST;
    head->rtm_scope = route->via ? RT_SCOPE_UNIVERSE : RT_SCOPE_LINK;
    head->rtm_flags = route->onlink ? RTNH_F_ONLINK : 0;
    if (route->prefix)
        mnl_attr_put_u32(message, RTA_DST, htonl(route->to));
    if (route->via)
        mnl_attr_put_u32(message, RTA_GATEWAY, htonl(route->via));
    mnl_attr_put_u32(message, RTA_OIF, route->index);
}

void rtnl_put_neighbour(struct netlink_batch *batch, uint32_t index, uint32_t address,
                        const uint8_t *mac)
{
    struct nlmsghdr *message;
    struct ndmsg *head;
    void *header;

    message = netlink_batch_add(batch, RTM_NEWNEIGH, REPLACE, sizeof(*head), &header);
    head = header;
    head->ndm_family = AF_INET;
    head->ndm_state = NUD_PERMANENT;
    head->ndm_ifindex = (int)index;
    mnl_attr_put_u32(message, NDA_DST, htonl(address));
    mnl_attr_put(message, NDA_LLADDR, RTNL_MAC_SIZE, mac);
}

/* An attribute of four bytes, or `absent`. */
static uint32_t attr_u32(const struct nlmsghdr *message, size_t header_size, int type,
                         uint32_t absent)
{
    const struct nlattr *attr = netlink_attr(message, header_size, type);

    return attr && mnl_attr_get_payload_len(attr) == sizeof(uint32_t) ? mnl_attr_get_u32(attr)
                                                                      : absent;
}

static void read_link(const struct nlmsghdr *message, void *arg)
{
    const struct ifinfomsg *head = mnl_nlmsg_get_payload(message);
    struct rtnl_link *link = arg;
    const struct nlattr *state;

    if (message->nlmsg_type != RTM_NEWLINK)
        return;
    link->index = (uint32_t)head->ifi_index;
    link->mtu = attr_u32(message, sizeof(*head), IFLA_MTU, 0);
    state = netlink_attr(message, sizeof(*head), IFLA_OPERSTATE);
    link->running =
        state && mnl_attr_get_payload_len(state) == 1 && mnl_attr_get_u8(state) == IF_OPER_UP;
}

int rtnl_link_find(struct netlink *netlink, const char *name, uint32_t index, struct rtnl_link *out)
{
    struct netlink_batch batch;
    struct rtnl_link link = {0};
    struct nlmsghdr *message;
    void *header;
    int r;

    netlink_batch_init(&batch);
    message = netlink_batch_add(&batch, RTM_GETLINK, 0, sizeof(struct ifinfomsg), &header);
    mnl_attr_put_u32(message, IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    if (name)
        mnl_attr_put_strz(message, IFLA_IFNAME, name);
    else
        ((struct ifinfomsg *)header)->ifi_index = (int)index;
    r = netlink_dump(netlink, &batch, read_link, &link);
    if (r < 0)
        return r;
    if (link.index == 0)
        return -ENODEV;
    *out = link;
    return 0;
}

static void read_traffic(const struct nlmsghdr *message, void *arg)
{
    const struct nlattr *attr =
        netlink_attr(message, sizeof(struct if_stats_msg), IFLA_STATS_LINK_64);
    struct rtnl_link_stats64 stats = {0};
    struct rtnl_traffic *traffic = arg;
    size_t len = attr ? mnl_attr_get_payload_len(attr) : 0;

    if (len)
        memcpy(&stats, mnl_attr_get_payload(attr), len < sizeof(stats) ? len : sizeof(stats));
    *traffic = (struct rtnl_traffic){.sent_bytes = stats.tx_bytes,
                                     .sent_packets = stats.tx_packets,
                                     .received_bytes = stats.rx_bytes,
                                     .received_packets = stats.rx_packets};
}

int rtnl_link_traffic(struct netlink *netlink, uint32_t index, struct rtnl_traffic *out)
{
    struct netlink_batch batch;
    struct if_stats_msg *head;
    void *header;

    *out = (struct rtnl_traffic){0};
    netlink_batch_init(&batch);
    (void)netlink_batch_add(&batch, RTM_GETSTATS, 0, sizeof(*head), &header);
    head = header;
    head->ifindex = index;
    head->filter_mask = IFLA_STATS_FILTER_BIT(IFLA_STATS_LINK_64);
    return netlink_dump(netlink, &batch, read_traffic, out);
}

struct each {
    rtnl_known_fn fn;
    void *arg;
};

static void read_address(const struct nlmsghdr *message, void *arg)
{
    const struct ifaddrmsg *head = mnl_nlmsg_get_payload(message);
    const struct each *each = arg;
    struct rtnl_known known;

    if (message->nlmsg_type != RTM_NEWADDR || head->ifa_family != AF_INET)
        return;
    known = (struct rtnl_known){
        .address = ntohl(attr_u32(message, sizeof(*head), IFA_LOCAL, 0)),
        .prefix = head->ifa_prefixlen,
        .index = head->ifa_index,
    };
    each->fn(&known, each->arg);
}

static void read_route(const struct nlmsghdr *message, void *arg)
{
    const struct rtmsg *head = mnl_nlmsg_get_payload(message);
    const struct each *each = arg;
    struct rtnl_known known;

    if (message->nlmsg_type != RTM_NEWROUTE || head->rtm_family != AF_INET ||
        head->rtm_type != RTN_UNICAST)
        return;
    known = (struct rtnl_known){
        .address = ntohl(attr_u32(message, sizeof(*head), RTA_DST, 0)),
        .prefix = head->rtm_dst_len,
        .index = attr_u32(message, sizeof(*head), RTA_OIF, 0),
    };
    each->fn(&known, each->arg);
}

int rtnl_each_address(struct netlink *netlink, rtnl_known_fn fn, void *arg)
{
    struct each each = {fn, arg};
    struct netlink_batch batch;
    void *header;

    netlink_batch_init(&batch);
    (void)netlink_batch_add(&batch, RTM_GETADDR, NLM_F_DUMP, sizeof(struct ifaddrmsg), &header);
    ((struct ifaddrmsg *)header)->ifa_family = AF_INET;
    return netlink_dump(netlink, &batch, read_address, &each);
}

int rtnl_each_route(struct netlink *netlink, rtnl_known_fn fn, void *arg)
{
    struct each each = {fn, arg};
    struct netlink_batch batch;
    void *header;

    netlink_batch_init(&batch);
    (void)netlink_batch_add(&batch, RTM_GETROUTE, NLM_F_DUMP, sizeof(struct rtmsg), &header);
    ((struct rtmsg *)header)->rtm_family = AF_INET;
    return netlink_dump(netlink, &batch, read_route, &each);
}

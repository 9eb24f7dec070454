/* One sandbox's connection.
 *
 * Link numbers, addresses and MAC addresses follow from the slot, so that everything the gateway
 * needs goes in one batch without asking for numbers in between, and the same for the sandbox's
 * side. Neighbours are permanent on both sides: no ARP before the first packet, and thousands of sandboxes
 * do not fill the host's ARP table. The sandbox's namespace belongs to a user namespace of its
 * own; only opening the socket happens inside, on the calling thread. */
#include <errno.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "host/network/network_internal.h"
#include "protocol/netlink/netns.h"
#include "protocol/netlink/nft.h"
#include "protocol/netlink/rtnl.h"

enum { CARRIER_TRIES = 10000 };

static const struct nft_map online_map = {NETWORK_GATEWAY_TABLE, NETWORK_GATEWAY_ONLINE};
static const uint8_t router_mac[RTNL_MAC_SIZE] = {0x02, 0x71, 0x73, 0x00, 0x00, 0x01};

static int check_slot(uint32_t slot, struct error *err)
{
    return slot <= NETWORK_SLOT_MAX ? 0 : error_set(err, ERROR_INVALID, "slot out of range");
}

static void guest_mac(uint32_t slot, uint8_t mac[RTNL_MAC_SIZE])
{
    const uint8_t bytes[] = {0x02, 0x71, 0x73, 0x01, (uint8_t)(slot >> 8), (uint8_t)slot};

    memcpy(mac, bytes, sizeof(bytes));
}

/* The mark of a slot's connections; 0 is "none yet". */
static uint32_t mark_of(uint32_t slot)
{
    return slot + 1;
}

/* In this order: once out of the map, no new connection gets the mark. */
static int take_offline(struct network *network, uint32_t slot, bool forget,
                        struct network_flows *out)
{
    uint32_t address = network_address_of(slot);
    int r = nft_map_remove(&network->filter, &online_map, address);

    if (r < 0 || (r == 0 && !forget))
        return r;
    return network_flows_take(&network->filter, address, mark_of(slot), out);
}

static int forget_in_host(struct network *network, const struct network_flows *flows,
                          struct error *err)
{
    int r;

    if (flows->count == 0)
        return 0;
    (void)pthread_mutex_lock(&network->host_lock);
    r = conntrack_forget(&network->host, flows->list, flows->count);
    if (r < 0)
        (void)network_fail(err, r, &network->host, "forget connections in the host");
    (void)pthread_mutex_unlock(&network->host_lock);
    return r;
}

/* `forget`: drop the slot's connections even when it was offline already. */
static int set_online(struct network *network, uint32_t slot, bool online, bool forget,
                      struct error *err)
{
    struct network_flows flows __attribute__((cleanup(network_flows_free))) = {0};
    int r;

    (void)pthread_mutex_lock(&network->filter_lock);
    if (online)
        r = nft_map_put(&network->filter, &online_map, network_address_of(slot), mark_of(slot));
    else
        r = take_offline(network, slot, forget, &flows);
    if (r < 0)
        (void)network_fail(err, r, &network->filter, "change the gateway's rules");
    (void)pthread_mutex_unlock(&network->filter_lock);
    if (forget_in_host(network, &flows, err) < 0 || r < 0)
        return error_prefix(err, "network slot %u", slot);
    return 0;
}

int network_set_online(struct network *network, uint32_t slot, bool online, struct error *err)
{
    if (check_slot(slot, err) < 0)
        return -1;
    return set_online(network, slot, online, true, err);
}

/* A new sandbox in this slot starts from nothing: answers to the old one's connections must not
 * reach it. */
int network_release(struct network *network, uint32_t slot, struct error *err)
{
    return network_set_online(network, slot, false, err);
}

static int send_link(struct network *network, uint32_t slot, const char *name, int netns_fd)
{
    uint32_t index = NETWORK_FIRST_INDEX + slot, address = network_address_of(slot);
    struct netlink_batch batch;
    uint8_t mac[RTNL_MAC_SIZE];

    guest_mac(slot, mac);
    netlink_batch_init(&batch);
    rtnl_put_veth(&batch, &(struct rtnl_veth){.near = {name, index, router_mac},
                                              .peer = {"eth0", NETWORK_GUEST_INDEX, mac},
                                              .peer_netns_fd = netns_fd,
                                              .mtu = network->mtu,
                                              .up = true});
    rtnl_put_route(&batch, &(struct rtnl_route){.to = address, .prefix = 32, .index = index});
    rtnl_put_neighbour(&batch, index, address, mac);
    return netlink_send(&network->links, &batch);
}

static int make_link(struct network *network, uint32_t slot, int netns_fd, struct error *err)
{
    char name[RTNL_NAME_SIZE];
    struct netlink_batch batch;
    int r;

    (void)snprintf(name, sizeof(name), "qs%u", slot);
    (void)pthread_mutex_lock(&network->links_lock);
    r = send_link(network, slot, name, netns_fd);
    if (r == -EEXIST || r == -EBUSY) {
        /* The namespace of the slot's last user is not gone yet. */
        netlink_batch_init(&batch);
        rtnl_put_delete(&batch, name);
        r = netlink_send(&network->links, &batch);
        if (r == 0 || r == -ENODEV)
            r = send_link(network, slot, name, netns_fd);
    }
    if (r < 0)
        (void)network_fail(err, r, &network->links, "make the sandbox's link");
    (void)pthread_mutex_unlock(&network->links_lock);
    return r < 0 ? -1 : 0;
}

/* The sandbox's end came up last, so it is ready; the gateway's end drops packets until a kernel
 * worker has seen that there is a carrier, and a lost first answer would cost a whole second. Asking
 * is enough on Linux 6.8 and later; before, the worker needs a moment. */
static int wait_for_link(struct network *network, uint32_t slot, struct error *err)
{
    const struct timespec pause = {.tv_nsec = 100000L};
    struct rtnl_link link = {0};
    int r = 0;

    for (int i = 0; i < CARRIER_TRIES && r == 0 && !link.running; i++) {
        if (i)
            (void)nanosleep(&pause, NULL);
        (void)pthread_mutex_lock(&network->links_lock);
        r = rtnl_link_find(&network->links, NULL, NETWORK_FIRST_INDEX + slot, &link);
        if (r < 0)
            (void)network_fail(err, r, &network->links, "look at the sandbox's link");
        (void)pthread_mutex_unlock(&network->links_lock);
    }
    if (r < 0)
        return -1;
    return link.running ? 0 : error_set(err, ERROR_TIMEOUT, "the sandbox's link does not come up");
}

/* Before the link appears: links made later start without IPv6, lo keeps ::1. */
static int open_guest(int netns_fd, struct netlink *out, struct error *err)
{
    auto_netns struct netns_visit visit = NETNS_HOME;
    int r = netns_enter(netns_fd, &visit);

    if (r < 0)
        return error_set_errno(err, -r, "enter the sandbox's network namespace");
    if (network_sysctl("ipv6/conf/default/disable_ipv6", "1", true, err) < 0)
        return -1;
    r = netlink_open(out, NETLINK_ROUTE);
    return r < 0 ? network_fail(err, r, out, "open a netlink socket in the sandbox") : 0;
}

static int configure_guest(struct netlink *guest, uint32_t slot, struct error *err)
{
    struct netlink_batch batch;
    int r;

    netlink_batch_init(&batch);
    rtnl_put_up(&batch, NETWORK_LOOPBACK_INDEX);
    rtnl_put_address(&batch, NETWORK_GUEST_INDEX, network_address_of(slot), 32);
    rtnl_put_up_without_arp(&batch, NETWORK_GUEST_INDEX);
    rtnl_put_neighbour(&batch, NETWORK_GUEST_INDEX, NETWORK_ROUTER, router_mac);
    rtnl_put_route(
        &batch,
        &(struct rtnl_route){.via = NETWORK_ROUTER, .onlink = true, .index = NETWORK_GUEST_INDEX});
    r = netlink_send(guest, &batch);
    return r < 0 ? network_fail(err, r, guest, "configure the sandbox's link") : 0;
}

int network_connect(struct network *network, uint32_t slot, int netns_fd, bool online,
                    struct error *err)
{
    auto_netlink struct netlink guest = NETLINK_CLOSED;

    if (check_slot(slot, err) < 0)
        return -1;
    if (set_online(network, slot, online, false, err) < 0)
        return -1;
    if (open_guest(netns_fd, &guest, err) < 0 || make_link(network, slot, netns_fd, err) < 0 ||
        configure_guest(&guest, slot, err) < 0 || wait_for_link(network, slot, err) < 0)
        return error_prefix(err, "network slot %u", slot);
    return 0;
}

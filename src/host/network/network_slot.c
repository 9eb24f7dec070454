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
#include "protocol/netlink/rtnl.h"

enum { CARRIER_TRIES = 10000 };

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

/* In this order: once the rules are changed, no new connection comes about by the old ones. */
static int change(struct network *network, uint32_t slot, const struct box_network *policy,
                  bool fresh, struct network_flows *out)
{
    bool had = network->reaches[slot].mark != 0;
    uint32_t group = network->reaches[slot].group;
    int r = network_reach_set(network, slot, policy);

    if (r < 0 || (fresh && !had))
        return r;
    if (group && group != policy->group)
        r = network_flows_part(&network->filter, slot);
    if (r < 0)
        return r;
    if (policy->mode == NETWORK_NONE && !box_network_has_rules(policy))
        return network_flows_take(&network->filter, slot, out);
    return network_flows_cut(&network->filter, slot, policy, out);
}

/* `fresh`: nobody has used the slot since it was released. */
static int set_policy(struct network *network, uint32_t slot, const struct box_network *policy,
                      bool fresh, struct error *err)
{
    struct network_flows flows __attribute__((cleanup(network_flows_free))) = {0};
    int r;

    (void)pthread_mutex_lock(&network->filter_lock);
    r = change(network, slot, policy, fresh, &flows);
    if (r < 0)
        (void)network_fail(err, r, &network->filter, "change the gateway's rules");
    (void)pthread_mutex_unlock(&network->filter_lock);
    if (forget_in_host(network, &flows, err) < 0 || r < 0)
        return error_prefix(err, "network slot %u", slot);
    return 0;
}

/* A box without a link reaches nothing: fine for whoever asked for that. */
static int check_nothing(const struct box_network *policy, struct error *err)
{
    if (policy->mode == NETWORK_NONE && !box_network_has_rules(policy))
        return 0;
    return error_set(err, ERROR_UNSUPPORTED,
                     "this host cannot give a sandbox a network ('quicksand doctor' says why)");
}

int network_set(struct network *network, uint32_t slot, const struct box_network *policy,
                struct error *err)
{
    if (check_slot(slot, err) < 0)
        return -1;
    return network ? set_policy(network, slot, policy, false, err) : check_nothing(policy, err);
}

uint32_t network_group_of(struct network *network, uint32_t slot)
{
    uint32_t group;

    (void)pthread_mutex_lock(&network->filter_lock);
    group = network->reaches[slot].group;
    (void)pthread_mutex_unlock(&network->filter_lock);
    return group;
}

/* A new sandbox in this slot starts from nothing: answers to the old one's connections must not
 * reach it. */
int network_release(struct network *network, uint32_t slot, struct error *err)
{
    static const struct box_network nothing = {.mode = NETWORK_NONE};
    int r;

    if (!network)
        return 0;
    if (network_set(network, slot, &nothing, err) < 0)
        return -1;
    (void)pthread_mutex_lock(&network->filter_lock);
    r = network_usage_forget(network, slot);
    if (r < 0)
        (void)network_fail(err, r, &network->filter, "forget what was counted");
    (void)pthread_mutex_unlock(&network->filter_lock);
    return r < 0 ? error_prefix(err, "network slot %u", slot) : 0;
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

int network_connect(struct network *network, uint32_t slot, int netns_fd,
                    const struct box_network *policy, struct error *err)
{
    auto_netlink struct netlink guest = NETLINK_CLOSED;

    if (check_slot(slot, err) < 0)
        return -1;
    if (!network)
        return check_nothing(policy, err);
    if (set_policy(network, slot, policy, true, err) < 0)
        return -1;
    if (open_guest(netns_fd, &guest, err) < 0 || make_link(network, slot, netns_fd, err) < 0 ||
        configure_guest(&guest, slot, err) < 0 || wait_for_link(network, slot, err) < 0)
        return error_prefix(err, "network slot %u", slot);
    return 0;
}

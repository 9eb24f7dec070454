/* The uplink: a veth pair between the host and the gateway with a /30 of its own.
 *
 * Its addresses must not hide anything the host knows, so they come from private ranges (which
 * sandboxes cannot reach anyway) and must overlap no address and no route of the host except the
 * default route. The search starts at a place that depends on the instance: several servers on one host
 * find different ones at once. An uplink that exists keeps its addresses. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "host/network/network_internal.h"
#include "protocol/netlink/rtnl.h"

enum { TRIES_PER_RANGE = 64, DEFAULT_MTU = 1500, MIN_MTU = 576, MAX_MTU = 65535 };

/* What the host knows, as far as the uplink is concerned. */
struct survey {
    const struct network_config *config;
    uint32_t candidate;
    bool clash;
    uint32_t uplink_index; /* ours, 0 = none; what is on it is no clash */
    uint32_t uplink_address;
    uint32_t default_index;
};

static void look_at_address(const struct rtnl_known *known, void *arg)
{
    struct survey *survey = arg;

    if (survey->uplink_index && known->index == survey->uplink_index) {
        if (known->prefix == NETWORK_UPLINK_PREFIX)
            survey->uplink_address = known->address;
        return;
    }
    if (network_address_overlap(known->address, known->prefix, survey->candidate,
                                NETWORK_UPLINK_PREFIX))
        survey->clash = true;
}

static void look_at_route(const struct rtnl_known *known, void *arg)
{
    struct survey *survey = arg;

    if (known->prefix == 0) {
        if (!survey->default_index && known->index != survey->uplink_index)
            survey->default_index = known->index;
        return;
    }
    if (survey->uplink_index && known->index == survey->uplink_index)
        return;
    if (network_address_overlap(known->address, known->prefix, survey->candidate,
                                NETWORK_UPLINK_PREFIX))
        survey->clash = true;
}

static int look(struct netlink *links, struct survey *survey, struct error *err)
{
    int r;

    survey->clash = network_address_overlap(survey->candidate, NETWORK_UPLINK_PREFIX,
                                            NETWORK_SANDBOXES, NETWORK_SANDBOXES_PREFIX);
    for (size_t i = 0; i < survey->config->resolver_count; i++) {
        struct in_addr resolver = {0};

        if (inet_pton(AF_INET, survey->config->resolvers[i], &resolver) == 1 &&
            network_address_overlap(ntohl(resolver.s_addr), 32, survey->candidate,
                                    NETWORK_UPLINK_PREFIX))
            survey->clash = true;
    }
    r = rtnl_each_address(links, look_at_address, survey);
    if (r == 0)
        r = rtnl_each_route(links, look_at_route, survey);
    return r < 0 ? network_fail(err, r, links, "list the host's addresses and routes") : 0;
}

/* Finds a /30 that is free; its first address in survey->candidate. */
static int choose(struct netlink *links, struct survey *survey, struct error *err)
{
    static const struct {
        uint32_t base;
        uint8_t prefix;
    } ranges[] = {{0x64400000, 10}, {0x0a000000, 8}, {0xac100000, 12}};
    uint32_t start = (uint32_t)strtoul(survey->config->instance, NULL, 16) * 2654435761u;

    for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++) {
        uint32_t count = 1u << (NETWORK_UPLINK_PREFIX - ranges[i].prefix);

        for (uint32_t k = 0; k < TRIES_PER_RANGE; k++) {
            uint32_t step = k * (count / TRIES_PER_RANGE + 1);

            survey->candidate = ranges[i].base + (start + step) % count * 4;
            if (look(links, survey, err) < 0)
                return -1;
            if (!survey->clash)
                return 0;
        }
    }
    return error_set(err, ERROR_UNAVAILABLE, "no free address range for the uplink");
}

static int find_mtu(struct netlink *links, const struct survey *survey, uint32_t *out,
                    struct error *err)
{
    struct rtnl_link link = {.mtu = DEFAULT_MTU};
    int r = 0;

    if (survey->default_index)
        r = rtnl_link_find(links, NULL, survey->default_index, &link);
    if (r < 0)
        return network_fail(err, r, links, "look at the default route's link");
    *out = link.mtu < MIN_MTU ? MIN_MTU : link.mtu > MAX_MTU ? MAX_MTU : link.mtu;
    return 0;
}

int network_uplink_plan(const struct network_config *config, const struct network_names *names,
                        struct network_uplink *out, struct error *err)
{
    auto_netlink struct netlink links = NETLINK_CLOSED;
    struct survey survey = {.config = config};
    struct rtnl_link link = {0};
    int r = netlink_open(&links, NETLINK_ROUTE);

    if (r < 0)
        return network_fail(err, r, &links, "open a netlink socket");
    r = rtnl_link_find(&links, names->uplink, 0, &link);
    if (r < 0 && r != -ENODEV)
        return network_fail(err, r, &links, "look for the uplink");
    survey.uplink_index = link.index;
    if (look(&links, &survey, err) < 0)
        return -1;
    if (survey.uplink_address)
        survey.candidate = survey.uplink_address & ~3u;
    else if (choose(&links, &survey, err) < 0)
        return -1;
    out->host_address = survey.candidate + 1;
    out->gateway_address = survey.candidate + 2;
    return find_mtu(&links, &survey, &out->mtu, err);
}

static int delete_link(struct netlink *links, const char *name)
{
    struct netlink_batch batch;
    int r;

    netlink_batch_init(&batch);
    rtnl_put_delete(&batch, name);
    r = netlink_send(links, &batch);
    return r == -ENODEV ? 0 : r;
}

/* Makes the pair unless both ends are there; half a pair cannot exist, but a gateway that was made
 * anew has none, and its host end then belongs to an older one. */
static int make_pair(struct netlink *host, struct netlink *gateway,
                     const struct network_names *names, const struct network_uplink *uplink,
                     int gateway_fd)
{
    struct netlink_batch batch;
    struct rtnl_link link;
    int near = rtnl_link_find(host, names->uplink, 0, &link);
    int far = rtnl_link_find(gateway, NETWORK_GATEWAY_UPLINK, 0, &link);
    int r;

    if (near == 0 && far == 0)
        return 0;
    if ((r = delete_link(host, names->uplink)) < 0)
        return r;
    if ((r = delete_link(gateway, NETWORK_GATEWAY_UPLINK)) < 0)
        return r;
    netlink_batch_init(&batch);
    rtnl_put_veth(&batch, &(struct rtnl_veth){.near = {.name = names->uplink},
                                              .peer = {.name = NETWORK_GATEWAY_UPLINK},
                                              .peer_netns_fd = gateway_fd,
                                              .mtu = uplink->mtu});
    return netlink_send(host, &batch);
}

static int configure_host(struct netlink *host, const struct network_names *names,
                          const struct network_uplink *uplink, struct error *err)
{
    struct netlink_batch batch;
    struct rtnl_link link;
    char path[96];
    int r = rtnl_link_find(host, names->uplink, 0, &link);

    if (r < 0)
        return network_fail(err, r, host, "look for the uplink");
    (void)snprintf(path, sizeof(path), "ipv6/conf/%s/disable_ipv6", names->uplink);
    if (network_sysctl(path, "1", true, err) < 0)
        return -1;
    (void)snprintf(path, sizeof(path), "ipv4/conf/%s/rp_filter", names->uplink);
    if (network_sysctl(path, "1", false, err) < 0)
        return -1;
    netlink_batch_init(&batch);
    rtnl_put_address(&batch, link.index, uplink->host_address, NETWORK_UPLINK_PREFIX);
    rtnl_put_up(&batch, link.index);
    r = netlink_send(host, &batch);
    return r < 0 ? network_fail(err, r, host, "configure the uplink in the host") : 0;
}

static int configure_gateway(struct netlink *gateway, const struct network_uplink *uplink,
                             struct error *err)
{
    struct netlink_batch batch;
    struct rtnl_link link;
    int r = rtnl_link_find(gateway, NETWORK_GATEWAY_UPLINK, 0, &link);

    if (r < 0)
        return network_fail(err, r, gateway, "look for the uplink in the gateway");
    netlink_batch_init(&batch);
    rtnl_put_up(&batch, NETWORK_LOOPBACK_INDEX);
    rtnl_put_address(&batch, NETWORK_LOOPBACK_INDEX, NETWORK_ROUTER, 32);
    rtnl_put_address(&batch, link.index, uplink->gateway_address, NETWORK_UPLINK_PREFIX);
    rtnl_put_up(&batch, link.index);
    rtnl_put_route(&batch, &(struct rtnl_route){.via = uplink->host_address, .index = link.index});
    r = netlink_send(gateway, &batch);
    return r < 0 ? network_fail(err, r, gateway, "configure the uplink in the gateway") : 0;
}

int network_uplink_make(const struct network_names *names, const struct network_uplink *uplink,
                        int gateway_fd, struct error *err)
{
    auto_netlink struct netlink host = NETLINK_CLOSED, gateway = NETLINK_CLOSED;
    int r = netlink_open(&host, NETLINK_ROUTE);

    if (r == 0)
        r = netlink_open_in(&gateway, NETLINK_ROUTE, gateway_fd);
    if (r < 0)
        return network_fail(err, r, &host, "open a netlink socket");
    r = make_pair(&host, &gateway, names, uplink, gateway_fd);
    if (r < 0)
        return network_fail(err, r, &host, "make the uplink");
    if (configure_host(&host, names, uplink, err) < 0)
        return -1;
    return configure_gateway(&gateway, uplink, err);
}

int network_uplink_remove(const struct network_names *names, struct error *err)
{
    auto_netlink struct netlink host = NETLINK_CLOSED;
    int r = netlink_open(&host, NETLINK_ROUTE);

    if (r == 0)
        r = delete_link(&host, names->uplink);
    return r < 0 ? network_fail(err, r, &host, "remove the uplink") : 0;
}

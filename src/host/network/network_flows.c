/* What is connected, and forgetting it in both places.
 *
 * Every connection of a sandbox is in two tables: the gateway's, where it has the slot's mark, and
 * the host's, where it is one of the gateway's address. Forgetting asks the gateway which ones the
 * slot has and how they look on the uplink; exactly those go from the host's table. Nothing else
 * there is touched, and no mark of ours is put on the host's connections.
 *
 * What the gateway has forgotten by itself cannot be found in the host any more, so an entry of the
 * host must not outlive its twin: both have the same times (NETWORK_FLOW_TIMES), and a packet that
 * would end a connection here and then not get to the host (TTL 1) is dropped before it counts. */
#include <errno.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "host/network/network_internal.h"
#include "protocol/netlink/conntrack.h"
#include "protocol/netlink/nft.h"

static const struct nft_map flow_counts = {NETWORK_GATEWAY_TABLE, NETWORK_GATEWAY_FLOWS};
static const struct nft_map begun = {NETWORK_GATEWAY_TABLE, NETWORK_GATEWAY_BEGUN};

int network_flow_sysctls(struct error *err)
{
    static const struct {
        const char *name;
        unsigned seconds;
    } times[] = {
#define TIME(state, sysctl, seconds) {sysctl, seconds},
        NETWORK_TCP_TIMES(TIME) NETWORK_UDP_TIMES(TIME)
#undef TIME
    };

    for (size_t i = 0; i < sizeof(times) / sizeof(*times); i++) {
        char path[96], value[16];

        (void)snprintf(path, sizeof(path), "netfilter/nf_conntrack_%s", times[i].name);
        (void)snprintf(value, sizeof(value), "%u", times[i].seconds);
        if (network_sysctl(path, value, false, err) < 0)
            return -1;
    }
    return 0;
}

static void add_flow(struct network_flows *flows, const struct conntrack_flow *flow)
{
    if (flows->count == flows->room) {
        flows->room = flows->room ? flows->room * 2 : 64;
        flows->list = xrealloc(flows->list, flows->room * sizeof(*flows->list));
    }
    flows->list[flows->count++] = *flow;
}

static void keep_leaving(const struct conntrack_pair *pair, void *arg)
{
    add_flow(arg, &pair->leaving);
}

void network_flows_free(struct network_flows *flows)
{
    free(flows->list);
}

static struct conntrack_mark mark_of(uint32_t slot)
{
    return (struct conntrack_mark){slot + 1, NETWORK_MARK_SLOT};
}

/* No connection is let out that is not counted as begun, so a slot that began none has nothing to forget. The count of those that are
 * open goes with them: the kernel lowers it a few at a time as new ones come, so whoever comes next would be refused for what the last
 * one did. Without it the slot has none in the host either, but for those that just ended. */
int network_flows_take(struct netlink *gateway, uint32_t slot, struct network_flows *out)
{
    uint32_t address = network_address_of(slot);
    int r = nft_map_has(gateway, &begun, address);

    if (r <= 0)
        return r;
    r = nft_map_has(gateway, &flow_counts, address);
    if (r == 1)
        r = conntrack_each(gateway, mark_of(slot), keep_leaving, out);
    if (r == 0)
        r = conntrack_forget_mark(gateway, mark_of(slot));
    return r < 0 ? r : nft_map_remove(gateway, &flow_counts, address);
}

struct cutting {
    const struct box_network *policy;
    struct network_flows begun, *leaving;
};

static void judge(const struct conntrack_pair *pair, void *arg)
{
    struct cutting *cutting = arg;

    if (network_reach_allows(cutting->policy, pair))
        return;
    add_flow(&cutting->begun, &pair->begun);
    if (pair->leaving.destination == pair->begun.destination)
        add_flow(cutting->leaving, &pair->leaving);
}

int network_flows_cut(struct netlink *gateway, uint32_t slot, const struct box_network *policy,
                      struct network_flows *out)
{
    struct cutting cutting = {.policy = policy, .leaving = out};
    int r = nft_map_has(gateway, &flow_counts, network_address_of(slot));

    if (r == 1)
        r = conntrack_each(gateway, mark_of(slot), judge, &cutting);
    if (r == 0)
        r = conntrack_forget(gateway, cutting.begun.list, cutting.begun.count);
    network_flows_free(&cutting.begun);
    return r;
}

struct parting {
    uint32_t address;
    struct network_flows begun;
};

static void find_between(const struct conntrack_pair *pair, void *arg)
{
    const struct conntrack_flow *flow = &pair->begun;
    struct parting *parting = arg;

    if (network_address_is_ours(flow->source) && network_address_is_ours(flow->destination) &&
        (flow->source == parting->address || flow->destination == parting->address))
        add_flow(&parting->begun, flow);
}

int network_flows_part(struct netlink *gateway, uint32_t slot)
{
    struct parting parting = {.address = network_address_of(slot)};
    int r = conntrack_each(gateway, (struct conntrack_mark){0}, find_between, &parting);

    if (r == 0)
        r = conntrack_forget(gateway, parting.begun.list, parting.begun.count);
    network_flows_free(&parting.begun);
    return r;
}

int network_flows_forget_all(int gateway_fd, struct error *err)
{
    auto_netlink struct netlink gateway = NETLINK_CLOSED, host = NETLINK_CLOSED;
    struct network_flows flows __attribute__((cleanup(network_flows_free))) = {0};
    int r = netlink_open_in(&gateway, NETLINK_NETFILTER, gateway_fd);

    if (r == 0)
        r = netlink_open(&host, NETLINK_NETFILTER);
    if (r == 0)
        r = conntrack_each(&gateway, (struct conntrack_mark){0}, keep_leaving, &flows);
    if (r == 0)
        r = conntrack_forget(&host, flows.list, flows.count);
    return r < 0 ? error_set_errno(err, -r, "forget the sandboxes' connections") : 0;
}

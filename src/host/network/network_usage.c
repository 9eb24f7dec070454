/* What the boxes sent and received, counted by the kernel in any case: bytes and packets by the box's own link, whose end in the gateway
 * sees everything that leaves or enters the box and nothing else; connections and refusals by elements of two sets, which the
 * first packet of a connection and each refused one pass. It all outlives this process and ends with the box. */
#include "host/network/network_internal.h"
#include "protocol/netlink/nft.h"
#include "protocol/netlink/rtnl.h"

static const struct nft_map counters[] = {{NETWORK_GATEWAY_TABLE, NETWORK_GATEWAY_BEGUN},
                                          {NETWORK_GATEWAY_TABLE, NETWORK_GATEWAY_REFUSED}};

int network_usage_forget(struct network *network, uint32_t slot)
{
    int r = 0;

    for (size_t i = 0; i < sizeof(counters) / sizeof(*counters) && r >= 0; i++)
        r = nft_map_remove(&network->filter, &counters[i], network_address_of(slot));
    return r < 0 ? r : 0;
}

static int read_link(struct network *network, uint32_t slot, struct box_traffic *out,
                     struct error *err)
{
    struct rtnl_traffic traffic;
    int r;

    (void)pthread_mutex_lock(&network->links_lock);
    r = rtnl_link_traffic(&network->links, NETWORK_FIRST_INDEX + slot, &traffic);
    if (r < 0)
        (void)network_fail(err, r, &network->links, "ask what a sandbox's link carried");
    (void)pthread_mutex_unlock(&network->links_lock);
    if (r < 0)
        return -1;
    /* What the gateway receives the box has sent. */
    out->sent_bytes = traffic.received_bytes;
    out->sent_packets = traffic.received_packets;
    out->received_bytes = traffic.sent_bytes;
    out->received_packets = traffic.sent_packets;
    return 0;
}

int network_usage(struct network *network, uint32_t slot, struct box_traffic *out,
                  struct error *err)
{
    uint32_t address = network_address_of(slot);
    int r;

    *out = (struct box_traffic){0};
    if (!network)
        return 0;
    if (read_link(network, slot, out, err) < 0)
        return error_prefix(err, "network slot %u", slot);
    (void)pthread_mutex_lock(&network->filter_lock);
    r = nft_counter(&network->filter, &counters[0], address, &out->connections);
    if (r == 0)
        r = nft_counter(&network->filter, &counters[1], address, &out->refused);
    if (r < 0)
        (void)network_fail(err, r, &network->filter, "ask what a sandbox's connections were");
    (void)pthread_mutex_unlock(&network->filter_lock);
    return r < 0 ? error_prefix(err, "network slot %u", slot) : 0;
}

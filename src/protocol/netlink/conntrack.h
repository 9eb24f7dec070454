/* The kernel's table of tracked connections (IPv4), by ctnetlink. The socket is one of
 * NETLINK_NETFILTER and means its own namespace's table. Addresses and ports are in host byte
 * order; functions return 0 or -errno. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "protocol/netlink/netlink.h"

/* A connection by the packets of whoever began it. */
struct conntrack_flow {
    uint32_t source, destination;
    uint16_t source_port, destination_port; /* of an ICMP echo: its id, and 0 */
    uint8_t protocol;
};

/* Both sides of this namespace's own translation: as it was begun, and with the addresses its packets have when they
 * leave. */
struct conntrack_pair {
    struct conntrack_flow begun, leaving;
};

typedef void (*conntrack_flow_fn)(const struct conntrack_pair *pair, void *arg);

/* Marks are compared in the bits of the mask only. */
struct conntrack_mark {
    uint32_t value, mask;
};

/* Calls fn for every TCP, UDP and ICMP echo connection with the mark; a mask of 0: all there are. */
int conntrack_each(struct netlink *netlink, struct conntrack_mark mark, conntrack_flow_fn fn,
                   void *arg);
/* Forgets all connections that carry the mark. */
int conntrack_forget_mark(struct netlink *netlink, struct conntrack_mark mark);
/* Forgets exactly these; one that is not there is no failure. */
int conntrack_forget(struct netlink *netlink, const struct conntrack_flow *flows, size_t count);

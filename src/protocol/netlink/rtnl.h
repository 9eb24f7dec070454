/* Links, addresses, routes and neighbours (IPv4) by rtnetlink. The put functions add a request to a
 * batch; netlink_send() does them in order. Addresses are in host byte order. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "protocol/netlink/netlink.h"

enum { RTNL_MAC_SIZE = 6, RTNL_NAME_SIZE = 16 };

struct rtnl_end {
    const char *name;
    uint32_t index;     /* wished for; 0 = any */
    const uint8_t *mac; /* NULL = random */
};

/* A veth pair: one end where the socket lives, the other in the namespace of peer_netns_fd. */
struct rtnl_veth {
    struct rtnl_end near, peer;
    int peer_netns_fd;
    uint32_t mtu;
    bool up; /* the near end; the peer is set up by whoever configures it */
};

void rtnl_put_veth(struct netlink_batch *batch, const struct rtnl_veth *veth);
void rtnl_put_up(struct netlink_batch *batch, uint32_t index);
/* Neighbours on it are only those that were put there; what is looked for besides waits for nothing, and the
 * kernel may drop it from the ARP table, which all namespaces share, at any time. */
void rtnl_put_up_without_arp(struct netlink_batch *batch, uint32_t index);
void rtnl_put_delete(struct netlink_batch *batch, const char *name);
void rtnl_put_address(struct netlink_batch *batch, uint32_t index, uint32_t address,
                      uint8_t prefix);

struct rtnl_route {
    uint32_t to;
    uint8_t prefix; /* 0 = default route */
    uint32_t via;   /* 0 = directly on the link */
    bool onlink;    /* via is reachable although no route says so */
    uint32_t index;
};
void rtnl_put_route(struct netlink_batch *batch, const struct rtnl_route *route);
/* A permanent entry: no ARP, and not counted against the host-wide limit of the ARP table. */
void rtnl_put_neighbour(struct netlink_batch *batch, uint32_t index, uint32_t address,
                        const uint8_t *mac);

struct rtnl_link {
    uint32_t index;
    uint32_t mtu;
    bool running; /* up at both ends, and packets pass */
};
/* 0, -ENODEV when there is none, or another -errno. By name, or by index when name is NULL. */
int rtnl_link_find(struct netlink *netlink, const char *name, uint32_t index,
                   struct rtnl_link *out);

struct rtnl_traffic {
    uint64_t sent_bytes, sent_packets, received_bytes, received_packets;
};
/* What went through a link since it came into being; as rtnl_link_find(). */
int rtnl_link_traffic(struct netlink *netlink, uint32_t index, struct rtnl_traffic *out);

/* Something the namespace knows: an address on a link or a route. */
struct rtnl_known {
    uint32_t address;
    uint8_t prefix;
    uint32_t index;
};
typedef void (*rtnl_known_fn)(const struct rtnl_known *known, void *arg);
int rtnl_each_address(struct netlink *netlink, rtnl_known_fn fn, void *arg);
/* Unicast routes of all tables, the default routes (prefix 0) too. */
int rtnl_each_route(struct netlink *netlink, rtnl_known_fn fn, void *arg);

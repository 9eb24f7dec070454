/* nftables. Rule sets are text and loaded seldom; elements of maps change often and go through a
 * plain netlink batch that costs some 20 microseconds. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "protocol/netlink/netlink.h"

/* Runs commands of the nft language as one transaction in the thread's namespace, by the program nft. */
int nft_load(const char *commands, struct error *err);

struct nft_map {
    const char *table; /* of family inet */
    const char *name;  /* of type ipv4_addr : mark */
};
/* Addresses are in host byte order, the socket is one of NETLINK_NETFILTER; -errno on failure.
 * Putting what is there is success. Removing returns 1, or 0 when there was nothing; it takes
 * elements of plain sets of ipv4_addr too. */
int nft_map_put(struct netlink *netlink, const struct nft_map *map, uint32_t address,
                uint32_t mark);
int nft_map_remove(struct netlink *netlink, const struct nft_map *map, uint32_t address);
/* 1 when the address is in the map, 0 when not, or -errno. */
int nft_map_has(struct netlink *netlink, const struct nft_map *map, uint32_t address);

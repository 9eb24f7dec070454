/* nftables. Rule sets are text and loaded seldom; elements of maps change often and go through a
 * plain netlink batch that costs some 20 microseconds. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "protocol/netlink/netlink.h"

/* Runs commands of the nft language as one transaction in the thread's namespace, by the program nft. */
int nft_load(const char *commands, struct error *err);
/* The same with what it prints, rules with their handles. */
int nft_show(const char *commands, struct buf *out, struct error *err);

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
/* Changes of maps, and of sets of type mark . ipv4_addr, that hold together or not at all. */
struct nft_changes;
struct nft_changes *nft_changes_new(size_t max); /* how many there will be at most */
void nft_changes_free(struct nft_changes *changes);
/* What is put must not be there with another mark, what is removed must be there. */
void nft_changes_map(struct nft_changes *changes, const struct nft_map *map, bool put,
                     uint32_t address, uint32_t mark);
void nft_changes_set(struct nft_changes *changes, const struct nft_map *set, bool put,
                     uint32_t mark, uint32_t address);
int nft_changes_send(struct netlink *netlink, struct nft_changes *changes);

/* Calls fn for each element of a map, or of a set of type mark . ipv4_addr. */
typedef void (*nft_element_fn)(uint32_t address, uint32_t mark, void *arg);
int nft_each(struct netlink *netlink, const struct nft_map *map, nft_element_fn fn, void *arg);

/* How many packets an element of a set of ipv4_addr has counted; 0 when it is not there. */
int nft_counter(struct netlink *netlink, const struct nft_map *set, uint32_t address,
                uint64_t *out_packets);

/* 1 when the address is in the map, 0 when not, or -errno. */
int nft_map_has(struct netlink *netlink, const struct nft_map *map, uint32_t address);

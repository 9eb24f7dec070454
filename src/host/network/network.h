/* The network of the sandboxes, used by the warden only (root).
 *
 *   sandbox netns: eth0 --veth-- qs<slot> in the gateway netns --uplink veth-- host netns
 *
 * All sandbox links end in one network namespace per server, the gateway: one static nftables
 * table there decides who may talk to whom, and its masquerade hides sandbox addresses from the
 * host. The host sees one veth and one small table of ours. The gateway is kept by a bind mount
 * (RUN_DIR/gateway.netns), so it outlives the warden; everything is found again by name.
 *
 * Always: answers to a sandbox's own connections pass; sandboxes reach neither each other, the
 * gateway, the host's own addresses, nor private, link-local, shared, multicast or reserved ranges;
 * source addresses cannot be forged. Internet (and DNS to the configured resolvers) only for slots
 * that are online. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { NETWORK_SLOT_MAX = 16383 };

struct network;

struct network_config {
    const char *instance;         /* 8 hex digits: names of links and tables derive from it */
    const char *run_dir;          /* where the gateway's bind mount lives */
    const char *const *resolvers; /* IPv4 addresses */
    size_t resolver_count;
};

/* Makes or re-adopts the gateway. Sets net.ipv4.ip_forward in the host namespace when it is off. */
int network_open(const struct network_config *config, struct network **out, struct error *err);
/* Frees memory and descriptors; the gateway stays. */
void network_close(struct network *network);
/* Removes gateway, uplink and tables. Idempotent; also without network_open() by config. */
int network_destroy(const struct network_config *config, struct error *err);

/* Connects a sandbox's network namespace: veth pair, address, default route, lo up. Thread-safe. */
int network_connect(struct network *network, uint32_t slot, int netns_fd, bool online,
                    struct error *err);
/* Allows or cuts the internet of a slot; cutting ends what is connected too. Thread-safe. */
int network_set_online(struct network *network, uint32_t slot, bool online, struct error *err);
/* Forgets a slot: its link goes with its namespace, this clears its set elements. Idempotent. */
int network_release(struct network *network, uint32_t slot, struct error *err);

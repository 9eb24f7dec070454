/* The network of the sandboxes, used by the warden only (root).
 *
 *   sandbox netns: eth0 --veth-- qs<slot> in the gateway netns --uplink veth-- host netns
 *
 * All sandbox links end in one network namespace per server, the gateway: one static nftables
 * table there decides who may talk to whom, and its masquerade hides sandbox addresses from the
 * host. The host sees one veth and one small table of ours. The gateway is kept by a bind mount
 * (RUN_DIR/gateway.netns), so it outlives the warden; everything is found again by name.
 *
 * Always: answers to a sandbox's own connections pass; sandboxes reach neither each other (but for those of one group), the
 * gateway, the host's own addresses, nor private, link-local, shared, multicast or reserved ranges;
 * source addresses cannot be forged. What a slot may reach beyond that is its policy (box_network.h). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "host/engine/box_network.h"
#include "host/engine/engine.h"

enum { NETWORK_SLOT_MAX = 16383 };

/* Where the egress process listens in the gateway's namespace, on NETWORK_ROUTER: connections of filtered boxes are
 * redirected there. Without it they are refused. What the rules refuse is told to the log group. */
enum {
    NETWORK_EGRESS_TCP_PORT = 7443,
    NETWORK_EGRESS_DNS_PORT = 7053, /* UDP and TCP */
    NETWORK_LOG_GROUP = 64,
    NETWORK_LOG_BYTES = 128, /* of a packet */
};
/* What sandboxes use as their router: on the gateway's loopback, so it answers on every link. */
#define NETWORK_ROUTER 0xa9fe0001u /* 169.254.0.1 */

/* NULL: there is none (network_probe()). A box gets no link then, so all that asks for more than its own loopback is refused with
 * ERROR_UNSUPPORTED. */
struct network;

/* How much a sandbox, or all of a team together, may send and receive a second; 0 = no limit. */
struct network_rates {
    uint64_t bits, packets;          /* each way */
    uint64_t connections, questions; /* that it begins; of DNS */
};

struct network_config {
    const char *instance;         /* 8 hex digits: names of links and tables derive from it */
    const char *run_dir;          /* where the gateway's bind mount lives */
    const char *const *resolvers; /* IPv4 addresses */
    size_t resolver_count;
    const char *const *private_ranges; /* what of the private ranges is reached: "10.1.0.0/16" */
    size_t private_count;
    bool manage_firewall; /* firewalls of others are opened for our own link */
    struct network_rates rates, team_rates;
};

/* Can this host have a network of ours? ERROR_UNSUPPORTED says what is missing. Changes nothing. */
int network_probe(struct error *err);
/* Makes or re-adopts the gateway. Sets net.ipv4.ip_forward in the host namespace when it is off. */
int network_open(const struct network_config *config, struct network **out, struct error *err);
/* Frees memory and descriptors; the gateway stays. */
void network_close(struct network *network);
/* Removes gateway, uplink and tables. Idempotent; also without network_open() by config. */
int network_destroy(const struct network_config *config, struct error *err);

/* The gateway's namespace: whoever works there opens it. */
int network_gateway_fd(const struct network *network);
/* By which the packets of a slot's box are known, in host byte order. */
uint32_t network_address_of(uint32_t slot);

/* Connects a sandbox's network namespace: veth pair, address, default route, lo up. Thread-safe. */
int network_connect(struct network *network, uint32_t slot, int netns_fd,
                    const struct box_network *policy, struct error *err);
/* Changes what a slot may reach; what is connected and no longer allowed ends. Thread-safe. */
int network_set(struct network *network, uint32_t slot, const struct box_network *policy,
                struct error *err);
/* The group of its policy. Thread-safe. */
uint32_t network_group_of(struct network *network, uint32_t slot);
/* Forgets a slot: its link goes with its namespace, this clears its set elements. Idempotent. */
int network_release(struct network *network, uint32_t slot, struct error *err);

/* network_usage.c: what a connected slot's box sent and received. Thread-safe. */
int network_usage(struct network *network, uint32_t slot, struct box_traffic *out,
                  struct error *err);

/* network_egress.c: where the egress process listens, on NETWORK_ROUTER in the gateway. Non-blocking, close-on-exec. */
struct network_egress {
    int tcp_fd, dns_fd, dns_tcp_fd;
    /* A netlink socket on which packets that the gateway refused are told (NFULNL_MSG_PACKET), some of each sandbox a second: one
     * at a time. /dev/null where the kernel cannot. */
    int log_fd;
};
#define NETWORK_EGRESS_NONE ((struct network_egress){-1, -1, -1, -1})
int network_egress_listen(const struct network *network, struct network_egress *out,
                          struct error *err);
void network_egress_close(struct network_egress *egress);

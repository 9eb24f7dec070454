/* Shared by the files of network/ only. */
#pragma once

#include <pthread.h>

#include "base/buf.h"
#include "host/network/network.h"
#include "protocol/netlink/conntrack.h"
#include "protocol/netlink/netlink.h"

enum {
    NETWORK_LOOPBACK_INDEX = 1, /* the same in every namespace */
    NETWORK_FIRST_INDEX = 1000, /* qs<slot> is link number NETWORK_FIRST_INDEX + slot */
    NETWORK_GUEST_INDEX =
        100, /* of eth0; kernels with tunnel modules use low ones in every netns */
    NETWORK_RESOLVERS_MAX = 16,
    NETWORK_PRIVATE_MAX = 16,
    NETWORK_UPLINK_PREFIX = 30,
    NETWORK_NAME_SIZE = 32,
};

/* Addresses are in host byte order. Sandboxes: 10.213.64.0/18, one address per slot. They have the
 * same addresses on every server and nobody outside ever sees them. */
#define NETWORK_SANDBOXES        0x0ad54000u
#define NETWORK_SANDBOXES_PREFIX 18

/* Names that derive from the instance. */
struct network_names {
    char uplink[16];               /* host end of the uplink */
    char table[NETWORK_NAME_SIZE]; /* of the host */
    char gateway_path[4096];
};
#define NETWORK_GATEWAY_UPLINK "uplink"
#define NETWORK_GATEWAY_TABLE  "quicksand"
#define NETWORK_GATEWAY_ONLINE "online"
#define NETWORK_GATEWAY_FLOWS  "flows"
/* Who shares the rates of a team. */
#define NETWORK_GATEWAY_TEAMS "teams"
/* Counters by address. */
#define NETWORK_GATEWAY_BEGUN   "begun"
#define NETWORK_GATEWAY_REFUSED "refused"
/* Sets of ranges, with the length of their prefixes behind the name. */
#define NETWORK_GATEWAY_ALLOW "allow"
#define NETWORK_GATEWAY_DENY  "deny"
/* Which group an address is of, and which addresses a group has. */
#define NETWORK_GATEWAY_GROUPS  "groups"
#define NETWORK_GATEWAY_MEMBERS "members"

/* The mark of a box's connections: 0 = none yet, else the slot's number and one, and what its rules are. */
enum {
    NETWORK_MARK_SLOT = 0xffff,
    NETWORK_MARK_MODE = 0x30000,
    NETWORK_MARK_FILTERED = 0x10000, /* the egress process decides */
    NETWORK_MARK_CLOSED = 0x20000,   /* nothing but what is allowed */
    NETWORK_MARK_LISTS = 0x40000,    /* there are ranges */
    NETWORK_MARK_GROUP = 0x80000,    /* it is in a group */
};

enum { NETWORK_DNS_PORT = 53 };

/* How long a connection is remembered without a packet, in the gateway and in the host alike: state in
 * the nft language, name of the sysctl, seconds. An idle TCP connection lasts as long as RFC 5382
 * asks of a translator. */
#define NETWORK_TCP_TIMES(X)                          \
    X("syn_sent", "tcp_timeout_syn_sent", 60)         \
    X("syn_recv", "tcp_timeout_syn_recv", 60)         \
    X("established", "tcp_timeout_established", 7440) \
    X("fin_wait", "tcp_timeout_fin_wait", 120)        \
    X("close_wait", "tcp_timeout_close_wait", 60)     \
    X("last_ack", "tcp_timeout_last_ack", 30)         \
    X("time_wait", "tcp_timeout_time_wait", 10)       \
    X("close", "tcp_timeout_close", 10)
#define NETWORK_UDP_TIMES(X)          \
    X("unreplied", "udp_timeout", 30) \
    X("replied", "udp_timeout_stream", 120)

/* What of a slot is in the kernel. */
struct network_reach {
    uint32_t mark;
    uint32_t group, team;
    uint32_t allow_count, deny_count;
    struct box_range *ranges; /* of each list: sorted, each once */
};

struct network {
    int gateway_fd;
    uint32_t mtu;
    /* Guards `links`: a socket in the gateway that makes links and routes. */
    pthread_mutex_t links_lock;
    struct netlink links;
    /* Guards `filter`, a socket in the gateway that changes its map and sets, and `reaches`, what is in them. */
    pthread_mutex_t filter_lock;
    struct netlink filter;
    struct network_reach *reaches; /* by slot */
    /* Guards `host`: a socket in the host that forgets connections. */
    pthread_mutex_t host_lock;
    struct netlink host;
};

/* network_uplink.c: the veth pair between the host (the thread's namespace) and the gateway. */
struct network_uplink {
    uint32_t host_address;
    uint32_t gateway_address;
    uint32_t mtu; /* of the host's default route */
};
/* Finds the uplink's addresses, or chooses free ones; changes nothing. */
int network_uplink_plan(const struct network_config *config, const struct network_names *names,
                        struct network_uplink *out, struct error *err);
int network_uplink_make(const struct network_names *names, const struct network_uplink *uplink,
                        int gateway_fd, struct error *err);
/* Missing is success. */
int network_uplink_remove(const struct network_names *names, struct error *err);

/* network_rules.c: both are loaded as one transaction each and can be loaded again at any time;
 * who is online and what is connected is kept. In the thread's namespace. */
int network_rules_load_gateway(const struct network_config *config, struct error *err);
int network_rules_load_host(const struct network_config *config, const struct network_names *names,
                            const struct network_uplink *uplink, struct error *err);
int network_rules_remove_host(const struct network_names *names, struct error *err);

/* network_rates.c: chains of the gateway's table that hold sandboxes to their rates; nothing where there are none. */
void network_rates_put(struct buf *text, const struct network_rates *sandbox,
                       const struct network_rates *team);

/* The times above for the uplink's connections in the host. A kernel that cannot is told in the log. */
void network_rules_load_times(const struct network_names *names);

/* network_reach.c, with the lock of `filter`; 0 or -errno. */
int network_reach_set(struct network *network, uint32_t slot, const struct box_network *policy);
/* What an earlier process left in the kernel. */
int network_reach_load(struct network *network);
void network_reach_free(struct network *network);
bool network_reach_allows(const struct box_network *policy, const struct conntrack_pair *pair);

/* network_firewall.c: in the host (the thread's namespace). What others drop of ours is told, or with `manage` let through. */
int network_firewall_open(const struct network_names *names, bool manage, struct error *err);
/* Takes back what that did; without it there is nothing to do. */
int network_firewall_close(const struct network_names *names, struct error *err);

/* network_log.c: the egress process's log_fd; -errno, -EBUSY while somebody has one. */
int network_log_open(const struct network *network, int *out_fd);

/* network_usage.c, with the lock of `filter`: a slot counts from nothing again; -errno. */
int network_usage_forget(struct network *network, uint32_t slot);

/* network_flows.c */
struct network_flows {
    struct conntrack_flow *list;
    size_t count, room;
};
void network_flows_free(struct network_flows *flows);
/* Sets the times above in the thread's namespace. */
int network_flow_sysctls(struct error *err);
/* Forgets a slot's connections in the gateway; *out has what is to be forgotten in the host, also
 * after a failure. -errno. */
int network_flows_take(struct netlink *gateway, uint32_t slot, struct network_flows *out);
/* The same for those only that the policy does not allow. */
int network_flows_cut(struct netlink *gateway, uint32_t slot, const struct box_network *policy,
                      struct network_flows *out);
/* Forgets in the gateway what a slot has with other slots, whoever began it. */
int network_flows_part(struct netlink *gateway, uint32_t slot);
/* Forgets in the host (the thread's namespace) whatever the gateway has. */
int network_flows_forget_all(int gateway_fd, struct error *err);

/* network_sysctl.c: writes a value below /proc/sys/net of the thread's namespace unless it is there
 * already. `optional`: a kernel without that file is fine. */
int network_sysctl(const char *path, const char *value, bool optional, struct error *err);

/* network_address.c */
/* Dotted quad of a usable resolver; ERROR_INVALID says which one is not. */
int network_address_parse(const char *text, uint32_t *out, struct error *err);
/* "10.1.0.0/16" within one of the ranges that are private or shared; ERROR_INVALID says what else it is. */
int network_private_check(const char *text, struct error *err);
bool network_address_is_ours(uint32_t address); /* of a sandbox */
bool network_address_overlap(uint32_t a, uint8_t a_prefix, uint32_t b, uint8_t b_prefix);
enum { NETWORK_TEXT_SIZE = 16 };
void network_address_text(uint32_t address, char out[NETWORK_TEXT_SIZE]);

/* Puts the netlink failure `r` into err, with the kernel's reason when there is one. */
int network_fail(struct error *err, int r, const struct netlink *netlink, const char *what);

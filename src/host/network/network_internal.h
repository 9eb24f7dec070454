/* Shared by the files of network/ only. */
#pragma once

#include <pthread.h>

#include "host/network/network.h"
#include "protocol/netlink/conntrack.h"
#include "protocol/netlink/netlink.h"

enum {
    NETWORK_LOOPBACK_INDEX = 1, /* the same in every namespace */
    NETWORK_FIRST_INDEX = 1000, /* qs<slot> is link number NETWORK_FIRST_INDEX + slot */
    NETWORK_GUEST_INDEX =
        100, /* of eth0; kernels with tunnel modules use low ones in every netns */
    NETWORK_RESOLVERS_MAX = 16,
    NETWORK_UPLINK_PREFIX = 30,
    NETWORK_NAME_SIZE = 32,
};

/* Addresses are in host byte order. Sandboxes: 10.213.64.0/18, one address per slot. They have the
 * same addresses on every server and nobody outside ever sees them. */
#define NETWORK_SANDBOXES        0x0ad54000u
#define NETWORK_SANDBOXES_PREFIX 18
/* What sandboxes use as their router: on the gateway's loopback, so it answers on every link. */
#define NETWORK_ROUTER 0xa9fe0001u /* 169.254.0.1 */

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

struct network {
    int gateway_fd;
    uint32_t mtu;
    /* Guards `links`: a socket in the gateway that makes links and routes. */
    pthread_mutex_t links_lock;
    struct netlink links;
    /* Guards `filter`: a socket in the gateway that changes the online map. */
    pthread_mutex_t filter_lock;
    struct netlink filter;
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

/* The times above for the uplink's connections in the host. A kernel that cannot is told in the log. */
void network_rules_load_times(const struct network_names *names);

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
int network_flows_take(struct netlink *gateway, uint32_t address, uint32_t mark,
                       struct network_flows *out);
/* Forgets in the host (the thread's namespace) whatever the gateway has. */
int network_flows_forget_all(int gateway_fd, struct error *err);

/* network_sysctl.c: writes a value below /proc/sys/net of the thread's namespace unless it is there
 * already. `optional`: a kernel without that file is fine. */
int network_sysctl(const char *path, const char *value, bool optional, struct error *err);

/* network_address.c */
uint32_t network_address_of(uint32_t slot);
/* Dotted quad of a usable resolver; ERROR_INVALID says which one is not. */
int network_address_parse(const char *text, uint32_t *out, struct error *err);
bool network_address_overlap(uint32_t a, uint8_t a_prefix, uint32_t b, uint8_t b_prefix);
enum { NETWORK_TEXT_SIZE = 16 };
void network_address_text(uint32_t address, char out[NETWORK_TEXT_SIZE]);

/* Puts the netlink failure `r` into err, with the kernel's reason when there is one. */
int network_fail(struct error *err, int r, const struct netlink *netlink, const char *what);

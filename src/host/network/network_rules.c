/* The two rule sets.
 *
 * Gateway: a packet from a sandbox must carry the address whose route leads back to the link it
 * came by (so nobody can pretend to be another). The first packet of a connection looks its source
 * up in the map `online` and takes the slot's mark from there; without a mark nothing passes.
 * Later packets only show the mark. Every connection is counted before it is let out, those to the
 * resolvers too. Cutting a slot is taking its element out of the map and forgetting the connections
 * with its mark. Refusals answer at once, so that programs inside fail
 * fast instead of waiting.
 *
 * Host: the same ranges are refused again for everything that comes out of the uplink, so a hole
 * in the gateway is not a way in; the host itself is closed to the uplink. Our base chains accept by
 * default and only judge packets of our own link; the host's own firewall stays in force.
 *
 * "flush table" drops rules and keeps maps: loading again changes neither who is online nor what is
 * connected. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "host/network/network_internal.h"
#include "protocol/netlink/nft.h"

enum { RULES_MAX = 16384, FLOWS_PER_SANDBOX = 4096 };

/* Everything that is not the public internet: "this" network, private, shared, loopback,
 * link-local, protocol assignments, benchmarking, multicast, reserved and broadcast. The
 * documentation ranges are left open: they are nobody's, and tests use them as their internet. */
#define BLOCKED                                                                           \
    "{ 0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12," \
    " 192.0.0.0/24, 192.168.0.0/16, 198.18.0.0/15, 224.0.0.0/4, 240.0.0.0/4 }"

#define REFUSE                                    \
    " chain refuse {\n"                           \
    "  meta l4proto tcp reject with tcp reset\n"  \
    "  reject with icmpx type admin-prohibited\n" \
    " }\n"

/* DNS to the configured resolvers, which may well have private addresses. */
static void put_resolvers(struct buf *text, const struct network_config *config,
                          const char *verdict)
{
    if (config->resolver_count == 0)
        return;
    (void)buf_printf(text, "  meta l4proto { tcp, udp } th dport 53 ip daddr {");
    for (size_t i = 0; i < config->resolver_count; i++)
        (void)buf_printf(text, "%s %s", i ? "," : "", config->resolvers[i]);
    (void)buf_printf(text, " } %s\n", verdict);
}

static int load(struct buf *text, const char *which, struct error *err)
{
    if (text->overflowed)
        return error_set(err, ERROR_INTERNAL, "the %s's rules are too long", which);
    return nft_load(text->p, err) < 0 ? error_prefix(err, "load the %s's rules", which) : 0;
}

int network_rules_load_gateway(const struct network_config *config, struct error *err)
{
    auto_buf struct buf text = {0};
    char sandboxes[NETWORK_TEXT_SIZE];

    buf_init(&text, RULES_MAX);
    network_address_text(NETWORK_SANDBOXES, sandboxes);
    (void)buf_printf(&text,
                     "add table inet " NETWORK_GATEWAY_TABLE "\n"
                     "flush table inet " NETWORK_GATEWAY_TABLE "\n"
                     "table inet " NETWORK_GATEWAY_TABLE " {\n"
                     " map " NETWORK_GATEWAY_ONLINE " { type ipv4_addr : mark; }\n"
                     " set " NETWORK_GATEWAY_FLOWS
                     " { type ipv4_addr; size 65535; flags dynamic; }\n" REFUSE " chain sources {\n"
                     "  type filter hook prerouting priority raw; policy accept;\n"
                     "  iifname { lo, " NETWORK_GATEWAY_UPLINK " } accept\n"
                     "  ip saddr != %s/%u drop\n"
                     "  fib saddr . iif oif missing drop\n"
                     "  ip ttl < 2 drop\n"
                     " }\n"
                     " chain counted {\n"
                     "  add @" NETWORK_GATEWAY_FLOWS " { ip saddr ct count over %d } goto refuse\n"
                     "  accept\n"
                     " }\n"
                     " chain from_sandbox {\n"
                     "  meta nfproto != ipv4 drop\n"
                     "  ct state invalid drop\n"
                     "  ct mark 0 ct mark set ip saddr map @" NETWORK_GATEWAY_ONLINE "\n"
                     "  ct mark 0 goto refuse\n"
                     "  ct state established,related accept\n"
                     "  meta l4proto != { tcp, udp, icmp } goto refuse\n",
                     sandboxes, (unsigned)NETWORK_SANDBOXES_PREFIX, FLOWS_PER_SANDBOX);
    put_resolvers(&text, config, "goto counted");
    (void)buf_printf(&text,
                     "  ip daddr " BLOCKED " goto refuse\n"
                     "  oifname != " NETWORK_GATEWAY_UPLINK " goto refuse\n"
                     "  goto counted\n"
                     " }\n"
                     " chain forward {\n"
                     "  type filter hook forward priority filter; policy drop;\n"
                     "  iifname " NETWORK_GATEWAY_UPLINK " ct state established,related accept\n"
                     "  iifname " NETWORK_GATEWAY_UPLINK " drop\n"
                     "  goto from_sandbox\n"
                     " }\n"
                     " chain input {\n"
                     "  type filter hook input priority filter; policy drop;\n"
                     "  iifname lo accept\n"
                     "  iifname " NETWORK_GATEWAY_UPLINK " ct state established,related accept\n"
                     "  iifname " NETWORK_GATEWAY_UPLINK " drop\n"
                     "  goto refuse\n"
                     " }\n"
                     " chain postrouting {\n"
                     "  type nat hook postrouting priority srcnat; policy accept;\n"
                     "  oifname " NETWORK_GATEWAY_UPLINK " masquerade\n"
                     " }\n"
                     "}\n");
    return load(&text, "gateway", err);
}

int network_rules_load_host(const struct network_config *config, const struct network_names *names,
                            const struct network_uplink *uplink, struct error *err)
{
    char gateway[NETWORK_TEXT_SIZE];
    auto_buf struct buf text = {0};

    buf_init(&text, RULES_MAX);
    network_address_text(uplink->gateway_address, gateway);
    (void)buf_printf(&text,
                     "add table inet %s\n"
                     "flush table inet %s\n"
                     "table inet %s {\n" REFUSE " chain outward {\n"
                     "  ct state established,related accept\n"
                     "  meta nfproto != ipv4 drop\n"
                     "  ip saddr != %s drop\n",
                     names->table, names->table, names->table, gateway);
    put_resolvers(&text, config, "accept");
    (void)buf_printf(&text,
                     "  ip daddr " BLOCKED " goto refuse\n"
                     " }\n"
                     " chain to_host {\n"
                     "  ct state established,related accept\n"
                     "  ip saddr != %s drop\n",
                     gateway);
    put_resolvers(&text, config, "accept");
    (void)buf_printf(&text,
                     "  goto refuse\n"
                     " }\n"
                     " chain forward {\n"
                     "  type filter hook forward priority filter; policy accept;\n"
                     "  iifname %s jump outward\n"
                     "  oifname %s ct state established,related accept\n"
                     "  oifname %s drop\n"
                     " }\n"
                     " chain input {\n"
                     "  type filter hook input priority filter; policy accept;\n"
                     "  iifname %s jump to_host\n"
                     " }\n"
                     " chain postrouting {\n"
                     "  type nat hook postrouting priority srcnat; policy accept;\n"
                     "  ip saddr %s oifname != %s masquerade\n"
                     " }\n"
                     "}\n",
                     names->uplink, names->uplink, names->uplink, names->uplink, gateway,
                     names->uplink);
    return load(&text, "host", err);
}

static void put_times(struct buf *text, const char *protocol, const char *states)
{
    (void)buf_printf(text, " ct timeout times_%s { protocol %s; l3proto ip; policy = { %s }; }\n",
                     protocol, protocol, states + strlen(", "));
}

void network_rules_load_times(const struct network_names *names)
{
#define TIME(state, sysctl, seconds) ", " state ": " #seconds
    static const char tcp[] = NETWORK_TCP_TIMES(TIME), udp[] = NETWORK_UDP_TIMES(TIME);
#undef TIME
    auto_buf struct buf text = {0};
    struct error err;

    buf_init(&text, RULES_MAX);
    (void)buf_printf(&text, "table inet %s {\n", names->table);
    put_times(&text, "tcp", tcp);
    put_times(&text, "udp", udp);
    (void)buf_printf(&text,
                     " chain times {\n"
                     "  type filter hook prerouting priority mangle; policy accept;\n"
                     "  iifname %s ct state new meta l4proto tcp ct timeout set \"times_tcp\"\n"
                     "  iifname %s ct state new meta l4proto udp ct timeout set \"times_udp\"\n"
                     " }\n"
                     "}\n",
                     names->uplink, names->uplink);
    if (load(&text, "host", &err) < 0)
        log_warn("network",
                 "%s: connections of sandboxes that end badly stay in the host's table as long as "
                 "its net.netfilter.nf_conntrack_* say (a kernel with NF_CONNTRACK_TIMEOUT can do "
                 "better)",
                 err.message);
}

int network_rules_remove_host(const struct network_names *names, struct error *err)
{
    auto_buf struct buf text = {0};

    buf_init(&text, RULES_MAX);
    /* Adding first makes deleting succeed whether or not it was there. */
    (void)buf_printf(&text, "add table inet %s\ndelete table inet %s\n", names->table,
                     names->table);
    return load(&text, "host", err);
}

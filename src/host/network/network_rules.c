/* The two rule sets.
 *
 * Gateway: a packet from a sandbox must carry the address whose route leads back to the link it
 * came by (so nobody can pretend to be another). The first packet of a connection looks its source
 * up in the map `online` and takes the slot's mark from there; without a mark nothing passes. Every packet to another sandbox is
 * looked up anew: it passes when the receiver is a member of the sender's group. The mark tells the slot's
 * mode, and whether it has ranges: then its destination is looked up in the lists. In filtered slots DNS, and TCP that no list
 * allows, is sent to the egress process in the gateway itself. Later packets only show the mark. Every connection is
 * counted before it is let out; one that cannot be is refused. Changing a slot is one transaction (network_reach.c), after which connections that are no longer
 * allowed are forgotten. Refusals answer at once, so that programs inside fail fast instead of waiting, and are told to a
 * netlink group.
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

enum {
    RULES_MAX = 32768,
    FLOWS_PER_SANDBOX = 4096,
    TOLD_PER_SECOND = 20,
    TOLD_BURST = 100,
};

/* The mark of a packet: what the lists, or the groups, say of where it goes. It ends with the gateway. */
enum { PACKET_ALLOWED = 1, PACKET_DENIED = 2, PACKET_PEER = 3 };

/* Everything that is not the public internet: "this" network, private, shared, loopback,
 * link-local, protocol assignments, benchmarking, multicast, reserved and broadcast. The
 * documentation ranges are left open: they are nobody's, and tests use them as their internet. */
#define BLOCKED                                                                           \
    "{ 0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12," \
    " 192.0.0.0/24, 192.168.0.0/16, 198.18.0.0/15, 224.0.0.0/4, 240.0.0.0/4 }"

/* What a program inside sees of a refusal, at once. */
#define ANSWER                                    \
    "  meta l4proto tcp reject with tcp reset\n"  \
    "  reject with icmpx type admin-prohibited\n" \
    " }\n"

/* Where a packet goes that is refused, by why. */
#define REFUSE          "refuse_"
#define REFUSE_RANGE    REFUSE BOX_REFUSED_RANGE
#define REFUSE_DENIED   REFUSE BOX_REFUSED_DENIED
#define REFUSE_CLOSED   REFUSE BOX_REFUSED_CLOSED
#define REFUSE_NAMES    REFUSE BOX_REFUSED_NAMES
#define REFUSE_PROTOCOL REFUSE BOX_REFUSED_PROTOCOL
#define REFUSE_FLOWS    REFUSE BOX_REFUSED_FLOWS

static void put_resolver_list(struct buf *text, const struct network_config *config)
{
    for (size_t i = 0; i < config->resolver_count; i++)
        (void)buf_printf(text, "%s %s", i ? "," : "", config->resolvers[i]);
}

/* DNS to the configured resolvers, which may well have private addresses. */
static void put_resolvers(struct buf *text, const struct network_config *config,
                          const char *verdict)
{
    if (config->resolver_count == 0)
        return;
    (void)buf_printf(text, "  meta l4proto { tcp, udp } th dport 53 ip daddr {");
    put_resolver_list(text, config);
    (void)buf_printf(text, " } %s\n", verdict);
}

/* What is no public address is refused, but for what the operator allowed. */
static void put_blocked(struct buf *text, const struct network_config *config)
{
    (void)buf_printf(text, " chain blocked {\n");
    for (size_t i = 0; i < config->private_count; i++)
        (void)buf_printf(text, "  ip daddr %s return\n", config->private_ranges[i]);
    (void)buf_printf(text, "  ip daddr " BLOCKED " goto " REFUSE_RANGE "\n }\n");
}

static int load(struct buf *text, const char *which, struct error *err)
{
    if (text->overflowed)
        return error_set(err, ERROR_INTERNAL, "the %s's rules are too long", which);
    return nft_load(text->p, err) < 0 ? error_prefix(err, "load the %s's rules", which) : 0;
}

static void put_sets(struct buf *text)
{
    (void)buf_printf(
        text, " map " NETWORK_GATEWAY_ONLINE " { type ipv4_addr : mark; }\n"
              " map " NETWORK_GATEWAY_GROUPS " { type ipv4_addr : mark; }\n"
              " map " NETWORK_GATEWAY_TEAMS " { type ipv4_addr : mark; }\n"
              " set " NETWORK_GATEWAY_MEMBERS " { type mark . ipv4_addr; }\n"
              " set " NETWORK_GATEWAY_FLOWS " { type ipv4_addr; size 65535; flags dynamic; }\n"
              " set " NETWORK_GATEWAY_BEGUN " { type ipv4_addr; size 65535; flags dynamic; }\n"
              " set " NETWORK_GATEWAY_REFUSED " { type ipv4_addr; size 65535; flags dynamic; }\n");
    for (unsigned prefix = 0; prefix <= 32; prefix++)
        (void)buf_printf(text,
                         " set " NETWORK_GATEWAY_ALLOW "%u { type mark . ipv4_addr; }\n"
                         " set " NETWORK_GATEWAY_DENY "%u { type mark . ipv4_addr; }\n",
                         prefix, prefix);
}

/* Of refusals at most some a second and sandbox are told: who is told them is not to be flooded. */
static void put_refuse(struct buf *text, bool told)
{
    static const char *const reasons[] = {
        BOX_REFUSED_RANGE, BOX_REFUSED_DENIED,   BOX_REFUSED_CLOSED, BOX_REFUSED_NAMES,
        BOX_REFUSED_FLOWS, BOX_REFUSED_PROTOCOL, BOX_REFUSED_RATE};

    (void)buf_printf(text, " set told { type ipv4_addr; size 65535; flags dynamic,timeout; timeout "
                           "1m; }\n"
                           " chain answer {\n"
                           "  add @" NETWORK_GATEWAY_REFUSED " { ip saddr counter }\n" ANSWER);
    for (size_t i = 0; i < sizeof(reasons) / sizeof(*reasons); i++) {
        (void)buf_printf(text, " chain " REFUSE "%s {\n", reasons[i]);
        if (told)
            (void)buf_printf(text,
                             "  update @told { ip saddr limit rate %d/second burst %d packets } "
                             "log prefix \"%s\" group %d snaplen %d\n",
                             TOLD_PER_SECOND, TOLD_BURST, reasons[i], NETWORK_LOG_GROUP,
                             NETWORK_LOG_BYTES);
        (void)buf_printf(text, "  goto answer\n }\n");
    }
}

static void put_lookups(struct buf *text, const char *list, unsigned found)
{
    char mask[NETWORK_TEXT_SIZE];

    for (unsigned prefix = 33; prefix-- > 0;) {
        network_address_text((uint32_t)(UINT64_MAX << (32 - prefix)), mask);
        (void)buf_printf(text, "  ct mark . ip daddr & %s @%s%u meta mark set %u accept\n", mask,
                         list, prefix, found);
    }
}

/* A packet's own mark holds the sender's group for a moment. */
static void put_peers(struct buf *text)
{
    (void)buf_printf(text,
                     " chain peers {\n"
                     "  meta mark set ip saddr map @" NETWORK_GATEWAY_GROUPS "\n"
                     "  meta mark . ip daddr @" NETWORK_GATEWAY_MEMBERS " meta mark set %d accept\n"
                     "  meta mark set 0\n"
                     " }\n",
                     PACKET_PEER);
}

/* The first packet of a connection gets the slot's mark; whether a list has its destination is told to the chains behind by the
 * packet's own mark. */
static void put_marks(struct buf *text)
{
    char sandboxes[NETWORK_TEXT_SIZE];

    network_address_text(NETWORK_SANDBOXES, sandboxes);
    (void)buf_printf(text, " chain lists {\n");
    put_lookups(text, NETWORK_GATEWAY_ALLOW, PACKET_ALLOWED);
    put_lookups(text, NETWORK_GATEWAY_DENY, PACKET_DENIED);
    (void)buf_printf(text,
                     " }\n"
                     " chain marks {\n"
                     "  type filter hook prerouting priority mangle; policy accept;\n"
                     "  iifname { lo, " NETWORK_GATEWAY_UPLINK " } accept\n"
                     "  ct mark 0 ct mark set ip saddr map @" NETWORK_GATEWAY_ONLINE "\n"
                     "  ip daddr %s/%u jump peers\n"
                     "  ct state new ct mark & %#x != 0 goto lists\n"
                     " }\n",
                     sandboxes, (unsigned)NETWORK_SANDBOXES_PREFIX, NETWORK_MARK_LISTS);
}

/* Where nobody listens the kernel refuses. Who is in a group asks the egress process for names, too: it knows those of the others. */
static void put_redirect(struct buf *text, const struct network_config *config)
{
    char router[NETWORK_TEXT_SIZE];

    network_address_text(NETWORK_ROUTER, router);
    (void)buf_printf(text,
                     " chain to_egress {\n"
                     "  type nat hook prerouting priority dstnat; policy accept;\n"
                     "  iifname { lo, " NETWORK_GATEWAY_UPLINK " } accept\n"
                     "  meta mark %d accept\n"
                     "  ct mark & %#x != 0 meta mark != %d meta l4proto { tcp, udp } th dport %d "
                     "ip daddr { %s",
                     PACKET_PEER, NETWORK_MARK_GROUP, PACKET_DENIED, NETWORK_DNS_PORT, router);
    if (config->resolver_count)
        (void)buf_printf(text, ",");
    put_resolver_list(text, config);
    (void)buf_printf(text,
                     " } dnat ip to %s:%d\n"
                     "  ct mark & %#x != %#x accept\n"
                     "  meta l4proto { tcp, udp } th dport %d dnat ip to %s:%d\n"
                     "  meta mark %d accept\n"
                     "  meta l4proto tcp dnat ip to %s:%d\n"
                     " }\n",
                     router, NETWORK_EGRESS_DNS_PORT, NETWORK_MARK_MODE, NETWORK_MARK_FILTERED,
                     NETWORK_DNS_PORT, router, NETWORK_EGRESS_DNS_PORT, PACKET_ALLOWED, router,
                     NETWORK_EGRESS_TCP_PORT);
}

static void put_from_sandbox(struct buf *text)
{
    (void)buf_printf(
        text,
        " chain counted {\n"
        "  add @" NETWORK_GATEWAY_FLOWS " { ip saddr ct count over %d } goto " REFUSE_FLOWS "\n"
        "  add @" NETWORK_GATEWAY_BEGUN " { ip saddr counter } accept\n"
        "  goto answer\n"
        " }\n"
        " chain from_sandbox {\n"
        "  meta nfproto != ipv4 goto answer\n"
        "  ct state invalid drop\n"
        "  ct mark 0 goto " REFUSE_CLOSED "\n"
        "  oifname != " NETWORK_GATEWAY_UPLINK " meta mark != %d goto " REFUSE_RANGE "\n"
        "  oifname " NETWORK_GATEWAY_UPLINK " meta mark %d goto " REFUSE_RANGE "\n"
        "  ct state established,related accept\n"
        "  meta l4proto != { tcp, udp, icmp } goto " REFUSE_PROTOCOL "\n"
        "  meta l4proto icmp icmp type != echo-request goto " REFUSE_PROTOCOL "\n"
        "  meta mark %d goto counted\n"
        "  meta mark %d goto " REFUSE_DENIED "\n"
        "  ct mark & %#x == 0 jump resolvers\n"
        "  jump blocked\n"
        "  meta mark %d goto counted\n"
        "  ct mark & %#x == %#x goto " REFUSE_NAMES "\n"
        "  ct mark & %#x != 0 goto " REFUSE_CLOSED "\n"
        "  goto counted\n"
        " }\n",
        FLOWS_PER_SANDBOX, PACKET_PEER, PACKET_PEER, PACKET_PEER, PACKET_DENIED, NETWORK_MARK_MODE,
        PACKET_ALLOWED, NETWORK_MARK_MODE, NETWORK_MARK_FILTERED, NETWORK_MARK_MODE);
}

/* To the gateway itself come connections that were redirected, and answers. What the egress process begins meets the same ranges as
 * what sandboxes begin, and never leads to a sandbox. */
static void put_own(struct buf *text, const struct network_config *config)
{
    (void)buf_printf(
        text,
        " chain input {\n"
        "  type filter hook input priority filter; policy drop;\n"
        "  iifname lo accept\n"
        "  iifname " NETWORK_GATEWAY_UPLINK " ct state established,related accept\n"
        "  iifname " NETWORK_GATEWAY_UPLINK " drop\n"
        "  ct status dnat ct state established,related accept\n"
        "  ct status dnat ct mark & %#x == %#x meta l4proto { tcp, udp } th dport { %d, "
        "%d } goto counted\n"
        "  ct status dnat ct mark & %#x != 0 meta l4proto { tcp, udp } th dport %d goto counted\n"
        "  goto " REFUSE_RANGE "\n"
        " }\n"
        " chain output {\n"
        "  type filter hook output priority filter; policy accept;\n"
        "  oifname lo accept\n"
        "  oifname != " NETWORK_GATEWAY_UPLINK " ct state established,related accept\n"
        "  oifname != " NETWORK_GATEWAY_UPLINK " goto answer\n",
        NETWORK_MARK_MODE, NETWORK_MARK_FILTERED, NETWORK_EGRESS_TCP_PORT, NETWORK_EGRESS_DNS_PORT,
        NETWORK_MARK_GROUP, NETWORK_EGRESS_DNS_PORT);
    put_resolvers(text, config, "accept");
    (void)buf_printf(text, "  jump blocked\n }\n");
}

static int load_gateway(const struct network_config *config, bool told, struct error *err)
{
    auto_buf struct buf text = {0};
    char sandboxes[NETWORK_TEXT_SIZE];

    buf_init(&text, RULES_MAX);
    network_address_text(NETWORK_SANDBOXES, sandboxes);
    (void)buf_printf(&text, "add table inet " NETWORK_GATEWAY_TABLE "\n"
                            "flush table inet " NETWORK_GATEWAY_TABLE "\n"
                            "table inet " NETWORK_GATEWAY_TABLE " {\n");
    put_sets(&text);
    put_refuse(&text, told);
    put_blocked(&text, config);
    put_peers(&text);
    put_marks(&text);
    put_redirect(&text, config);
    (void)buf_printf(&text,
                     " chain sources {\n"
                     "  type filter hook prerouting priority raw; policy accept;\n"
                     "  iifname { lo, " NETWORK_GATEWAY_UPLINK " } accept\n"
                     "  ip saddr != %s/%u drop\n"
                     "  fib saddr . iif oif missing drop\n"
                     "  ip ttl < 2 drop\n"
                     " }\n"
                     " chain resolvers {\n",
                     sandboxes, (unsigned)NETWORK_SANDBOXES_PREFIX);
    put_resolvers(&text, config, "goto counted");
    (void)buf_printf(&text, " }\n");
    put_from_sandbox(&text);
    put_own(&text, config);
    network_rates_put(&text, &config->rates, &config->team_rates);
    (void)buf_printf(&text,
                     " chain forward {\n"
                     "  type filter hook forward priority filter; policy drop;\n"
                     "  iifname " NETWORK_GATEWAY_UPLINK " ct state established,related accept\n"
                     "  iifname " NETWORK_GATEWAY_UPLINK " drop\n"
                     "  goto from_sandbox\n"
                     " }\n"
                     " chain postrouting {\n"
                     "  type nat hook postrouting priority srcnat; policy accept;\n"
                     "  oifname " NETWORK_GATEWAY_UPLINK " masquerade\n"
                     " }\n"
                     "}\n");
    return load(&text, "gateway", err);
}

int network_rules_load_gateway(const struct network_config *config, struct error *err)
{
    struct error first;

    if (load_gateway(config, true, &first) == 0)
        return 0;
    if (load_gateway(config, false, err) < 0)
        return -1;
    log_warn(
        "network",
        "%s: what is refused is not in the logs of sandboxes (a kernel with NETFILTER_NETLINK_LOG "
        "can do better)",
        first.message);
    return 0;
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
                     "table inet %s {\n"
                     " chain " REFUSE_RANGE " {\n" ANSWER,
                     names->table, names->table, names->table);
    put_blocked(&text, config);
    (void)buf_printf(&text,
                     " chain outward {\n"
                     "  ct state established,related accept\n"
                     "  meta nfproto != ipv4 drop\n"
                     "  ip saddr != %s drop\n",
                     gateway);
    put_resolvers(&text, config, "accept");
    (void)buf_printf(&text,
                     "  jump blocked\n"
                     " }\n"
                     " chain to_host {\n"
                     "  ct state established,related accept\n"
                     "  ip saddr != %s drop\n",
                     gateway);
    put_resolvers(&text, config, "accept");
    (void)buf_printf(&text,
                     "  goto " REFUSE_RANGE "\n"
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

/* How much a sandbox may send and receive a second, whichever way its traffic takes: judged where its packets come in, before anything
 * else looks at them, and where they go out to it. Each sandbox, and each team for all of its sandboxes, has its own bucket of each kind, an
 * element of a set; it holds what they may have in half a second, and goes after a minute of silence.
 *
 * Beyond a rate of bits or packets a packet is dropped, as a full wire does, so that TCP slows down; a connection or a question too
 * many is refused at once, and told. A question is a datagram to port 53, or a piece of data that is sent there by TCP; a datagram
 * there is no connection, too, where questions have a rate. */
#include "host/network/network_internal.h"

enum { BITS_PER_BYTE = 8, BURST_BYTES_LEAST = 256 * 1024, BURST_LEAST = 5 };

/* A large send is one packet here until the link cuts it, so a bucket holds a few of those at least. */
static uint64_t burst_of(uint64_t rate, uint64_t least)
{
    return rate / 2 > least ? rate / 2 : least;
}

/* Whose bucket it is: a sandbox's by its address, a team's by the packet's mark, which is that for these rules only. */
struct scope {
    const char *name, *type, *sender, *receiver;
};

static void put_rate(struct buf *text, const struct scope *scope, const char *kind, const char *key,
                     uint64_t rate, const char *match, const char *verdict)
{
    if (rate)
        (void)buf_printf(text,
                         "  %s update @%s_%s { %s limit rate over %llu/second burst %llu packets } "
                         "%s\n",
                         match, scope->name, kind, key, (unsigned long long)rate,
                         (unsigned long long)burst_of(rate, BURST_LEAST), verdict);
}

static void put_bits(struct buf *text, const struct scope *scope, const char *kind, const char *key,
                     uint64_t bits)
{
    uint64_t bytes = bits / BITS_PER_BYTE;

    if (bytes)
        (void)buf_printf(text,
                         "  update @%s_%s { %s limit rate over %llu bytes/second burst %llu bytes "
                         "} drop\n",
                         scope->name, kind, key, (unsigned long long)bytes,
                         (unsigned long long)burst_of(bytes, BURST_BYTES_LEAST));
}

static bool has_any(const struct network_rates *rates)
{
    return rates->bits || rates->packets || rates->connections || rates->questions;
}

static void put_sets(struct buf *text, const struct scope *scope)
{
    static const char *const kinds[] = {"sent_bits",        "sent_packets", "received_bits",
                                        "received_packets", "connections",  "questions"};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        (void)buf_printf(text,
                         " set %s_%s { type %s; size 65535; flags dynamic,timeout; timeout 1m; }\n",
                         scope->name, kinds[i], scope->type);
}

/* Of datagrams all but questions, where those have a rate; whatever is no datagram, without a look at its ports, which it may not have. */
static void put_connections(struct buf *text, const struct scope *scope,
                            const struct network_rates *rates, const char *verdict)
{
    static const char *const all[] = {"ct state new", NULL};
    static const char *const no_questions[] = {"ct state new meta l4proto != udp",
                                               "ct state new udp dport != 53", NULL};

    for (const char *const *match = rates->questions ? no_questions : all; *match; match++)
        put_rate(text, scope, "connections", scope->sender, rates->connections, *match, verdict);
}

static void put_out(struct buf *text, const struct scope *scope, const struct network_rates *rates)
{
    static const char refuse[] = "goto refuse_" BOX_REFUSED_RATE;

    put_bits(text, scope, "sent_bits", scope->sender, rates->bits);
    put_rate(text, scope, "sent_packets", scope->sender, rates->packets, "", "drop");
    put_connections(text, scope, rates, refuse);
    put_rate(text, scope, "questions", scope->sender, rates->questions, "udp dport 53", refuse);
    put_rate(text, scope, "questions", scope->sender, rates->questions,
             "tcp dport 53 tcp flags & psh != 0", refuse);
}

static void put_in(struct buf *text, const struct scope *scope, const struct network_rates *rates)
{
    put_bits(text, scope, "received_bits", scope->receiver, rates->bits);
    put_rate(text, scope, "received_packets", scope->receiver, rates->packets, "", "drop");
}

void network_rates_put(struct buf *text, const struct network_rates *sandbox,
                       const struct network_rates *team)
{
    static const struct scope own = {"sandbox", "ipv4_addr", "ip saddr", "ip daddr"};
    static const struct scope shared = {"team", "mark", "meta mark", "meta mark"};

    if (!has_any(sandbox) && !has_any(team))
        return;
    put_sets(text, &own);
    put_sets(text, &shared);
    (void)buf_printf(text, " chain rates_out {\n"
                           "  type filter hook prerouting priority mangle - 1; policy accept;\n"
                           "  iifname { lo, " NETWORK_GATEWAY_UPLINK " } accept\n");
    put_out(text, &own, sandbox);
    if (has_any(team)) {
        (void)buf_printf(text, "  meta mark set ip saddr map @" NETWORK_GATEWAY_TEAMS "\n");
        put_out(text, &shared, team);
        (void)buf_printf(text, "  meta mark set 0\n");
    }
    (void)buf_printf(text, " }\n"
                           " chain rates_in {\n"
                           "  type filter hook postrouting priority mangle; policy accept;\n"
                           "  oifname { lo, " NETWORK_GATEWAY_UPLINK " } accept\n");
    put_in(text, &own, sandbox);
    if (has_any(team)) {
        (void)buf_printf(text, "  meta mark set 0\n"
                               "  meta mark set ip daddr map @" NETWORK_GATEWAY_TEAMS "\n");
        put_in(text, &shared, team);
    }
    (void)buf_printf(text, " }\n");
}

#include "egress/wire/refusal.h"

#include <arpa/inet.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <string.h>

enum { IP_HEAD = 20, PORTS = 4, FRAGMENT_BITS = 0x1fff };

static const char *protocol_name(uint8_t number)
{
    return number == IPPROTO_TCP    ? "tcp"
           : number == IPPROTO_UDP  ? "udp"
           : number == IPPROTO_ICMP ? "icmp"
                                    : "other";
}

static uint32_t word_at(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static bool read_packet(struct str packet, struct refusal *out)
{
    const unsigned char *bytes = (const unsigned char *)packet.p;
    size_t head;

    if (packet.len < IP_HEAD || bytes[0] >> 4 != 4)
        return false;
    head = (size_t)(bytes[0] & 15) * 4;
    out->source = word_at(bytes + 12);
    out->address = word_at(bytes + 16);
    out->protocol = protocol_name(bytes[9]);
    out->port = 0;
    if ((bytes[9] == IPPROTO_TCP || bytes[9] == IPPROTO_UDP) && head >= IP_HEAD &&
        packet.len >= head + PORTS && !(((bytes[6] << 8) | bytes[7]) & FRAGMENT_BITS))
        out->port = (uint16_t)(bytes[head + 2] << 8 | bytes[head + 3]);
    return true;
}

/* Cuts one piece off: its first two bytes, or four, are its length. */
static bool cut(struct str *rest, size_t len, size_t least, struct str *out)
{
    size_t padded = (len + 3) & ~(size_t)3;

    if (len < least || len > rest->len)
        return false;
    *out = str_n(rest->p, len);
    *rest = str_skip(*rest, padded < rest->len ? padded : rest->len);
    return true;
}

static bool next_attribute(struct str *rest, int *out_type, struct str *out)
{
    struct nlattr head;

    if (rest->len < sizeof(head))
        return false;
    memcpy(&head, rest->p, sizeof(head));
    if (!cut(rest, head.nla_len, sizeof(head), out))
        return false;
    *out_type = head.nla_type & NLA_TYPE_MASK;
    *out = str_skip(*out, NLA_HDRLEN);
    return true;
}

static bool read_message(struct str message, struct refusal *out)
{
    struct str rest = message, value;
    bool has_packet = false;
    int type;

    *out = (struct refusal){0};
    while (next_attribute(&rest, &type, &value)) {
        if (type == NFULA_PAYLOAD)
            has_packet = read_packet(value, out);
        if (type == NFULA_PREFIX)
            (void)str_copy(str_n(value.p, strnlen(value.p, value.len)), out->why, sizeof(out->why));
    }
    return has_packet;
}

bool refusal_next(struct str *messages, struct refusal *out)
{
    struct nlmsghdr head;
    struct str one;

    while (messages->len >= sizeof(head)) {
        memcpy(&head, messages->p, sizeof(head));
        if (!cut(messages, head.nlmsg_len, sizeof(head), &one))
            break;
        if (head.nlmsg_type == (NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_PACKET) &&
            one.len >= sizeof(head) + sizeof(struct nfgenmsg) &&
            read_message(str_skip(one, sizeof(head) + sizeof(struct nfgenmsg)), out))
            return true;
    }
    *messages = STR_NONE;
    return false;
}

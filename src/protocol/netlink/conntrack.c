#include "protocol/netlink/conntrack.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <netinet/ip_icmp.h>
#include <string.h>

static struct nlmsghdr *put_message(struct netlink_batch *batch, uint16_t type, uint16_t flags)
{
    struct nlmsghdr *message;
    struct nfgenmsg *head;
    void *header;

    message = netlink_batch_add(batch, (uint16_t)(NFNL_SUBSYS_CTNETLINK << 8 | type), flags,
                                sizeof(*head), &header);
    head = header;
    head->nfgen_family = AF_INET;
    head->version = NFNETLINK_V0;
    return message;
}

static void put_mark(struct nlmsghdr *message, struct conntrack_mark mark)
{
    mnl_attr_put_u32(message, CTA_MARK, htonl(mark.value));
    mnl_attr_put_u32(message, CTA_MARK_MASK, htonl(mark.mask));
}

static const struct nlattr *inside(const struct nlattr *nest, int type)
{
    const char *end = nest ? (const char *)nest + mnl_attr_get_len(nest) : NULL;
    const struct nlattr *attr = nest ? mnl_attr_get_payload(nest) : NULL;

    while (attr && mnl_attr_ok(attr, (int)(end - (const char *)attr))) {
        if (mnl_attr_get_type(attr) == type)
            return attr;
        attr = mnl_attr_next(attr);
    }
    return NULL;
}

/* Network byte order to ours; 0 when it is not there. */
static uint32_t number(const struct nlattr *nest, int type)
{
    const struct nlattr *attr = inside(nest, type);

    if (!attr)
        return 0;
    switch (mnl_attr_get_payload_len(attr)) {
    case sizeof(uint32_t):
        return ntohl(mnl_attr_get_u32(attr));
    case sizeof(uint16_t):
        return ntohs(mnl_attr_get_u16(attr));
    case sizeof(uint8_t):
        return mnl_attr_get_u8(attr);
    default:
        return 0;
    }
}

struct each {
    conntrack_flow_fn fn;
    void *arg;
};

/* One direction of a connection, as its packets look. false: of a protocol that is not looked at. */
static bool read_flow(const struct nlattr *tuple, uint32_t icmp_type, struct conntrack_flow *out)
{
    const struct nlattr *addresses = inside(tuple, CTA_TUPLE_IP);
    const struct nlattr *protocol = inside(tuple, CTA_TUPLE_PROTO);

    *out = (struct conntrack_flow){
        .source = number(addresses, CTA_IP_V4_SRC),
        .destination = number(addresses, CTA_IP_V4_DST),
        .protocol = (uint8_t)number(protocol, CTA_PROTO_NUM),
    };
    if (out->protocol == IPPROTO_ICMP) {
        out->source_port = (uint16_t)number(protocol, CTA_PROTO_ICMP_ID);
        return number(protocol, CTA_PROTO_ICMP_TYPE) == icmp_type;
    }
    out->source_port = (uint16_t)number(protocol, CTA_PROTO_SRC_PORT);
    out->destination_port = (uint16_t)number(protocol, CTA_PROTO_DST_PORT);
    return out->protocol == IPPROTO_TCP || out->protocol == IPPROTO_UDP;
}

/* What answers are expected to look like, turned round, is what leaves. */
static void look_at_flow(const struct nlmsghdr *message, void *arg)
{
    const struct each *each = arg;
    const struct nlattr *begun = netlink_attr(message, sizeof(struct nfgenmsg), CTA_TUPLE_ORIG);
    const struct nlattr *reply = netlink_attr(message, sizeof(struct nfgenmsg), CTA_TUPLE_REPLY);
    struct conntrack_pair pair;
    struct conntrack_flow back;

    if (!read_flow(begun, ICMP_ECHO, &pair.begun) || !read_flow(reply, ICMP_ECHOREPLY, &back))
        return;
    pair.leaving = (struct conntrack_flow){.source = back.destination,
                                           .destination = back.source,
                                           .source_port = back.destination_port,
                                           .destination_port = back.source_port,
                                           .protocol = back.protocol};
    if (back.protocol == IPPROTO_ICMP) {
        pair.leaving.source_port = back.source_port;
        pair.leaving.destination_port = 0;
    }
    each->fn(&pair, each->arg);
}

int conntrack_each(struct netlink *netlink, struct conntrack_mark mark, conntrack_flow_fn fn,
                   void *arg)
{
    struct each each = {fn, arg};
    struct netlink_batch batch;
    struct nlmsghdr *message;

    netlink_batch_init(&batch);
    message = put_message(&batch, IPCTNL_MSG_CT_GET, NLM_F_DUMP);
    if (mark.mask)
        put_mark(message, mark);
    return netlink_dump(netlink, &batch, look_at_flow, &each);
}

/* The kernel walks its table of connections and skips what does not match: no dump to us. */
int conntrack_forget_mark(struct netlink *netlink, struct conntrack_mark mark)
{
    struct netlink_batch batch;

    netlink_batch_init(&batch);
    put_mark(put_message(&batch, IPCTNL_MSG_CT_DELETE, NLM_F_ACK), mark);
    return netlink_send(netlink, &batch);
}

static void put_flow(struct netlink_batch *batch, const struct conntrack_flow *flow)
{
    struct nlmsghdr *message = put_message(batch, IPCTNL_MSG_CT_DELETE, NLM_F_ACK);
    struct nlattr *tuple = mnl_attr_nest_start(message, CTA_TUPLE_ORIG), *nest;

    nest = mnl_attr_nest_start(message, CTA_TUPLE_IP);
    mnl_attr_put_u32(message, CTA_IP_V4_SRC, htonl(flow->source));
    mnl_attr_put_u32(message, CTA_IP_V4_DST, htonl(flow->destination));
    mnl_attr_nest_end(message, nest);
    nest = mnl_attr_nest_start(message, CTA_TUPLE_PROTO);
    mnl_attr_put_u8(message, CTA_PROTO_NUM, flow->protocol);
    if (flow->protocol == IPPROTO_ICMP) {
        mnl_attr_put_u8(message, CTA_PROTO_ICMP_TYPE, ICMP_ECHO);
        mnl_attr_put_u8(message, CTA_PROTO_ICMP_CODE, 0);
        mnl_attr_put_u16(message, CTA_PROTO_ICMP_ID, htons(flow->source_port));
    } else {
        mnl_attr_put_u16(message, CTA_PROTO_SRC_PORT, htons(flow->source_port));
        mnl_attr_put_u16(message, CTA_PROTO_DST_PORT, htons(flow->destination_port));
    }
    mnl_attr_nest_end(message, nest);
    mnl_attr_nest_end(message, tuple);
}

int conntrack_forget(struct netlink *netlink, const struct conntrack_flow *flows, size_t count)
{
    enum { FLOWS_PER_BATCH = 32 };
    int failed = 0;

    for (size_t i = 0; i < count;) {
        struct netlink_batch batch;
        int r;

        netlink_batch_init(&batch);
        for (int k = 0; k < FLOWS_PER_BATCH && i < count; k++)
            put_flow(&batch, &flows[i++]);
        r = netlink_send(netlink, &batch);
        if (r < 0 && r != -ENOENT && failed == 0)
            failed = r;
    }
    return failed;
}

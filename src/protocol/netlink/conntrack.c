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

static void put_mark(struct nlmsghdr *message, uint32_t mark)
{
    mnl_attr_put_u32(message, CTA_MARK, htonl(mark));
    mnl_attr_put_u32(message, CTA_MARK_MASK, htonl(UINT32_MAX));
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

/* What answers are expected to look like, turned round, is what leaves. */
static void look_at_flow(const struct nlmsghdr *message, void *arg)
{
    const struct each *each = arg;
    const struct nlattr *reply = netlink_attr(message, sizeof(struct nfgenmsg), CTA_TUPLE_REPLY);
    const struct nlattr *addresses = inside(reply, CTA_TUPLE_IP);
    const struct nlattr *protocol = inside(reply, CTA_TUPLE_PROTO);
    struct conntrack_flow flow = {
        .source = number(addresses, CTA_IP_V4_DST),
        .destination = number(addresses, CTA_IP_V4_SRC),
        .protocol = (uint8_t)number(protocol, CTA_PROTO_NUM),
    };

    if (flow.protocol == IPPROTO_ICMP) {
        if (number(protocol, CTA_PROTO_ICMP_TYPE) != ICMP_ECHOREPLY)
            return;
        flow.source_port = (uint16_t)number(protocol, CTA_PROTO_ICMP_ID);
    } else if (flow.protocol == IPPROTO_TCP || flow.protocol == IPPROTO_UDP) {
        flow.source_port = (uint16_t)number(protocol, CTA_PROTO_DST_PORT);
        flow.destination_port = (uint16_t)number(protocol, CTA_PROTO_SRC_PORT);
    } else {
        return;
    }
    each->fn(&flow, each->arg);
}

int conntrack_each_leaving(struct netlink *netlink, uint32_t mark, conntrack_flow_fn fn, void *arg)
{
    struct each each = {fn, arg};
    struct netlink_batch batch;
    struct nlmsghdr *message;

    netlink_batch_init(&batch);
    message = put_message(&batch, IPCTNL_MSG_CT_GET, NLM_F_DUMP);
    if (mark)
        put_mark(message, mark);
    return netlink_dump(netlink, &batch, look_at_flow, &each);
}

/* The kernel walks its table of connections and skips what does not match: no dump to us. */
int conntrack_forget_mark(struct netlink *netlink, uint32_t mark)
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

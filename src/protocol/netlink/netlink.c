#include "protocol/netlink/netlink.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/netlink.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/cleanup.h"
#include "protocol/netlink/netns.h"

enum { RECEIVE_SIZE = 32768, WAIT_S = 10 };

int netlink_open(struct netlink *netlink, int protocol)
{
    auto_close int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
    struct timeval wait = {.tv_sec = WAIT_S};
    int on = 1;

    if (fd < 0)
        return -errno;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) < 0 ||
        setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof(on)) < 0 ||
        setsockopt(fd, SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof(on)) < 0)
        return -errno;
    *netlink = (struct netlink){.fd = take_fd(&fd), .seq = 1};
    return 0;
}

int netlink_open_in(struct netlink *netlink, int protocol, int netns_fd)
{
    auto_netns struct netns_visit visit = NETNS_HOME;
    int r = netns_enter(netns_fd, &visit);

    return r < 0 ? r : netlink_open(netlink, protocol);
}

void netlink_close(struct netlink *netlink)
{
    close_fd(&netlink->fd);
}

const char *netlink_reason(const struct netlink *netlink)
{
    return netlink->reason;
}

void netlink_batch_init(struct netlink_batch *batch)
{
    netlink_batch_init_in(batch, batch->own, sizeof(batch->own));
}

void netlink_batch_init_in(struct netlink_batch *batch, void *bytes, size_t size)
{
    batch->used = 0;
    batch->answers = 0;
    batch->last = NULL;
    batch->bytes = bytes;
    batch->size = size;
}

/* Where the next message starts: attributes may have been added to the last one since. */
static size_t batch_end(const struct netlink_batch *batch)
{
    return batch->last ? batch->used + NLMSG_ALIGN(batch->last->nlmsg_len) : 0;
}

struct nlmsghdr *netlink_batch_add(struct netlink_batch *batch, uint16_t type, uint16_t flags,
                                   size_t header_size, void **out_header)
{
    struct nlmsghdr *message;

    batch->used = batch_end(batch);
    if (batch->used + NETLINK_MESSAGE_MAX > batch->size)
        abort();
    message = mnl_nlmsg_put_header(batch->bytes + batch->used);
    message->nlmsg_type = type;
    message->nlmsg_flags = NLM_F_REQUEST | flags;
    *out_header = mnl_nlmsg_put_extra_header(message, header_size);
    if (flags & NLM_F_ACK)
        batch->answers++;
    batch->last = message;
    return message;
}

const struct nlattr *netlink_attr(const struct nlmsghdr *message, size_t header_size, int type)
{
    const struct nlattr *attr = mnl_nlmsg_get_payload_offset(message, header_size);
    const char *end = mnl_nlmsg_get_payload_tail(message);

    while (mnl_attr_ok(attr, (int)(end - (const char *)attr))) {
        if (mnl_attr_get_type(attr) == type)
            return attr;
        attr = mnl_attr_next(attr);
    }
    return NULL;
}

static void keep_reason(struct netlink *netlink, const struct nlmsghdr *message)
{
    const struct nlattr *attr;

    if (!(message->nlmsg_flags & NLM_F_ACK_TLVS) || netlink->reason[0])
        return;
    /* With NETLINK_CAP_ACK the attributes follow the head of the failed message. */
    attr = netlink_attr(message, sizeof(struct nlmsgerr), NLMSGERR_ATTR_MSG);
    if (attr)
        (void)snprintf(netlink->reason, sizeof(netlink->reason), "%.*s",
                       (int)mnl_attr_get_payload_len(attr), mnl_attr_get_str(attr));
}

/* -errno of an answer (0 is success); the message must be an NLMSG_ERROR. */
static int answer_of(struct netlink *netlink, const struct nlmsghdr *message)
{
    const struct nlmsgerr *answer = mnl_nlmsg_get_payload(message);

    if (mnl_nlmsg_get_payload_len(message) < sizeof(*answer))
        return -EBADMSG;
    if (answer->error < 0)
        keep_reason(netlink, message);
    return answer->error;
}

static int transmit(struct netlink *netlink, struct netlink_batch *batch, uint32_t *out_first)
{
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    size_t len = batch_end(batch);
    ssize_t n;

    *out_first = netlink->seq;
    netlink->reason[0] = '\0';
    for (size_t at = 0; at < len;) {
        struct nlmsghdr *message = (void *)(batch->bytes + at);

        message->nlmsg_seq = netlink->seq++;
        at += NLMSG_ALIGN(message->nlmsg_len);
    }
    do
        n = sendto(netlink->fd, batch->bytes, len, 0, (struct sockaddr *)&kernel, sizeof(kernel));
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

static ssize_t receive(struct netlink *netlink, char *bytes, size_t size)
{
    ssize_t n;

    do
        n = recv(netlink->fd, bytes, size, MSG_TRUNC);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EAGAIN ? -ETIMEDOUT : -errno;
    return (size_t)n > size ? -EMSGSIZE : n;
}

int netlink_send(struct netlink *netlink, struct netlink_batch *batch)
{
    char bytes[RECEIVE_SIZE] __attribute__((aligned(8)));
    unsigned left = batch->answers;
    uint32_t first;
    int failed = transmit(netlink, batch, &first);

    if (failed < 0)
        return failed;
    while (left) {
        ssize_t n = receive(netlink, bytes, sizeof(bytes));
        const struct nlmsghdr *message = (const void *)bytes;
        int len = (int)n;

        if (n < 0)
            return (int)n;
        for (; mnl_nlmsg_ok(message, len) && left; message = mnl_nlmsg_next(message, &len)) {
            int answer;

            /* Late answers of a request that timed out. */
            if (message->nlmsg_type != NLMSG_ERROR ||
                message->nlmsg_seq - first >= netlink->seq - first)
                continue;
            answer = answer_of(netlink, message);
            if (failed == 0)
                failed = answer;
            left--;
        }
    }
    return failed;
}

/* 1 when the dump is complete, 0 when more follows. */
static int dump_part(struct netlink *netlink, const char *bytes, int len, netlink_message_fn fn,
                     void *arg)
{
    const struct nlmsghdr *message = (const void *)bytes;

    for (; mnl_nlmsg_ok(message, len); message = mnl_nlmsg_next(message, &len)) {
        if (message->nlmsg_seq != netlink->seq - 1)
            continue;
        if (message->nlmsg_type == NLMSG_DONE)
            return 1;
        if (message->nlmsg_type == NLMSG_ERROR) {
            int answer = answer_of(netlink, message);

            return answer < 0 ? answer : 1;
        }
        fn(message, arg);
        if (!(message->nlmsg_flags & NLM_F_MULTI))
            return 1;
    }
    return 0;
}

int netlink_dump(struct netlink *netlink, struct netlink_batch *batch, netlink_message_fn fn,
                 void *arg)
{
    char bytes[RECEIVE_SIZE] __attribute__((aligned(8)));
    uint32_t first;
    int r = transmit(netlink, batch, &first);

    while (r == 0) {
        ssize_t n = receive(netlink, bytes, sizeof(bytes));

        r = n < 0 ? (int)n : dump_part(netlink, bytes, (int)n, fn, arg);
    }
    return r < 0 ? r : 0;
}

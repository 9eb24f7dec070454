/* Netlink requests: built into a batch, sent in one system call, each answered by the kernel.
 *
 * A socket belongs to the network namespace it was opened in, whatever its users do later. Not
 * thread-safe: one thread at a time. Functions return 0 or -errno; netlink_reason() has the
 * kernel's own words for the last failure, often empty. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct nlattr;
struct nlmsghdr;

struct netlink {
    int fd;
    uint32_t seq;
    char reason[128];
};

#define auto_netlink   __attribute__((cleanup(netlink_close)))
#define NETLINK_CLOSED ((struct netlink){.fd = -1})

/* protocol: NETLINK_ROUTE or NETLINK_NETFILTER; in the thread's current namespace. */
int netlink_open(struct netlink *netlink, int protocol);
/* The same in another namespace; the thread is back when this returns. */
int netlink_open_in(struct netlink *netlink, int protocol, int netns_fd);
void netlink_close(struct netlink *netlink);
const char *netlink_reason(const struct netlink *netlink);

enum { NETLINK_BATCH_SIZE = 4096, NETLINK_MESSAGE_MAX = 512 };

struct netlink_batch {
    size_t used;
    unsigned answers; /* how many messages ask for one */
    struct nlmsghdr *last;
    char *bytes; /* `own`, or memory of the caller */
    size_t size;
    char own[NETLINK_BATCH_SIZE] __attribute__((aligned(8)));
};

void netlink_batch_init(struct netlink_batch *batch);
/* For one that is longer: in memory of the caller, aligned as malloc() does. */
void netlink_batch_init_in(struct netlink_batch *batch, void *bytes, size_t size);
/* Starts a message of at most NETLINK_MESSAGE_MAX bytes, with `header_size` zeroed bytes behind its
 * head at *out_header; attributes are added by mnl_attr_put*(). A batch that is too long aborts. */
struct nlmsghdr *netlink_batch_add(struct netlink_batch *batch, uint16_t type, uint16_t flags,
                                   size_t header_size, void **out_header);
/* Sends all and waits for the answers; the first failure is returned, the others still happen. */
int netlink_send(struct netlink *netlink, struct netlink_batch *batch);

typedef void (*netlink_message_fn)(const struct nlmsghdr *message, void *arg);
/* One request (the only message of the batch) that answers with messages. */
int netlink_dump(struct netlink *netlink, struct netlink_batch *batch, netlink_message_fn fn,
                 void *arg);
/* The attribute of that type behind a head of `header_size` bytes, or NULL. */
const struct nlattr *netlink_attr(const struct nlmsghdr *message, size_t header_size, int type);

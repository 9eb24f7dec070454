/* The egress process: what filtered sandboxes send comes here, and goes on only where their policies allow it. It is
 * resolver and transparent proxy at once, on one loop, because each needs what the other knows: a connection to an
 * address counts as one to a name only when the sandbox was given that address for that name.
 *
 * It is started by the warden, as a user of its own, without privileges, in the gateway's network namespace, behind
 * a filter of system calls, with its listening sockets and nothing else (fence.h). It parses what guests send, so
 * that neither root nor the server has to. A sandbox is known by the address that its packets come from, which the
 * gateway's rules do not let it forge; an address that nobody told of is refused.
 *
 * The server tells by lines of JSON who may reach what (channel.c), and gets the log and the counts. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "egress/policy/policy.h"

struct tls_trust;

enum {
    EGRESS_RESOLVERS_MAX = 16,
    EGRESS_PRIVATE_MAX = 16,
    /* Of all sandboxes together; each takes a descriptor. */
    EGRESS_QUESTIONS_MAX = 4096,
    EGRESS_CLIENTS_MAX = 2048,
};

/* Where a connection was going before the gateway sent it here. */
typedef bool egress_destination_fn(int fd, struct sockaddr_in *out);

struct egress_config {
    int tcp_fd;     /* listens: connections that were redirected */
    int dns_fd;     /* datagrams */
    int dns_tcp_fd; /* listens */
    int server_fd;  /* listens: a Unix socket */
    int log_fd;     /* what the rules refuse (refusal.h); -1: nobody tells */
    uint32_t resolvers[EGRESS_RESOLVERS_MAX]; /* host byte order */
    size_t resolver_count;
    uint16_t resolver_port;             /* 53, but in tests */
    egress_destination_fn *destination; /* egress_original_destination, but in tests */
    size_t flows_max;                   /* of all sandboxes together */
    /* What is reached although it is not of the internet: what the operator allowed. */
    struct policy_ranges opened;
    struct tls_trust *trust; /* whom servers' certificates have to be of */
};

struct egress;
struct loop;

/* Takes the descriptors and the trust. */
struct egress *egress_new(struct loop *loop, const struct egress_config *config);
void egress_free(struct egress *egress);
bool egress_original_destination(int fd, struct sockaddr_in *out);

/* The process. Its arguments are the resolvers' addresses and the private ranges that are reached ("10.1.0.0/16"), before
 * them perhaps "--ca FILE": certificates that are trusted besides the host's. Its descriptors stand in a row (below);
 * what is no socket as the last one stands for none. */
int egress_main(int argc, char **argv);

#define EGRESS_ROLE    "serve-egress"
#define EGRESS_CA_FLAG "--ca"
#define EGRESS_ENV     "QUICKSAND_EGRESS" /* set by the warden */
enum {
    EGRESS_FIRST_FD = 3,
    EGRESS_FD_TCP = 3,
    EGRESS_FD_DNS,
    EGRESS_FD_DNS_TCP,
    EGRESS_FD_SERVER,
    EGRESS_FD_LOG,
    EGRESS_FD_END
};

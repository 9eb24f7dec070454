/* A world of the test's own: the test process is the "host" in a new network namespace, a second
 * namespace behind a veth is the "internet" and answers to every address, private ones too: so a
 * missing rule shows as a connection that works. Nothing touches the machine's own network. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>

#include "base/test.h"
#include "host/network/network_internal.h"

enum { LO = 1, WAN_INDEX = 70, INTERNET_INDEX = 71, PORT = 80, WAN_MTU = 1400 };
static const uint32_t host_address = 0xcb007102, internet_address = 0xcb007101; /* 203.0.113.x */

extern char run_dir[64];
extern struct network_config config;
extern int internet_ns, host_ns;
extern int internet_listener, host_listener, gateway_listener;
extern struct network *network;
extern const struct box_network policy_none, policy_open;

/* Host and internet without a network of ours; skips the test without root. */
void make_world(void);
/* The same, with one. */
void setup(void);
void destroy_at_exit(void);

/* A namespace owned by a user namespace of its own, as sandboxes have. */
int make_guest_namespace(void);
int make_guest(uint32_t slot, bool online);

void send_batch(struct netlink_batch *batch, int netns);
int socket_in(int netns, int type);
int bound_in(int netns, int type, uint16_t port);
struct sockaddr_in address_of(uint32_t address, uint16_t port);
uint32_t quad(const char *text);
/* 0 or the errno of the attempt; the connected socket in *out_fd when asked for. */
int try_connect(int netns, uint32_t address, uint16_t port, int *out_fd);
/* Who connected to the listener; the connection in *out_fd when asked for. */
uint32_t other_end(int listener, int *out_fd);

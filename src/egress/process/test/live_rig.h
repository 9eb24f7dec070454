/* What tests of the whole process share: sandboxes are 127.0.0.x, "the internet" listens on other addresses of the
 * loopback, and where a connection was going is what the test says. Each test is a process of its own. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/un.h>

#include "egress/process/egress_internal.h"

enum { WAIT_MS = 10000, BOX = 0x7f000007, OTHER = 0x7f000008, SERVER = 0x7f000064 };

extern struct rig {
    struct loop *loop;
    struct egress *egress;
    pthread_t thread, names_thread;
    uint16_t tcp_port, dns_port, names_port;
    int server;    /* our end of the channel */
    FILE *records; /* of it */
    int names_udp, names_tcp;
    int log;             /* the kernel's end of the packet log */
    _Atomic uint32_t to; /* where connections are going */
    _Atomic uint16_t to_port;
    atomic_int asked;    /* of the resolver behind */
    const char *ca_file; /* whom servers have to be of, besides the host's; or NULL */
} rig;
extern struct sockaddr_un channel_name;

struct sockaddr_in at(uint32_t address, uint16_t port);
int bound(int type, uint32_t address, uint16_t port, uint16_t *out_port);
json_t *next_record(const char *kind);
void tell(const char *line);
void set_policy(const char *policy);
void connect_server(const struct sockaddr_un *name);
void start(const char *policy);
void stop(void);
int dial(uint32_t from, uint16_t port);
struct dns_answer ask(const char *name, unsigned type);
struct dns_answer ask_tcp(int fd, const char *name);
int listen_at(uint32_t address);
bool nobody_came(int fd);
void expect_log(const char *verdict, const char *name, const char *reason);
ssize_t read_some(int fd, char *out, size_t size);

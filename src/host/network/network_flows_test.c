/* What sandboxes leave in the tables of connections, the gateway's and the host's. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "host/network/test/network_rig.h"
#include "protocol/netlink/netns.h"

/* One sandbox cannot use up the table of connections that all share. */
TEST(connections_per_sandbox_are_limited)
{
    auto_close int greedy = -1, other = -1, from = -1;

    setup();
    greedy = make_guest(1, true);
    other = make_guest(2, true);
    from = socket_in(greedy, SOCK_DGRAM);
    for (uint16_t port = 10000; port < 15000; port++) {
        struct sockaddr_in to = address_of(internet_address, port);

        (void)sendto(from, "x", 1, 0, (struct sockaddr *)&to, sizeof(to));
    }
    CHECK_INT(try_connect(greedy, internet_address, PORT, NULL), ECONNREFUSED);
    CHECK_INT(try_connect(other, internet_address, PORT, NULL), 0);
    OK(network_release(network, 1, &err));
    OK(network_set(network, 1, &policy_open, &err));
    for (int i = 0; i < 20; i++)
        CHECK_INT(try_connect(greedy, internet_address, PORT, NULL), 0);
}

static long flows_in(int netns)
{
    auto_netns struct netns_visit visit = NETNS_HOME;
    auto_buf struct buf text = {0};
    int64_t count = -1;

    CHECK(netns_enter(netns, &visit) == 0);
    buf_init(&text, 64);
    CHECK(fd_read_file_at(AT_FDCWD, "/proc/sys/net/netfilter/nf_conntrack_count", &text) == 0);
    CHECK(str_to_i64(str_trim(buf_str(&text)), &count));
    return (long)count;
}

/* Datagrams to that port from as many ports of the sandbox: each is a connection to be tracked. By one raw
 * socket, for a slow machine has half a minute before the first of them no longer counts. */
static void fill(int guest, uint32_t address, uint16_t port, int count)
{
    struct {
        uint16_t from, to, length, checksum;
        char text[4];
    } datagram = {.to = htons(port), .length = htons(sizeof(datagram)), .text = "x"};
    struct sockaddr_in to = address_of(address, 0);
    auto_netns struct netns_visit visit = NETNS_HOME;
    auto_close int raw = -1;

    CHECK(netns_enter(guest, &visit) == 0);
    raw = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_UDP);
    for (int i = 0; i < count; i++) {
        datagram.from = htons((uint16_t)(2000 + i));
        (void)sendto(raw, &datagram, sizeof(datagram), 0, (struct sockaddr *)&to, sizeof(to));
    }
}

TEST(questions_to_resolvers_are_counted_too)
{
    auto_close int guest = -1;

    setup();
    guest = make_guest(1, true);
    fill(guest, quad("10.9.9.9"), 53, 4200);
    fill(guest, quad("198.51.100.53"), 53, 200);
    CHECK(flows_in(network->gateway_fd) >= 4000);
    CHECK(flows_in(network->gateway_fd) <= 4100);
    CHECK(flows_in(host_ns) <= 4100);
    CHECK_INT(try_connect(guest, internet_address, PORT, NULL), ECONNREFUSED);
}

/* A sandbox's connections of all kinds go from both tables with it; nobody else's do. */
TEST(connections_are_forgotten_in_the_gateway_and_in_the_host)
{
    auto_close int guest = -1, other = -1, mine = -1, others = -1, hosts = -1, echo = -1;
    const uint8_t ping[8] = {8, 0, 0xf7, 0xff}; /* type, code, checksum */
    struct sockaddr_in to = address_of(internet_address, 0);

    setup();
    guest = make_guest(1, true);
    other = make_guest(2, true);
    CHECK_INT(try_connect(host_ns, internet_address, PORT, &hosts), 0);
    CHECK_INT(try_connect(other, internet_address, PORT, &others), 0);
    CHECK_INT(flows_in(host_ns), 2);
    for (int round = 0; round < 2; round++) {
        CHECK_INT(try_connect(guest, internet_address, PORT, &mine), 0);
        fill(guest, internet_address, 9, 1000);
        fill(guest, quad("10.9.9.9"), 53, 100);
        {
            auto_netns struct netns_visit visit = NETNS_HOME;

            CHECK(netns_enter(guest, &visit) == 0);
            echo = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);
            CHECK(sendto(echo, ping, sizeof(ping), 0, (struct sockaddr *)&to, sizeof(to)) == 8);
        }
        CHECK_INT(flows_in(network->gateway_fd), 1 + 1102);
        CHECK_INT(flows_in(host_ns), 2 + 1102);
        if (round == 0)
            OK(network_set(network, 1, &policy_none, &err));
        else
            OK(network_release(network, 1, &err));
        CHECK_INT(flows_in(network->gateway_fd), 1);
        CHECK_INT(flows_in(host_ns), 2);
        OK(network_set(network, 1, &policy_open, &err));
        (void)close(mine);
        (void)close(echo);
        mine = echo = -1;
    }
    /* What is left of a server that is gone. */
    fill(guest, internet_address, 9, 50);
    CHECK_INT(flows_in(host_ns), 2 + 50);
    (void)close(gateway_listener);
    network_close(network);
    OK(network_destroy(&config, &err));
    CHECK_INT(flows_in(host_ns), 1);
}

/* The seconds that the first TCP connection of the namespace has left, by its state; -1 = none. */
static int seconds_left(int netns, const char *state)
{
    auto_netns struct netns_visit visit = NETNS_HOME;
    auto_buf struct buf text = {0};
    struct str rest, line;

    CHECK(netns_enter(netns, &visit) == 0);
    buf_init(&text, 1 << 20);
    if (fd_read_file_at(AT_FDCWD, "/proc/thread-self/net/nf_conntrack", &text) < 0)
        test_skip("the kernel does not show its table (NF_CONNTRACK_PROCFS)");
    rest = buf_str(&text);
    while (rest.len) {
        char found[32];
        int seconds;

        line = str_split(&rest, '\n');
        if (sscanf(line.p, "ipv4 2 tcp 6 %d %31s", &seconds, found) == 2 &&
            strcmp(found, state) == 0)
            return seconds;
    }
    return -1;
}

/* Otherwise one that ended in the gateway could stay in the host, where nobody finds it again. */
TEST(the_host_remembers_no_connection_longer_than_the_gateway)
{
    const struct linger at_once = {.l_onoff = 1};
    auto_close int guest = -1, mine = -1, theirs = -1;
    int one = 1;

    setup();
    guest = make_guest(1, true);
    CHECK_INT(try_connect(guest, internet_address, PORT, &mine), 0);
    (void)other_end(internet_listener, &theirs);
    CHECK(seconds_left(host_ns, "ESTABLISHED") > 0);
    CHECK(seconds_left(host_ns, "ESTABLISHED") <= 7440);
    CHECK(seconds_left(network->gateway_fd, "ESTABLISHED") > 7000);
    /* A reset that the gateway would see and the host would not. */
    CHECK(setsockopt(mine, IPPROTO_IP, IP_TTL, &one, sizeof(one)) == 0);
    CHECK(setsockopt(mine, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0);
    close_fd(&mine);
    CHECK(seconds_left(network->gateway_fd, "ESTABLISHED") > 7000);
    /* The same one hop further counts for both. */
    CHECK_INT(try_connect(guest, quad("198.51.100.7"), PORT, &mine), 0);
    CHECK(setsockopt(mine, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0);
    one = 2;
    CHECK(setsockopt(mine, IPPROTO_IP, IP_TTL, &one, sizeof(one)) == 0);
    close_fd(&mine);
    CHECK(seconds_left(network->gateway_fd, "CLOSE") > 0);
    CHECK(seconds_left(host_ns, "CLOSE") > 0);
}

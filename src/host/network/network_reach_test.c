/* What policies allow and refuse, both ways, and what a change of one does to what is connected. */
#include <errno.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "host/network/test/network_rig.h"
#include "protocol/netlink/netns.h"
#include "protocol/netlink/nft.h"

/* linux/netfilter_ipv4.h cannot stand beside netinet/in.h. */
enum { ORIGINAL_DESTINATION = 80 };

#define OTHER quad("198.51.100.7")

static struct box_network policy_of(enum network_mode mode)
{
    return (struct box_network){.mode = mode};
}

static void allow(struct box_network *policy, const char *text, uint32_t prefix)
{
    CHECK_INT(policy->deny_count, 0);
    policy->ranges[policy->allow_count++] = (struct box_range){quad(text), prefix};
}

static void deny(struct box_network *policy, const char *text, uint32_t prefix)
{
    policy->ranges[policy->allow_count + policy->deny_count++] =
        (struct box_range){quad(text), prefix};
}

/* The errno that an answer to a datagram brings, 0 when the internet got it. */
static int try_datagram(int netns, uint32_t address, uint16_t port)
{
    struct sockaddr_in to = address_of(address, port);
    auto_close int from = socket_in(netns, SOCK_DGRAM),
                   at = bound_in(internet_ns, SOCK_DGRAM, port);
    struct pollfd wait[] = {{.fd = from, .events = POLLIN}, {.fd = at, .events = POLLIN}};
    socklen_t len = sizeof(int);
    int result = 0;

    CHECK(connect(from, (struct sockaddr *)&to, sizeof(to)) == 0);
    CHECK(send(from, "x", 1, 0) == 1);
    if (poll(wait, 2, 2000) == 0)
        return ETIMEDOUT;
    CHECK(getsockopt(from, SOL_SOCKET, SO_ERROR, &result, &len) == 0);
    return result;
}

TEST(what_is_denied_is_refused_and_what_is_allowed_beats_it)
{
    struct box_network policy = policy_of(NETWORK_OPEN);
    auto_close int guest = -1, other = -1;

    setup();
    guest = make_guest(1, true);
    other = make_guest(2, true);
    deny(&policy, "198.51.100.0", 24);
    OK(network_set(network, 1, &policy, &err));
    CHECK_INT(try_connect(guest, OTHER, PORT, NULL), ECONNREFUSED);
    CHECK_INT(try_connect(guest, internet_address, PORT, NULL), 0);
    CHECK_INT(try_connect(other, OTHER, PORT, NULL), 0);
    CHECK(try_datagram(guest, OTHER, 9000) != 0);
    CHECK_INT(try_datagram(guest, internet_address, 9000), 0);
    /* A resolver that is denied is one that is not reached. */
    CHECK(try_datagram(guest, quad("198.51.100.53"), 53) != 0);
    CHECK_INT(try_datagram(guest, quad("10.9.9.9"), 53), 0);

    policy = policy_of(NETWORK_OPEN);
    allow(&policy, "198.51.100.7", 32);
    deny(&policy, "198.51.100.0", 24);
    deny(&policy, "203.0.113.0", 31);
    OK(network_set(network, 1, &policy, &err));
    CHECK_INT(try_connect(guest, OTHER, PORT, NULL), 0);
    CHECK_INT(try_connect(guest, internet_address, PORT, NULL), ECONNREFUSED);
    OK(network_set(network, 1, &policy_open, &err));
    CHECK_INT(try_connect(guest, internet_address, PORT, NULL), 0);
}

TEST(nothing_but_what_is_allowed)
{
    struct box_network policy = policy_of(NETWORK_NONE);
    auto_close int guest = -1;

    setup();
    guest = make_guest(1, true);
    allow(&policy, "198.51.100.4", 30);
    allow(&policy, "198.51.100.7", 32);
    allow(&policy, "198.51.100.7", 32);
    allow(&policy, "10.0.0.0", 8);
    allow(&policy, "169.254.169.254", 32);
    OK(network_set(network, 1, &policy, &err));
    CHECK_INT(try_connect(guest, OTHER, PORT, NULL), 0);
    CHECK_INT(try_datagram(guest, OTHER, 9000), 0);
    CHECK_INT(try_connect(guest, internet_address, PORT, NULL), ECONNREFUSED);
    /* Resolvers are not reached either, and no list opens what is always closed. */
    CHECK(try_datagram(guest, quad("198.51.100.53"), 53) != 0);
    CHECK(try_datagram(guest, quad("10.9.9.9"), 53) != 0);
    CHECK_INT(try_connect(guest, quad("10.1.2.3"), PORT, NULL), ECONNREFUSED);
    CHECK_INT(try_connect(guest, quad("169.254.169.254"), PORT, NULL), ECONNREFUSED);
    policy = policy_of(NETWORK_NONE);
    allow(&policy, "0.0.0.0", 0);
    OK(network_set(network, 1, &policy, &err));
    CHECK_INT(try_connect(guest, internet_address, PORT, NULL), 0);
    OK(network_set(network, 1, &policy_none, &err));
    CHECK_INT(try_connect(guest, internet_address, PORT, NULL), ECONNREFUSED);
}

static uint32_t original_of(int fd)
{
    struct sockaddr_in original = {0};
    socklen_t len = sizeof(original);

    CHECK(getsockopt(fd, SOL_IP, ORIGINAL_DESTINATION, &original, &len) == 0);
    return ntohl(original.sin_addr.s_addr);
}

TEST(filtered_sandboxes_are_sent_to_the_egress_process)
{
    struct box_network policy = policy_of(NETWORK_FILTERED);
    auto_close int guest = -1, open_one = -1, tcp = -1, dns = -1, from = -1, asked = -1, mine = -1,
                   theirs = -1;
    struct sockaddr_in resolver = address_of(quad("198.51.100.53"), 53);
    struct pollfd wait = {.events = POLLIN};

    setup();
    guest = make_guest(1, true);
    open_one = make_guest(2, true);
    allow(&policy, "198.51.100.7", 32);
    OK(network_set(network, 1, &policy, &err));
    /* Nobody listens. */
    CHECK_INT(try_connect(guest, internet_address, PORT, NULL), ECONNREFUSED);
    CHECK_INT(try_connect(guest, OTHER, PORT, NULL), 0);
    tcp = bound_in(network->gateway_fd, SOCK_STREAM, NETWORK_EGRESS_TCP_PORT);
    dns = bound_in(network->gateway_fd, SOCK_DGRAM, NETWORK_EGRESS_DNS_PORT);
    CHECK_INT(try_connect(guest, internet_address, 4321, &mine), 0);
    CHECK_INT(other_end(tcp, &theirs), network_address_of(1));
    CHECK_INT(original_of(theirs), internet_address);
    from = socket_in(guest, SOCK_DGRAM);
    CHECK(sendto(from, "x", 1, 0, (struct sockaddr *)&resolver, sizeof(resolver)) == 1);
    wait.fd = dns;
    CHECK_INT(poll(&wait, 1, 2000), 1);
    /* Nothing else: QUIC, other datagrams, the ports themselves. */
    CHECK(try_datagram(guest, internet_address, 443) != 0);
    CHECK(try_datagram(guest, internet_address, 9000) != 0);
    CHECK_INT(try_datagram(guest, OTHER, 9000), 0);
    CHECK_INT(try_connect(open_one, NETWORK_ROUTER, NETWORK_EGRESS_TCP_PORT, NULL), ECONNREFUSED);
    CHECK(try_connect(host_ns, NETWORK_ROUTER, NETWORK_EGRESS_TCP_PORT, NULL) != 0);
    /* What the egress process begins: the internet, not what is private. */
    CHECK_INT(try_connect(network->gateway_fd, internet_address, PORT, &asked), 0);
    CHECK_INT(try_connect(network->gateway_fd, quad("10.1.2.3"), PORT, NULL), ECONNREFUSED);
    /* No longer filtered: what was redirected ends. */
    OK(network_set(network, 1, &policy_none, &err));
    CHECK(write(mine, "x", 1) == 1);
    wait.fd = mine;
    CHECK_INT(poll(&wait, 1, 2000), 1);
    CHECK(wait.revents & (POLLERR | POLLHUP));
}

/* Those that are no longer allowed end at once; others do not notice. */
TEST(a_change_cuts_what_it_no_longer_allows)
{
    struct box_network policy = policy_of(NETWORK_OPEN);
    auto_close int guest = -1, cut = -1, cut_end = -1, kept = -1, kept_end = -1;
    struct pollfd wait = {.events = POLLIN};
    char byte;

    setup();
    guest = make_guest(1, true);
    CHECK_INT(try_connect(guest, OTHER, PORT, &cut), 0);
    (void)other_end(internet_listener, &cut_end);
    CHECK_INT(try_connect(guest, internet_address, PORT, &kept), 0);
    (void)other_end(internet_listener, &kept_end);
    deny(&policy, "198.51.100.0", 24);
    OK(network_set(network, 1, &policy, &err));
    CHECK(write(cut_end, "x", 1) == 1 && write(kept_end, "y", 1) == 1);
    wait.fd = kept;
    CHECK_INT(poll(&wait, 1, 2000), 1);
    CHECK(read(kept, &byte, 1) == 1 && write(kept, "z", 1) == 1);
    CHECK(read(kept_end, &byte, 1) == 1);
    CHECK(recv(cut, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
    CHECK(write(cut, "x", 1) == 1);
    wait.fd = cut;
    CHECK_INT(poll(&wait, 1, 2000), 1);
    CHECK(read(cut, &byte, 1) < 0 && errno == ECONNRESET);
}

static void count(uint32_t address, uint32_t mark, void *arg)
{
    (void)address;
    (void)mark;
    ++*(size_t *)arg;
}

static size_t elements(void)
{
    static const char *const sets[] = {"online", "allow32", "deny32", "allow24",
                                       "deny24", "allow31", "deny0",  "allow0"};
    size_t found = 0;

    for (size_t i = 0; i < sizeof(sets) / sizeof(*sets); i++)
        CHECK_INT(
            nft_each(&network->filter, &(struct nft_map){"quicksand", sets[i]}, count, &found), 0);
    return found;
}

/* Of this thread: what others do meanwhile on a busy machine does not count. */
static int64_t cpu_us(void)
{
    struct timespec now;

    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
    return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* As many as a policy can have, changed within the time that a change may take; a warden that is started anew knows them
 * all, and nothing is left of a slot that is released. */
TEST(a_thousand_ranges)
{
    struct box_network policy = policy_of(NETWORK_OPEN), again;
    auto_close int guest = -1;
    int64_t best_us = INT64_MAX;

    setup();
    guest = make_guest(1, true);
    CHECK_INT(try_connect(guest, internet_address, PORT, NULL), 0);
    CHECK_INT(elements(), 1);
    for (uint32_t i = 0; i < 512; i++)
        policy.ranges[policy.allow_count++] = (struct box_range){0x01020000 + (i << 8), 24};
    for (uint32_t i = 0; i < 512; i++)
        policy.ranges[policy.allow_count + policy.deny_count++] =
            (struct box_range){quad("198.51.100.0") + i, 32};
    again = policy;
    again.mode = NETWORK_FILTERED;
    OK(network_set(network, 1, &policy, &err));
    CHECK_INT(elements(), 1025);
    CHECK_INT(try_connect(guest, OTHER, PORT, NULL), ECONNREFUSED);
    for (int i = 0; i < 9; i++) {
        int64_t began = cpu_us();

        OK(network_set(network, 1, i % 2 ? &policy : &again, &err));
        if (cpu_us() - began < best_us)
            best_us = cpu_us() - began;
    }
    CHECK(best_us < 50000 * test_patience());
    CHECK_INT(elements(), 1025);
    network_close(network);
    OK(network_open(&config, &network, &err));
    OK(network_set(network, 1, &policy, &err));
    CHECK_INT(elements(), 1025);
    CHECK_INT(try_connect(guest, OTHER, PORT, NULL), ECONNREFUSED);
    CHECK_INT(try_connect(guest, internet_address, PORT, NULL), 0);
    network_close(network);
    OK(network_open(&config, &network, &err));
    /* What somebody else took away is no reason to fail. */
    {
        auto_netns struct netns_visit visit = NETNS_HOME;

        CHECK(netns_enter(network->gateway_fd, &visit) == 0);
        OK(nft_load("flush set inet quicksand deny32\n", &err));
    }
    CHECK_INT(elements(), 513);
    OK(network_release(network, 1, &err));
    CHECK_INT(elements(), 0);
}

TEST(the_operator_can_allow_private_ranges)
{
    static const char *const ranges[] = {"10.1.0.0/16", "10.0.0.0/8", "192.168.1.1"};
    static const char *const bad[] = {"169.254.0.0/16", "127.0.0.0/8", "0.0.0.0/0", "10.0.0.0/7",
                                      "10.0.0.0/33",    "x",           "8.8.8.8"};
    struct network_config closed;
    auto_close int guest = -1, other = -1, listener = -1;

    config.private_ranges = ranges;
    config.private_count = 3;
    setup();
    guest = make_guest(1, true);
    other = make_guest(2, true);
    listener = bound_in(other, SOCK_STREAM, PORT);
    CHECK_INT(try_connect(guest, quad("10.1.2.3"), PORT, NULL), 0);
    CHECK_INT(try_connect(guest, quad("192.168.1.1"), PORT, NULL), 0);
    CHECK_INT(try_connect(guest, quad("172.16.5.5"), PORT, NULL), ECONNREFUSED);
    CHECK_INT(try_connect(guest, quad("169.254.169.254"), PORT, NULL), ECONNREFUSED);
    CHECK_INT(try_connect(guest, network_address_of(2), PORT, NULL), ECONNREFUSED);
    CHECK_INT(try_connect(guest, host_address, PORT, NULL), ECONNREFUSED);
    closed = config;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        closed.private_ranges = &bad[i];
        closed.private_count = 1;
        FAILS(network_open(&closed, &network, &err), ERROR_INVALID, bad[i]);
    }
}

static void add_docker(void)
{
    OK(nft_load("table ip filter {\n chain FORWARD {\n"
                "  type filter hook forward priority filter; policy drop;\n"
                "  iifname docker0 accept\n }\n}\n",
                &err));
}

/* As Docker leaves the host: nothing is forwarded that it does not know. */
TEST(firewalls_of_others_are_opened_for_our_link_and_left_as_they_were)
{
    auto_buf struct buf before = {0}, after = {0};
    auto_close int guest = -1;

    make_world();
    CHECK(atexit(destroy_at_exit) == 0);
    add_docker();
    buf_init(&before, 1 << 16);
    buf_init(&after, 1 << 16);
    OK(nft_show("list chain ip filter FORWARD\n", &before, &err));
    OK(network_open(&config, &network, &err));
    guest = make_guest(1, true);
    CHECK(try_connect(guest, internet_address, PORT, NULL) != 0);
    config.manage_firewall = true;
    for (int i = 0; i < 2; i++) {
        network_close(network);
        OK(network_open(&config, &network, &err));
        CHECK_INT(try_connect(guest, internet_address, PORT, NULL), 0);
    }
    network_close(network);
    OK(network_destroy(&config, &err));
    OK(nft_show("list chain ip filter FORWARD\n", &after, &err));
    CHECK_STR(buf_str(&after), before.p);
}

/* Does a message hold this address, as a packet's source and destination do? */
static bool tells_of(const char *bytes, ssize_t len, uint32_t address)
{
    uint32_t wanted = htonl(address);

    for (ssize_t i = 0; i + (ssize_t)sizeof(wanted) <= len; i++)
        if (memcmp(bytes + i, &wanted, sizeof(wanted)) == 0)
            return true;
    return false;
}

TEST(what_is_refused_is_told)
{
    auto_close int guest = -1, log = -1;
    char bytes[8192];
    int told = 0;
    ssize_t n;

    setup();
    guest = make_guest(1, true);
    CHECK_INT(network_log_open(network, &log), 0);
    CHECK_INT(try_connect(guest, internet_address, PORT, NULL), 0);
    CHECK(recv(log, bytes, sizeof(bytes), MSG_DONTWAIT) < 0 && errno == EAGAIN);
    CHECK_INT(try_connect(guest, quad("192.168.1.1"), PORT, NULL), ECONNREFUSED);
    n = recv(log, bytes, sizeof(bytes), 0);
    CHECK(tells_of(bytes, n, network_address_of(1)) && tells_of(bytes, n, quad("192.168.1.1")));
    /* Not more than can be read. */
    for (int i = 0; i < 400; i++)
        CHECK_INT(try_connect(guest, quad("192.168.1.1"), PORT, NULL), ECONNREFUSED);
    while (recv(log, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        told++;
    CHECK(told > 50 && told < 300);
}

TEST(what_a_box_sent_and_received_is_counted_and_ends_with_it)
{
    auto_close int guest = -1, other = -1, connected = -1, accepted = -1;
    struct box_traffic traffic, later, quiet;
    char bytes[4096] = {0};

    setup();
    guest = make_guest(1, true);
    other = make_guest(2, true);
    CHECK_INT(try_connect(guest, internet_address, PORT, &connected), 0);
    (void)other_end(internet_listener, &accepted);
    CHECK_INT(send(connected, bytes, sizeof(bytes), 0), (int)sizeof(bytes));
    CHECK_INT(recv(accepted, bytes, sizeof(bytes), MSG_WAITALL), (int)sizeof(bytes));
    CHECK_INT(send(accepted, bytes, 1000, 0), 1000);
    CHECK_INT(recv(connected, bytes, 1000, MSG_WAITALL), 1000);
    for (int i = 0; i < 3; i++)
        CHECK_INT(try_connect(guest, quad("192.168.1.1"), PORT, NULL), ECONNREFUSED);
    OK(network_usage(network, 1, &traffic, &err));
    CHECK(traffic.sent_bytes > sizeof(bytes) && traffic.sent_bytes < sizeof(bytes) + 2000);
    CHECK(traffic.received_bytes > 1000 && traffic.received_bytes < 3000);
    CHECK(traffic.sent_packets > 3 && traffic.received_packets > 3);
    /* On a busy machine its first packet may be sent again before it is answered, which counts. */
    CHECK(traffic.connections >= 1 && traffic.connections <= 3);
    CHECK_INT((int)traffic.refused, 3);
    OK(network_usage(network, 2, &quiet, &err));
    CHECK(quiet.sent_bytes < 1000 && quiet.connections == 0 && quiet.refused == 0);
    /* A change of the policy loses nothing, also one that closes all. */
    OK(network_set(network, 1, &policy_none, &err));
    OK(network_usage(network, 1, &later, &err));
    CHECK_INT((int)later.connections, (int)traffic.connections);
    OK(network_release(network, 1, &err));
    OK(network_usage(network, 1, &traffic, &err));
    CHECK(traffic.connections == 0 && traffic.refused == 0);
    FAILS(network_usage(network, 9, &traffic, &err), ERROR_INTERNAL);
}

static size_t connect_often(int guest, int times)
{
    size_t through = 0;

    for (int i = 0; i < times; i++) {
        if (try_connect(guest, internet_address, PORT, NULL) != 0)
            continue;
        (void)other_end(internet_listener, NULL);
        through++;
    }
    return through;
}

static void reopen(const struct network_rates *rates)
{
    network_close(network);
    config.rates = *rates;
    OK(network_open(&config, &network, &err));
}

TEST(rates_hold_for_each_sandbox_and_can_be_lifted)
{
    static const struct network_rates none = {0}, few = {.connections = 10};
    auto_close int guest = -1, other = -1;

    setup();
    guest = make_guest(1, true);
    other = make_guest(2, true);
    CHECK_INT((int)connect_often(guest, 60), 60);
    reopen(&few);
    CHECK(connect_often(guest, 60) < 30);
    CHECK_INT(try_connect(guest, internet_address, PORT, NULL), ECONNREFUSED);
    CHECK_INT((int)connect_often(other, 3), 3);
    reopen(&none);
    CHECK_INT((int)connect_often(guest, 60), 60);
}

/* How long it takes to bring so much to a box, or out of it. */
static int64_t carry_ms(int from, int to, size_t bytes)
{
    static char piece[64 * 1024];
    int64_t begin = clock_mono_ms();
    size_t sent = 0, got = 0;

    (void)fd_set_nonblocking(from, true);
    (void)fd_set_nonblocking(to, true);
    while (got < bytes) {
        struct pollfd fds[] = {{.fd = to, .events = POLLIN},
                               {.fd = sent < bytes ? from : -1, .events = POLLOUT}};
        ssize_t n;

        CHECK(poll(fds, 2, 20000) > 0);
        if (fds[1].revents && (n = send(from, piece, sizeof(piece), 0)) > 0)
            sent += (size_t)n;
        if (fds[0].revents && (n = recv(to, piece, sizeof(piece), 0)) > 0)
            got += (size_t)n;
    }
    return clock_mono_ms() - begin;
}

TEST(rates_of_bits_and_packets_hold_both_ways)
{
    enum { BYTES = 3 << 20 };
    static const struct network_rates rates[] = {
        {0}, {.bits = 8 * (1 << 20)}, {.packets = 1000000, .questions = 100}};

    setup();
    for (size_t i = 0; i < sizeof(rates) / sizeof(*rates); i++) {
        auto_close int guest = -1, connected = -1, accepted = -1;
        int64_t out_ms, in_ms;

        reopen(&rates[i]);
        guest = make_guest(1 + (uint32_t)i, true);
        CHECK_INT(try_connect(guest, internet_address, PORT, &connected), 0);
        (void)other_end(internet_listener, &accepted);
        out_ms = carry_ms(connected, accepted, BYTES);
        in_ms = carry_ms(accepted, connected, BYTES);
        /* At a megabyte a second, less what the bucket holds at first. */
        CHECK(rates[i].bits ? out_ms > 1200 && in_ms > 1200
                            : out_ms + in_ms < 5000 * test_patience());
    }
}

TEST(sandboxes_of_a_team_share_its_rates)
{
    static const struct box_network teams[] = {{.mode = NETWORK_OPEN, .team = 7},
                                               {.mode = NETWORK_OPEN, .team = 7},
                                               {.mode = NETWORK_OPEN, .team = 9}};
    int guests[3];

    setup();
    network_close(network);
    config.team_rates = (struct network_rates){.connections = 10};
    OK(network_open(&config, &network, &err));
    for (uint32_t i = 0; i < 3; i++) {
        guests[i] = make_guest(1 + i, true);
        OK(network_set(network, 1 + i, &teams[i], &err));
    }
    CHECK(connect_often(guests[0], 60) < 30);
    CHECK_INT(try_connect(guests[1], internet_address, PORT, NULL), ECONNREFUSED);
    CHECK_INT((int)connect_often(guests[2], 3), 3);
    /* Known again by another process, and forgotten with the slot. */
    network_close(network);
    OK(network_open(&config, &network, &err));
    CHECK_INT((int)network->reaches[1].team, 7);
    OK(network_release(network, 1, &err));
    CHECK_INT((int)network->reaches[1].team, 0);
    for (size_t i = 0; i < 3; i++)
        close_fd(&guests[i]);
}

/* Groups: who is in one reaches the others of it and is reached by them, whatever else it may reach, and by nobody else. */
#include <errno.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "host/network/test/network_rig.h"
#include "protocol/netlink/netns.h"
#include "protocol/netlink/nft.h"
#include "protocol/netlink/rtnl.h"

enum { GUEST_INDEX = 100, ECHO = 9000 };

static struct box_network member(enum network_mode mode, uint32_t group)
{
    return (struct box_network){.mode = mode, .group = group};
}

static int make_member(uint32_t slot, enum network_mode mode, uint32_t group)
{
    const struct box_network policy = member(mode, group);
    int fd = make_guest_namespace();

    OK(network_connect(network, slot, fd, &policy, &err));
    return fd;
}

static void join(uint32_t slot, enum network_mode mode, uint32_t group)
{
    const struct box_network policy = member(mode, group);

    OK(network_set(network, slot, &policy, &err));
}

/* Does a datagram arrive? */
static bool arrives(int from_ns, int to_ns, uint32_t address, uint16_t port, int wait_ms)
{
    struct sockaddr_in to = address_of(address, port);
    auto_close int from = socket_in(from_ns, SOCK_DGRAM), at = bound_in(to_ns, SOCK_DGRAM, port);
    struct pollfd wait = {.fd = at, .events = POLLIN};

    CHECK(sendto(from, "x", 1, 0, (struct sockaddr *)&to, sizeof(to)) == 1);
    return poll(&wait, 1, wait_ms) == 1;
}

TEST(members_of_a_group_reach_each_other_in_every_mode)
{
    static const enum network_mode modes[] = {NETWORK_NONE, NETWORK_OPEN, NETWORK_FILTERED};
    auto_close int a = -1, b = -1, at_a = -1, at_b = -1, gate = -1;

    setup();
    a = make_member(1, NETWORK_OPEN, 7);
    b = make_member(2, NETWORK_OPEN, 7);
    at_a = bound_in(a, SOCK_STREAM, PORT);
    at_b = bound_in(b, SOCK_STREAM, PORT);
    /* What is filtered goes to the egress process; what goes to others of the group does not. */
    gate = bound_in(network->gateway_fd, SOCK_STREAM, NETWORK_EGRESS_TCP_PORT);
    for (size_t i = 0; i < 3; i++)
        for (size_t j = 0; j < 3; j++) {
            join(1, modes[i], 7);
            join(2, modes[j], 7);
            CHECK_INT(try_connect(a, network_address_of(2), PORT, NULL), 0);
            CHECK_INT(other_end(at_b, NULL), network_address_of(1));
            CHECK_INT(try_connect(b, network_address_of(1), PORT, NULL), 0);
            CHECK_INT(other_end(at_a, NULL), network_address_of(2));
            CHECK(arrives(a, b, network_address_of(2), ECHO, 2000));
            CHECK(arrives(a, b, network_address_of(2), 53, 2000));
            CHECK_INT(try_connect(a, internet_address, PORT, NULL),
                      modes[i] == NETWORK_NONE ? ECONNREFUSED : 0);
        }
}

TEST(nobody_else_reaches_them_and_they_reach_nobody_else)
{
    static const struct {
        enum network_mode mode;
        uint32_t group;
    } others[] = {{NETWORK_OPEN, 0}, {NETWORK_FILTERED, 0}, {NETWORK_NONE, 0},
                  {NETWORK_OPEN, 8}, {NETWORK_NONE, 8},     {NETWORK_FILTERED, 8}};
    auto_close int a = -1, b = -1, other = -1, at_a = -1, at_other = -1;

    setup();
    a = make_member(1, NETWORK_OPEN, 7);
    b = make_member(2, NETWORK_OPEN, 7);
    other = make_member(3, NETWORK_OPEN, 8);
    at_a = bound_in(a, SOCK_STREAM, PORT);
    at_other = bound_in(other, SOCK_STREAM, PORT);
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        join(3, others[i].mode, others[i].group);
        CHECK_INT(try_connect(other, network_address_of(1), PORT, NULL), ECONNREFUSED);
        CHECK_INT(try_connect(a, network_address_of(3), PORT, NULL), ECONNREFUSED);
        CHECK(!arrives(other, a, network_address_of(1), ECHO, 50));
        CHECK(!arrives(a, other, network_address_of(3), ECHO, 50));
    }
    CHECK(try_connect(host_ns, network_address_of(1), PORT, NULL) != 0);
    CHECK_INT(try_connect(a, host_address, PORT, NULL), ECONNREFUSED);
    CHECK_INT(try_connect(a, quad("10.1.2.3"), PORT, NULL), ECONNREFUSED);
    CHECK_INT(try_connect(a, NETWORK_ROUTER, PORT, NULL), ECONNREFUSED);
    /* It is the group and nothing else. */
    join(3, NETWORK_NONE, 7);
    CHECK_INT(try_connect(other, network_address_of(1), PORT, NULL), 0);
    CHECK_INT(try_connect(a, network_address_of(3), PORT, NULL), 0);
}

static int raw_in(int netns)
{
    auto_netns struct netns_visit visit = NETNS_HOME;
    int fd;

    CHECK(netns_enter(netns, &visit) == 0);
    fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
    CHECK(fd >= 0);
    return fd;
}

/* As somebody with all rights inside would. */
static bool forged_arrives(int from_ns, uint32_t source, int to_ns, uint32_t destination)
{
    struct {
        struct iphdr ip;
        struct udphdr udp;
        char byte;
    } __attribute__((packed)) packet = {
        .ip = {.version = 4,
               .ihl = 5,
               .ttl = 64,
               .protocol = IPPROTO_UDP,
               .saddr = htonl(source),
               .daddr = htonl(destination)},
        .udp = {.source = htons(1234), .dest = htons(ECHO), .len = htons(9)},
        .byte = 'x',
    };
    struct sockaddr_in to = address_of(destination, 0);
    auto_close int from = raw_in(from_ns), at = bound_in(to_ns, SOCK_DGRAM, ECHO);
    struct pollfd wait = {.fd = at, .events = POLLIN};

    CHECK(sendto(from, &packet, sizeof(packet), 0, (struct sockaddr *)&to, sizeof(to)) ==
          sizeof(packet));
    return poll(&wait, 1, 100) == 1;
}

/* The addresses of others are of no use, not even where the guest gives them to itself. */
TEST(an_outsider_cannot_pretend_to_be_a_member)
{
    auto_close int a = -1, b = -1, other = -1;
    struct netlink_batch batch;

    setup();
    a = make_member(1, NETWORK_OPEN, 7);
    b = make_member(2, NETWORK_OPEN, 7);
    other = make_member(3, NETWORK_OPEN, 8);
    netlink_batch_init(&batch);
    rtnl_put_address(&batch, GUEST_INDEX, network_address_of(2), 32);
    send_batch(&batch, other);
    CHECK(forged_arrives(b, network_address_of(2), a, network_address_of(1)));
    CHECK(!forged_arrives(other, network_address_of(2), a, network_address_of(1)));
    CHECK(!forged_arrives(other, network_address_of(3), a, network_address_of(1)));
    CHECK(!forged_arrives(other, network_address_of(1), a, network_address_of(1)));
    CHECK(!forged_arrives(other, NETWORK_ROUTER, a, network_address_of(1)));
    /* Nor a member another one. */
    CHECK(!forged_arrives(b, network_address_of(3), a, network_address_of(1)));
}

/* What is open ends with whoever leaves, also where the other side began it; what others have goes on. */
TEST(leaving_ends_what_is_open)
{
    auto_close int a = -1, b = -1, c = -1, at_b = -1, mine = -1, theirs = -1, kept = -1,
                   kept_end = -1, again = -1;
    struct pollfd wait = {.events = POLLIN};
    char byte;

    setup();
    a = make_member(1, NETWORK_OPEN, 7);
    b = make_member(2, NETWORK_NONE, 7);
    c = make_member(3, NETWORK_NONE, 7);
    at_b = bound_in(b, SOCK_STREAM, PORT);
    CHECK_INT(try_connect(a, network_address_of(2), PORT, &mine), 0);
    (void)other_end(at_b, &theirs);
    CHECK_INT(try_connect(c, network_address_of(2), PORT, &kept), 0);
    (void)other_end(at_b, &kept_end);
    join(1, NETWORK_OPEN, 0);
    CHECK(write(theirs, "x", 1) == 1);
    wait.fd = theirs;
    CHECK_INT(poll(&wait, 1, 2000), 1);
    CHECK(read(theirs, &byte, 1) < 0 && errno == ECONNRESET);
    CHECK(recv(mine, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
    CHECK(write(mine, "x", 1) == 1);
    wait.fd = mine;
    CHECK_INT(poll(&wait, 1, 2000), 1);
    CHECK(read(mine, &byte, 1) < 0 && errno == ECONNRESET);
    CHECK(write(kept, "x", 1) == 1 && read(kept_end, &byte, 1) == 1);
    /* The one that was connected to leaves. */
    OK(network_release(network, 2, &err));
    CHECK(write(kept, "x", 1) == 1);
    wait.fd = kept;
    CHECK_INT(poll(&wait, 1, 2000), 1);
    CHECK(read(kept, &byte, 1) < 0 && errno == ECONNRESET);
    CHECK_INT(try_connect(c, network_address_of(2), PORT, NULL), ECONNREFUSED);
    join(2, NETWORK_NONE, 7);
    CHECK_INT(try_connect(c, network_address_of(2), PORT, &again), 0);
}

static void count(uint32_t address, uint32_t mark, void *arg)
{
    (void)address;
    (void)mark;
    ++*(size_t *)arg;
}

static size_t members(void)
{
    size_t found = 0;

    CHECK_INT(nft_each(&network->filter, &(struct nft_map){"quicksand", "members"}, count, &found),
              0);
    CHECK_INT(nft_each(&network->filter, &(struct nft_map){"quicksand", "groups"}, count, &found),
              0);
    return found;
}

TEST(groups_outlive_the_warden_and_go_with_their_slots)
{
    auto_close int a = -1, b = -1, at_b = -1;

    setup();
    a = make_member(1, NETWORK_NONE, 7);
    b = make_member(2, NETWORK_NONE, 0xfffffffe);
    at_b = bound_in(b, SOCK_STREAM, PORT);
    network_close(network);
    OK(network_open(&config, &network, &err));
    CHECK_INT(network_group_of(network, 1), 7);
    CHECK_INT(network_group_of(network, 2), 0xfffffffe);
    CHECK_INT(members(), 4);
    CHECK_INT(try_connect(a, network_address_of(2), PORT, NULL), ECONNREFUSED);
    join(2, NETWORK_NONE, 7);
    CHECK_INT(members(), 4);
    CHECK_INT(try_connect(a, network_address_of(2), PORT, NULL), 0);
    OK(network_release(network, 1, &err));
    OK(network_release(network, 2, &err));
    CHECK_INT(members(), 0);
}

/* Names are asked of the egress process, where the configured resolvers are asked; other servers are what they were. */
TEST(members_ask_the_egress_process_for_names)
{
    static const enum network_mode modes[] = {NETWORK_NONE, NETWORK_OPEN, NETWORK_FILTERED};
    auto_close int a = -1, plain = -1;
    uint32_t resolver = quad("10.9.9.9");

    setup();
    a = make_member(1, NETWORK_OPEN, 7);
    plain = make_member(2, NETWORK_OPEN, 0);
    for (size_t i = 0; i < 3; i++) {
        struct sockaddr_in to = address_of(resolver, 53);
        auto_close int from = socket_in(a, SOCK_DGRAM),
                       dns = bound_in(network->gateway_fd, SOCK_DGRAM, NETWORK_EGRESS_DNS_PORT);
        struct pollfd wait = {.fd = dns, .events = POLLIN};

        join(1, modes[i], 7);
        CHECK(sendto(from, "x", 1, 0, (struct sockaddr *)&to, sizeof(to)) == 1);
        CHECK_INT(poll(&wait, 1, 2000), 1);
    }
    join(1, NETWORK_OPEN, 7);
    CHECK(arrives(a, internet_ns, internet_address, 53, 2000));
    CHECK(arrives(plain, internet_ns, resolver, 53, 2000));
    join(1, NETWORK_OPEN, 0);
    CHECK(arrives(a, internet_ns, resolver, 53, 2000));
}

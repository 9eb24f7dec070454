/* Who reaches whom, in a world of the test's own (network_rig.h). */
#include "host/network/network.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "host/network/test/network_rig.h"
#include "protocol/netlink/netns.h"
#include "protocol/netlink/nft.h"
#include "protocol/netlink/rtnl.h"

TEST(online_sandbox_reaches_the_internet_behind_the_hosts_address)
{
    auto_close int guest = -1;
    char text[16];

    setup();
    network_address_text(network_address_of(0), text);
    CHECK_STR(str_of(text), "10.213.64.0");
    network_address_text(network_address_of(NETWORK_SLOT_MAX), text);
    CHECK_STR(str_of(text), "10.213.127.255");
    guest = make_guest(0, true);
    CHECK_INT(try_connect(guest, internet_address, PORT, NULL), 0);
    CHECK_INT(other_end(internet_listener, NULL), host_address);
    CHECK_INT(try_connect(guest, quad("198.51.100.7"), PORT, NULL), 0);
}

TEST(the_link_is_configured)
{
    auto_netlink struct netlink netlink = NETLINK_CLOSED;
    auto_close int guest = -1, listener = -1;
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct rtnl_link link;

    setup();
    guest = make_guest(300, true);
    CHECK(netlink_open_in(&netlink, NETLINK_ROUTE, guest) == 0);
    CHECK(rtnl_link_find(&netlink, "eth0", 0, &link) == 0);
    CHECK_INT(link.mtu, WAN_MTU);
    listener = bound_in(guest, SOCK_STREAM, PORT);
    CHECK_INT(try_connect(guest, INADDR_LOOPBACK, PORT, NULL), 0);
    {
        auto_netns struct netns_visit visit = NETNS_HOME;
        auto_close int fd = -1, fd_off = -1;
        char off;

        CHECK(netns_enter(guest, &visit) == 0);
        /* IPv6: not on the link, but on the loopback. */
        fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK(bind(fd, (struct sockaddr *)&six, sizeof(six)) == 0);
        fd_off = open("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", O_RDONLY | O_CLOEXEC);
        CHECK(read(fd_off, &off, 1) == 1);
        CHECK_INT(off, '1');
    }
}

/* The ARP table is one for the whole host: who sends past the router must not fill it with questions that
 * wait for an answer. */
TEST(sandboxes_ask_for_no_neighbours)
{
    auto_netns struct netns_visit visit = NETNS_HOME;
    auto_buf struct buf text = {0};
    auto_close int guest = -1, from = -1;
    int on = 1;

    setup();
    guest = make_guest(1, true);
    CHECK_INT(try_connect(guest, internet_address, PORT, NULL), 0);
    from = socket_in(guest, SOCK_DGRAM);
    CHECK(setsockopt(from, SOL_SOCKET, SO_DONTROUTE, &on, sizeof(on)) == 0);
    CHECK(setsockopt(from, SOL_SOCKET, SO_BINDTODEVICE, "eth0", sizeof("eth0")) == 0);
    for (uint32_t i = 1; i <= 64; i++) {
        struct sockaddr_in to = address_of(quad("198.51.100.0") + i, 9);

        (void)sendto(from, "x", 1, 0, (struct sockaddr *)&to, sizeof(to));
    }
    CHECK(netns_enter(guest, &visit) == 0);
    buf_init(&text, 1 << 16);
    CHECK(fd_read_file_at(AT_FDCWD, "/proc/thread-self/net/arp", &text) == 0);
    CHECK(strstr(text.p, "169.254.0.1 ") != NULL);
    CHECK(strstr(text.p, "198.51.100.") == NULL);
}

TEST(private_ranges_the_host_the_gateway_and_neighbours_are_out_of_reach)
{
    static const char *const blocked[] = {"10.1.2.3",   "169.254.169.254", "192.168.1.1",
                                          "172.16.5.5", "100.100.1.1",     "198.18.0.1",
                                          "192.0.0.8",  "10.9.9.9",        "169.254.0.1"};
    struct network_uplink uplink;
    struct network_names names = {.uplink = "qsup0badcafe"};
    auto_close int guest = -1, other = -1, other_listener = -1;

    setup();
    guest = make_guest(1, true);
    other = make_guest(2, true);
    other_listener = bound_in(other, SOCK_STREAM, PORT);
    for (size_t i = 0; i < sizeof(blocked) / sizeof(*blocked); i++) {
        /* All but the gateway's own address answer to the host. */
        if (quad(blocked[i]) != NETWORK_ROUTER)
            CHECK_INT(try_connect(host_ns, quad(blocked[i]), PORT, NULL), 0);
        CHECK_INT(try_connect(guest, quad(blocked[i]), PORT, NULL), ECONNREFUSED);
    }
    OK(network_uplink_plan(&config, &names, &uplink, &err));
    CHECK_INT(try_connect(host_ns, host_address, PORT, NULL), 0);
    CHECK_INT(try_connect(guest, host_address, PORT, NULL), ECONNREFUSED);
    CHECK_INT(try_connect(guest, uplink.host_address, PORT, NULL), ECONNREFUSED);
    CHECK_INT(try_connect(network->gateway_fd, uplink.gateway_address, PORT, NULL), 0);
    CHECK_INT(try_connect(guest, uplink.gateway_address, PORT, NULL), ECONNREFUSED);
    CHECK_INT(try_connect(other, network_address_of(2), PORT, NULL), 0);
    CHECK_INT(try_connect(guest, network_address_of(2), PORT, NULL), ECONNREFUSED);
    /* Nor does anything lead inwards; the egress process is in the gateway. */
    CHECK_INT(try_connect(network->gateway_fd, network_address_of(2), PORT, NULL), ECONNREFUSED);
    CHECK(try_connect(host_ns, uplink.gateway_address, PORT, NULL) != 0);
    CHECK(try_connect(internet_ns, network_address_of(2), PORT, NULL) != 0);
}

/* The host's rules hold on their own: here the gateway has none. */
TEST(host_rules_hold_without_the_gateways)
{
    auto_close int guest = -1;

    setup();
    guest = make_guest(1, true);
    {
        auto_netns struct netns_visit visit = NETNS_HOME;

        CHECK(netns_enter(network->gateway_fd, &visit) == 0);
        OK(nft_load("flush ruleset\n"
                    "add table inet open\n"
                    "add chain inet open post { type nat hook postrouting priority 100; }\n"
                    "add rule inet open post oifname uplink masquerade\n",
                    &err));
    }
    CHECK_INT(try_connect(guest, internet_address, PORT, NULL), 0);
    CHECK_INT(try_connect(guest, quad("10.1.2.3"), PORT, NULL), ECONNREFUSED);
    CHECK_INT(try_connect(guest, quad("169.254.169.254"), PORT, NULL), ECONNREFUSED);
    CHECK_INT(try_connect(guest, host_address, PORT, NULL), ECONNREFUSED);
}

/* And the other way round: here the host only masquerades. */
TEST(gateway_rules_hold_without_the_hosts)
{
    auto_close int guest = -1, offline = -1;

    setup();
    guest = make_guest(1, true);
    offline = make_guest(2, false);
    OK(nft_load("flush ruleset\n"
                "add table inet open\n"
                "add chain inet open post { type nat hook postrouting priority 100; }\n"
                "add rule inet open post oifname wan0 masquerade\n",
                &err));
    CHECK_INT(try_connect(guest, internet_address, PORT, NULL), 0);
    CHECK_INT(try_connect(offline, internet_address, PORT, NULL), ECONNREFUSED);
    CHECK_INT(try_connect(guest, quad("10.1.2.3"), PORT, NULL), ECONNREFUSED);
    CHECK_INT(try_connect(guest, quad("169.254.169.254"), PORT, NULL), ECONNREFUSED);
}

TEST(resolvers_are_reachable_on_port_53_only)
{
    auto_close int guest = -1, offline = -1, tcp = -1, udp = -1, from = -1;
    struct sockaddr_in to = address_of(quad("10.9.9.9"), 53);
    struct pollfd wait = {.events = POLLIN};

    setup();
    tcp = bound_in(internet_ns, SOCK_STREAM, 53);
    udp = bound_in(internet_ns, SOCK_DGRAM, 53);
    guest = make_guest(7, true);
    offline = make_guest(8, false);
    CHECK_INT(try_connect(guest, quad("10.9.9.9"), 53, NULL), 0);
    CHECK_INT(try_connect(guest, quad("10.1.2.3"), 53, NULL), ECONNREFUSED);
    CHECK_INT(try_connect(offline, quad("10.9.9.9"), 53, NULL), ECONNREFUSED);
    from = socket_in(guest, SOCK_DGRAM);
    CHECK(sendto(from, "q", 1, 0, (struct sockaddr *)&to, sizeof(to)) == 1);
    wait.fd = udp;
    CHECK(poll(&wait, 1, 1000) == 1);
}

TEST(offline_means_offline_and_can_change)
{
    auto_close int guest = -1, mine = -1, theirs = -1;
    struct pollfd wait = {.events = POLLIN};
    char byte;

    setup();
    guest = make_guest(3, false);
    CHECK_INT(try_connect(guest, internet_address, PORT, NULL), ECONNREFUSED);
    OK(network_set(network, 3, &policy_open, &err));
    CHECK_INT(try_connect(guest, internet_address, PORT, &mine), 0);
    (void)other_end(internet_listener, &theirs);
    CHECK(write(mine, "a", 1) == 1 && read(theirs, &byte, 1) == 1);
    /* Cutting ends what is connected, in both directions. */
    OK(network_set(network, 3, &policy_none, &err));
    CHECK(write(theirs, "b", 1) == 1);
    wait.fd = mine;
    CHECK_INT(poll(&wait, 1, 300), 0);
    (void)send(mine, "c", 1, MSG_NOSIGNAL);
    /* The host knows nothing of it any more and may say so; what was sent does not come. */
    wait.fd = theirs;
    (void)poll(&wait, 1, 300);
    CHECK(recv(theirs, &byte, 1, MSG_DONTWAIT) < 0);
    CHECK_INT(try_connect(guest, internet_address, PORT, NULL), ECONNREFUSED);
    OK(network_set(network, 3, &policy_open, &err));
    OK(network_set(network, 3, &policy_open, &err));
    CHECK_INT(try_connect(guest, internet_address, PORT, NULL), 0);
    OK(network_release(network, 3, &err));
    OK(network_release(network, 3, &err));
    CHECK_INT(try_connect(guest, internet_address, PORT, NULL), ECONNREFUSED);
}

/* The offline slot borrows the address of an online neighbour, of a stranger, and of the router. */
TEST(source_addresses_cannot_be_forged)
{
    const uint32_t forged[] = {network_address_of(11), quad("8.8.8.8"), NETWORK_ROUTER,
                               quad("203.0.113.9")};
    struct sockaddr_in to = address_of(internet_address, 9);
    auto_close int honest = -1, liar = -1, sink = -1, from = -1;
    struct pollfd wait = {.events = POLLIN};
    struct netlink_batch batch;

    setup();
    honest = make_guest(11, true);
    liar = make_guest(12, true);
    sink = bound_in(internet_ns, SOCK_DGRAM, 9);
    wait.fd = sink;
    for (size_t i = 0; i < sizeof(forged) / sizeof(*forged); i++) {
        struct sockaddr_in source = address_of(forged[i], 0);
        auto_close int fd = socket_in(liar, SOCK_DGRAM);

        netlink_batch_init(&batch);
        rtnl_put_address(&batch, NETWORK_GUEST_INDEX, forged[i], 32);
        send_batch(&batch, liar);
        CHECK(bind(fd, (struct sockaddr *)&source, sizeof(source)) == 0);
        (void)sendto(fd, "x", 1, 0, (struct sockaddr *)&to, sizeof(to));
        CHECK_INT(poll(&wait, 1, 200), 0);
    }
    from = socket_in(honest, SOCK_DGRAM);
    CHECK(sendto(from, "x", 1, 0, (struct sockaddr *)&to, sizeof(to)) == 1);
    CHECK_INT(poll(&wait, 1, 1000), 1);
}

TEST(reopening_adopts_what_is_there)
{
    auto_close int guest = -1, late = -1, mine = -1, theirs = -1;
    struct stat before, after;
    char byte;

    setup();
    guest = make_guest(4, true);
    CHECK_INT(try_connect(guest, internet_address, PORT, &mine), 0);
    (void)other_end(internet_listener, &theirs);
    CHECK(fstat(network->gateway_fd, &before) == 0);
    for (int i = 0; i < 2; i++) {
        network_close(network);
        network = NULL;
        OK(network_open(&config, &network, &err));
        CHECK(fstat(network->gateway_fd, &after) == 0);
        CHECK_INT(after.st_ino, before.st_ino);
        CHECK(fcntl(mine, F_SETFL, 0) == 0);
        CHECK(write(mine, "a", 1) == 1 && read(theirs, &byte, 1) == 1);
        CHECK(write(theirs, "b", 1) == 1 && read(mine, &byte, 1) == 1);
        CHECK_INT(try_connect(guest, internet_address, PORT, NULL), 0);
        CHECK_INT(try_connect(guest, host_address, PORT, NULL), ECONNREFUSED);
    }
    late = make_guest(5, true);
    CHECK_INT(try_connect(late, internet_address, PORT, NULL), 0);
}

/* The slot's last namespace is still there; also an answer to it must not reach the new one. */
TEST(a_slot_can_be_used_again_at_once)
{
    auto_close int first = -1, second = -1;

    setup();
    first = make_guest(6, true);
    CHECK_INT(try_connect(first, internet_address, PORT, NULL), 0);
    OK(network_release(network, 6, &err));
    second = make_guest(6, false);
    CHECK_INT(try_connect(second, internet_address, PORT, NULL), ECONNREFUSED);
    OK(network_set(network, 6, &policy_open, &err));
    CHECK_INT(try_connect(second, internet_address, PORT, NULL), 0);
    CHECK(try_connect(first, internet_address, PORT, NULL) != 0);
    /* The same namespace connected again is not an error either. */
    OK(network_connect(network, 6, second, &policy_open, &err));
    CHECK_INT(try_connect(second, internet_address, PORT, NULL), 0);
}

TEST(uplink_avoids_what_the_host_uses)
{
    auto_close int guest = -1;
    struct network_uplink uplink;
    struct network_names names = {.uplink = "qsup0badcafe"};
    struct netlink_batch batch;

    make_world();
    CHECK(atexit(destroy_at_exit) == 0);
    OK(network_uplink_plan(&config, &names, &uplink, &err));
    CHECK_INT(uplink.host_address >> 22, 0x64400000 >> 22);
    netlink_batch_init(&batch);
    rtnl_put_route(
        &batch, &(struct rtnl_route){
                    .to = 0x64400000, .prefix = 10, .via = internet_address, .index = WAN_INDEX});
    rtnl_put_route(&batch,
                   &(struct rtnl_route){
                       .to = 0x0a000000, .prefix = 9, .via = internet_address, .index = WAN_INDEX});
    send_batch(&batch, host_ns);
    OK(network_open(&config, &network, &err));
    OK(network_uplink_plan(&config, &names, &uplink, &err));
    CHECK_INT(uplink.host_address >> 23, 0x0a800000 >> 23);
    guest = make_guest(0, true);
    CHECK_INT(try_connect(guest, internet_address, PORT, NULL), 0);
}

static void *connect_many(void *arg)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    uint32_t first = *(uint32_t *)arg;

    for (uint32_t slot = first; slot < first + 8; slot++) {
        auto_close int guest = -1;
        struct error mine;

        (void)pthread_mutex_lock(&lock); /* fork */
        guest = make_guest_namespace();
        (void)pthread_mutex_unlock(&lock);
        if (network_connect(network, slot, guest, &policy_open, &mine) < 0)
            test_fail(__FILE__, __LINE__, "connect: %s", mine.message);
        CHECK_INT(try_connect(guest, internet_address, PORT, NULL), 0);
        if (network_release(network, slot, &mine) < 0)
            test_fail(__FILE__, __LINE__, "release: %s", mine.message);
    }
    return NULL;
}

TEST(threads)
{
    uint32_t firsts[] = {0, 100, 200, 300};
    pthread_t threads[4];

    setup();
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, connect_many, &firsts[i]) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

TEST(destroy_leaves_nothing)
{
    auto_netlink struct netlink netlink = NETLINK_CLOSED;
    auto_close int guest = -1, again = -1;
    struct rtnl_link link;
    struct error why = {0};
    char path[96];

    setup();
    guest = make_guest(1, true);
    OK(nft_load("list table inet quicksand_0badcafe", &err));
    (void)close(gateway_listener);
    network_close(network);
    OK(network_destroy(&config, &err));
    OK(network_destroy(&config, &err));
    CHECK(nft_load("list table inet quicksand_0badcafe", &why) < 0);
    CHECK(netlink_open(&netlink, NETLINK_ROUTE) == 0);
    CHECK_INT(rtnl_link_find(&netlink, "qsup0badcafe", 0, &link), -ENODEV);
    (void)snprintf(path, sizeof(path), "%s/gateway.netns", run_dir);
    CHECK(access(path, F_OK) < 0 && errno == ENOENT);
    CHECK(try_connect(guest, internet_address, PORT, NULL) != 0);
    /* And it can be made again. */
    OK(network_open(&config, &network, &err));
    again = make_guest(1, true);
    CHECK_INT(try_connect(again, internet_address, PORT, NULL), 0);
}

TEST(bad_configurations_are_refused)
{
    static const char *const loopback[] = {"127.0.0.53"}, *const words[] = {"1.1.1.1; flush"};
    struct network_config bad = config;

    bad.instance = "Nonsense";
    FAILS(network_open(&bad, &network, &err), ERROR_INVALID);
    bad = config;
    bad.resolver_count = 1;
    bad.resolvers = loopback;
    FAILS(network_open(&bad, &network, &err), ERROR_INVALID);
    bad.resolvers = words;
    FAILS(network_open(&bad, &network, &err), ERROR_INVALID);
    FAILS(network_connect(NULL, NETWORK_SLOT_MAX + 1, -1, &policy_open, &err), ERROR_INVALID);
}

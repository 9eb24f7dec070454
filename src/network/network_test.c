/* A world of the test's own: the test process is the "host" in a new network namespace, a second
 * namespace behind a veth is the "internet" and answers to every address, private ones too: so a
 * missing rule shows as a connection that works. Nothing touches the machine's own network. */
#include "network/network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/test.h"
#include "netlink/netns.h"
#include "netlink/nft.h"
#include "netlink/rtnl.h"
#include "network/network_internal.h"

enum { LO = 1, WAN_INDEX = 70, INTERNET_INDEX = 71, PORT = 80, WAN_MTU = 1400 };
static const uint32_t host_address = 0xcb007102, internet_address = 0xcb007101; /* 203.0.113.x */

static char run_dir[64];
static const char *const resolvers[] = {"10.9.9.9", "198.51.100.53"};
static struct network_config config = {
    .instance = "0badcafe", .run_dir = run_dir, .resolvers = resolvers, .resolver_count = 2};
static int internet_ns, host_ns;
static int internet_listener, host_listener, gateway_listener;
static struct network *network;

static void remove_run_dir(void)
{
    (void)path_remove_tree(AT_FDCWD, run_dir);
}

static void send_batch(struct netlink_batch *batch, int netns)
{
    auto_netlink struct netlink netlink = NETLINK_CLOSED;
    int r;

    CHECK(netlink_open_in(&netlink, NETLINK_ROUTE, netns) == 0);
    r = netlink_send(&netlink, batch);
    if (r < 0)
        test_fail(__FILE__, __LINE__, "netlink: %s (%s)", strerror(-r), netlink_reason(&netlink));
}

static int socket_in(int netns, int type)
{
    auto_netns struct netns_visit visit = NETNS_HOME;
    int fd, on = 1;

    CHECK(netns_enter(netns, &visit) == 0);
    fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0);
    return fd;
}

static struct sockaddr_in address_of(uint32_t address, uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(address)};
}

static int bound_in(int netns, int type, uint16_t port)
{
    struct sockaddr_in any = address_of(INADDR_ANY, port);
    int fd = socket_in(netns, type);

    CHECK(bind(fd, (struct sockaddr *)&any, sizeof(any)) == 0);
    if (type == SOCK_STREAM)
        CHECK(listen(fd, 64) == 0);
    return fd;
}

/* 0 or the errno of the attempt; the connected socket in *out_fd when asked for. */
static int try_connect(int netns, uint32_t address, uint16_t port, int *out_fd)
{
    struct sockaddr_in to = address_of(address, port);
    auto_close int fd = socket_in(netns, SOCK_STREAM | SOCK_NONBLOCK);
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    socklen_t len = sizeof(int);
    int result;

    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
        if (errno != EINPROGRESS)
            return errno;
        if (poll(&wait, 1, 5000) == 0)
            return ETIMEDOUT;
        CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &result, &len) == 0);
        if (result)
            return result;
    }
    if (out_fd)
        *out_fd = take_fd(&fd);
    return 0;
}

static uint32_t quad(const char *text)
{
    struct in_addr parsed;

    CHECK(inet_pton(AF_INET, text, &parsed) == 1);
    return ntohl(parsed.s_addr);
}

static void make_internet(void)
{
    static const char *const addresses[] = {
        "198.51.100.7", "198.51.100.53", "10.1.2.3",    "10.9.9.9",   "169.254.169.254",
        "192.168.1.1",  "172.16.5.5",    "100.100.1.1", "198.18.0.1", "192.0.0.8"};
    auto_netns struct netns_visit visit = NETNS_HOME;
    struct netlink_batch batch;

    host_ns = netns_current();
    CHECK(netns_enter_new(&visit) == 0);
    internet_ns = netns_current();
    CHECK(host_ns >= 0 && internet_ns >= 0);
    netns_leave(&visit);
    netlink_batch_init(&batch);
    rtnl_put_veth(&batch, &(struct rtnl_veth){.near = {.name = "wan0", .index = WAN_INDEX},
                                              .peer = {.name = "eth0", .index = INTERNET_INDEX},
                                              .peer_netns_fd = internet_ns,
                                              .mtu = WAN_MTU,
                                              .up = true});
    rtnl_put_up(&batch, LO);
    rtnl_put_address(&batch, WAN_INDEX, host_address, 24);
    send_batch(&batch, host_ns);
    netlink_batch_init(&batch);
    rtnl_put_up(&batch, LO);
    rtnl_put_address(&batch, INTERNET_INDEX, internet_address, 24);
    rtnl_put_up(&batch, INTERNET_INDEX);
    for (size_t i = 0; i < sizeof(addresses) / sizeof(*addresses); i++)
        rtnl_put_address(&batch, LO, quad(addresses[i]), 32);
    send_batch(&batch, internet_ns);
    netlink_batch_init(&batch);
    rtnl_put_route(&batch, &(struct rtnl_route){.via = internet_address, .index = WAN_INDEX});
    send_batch(&batch, host_ns);
}

static void make_world(void)
{
    if (geteuid() != 0)
        test_skip("needs root");
    CHECK(unshare(CLONE_NEWNET | CLONE_NEWNS) == 0);
    CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    (void)snprintf(run_dir, sizeof(run_dir), "/tmp/quicksand-network-XXXXXX");
    CHECK(mkdtemp(run_dir));
    CHECK(atexit(remove_run_dir) == 0);
    make_internet();
    internet_listener = bound_in(internet_ns, SOCK_STREAM, PORT);
    host_listener = bound_in(host_ns, SOCK_STREAM, PORT);
}

static void destroy_at_exit(void)
{
    struct error ignored;

    (void)network_destroy(&config, &ignored);
}

static void setup(void)
{
    make_world();
    CHECK(atexit(destroy_at_exit) == 0);
    OK(network_open(&config, &network, &err));
    gateway_listener = bound_in(network->gateway_fd, SOCK_STREAM, PORT);
}

/* A namespace owned by a user namespace of its own, as sandboxes have. */
static int make_guest_namespace(void)
{
    int ready[2], fd;
    char path[64], byte;
    pid_t pid;

    CHECK(pipe2(ready, O_CLOEXEC) == 0);
    pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0 || write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            (void)pause();
    }
    CHECK(pid > 0);
    (void)close(ready[1]);
    CHECK(read(ready[0], &byte, 1) == 1);
    (void)close(ready[0]);
    (void)snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(kill(pid, SIGKILL) == 0);
    CHECK(waitpid(pid, NULL, 0) == pid);
    return fd; /* keeps the namespace */
}

static int make_guest(uint32_t slot, bool online)
{
    int fd = make_guest_namespace();

    OK(network_connect(network, slot, fd, online, &err));
    return fd;
}

static uint32_t other_end(int listener, int *out_fd)
{
    struct sockaddr_in from = {0};
    socklen_t len = sizeof(from);
    struct pollfd wait = {.fd = listener, .events = POLLIN};
    int fd;

    CHECK(poll(&wait, 1, 1000) == 1);
    fd = accept4(listener, (struct sockaddr *)&from, &len, SOCK_CLOEXEC);
    CHECK(fd >= 0);
    if (out_fd)
        *out_fd = fd;
    else
        (void)close(fd);
    return ntohl(from.sin_addr.s_addr);
}

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
    /* Nor does anything lead inwards. */
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
        char reason[128];

        CHECK(netns_enter(network->gateway_fd, &visit) == 0);
        CHECK(nft_load("flush ruleset\n"
                       "add table inet open\n"
                       "add chain inet open post { type nat hook postrouting priority 100; }\n"
                       "add rule inet open post oifname uplink masquerade\n",
                       reason, sizeof(reason)) == 0);
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
    char reason[128];

    setup();
    guest = make_guest(1, true);
    offline = make_guest(2, false);
    CHECK(nft_load("flush ruleset\n"
                   "add table inet open\n"
                   "add chain inet open post { type nat hook postrouting priority 100; }\n"
                   "add rule inet open post oifname wan0 masquerade\n",
                   reason, sizeof(reason)) == 0);
    CHECK_INT(try_connect(guest, internet_address, PORT, NULL), 0);
    CHECK_INT(try_connect(offline, internet_address, PORT, NULL), ECONNREFUSED);
    CHECK_INT(try_connect(guest, quad("10.1.2.3"), PORT, NULL), ECONNREFUSED);
    CHECK_INT(try_connect(guest, quad("169.254.169.254"), PORT, NULL), ECONNREFUSED);
}

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
    OK(network_set_online(network, 1, true, &err));
    for (int i = 0; i < 20; i++)
        CHECK_INT(try_connect(greedy, internet_address, PORT, NULL), 0);
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
    OK(network_set_online(network, 3, true, &err));
    CHECK_INT(try_connect(guest, internet_address, PORT, &mine), 0);
    (void)other_end(internet_listener, &theirs);
    CHECK(write(mine, "a", 1) == 1 && read(theirs, &byte, 1) == 1);
    /* Cutting ends what is connected, in both directions. */
    OK(network_set_online(network, 3, false, &err));
    CHECK(write(theirs, "b", 1) == 1);
    wait.fd = mine;
    CHECK_INT(poll(&wait, 1, 300), 0);
    (void)send(mine, "c", 1, MSG_NOSIGNAL);
    wait.fd = theirs;
    CHECK_INT(poll(&wait, 1, 300), 0);
    CHECK_INT(try_connect(guest, internet_address, PORT, NULL), ECONNREFUSED);
    OK(network_set_online(network, 3, true, &err));
    OK(network_set_online(network, 3, true, &err));
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
    OK(network_set_online(network, 6, true, &err));
    CHECK_INT(try_connect(second, internet_address, PORT, NULL), 0);
    CHECK(try_connect(first, internet_address, PORT, NULL) != 0);
    /* The same namespace connected again is not an error either. */
    OK(network_connect(network, 6, second, true, &err));
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
        if (network_connect(network, slot, guest, true, &mine) < 0)
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
    char path[96], reason[128];

    setup();
    guest = make_guest(1, true);
    CHECK(nft_load("list table inet quicksand_0badcafe", reason, sizeof(reason)) == 0);
    (void)close(gateway_listener);
    network_close(network);
    OK(network_destroy(&config, &err));
    OK(network_destroy(&config, &err));
    CHECK(nft_load("list table inet quicksand_0badcafe", reason, sizeof(reason)) < 0);
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
    FAILS(network_connect(NULL, NETWORK_SLOT_MAX + 1, -1, true, &err), ERROR_INVALID);
}

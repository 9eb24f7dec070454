#include "host/network/test/network_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "protocol/netlink/netns.h"
#include "protocol/netlink/rtnl.h"

char run_dir[64];
static const char *const resolvers[] = {"10.9.9.9", "198.51.100.53"};
struct network_config config = {
    .instance = "0badcafe", .run_dir = run_dir, .resolvers = resolvers, .resolver_count = 2};
int internet_ns, host_ns;
int internet_listener, host_listener, gateway_listener;
struct network *network;
const struct box_network policy_none = {.mode = NETWORK_NONE}, policy_open = {.mode = NETWORK_OPEN};

static void remove_run_dir(void)
{
    (void)path_remove_tree(AT_FDCWD, run_dir);
}

void send_batch(struct netlink_batch *batch, int netns)
{
    auto_netlink struct netlink netlink = NETLINK_CLOSED;
    int r;

    CHECK(netlink_open_in(&netlink, NETLINK_ROUTE, netns) == 0);
    r = netlink_send(&netlink, batch);
    if (r < 0)
        test_fail(__FILE__, __LINE__, "netlink: %s (%s)", strerror(-r), netlink_reason(&netlink));
}

int socket_in(int netns, int type)
{
    auto_netns struct netns_visit visit = NETNS_HOME;
    int fd, on = 1;

    CHECK(netns_enter(netns, &visit) == 0);
    fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0);
    return fd;
}

struct sockaddr_in address_of(uint32_t address, uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(address)};
}

int bound_in(int netns, int type, uint16_t port)
{
    struct sockaddr_in any = address_of(INADDR_ANY, port);
    int fd = socket_in(netns, type);

    CHECK(bind(fd, (struct sockaddr *)&any, sizeof(any)) == 0);
    if (type == SOCK_STREAM)
        CHECK(listen(fd, 64) == 0);
    return fd;
}

int try_connect(int netns, uint32_t address, uint16_t port, int *out_fd)
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

uint32_t quad(const char *text)
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

void make_world(void)
{
    test_needs_root();
    CHECK(unshare(CLONE_NEWNET | CLONE_NEWNS) == 0);
    CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    (void)snprintf(run_dir, sizeof(run_dir), "/tmp/quicksand-network-XXXXXX");
    CHECK(mkdtemp(run_dir));
    CHECK(atexit(remove_run_dir) == 0);
    make_internet();
    internet_listener = bound_in(internet_ns, SOCK_STREAM, PORT);
    host_listener = bound_in(host_ns, SOCK_STREAM, PORT);
}

void destroy_at_exit(void)
{
    struct error ignored;

    (void)network_destroy(&config, &ignored);
}

void setup(void)
{
    make_world();
    CHECK(atexit(destroy_at_exit) == 0);
    OK(network_open(&config, &network, &err));
    gateway_listener = bound_in(network->gateway_fd, SOCK_STREAM, PORT);
}

int make_guest_namespace(void)
{
    int ready[2], fd;
    char path[64], byte;
    pid_t pid;

    CHECK(pipe2(ready, O_CLOEXEC) == 0);
    pid = _Fork(); /* ThreadSanitizer would start a thread in the child: no user namespace for it */
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

int make_guest(uint32_t slot, bool online)
{
    int fd = make_guest_namespace();

    OK(network_connect(network, slot, fd, online ? &policy_open : &policy_none, &err));
    return fd;
}

uint32_t other_end(int listener, int *out_fd)
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

/* Real requests to the kernel, in network namespaces of the test's own. */
#include "protocol/netlink/netlink.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/test.h"
#include "protocol/netlink/conntrack.h"
#include "protocol/netlink/netns.h"
#include "protocol/netlink/nft.h"
#include "protocol/netlink/rtnl.h"

enum { LOOPBACK = 1 };
static const uint8_t mac[] = {2, 0, 0, 0, 0, 1}, peer_mac[] = {2, 0, 0, 0, 0, 2};
static const uint32_t near_address = 0xc0000201, peer_address = 0xc0000202; /* 192.0.2.x */

static void setup(void)
{
    test_needs_root();
    CHECK(unshare(CLONE_NEWNET) == 0);
}

static int other_namespace(void)
{
    auto_netns struct netns_visit visit = NETNS_HOME;
    int fd;

    CHECK(netns_enter_new(&visit) == 0);
    fd = netns_current();
    CHECK(fd >= 0);
    return fd;
}

static ino_t namespace_id(void)
{
    auto_close int fd = netns_current();
    struct stat st;

    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    return st.st_ino;
}

TEST(a_visit_always_ends_at_home)
{
    ino_t home, away;

    setup();
    home = namespace_id();
    {
        auto_close int fd = other_namespace();
        auto_netns struct netns_visit visit = NETNS_HOME;

        CHECK_INT(namespace_id(), home);
        CHECK(netns_enter(fd, &visit) == 0);
        away = namespace_id();
        CHECK(away != home);
    }
    CHECK_INT(namespace_id(), home);
    {
        auto_netns struct netns_visit visit = NETNS_HOME;

        CHECK(netns_enter(STDIN_FILENO, &visit) < 0);
        CHECK_INT(namespace_id(), home);
    }
    CHECK_INT(namespace_id(), home);
}

static void count_known(const struct rtnl_known *known, void *arg)
{
    if (known->address == near_address)
        (*(int *)arg)++;
}

static void count_default(const struct rtnl_known *known, void *arg)
{
    if (known->prefix == 0)
        *(uint32_t *)arg = known->index;
}

TEST(veth_with_addresses_and_routes)
{
    auto_netlink struct netlink near = NETLINK_CLOSED, peer = NETLINK_CLOSED;
    auto_close int netns = -1;
    struct netlink_batch batch;
    struct rtnl_link link;
    uint32_t out = 0;
    int count = 0;

    setup();
    netns = other_namespace();
    CHECK(netlink_open(&near, NETLINK_ROUTE) == 0);
    CHECK(netlink_open_in(&peer, NETLINK_ROUTE, netns) == 0);
    netlink_batch_init(&batch);
    rtnl_put_veth(&batch, &(struct rtnl_veth){.near = {"near", 40, mac},
                                              .peer = {"far", 50, peer_mac},
                                              .peer_netns_fd = netns,
                                              .mtu = 1400,
                                              .up = true});
    rtnl_put_address(&batch, 40, near_address, 32);
    rtnl_put_route(&batch, &(struct rtnl_route){.to = peer_address, .prefix = 32, .index = 40});
    rtnl_put_route(&batch, &(struct rtnl_route){.via = peer_address, .index = 40});
    rtnl_put_neighbour(&batch, 40, peer_address, peer_mac);
    CHECK_INT(netlink_send(&near, &batch), 0);
    CHECK(rtnl_link_find(&near, "near", 0, &link) == 0);
    CHECK_INT(link.index, 40);
    CHECK_INT(link.mtu, 1400);
    CHECK(rtnl_link_find(&near, NULL, 40, &link) == 0);
    CHECK(rtnl_link_find(&peer, "far", 0, &link) == 0);
    CHECK_INT(link.index, 50);
    CHECK_INT(rtnl_link_find(&near, "far", 0, &link), -ENODEV);
    CHECK(rtnl_each_address(&near, count_known, &count) == 0);
    CHECK_INT(count, 1);
    CHECK(rtnl_each_route(&near, count_default, &out) == 0);
    CHECK_INT(out, 40);
    netlink_batch_init(&batch);
    rtnl_put_delete(&batch, "near");
    CHECK_INT(netlink_send(&near, &batch), 0);
    CHECK_INT(rtnl_link_find(&peer, "far", 0, &link), -ENODEV);
}

TEST(failures_carry_the_kernels_errno_and_do_not_stop_a_batch)
{
    auto_netlink struct netlink netlink = NETLINK_CLOSED;
    struct netlink_batch batch;
    struct rtnl_link link;

    setup();
    CHECK(netlink_open(&netlink, NETLINK_ROUTE) == 0);
    netlink_batch_init(&batch);
    rtnl_put_delete(&batch, "absent");
    rtnl_put_address(&batch, LOOPBACK, near_address, 33);
    rtnl_put_up(&batch, LOOPBACK);
    CHECK_INT(netlink_send(&netlink, &batch), -ENODEV);
    netlink_batch_init(&batch);
    rtnl_put_address(&batch, LOOPBACK, near_address, 33);
    CHECK_INT(netlink_send(&netlink, &batch), -EINVAL);
    netlink_batch_init(&batch);
    rtnl_put_route(&batch, &(struct rtnl_route){.via = peer_address, .index = LOOPBACK});
    CHECK(netlink_send(&netlink, &batch) < 0);
    CHECK(netlink_reason(&netlink)[0] != '\0');
    /* The socket is in step: the next request gets its own answer. */
    CHECK(rtnl_link_find(&netlink, "lo", 0, &link) == 0);
    CHECK_INT(link.index, LOOPBACK);
}

TEST(map_elements)
{
    static const struct nft_map map = {"t", "m"}, absent = {"t", "absent"};
    auto_netlink struct netlink netlink = NETLINK_CLOSED;
    struct error why = {0};

    setup();
    OK(nft_load("add table inet t\nadd map inet t m { type ipv4_addr : mark; }\n", &err));
    CHECK(nft_load("add nonsense", &why) < 0);
    CHECK(strstr(why.message, "rror"));
    CHECK(netlink_open(&netlink, NETLINK_NETFILTER) == 0);
    CHECK_INT(nft_map_has(&netlink, &map, near_address), 0);
    CHECK_INT(nft_map_remove(&netlink, &map, near_address), 0);
    CHECK_INT(nft_map_put(&netlink, &map, near_address, 7), 0);
    CHECK_INT(nft_map_put(&netlink, &map, near_address, 7), 0);
    CHECK_INT(nft_map_put(&netlink, &map, near_address, 8), -EEXIST);
    CHECK_INT(nft_map_has(&netlink, &map, near_address), 1);
    CHECK_INT(nft_map_has(&netlink, &map, peer_address), 0);
    CHECK_INT(nft_map_remove(&netlink, &map, near_address), 1);
    CHECK_INT(nft_map_has(&netlink, &map, near_address), 0);
    CHECK_INT(nft_map_put(&netlink, &absent, near_address, 7), -ENOENT);
    CHECK_INT(conntrack_forget_mark(&netlink, (struct conntrack_mark){7, UINT32_MAX}), 0);
}

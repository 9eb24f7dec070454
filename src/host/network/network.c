/* Making, finding and removing the gateway.
 *
 * Opening goes through the same steps whether or not something exists already; each step leaves
 * what is right as it is. Rules come before links: no packet ever meets a gateway without rules.
 * Nothing is recorded: the bind mount is the gateway, names and numbers follow from the instance
 * and the slots. */
#include "host/network/network.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/vfs.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "host/network/network_internal.h"
#include "protocol/netlink/netns.h"

int network_fail(struct error *err, int r, const struct netlink *netlink, const char *what)
{
    const char *reason = netlink_reason(netlink);

    if (reason[0])
        return error_set_errno(err, -r, "%s (%s)", what, reason);
    return error_set_errno(err, -r, "%s", what);
}

static int make_names(const struct network_config *config, struct network_names *out,
                      struct error *err)
{
    const char *instance = config->instance;
    int len;

    if (strlen(instance) != 8 || strspn(instance, "0123456789abcdef") != 8)
        return error_set(err, ERROR_INVALID, "bad instance name");
    if (config->resolver_count > NETWORK_RESOLVERS_MAX)
        return error_set(err, ERROR_INVALID, "more than %d resolvers", NETWORK_RESOLVERS_MAX);
    for (size_t i = 0; i < config->resolver_count; i++) {
        uint32_t ignored;

        if (network_address_parse(config->resolvers[i], &ignored, err) < 0)
            return -1;
    }
    if (config->private_count > NETWORK_PRIVATE_MAX)
        return error_set(err, ERROR_INVALID, "more than %d private ranges", NETWORK_PRIVATE_MAX);
    for (size_t i = 0; i < config->private_count; i++)
        if (network_private_check(config->private_ranges[i], err) < 0)
            return -1;
    (void)snprintf(out->uplink, sizeof(out->uplink), "qsup%s", instance);
    (void)snprintf(out->table, sizeof(out->table), "quicksand_%s", instance);
    len =
        snprintf(out->gateway_path, sizeof(out->gateway_path), "%s/gateway.netns", config->run_dir);
    if (len < 0 || (size_t)len >= sizeof(out->gateway_path))
        return error_set(err, ERROR_INVALID, "bad run directory");
    return 0;
}

/* The descriptor of the gateway when it exists, -1 when not. */
static int find_gateway(const struct network_names *names)
{
    auto_close int fd = open(names->gateway_path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct statfs fs;

    /* An empty file is what is left of a bind mount after a restart of the machine. */
    if (fd < 0 || fstatfs(fd, &fs) < 0 || fs.f_type != NSFS_MAGIC)
        return -1;
    return take_fd(&fd);
}

static int make_gateway(const struct network_names *names, int *out_fd, struct error *err)
{
    auto_netns struct netns_visit visit = NETNS_HOME;
    auto_close int file = -1, fd = -1;
    int r;

    file = open(names->gateway_path, O_RDONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0)
        return error_set_errno(err, errno, "make '%s'", names->gateway_path);
    r = netns_enter_new(&visit);
    if (r < 0)
        return error_set_errno(err, -r, "make the gateway's network namespace");
    if (mount("/proc/thread-self/ns/net", names->gateway_path, NULL, MS_BIND, NULL) < 0)
        return error_set_errno(err, errno, "keep the gateway at '%s'", names->gateway_path);
    fd = netns_current();
    if (fd < 0)
        return error_set_errno(err, -fd, "open the gateway");
    *out_fd = take_fd(&fd);
    return 0;
}

static int prepare_gateway(const struct network_config *config, int gateway_fd, struct error *err)
{
    static const struct {
        const char *path, *value;
        bool optional;
    } settings[] = {
        {"ipv6/conf/all/disable_ipv6", "1", true},
        {"ipv6/conf/default/disable_ipv6", "1", true},
        {"ipv4/conf/all/rp_filter", "1", false},
        {"ipv4/conf/default/rp_filter", "1", false},
        {"ipv4/conf/all/send_redirects", "0", false},
        {"ipv4/conf/default/send_redirects", "0", false},
        {"ipv4/conf/all/accept_redirects", "0", false},
        {"ipv4/conf/default/accept_redirects", "0", false},
        {"ipv4/icmp_ratelimit", "0", false}, /* refusals are told, also the seventh of a second */
        {"ipv4/ip_forward", "1", false},
    };
    auto_netns struct netns_visit visit = NETNS_HOME;
    int r = netns_enter(gateway_fd, &visit);

    if (r < 0)
        return error_set_errno(err, -r, "enter the gateway");
    if (network_rules_load_gateway(config, err) < 0)
        return -1;
    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
        if (network_sysctl(settings[i].path, settings[i].value, settings[i].optional, err) < 0)
            return -1;
    }
    return network_flow_sysctls(err);
}

static int open_sockets(struct network *network, struct error *err)
{
    int r = netlink_open_in(&network->links, NETLINK_ROUTE, network->gateway_fd);

    if (r == 0)
        r = netlink_open_in(&network->filter, NETLINK_NETFILTER, network->gateway_fd);
    if (r == 0)
        r = netlink_open(&network->host, NETLINK_NETFILTER);
    if (r < 0)
        return error_set_errno(err, -r, "open netlink sockets");
    r = network_reach_load(network);
    return r < 0 ? network_fail(err, r, &network->filter, "read the gateway's rules") : 0;
}

static int open_network(struct network *network, const struct network_config *config,
                        struct error *err)
{
    struct network_uplink uplink = {0};
    struct network_names names;

    if (make_names(config, &names, err) < 0)
        return -1;
    network->gateway_fd = find_gateway(&names);
    if (network->gateway_fd < 0 && make_gateway(&names, &network->gateway_fd, err) < 0)
        return -1;
    if (prepare_gateway(config, network->gateway_fd, err) < 0 ||
        network_uplink_plan(config, &names, &uplink, err) < 0 ||
        network_rules_load_host(config, &names, &uplink, err) < 0 ||
        network_uplink_make(&names, &uplink, network->gateway_fd, err) < 0 ||
        network_sysctl("ipv4/ip_forward", "1", false, err) < 0)
        return -1;
    if (network_firewall_open(&names, config->manage_firewall, err) < 0)
        return -1;
    network_rules_load_times(&names);
    network->mtu = uplink.mtu;
    return open_sockets(network, err);
}

int network_open(const struct network_config *config, struct network **out, struct error *err)
{
    struct network *network = xcalloc(1, sizeof(*network));

    network->gateway_fd = -1;
    network->reaches = xcalloc(NETWORK_SLOT_MAX + 1, sizeof(*network->reaches));
    network->links = network->filter = network->host = NETLINK_CLOSED;
    (void)pthread_mutex_init(&network->links_lock, NULL);
    (void)pthread_mutex_init(&network->filter_lock, NULL);
    (void)pthread_mutex_init(&network->host_lock, NULL);
    if (open_network(network, config, err) < 0) {
        network_close(network);
        return error_prefix(err, "network");
    }
    *out = network;
    return 0;
}

int network_gateway_fd(const struct network *network)
{
    return network->gateway_fd;
}

void network_close(struct network *network)
{
    if (!network)
        return;
    network_reach_free(network);
    netlink_close(&network->links);
    netlink_close(&network->filter);
    netlink_close(&network->host);
    close_fd(&network->gateway_fd);
    (void)pthread_mutex_destroy(&network->links_lock);
    (void)pthread_mutex_destroy(&network->filter_lock);
    (void)pthread_mutex_destroy(&network->host_lock);
    free(network);
}

static int remove_gateway(const struct network_names *names, struct error *err)
{
    int fd = find_gateway(names);

    if (fd >= 0) {
        close_fd(&fd);
        if (umount2(names->gateway_path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0)
            return error_set_errno(err, errno, "unmount '%s'", names->gateway_path);
    }
    if (unlink(names->gateway_path) < 0 && errno != ENOENT)
        return error_set_errno(err, errno, "remove '%s'", names->gateway_path);
    return 0;
}

/* While the uplink is there: the gateway forgets with it. */
static int forget_flows(const struct network_names *names, struct error *err)
{
    auto_close int fd = find_gateway(names);

    return fd < 0 ? 0 : network_flows_forget_all(fd, err);
}

/* Goes on after a failure and reports the first one. */
int network_destroy(const struct network_config *config, struct error *err)
{
    struct network_names names;
    struct error first = {0}, later;
    int failed;

    if (make_names(config, &names, err) < 0)
        return -1;
    failed = forget_flows(&names, &first);
    failed |= network_uplink_remove(&names, failed ? &later : &first);
    failed |= remove_gateway(&names, failed ? &later : &first);
    failed |= network_rules_remove_host(&names, failed ? &later : &first);
    failed |= network_firewall_close(&names, failed ? &later : &first);
    if (!failed)
        return 0;
    *err = first;
    return error_prefix(err, "network");
}

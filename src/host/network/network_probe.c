/* What a network of ours needs of the host: the right to make links and rules, and nftables. Tried in a namespace that goes at once. */
#include <errno.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/network/network_internal.h"
#include "protocol/netlink/netns.h"
#include "protocol/netlink/nft.h"

static bool has_right(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

    return syscall(SYS_capget, &head, data) == 0 && data[0].effective & 1u << CAP_NET_ADMIN;
}

int network_probe(struct error *err)
{
    auto_netns struct netns_visit visit = NETNS_HOME;
    struct error why;
    int r;

    if (!has_right())
        return error_set(err, ERROR_UNSUPPORTED, "the server has no CAP_NET_ADMIN");
    r = netns_enter_new(&visit);
    if (r < 0)
        return error_set(err, ERROR_UNSUPPORTED, "network namespaces cannot be made: %s",
                         strerror(-r));
    if (nft_load("table inet " NETWORK_GATEWAY_TABLE " { chain c { ct state new counter; }; }\n",
                 &why) < 0)
        return error_set(err, ERROR_UNSUPPORTED, "nftables does not work: %s", why.message);
    return 0;
}

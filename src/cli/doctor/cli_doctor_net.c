/* doctor: what networks need. Talks netlink directly: the few messages here are questions. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/if_link.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "cli/doctor/cli_doctor.h"

enum { MESSAGE_MAX = 1024, REPLY_MAX = 64 * 1024, REPLIES_MAX = 1000 };

struct message {
    _Alignas(struct nlmsghdr) char bytes[MESSAGE_MAX];
};

static struct nlmsghdr *message_head(struct message *message)
{
    return (struct nlmsghdr *)(void *)message->bytes;
}

static void message_init(struct message *message, uint16_t type, uint16_t flags, const void *body,
                         size_t len)
{
    struct nlmsghdr *head = message_head(message);

    memset(message, 0, sizeof(*message));
    head->nlmsg_len = (uint32_t)NLMSG_LENGTH(len);
    head->nlmsg_type = type;
    head->nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags);
    head->nlmsg_seq = 1;
    memcpy(NLMSG_DATA(head), body, len);
}

/* Appends an attribute (p may be NULL for a nest) and returns its offset. */
static size_t message_add(struct message *message, uint16_t type, const void *p, size_t len)
{
    struct nlmsghdr *head = message_head(message);
    size_t at = NLMSG_ALIGN(head->nlmsg_len);
    struct rtattr *attribute = (struct rtattr *)(void *)(message->bytes + at);

    attribute->rta_type = type;
    attribute->rta_len = (uint16_t)RTA_LENGTH(len);
    if (len)
        memcpy(RTA_DATA(attribute), p, len);
    head->nlmsg_len = (uint32_t)(at + RTA_ALIGN(attribute->rta_len));
    return at;
}

static void message_end_nest(struct message *message, size_t at)
{
    struct rtattr *attribute = (struct rtattr *)(void *)(message->bytes + at);

    attribute->rta_len = (uint16_t)(message_head(message)->nlmsg_len - at);
}

typedef void reply_fn(struct nlmsghdr *reply, void *arg);

/* The errno of an NLMSG_ERROR (0 = acknowledged) or -1 when more follows. */
static int take_reply(struct nlmsghdr *reply, bool dump, reply_fn *fn, void *arg)
{
    if (reply->nlmsg_type == NLMSG_ERROR)
        return -((const struct nlmsgerr *)NLMSG_DATA(reply))->error;
    if (reply->nlmsg_type == NLMSG_DONE)
        return 0;
    if (fn)
        fn(reply, arg);
    return dump ? -1 : 0;
}

/* Sends one request and reads its replies; 0 or errno. */
static int ask(int protocol, struct message *message, reply_fn *fn, void *arg)
{
    static _Alignas(struct nlmsghdr) char bytes[REPLY_MAX];
    struct nlmsghdr *head = message_head(message);
    struct timeval wait = {.tv_sec = 3};
    auto_close int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
    bool dump = (head->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;

    if (fd < 0)
        return errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    if (send(fd, head, head->nlmsg_len, 0) < 0)
        return errno;
    for (int i = 0; i < REPLIES_MAX; i++) {
        ssize_t n = recv(fd, bytes, sizeof(bytes), 0);
        struct nlmsghdr *reply = (struct nlmsghdr *)(void *)bytes;
        size_t left = n < 0 ? 0 : (size_t)n;

        if (n < 0)
            return errno;
        for (; NLMSG_OK(reply, left); reply = NLMSG_NEXT(reply, left)) {
            int rc = take_reply(reply, dump, fn, arg);

            if (rc >= 0)
                return rc;
        }
    }
    return EMSGSIZE;
}

void doctor_net_admin(const struct doctor *doctor, struct doctor_result *out)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

    if (doctor_needs_root(doctor, out))
        return;
    if (syscall(SYS_capget, &head, data) == 0 && data[0].effective & 1u << CAP_NET_ADMIN)
        doctor_ok(out, "links and rules can be made");
    else
        doctor_bad(out, DOCTOR_WARN,
                   "start the server with it (Docker: --cap-add NET_ADMIN; systemd: "
                   "CapabilityBoundingSet)",
                   "missing; " DOCTOR_NO_NETWORK);
}

static int try_nftables(void *arg)
{
    struct nfgenmsg body = {.nfgen_family = NFPROTO_UNSPEC, .version = NFNETLINK_V0};
    struct message message;

    (void)arg;
    message_init(&message, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETGEN, 0, &body, sizeof(body));
    return ask(NETLINK_NETFILTER, &message, NULL, NULL);
}

void doctor_nftables(const struct doctor *doctor, struct doctor_result *out)
{
    int rc;

    if (doctor_needs_root(doctor, out))
        return;
    rc = doctor_try(try_nftables, doctor);
    if (rc == 0)
        doctor_ok(out, "the kernel answers");
    else
        doctor_bad(out, DOCTOR_WARN, "modprobe nf_tables",
                   "the kernel does not answer (%s); " DOCTOR_NO_NETWORK, strerror(rc));
}

/* In a network namespace of its own, so that nothing is seen of it outside. */
static int try_veth(void *arg)
{
    struct ifinfomsg body = {0};
    struct message message;
    size_t link, data, peer;

    (void)arg;
    if (unshare(CLONE_NEWNET) < 0)
        return errno;
    message_init(&message, RTM_NEWLINK, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, &body, sizeof(body));
    (void)message_add(&message, IFLA_IFNAME, "doctor0", 8);
    link = message_add(&message, IFLA_LINKINFO, NULL, 0);
    (void)message_add(&message, IFLA_INFO_KIND, "veth", 5);
    data = message_add(&message, IFLA_INFO_DATA, NULL, 0);
    peer = message_add(&message, VETH_INFO_PEER, &body, sizeof(body));
    (void)message_add(&message, IFLA_IFNAME, "doctor1", 8);
    message_end_nest(&message, peer);
    message_end_nest(&message, data);
    message_end_nest(&message, link);
    return ask(NETLINK_ROUTE, &message, NULL, NULL);
}

void doctor_veth(const struct doctor *doctor, struct doctor_result *out)
{
    int rc;

    if (doctor_needs_root(doctor, out))
        return;
    rc = doctor_try(try_veth, doctor);
    if (rc == 0)
        doctor_ok(out, "pairs can be made");
    else
        doctor_bad(out, rc == EPERM ? DOCTOR_WARN : DOCTOR_FAIL, "modprobe veth",
                   "no pair can be made: %s", strerror(rc));
}

void doctor_ip_forward(const struct doctor *doctor, struct doctor_result *out)
{
    auto_buf struct buf text = {0};

    (void)doctor;
    buf_init(&text, 64);
    if (fd_read_file_at(AT_FDCWD, "/proc/sys/net/ipv4/ip_forward", &text) < 0)
        doctor_bad(out, DOCTOR_WARN, "mount -t proc proc /proc", "cannot be read");
    else if (str_is(str_trim(buf_str(&text)), "1"))
        doctor_ok(out, "on");
    else
        doctor_ok(out, "off; the server turns it on");
}

/* One chain of a dump: is it somebody else's on the forward hook, with the policy drop? */
struct policy_search {
    const char *family;
    char table[64], chain[64];
};

static struct rtattr *find_attribute(void *p, size_t len, unsigned type)
{
    struct rtattr *attribute = p;

    for (; RTA_OK(attribute, len); attribute = RTA_NEXT(attribute, len))
        if ((attribute->rta_type & NLA_TYPE_MASK) == type)
            return attribute;
    return NULL;
}

static uint32_t attribute_u32(struct rtattr *attribute, uint32_t fallback)
{
    uint32_t value;

    if (!attribute || RTA_PAYLOAD(attribute) < sizeof(value))
        return fallback;
    memcpy(&value, RTA_DATA(attribute), sizeof(value));
    return ntohl(value);
}

static struct str attribute_str(struct rtattr *attribute)
{
    return attribute ? str_n(RTA_DATA(attribute),
                             strnlen((const char *)RTA_DATA(attribute), RTA_PAYLOAD(attribute)))
                     : STR("");
}

static void on_chain(struct nlmsghdr *reply, void *arg)
{
    struct policy_search *search = arg;
    const struct nfgenmsg *general = NLMSG_DATA(reply);
    char *body = (char *)NLMSG_DATA(reply) + NLMSG_ALIGN(sizeof(struct nfgenmsg));
    size_t head = NLMSG_LENGTH(NLMSG_ALIGN(sizeof(struct nfgenmsg)));
    size_t len = reply->nlmsg_len > head ? reply->nlmsg_len - head : 0;
    struct rtattr *hook = find_attribute(body, len, NFTA_CHAIN_HOOK);
    struct str table = attribute_str(find_attribute(body, len, NFTA_CHAIN_TABLE));
    uint32_t number;

    if (!hook || str_starts(table, STR("quicksand_")) || search->table[0] ||
        (general->nfgen_family != NFPROTO_IPV4 && general->nfgen_family != NFPROTO_INET))
        return;
    number = attribute_u32(find_attribute(RTA_DATA(hook), RTA_PAYLOAD(hook), NFTA_HOOK_HOOKNUM),
                           NF_INET_NUMHOOKS);
    if (number != NF_INET_FORWARD ||
        attribute_u32(find_attribute(body, len, NFTA_CHAIN_POLICY), NF_ACCEPT) != NF_DROP)
        return;
    search->family = general->nfgen_family == NFPROTO_IPV4 ? "ip" : "inet";
    (void)str_copy(table, search->table, sizeof(search->table));
    (void)str_copy(attribute_str(find_attribute(body, len, NFTA_CHAIN_NAME)), search->chain,
                   sizeof(search->chain));
}

void doctor_forward_policy(const struct doctor *doctor, struct doctor_result *out)
{
    struct nfgenmsg body = {.nfgen_family = NFPROTO_UNSPEC, .version = NFNETLINK_V0};
    struct policy_search search = {0};
    struct message message;
    char fix[160];
    int rc;

    if (doctor_needs_root(doctor, out))
        return;
    message_init(&message, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETCHAIN, NLM_F_DUMP, &body,
                 sizeof(body));
    rc = ask(NETLINK_NETFILTER, &message, on_chain, &search);
    if (rc) {
        doctor_bad(out, DOCTOR_WARN, "modprobe nf_tables", "cannot be read: %s", strerror(rc));
    } else if (search.table[0]) {
        (void)snprintf(fix, sizeof(fix),
                       "nft 'chain %s %s %s { policy accept; }', or accept 'qsup*' there",
                       search.family, search.table, search.chain);
        doctor_bad(out, DOCTOR_WARN, fix,
                   "the chain '%s' of the table '%s' drops what is forwarded", search.chain,
                   search.table);
    } else {
        doctor_ok(out, "nobody drops forwarded packets by default");
    }
}

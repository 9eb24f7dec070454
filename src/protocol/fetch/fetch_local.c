/* Whether an address is one of this host's own. The kernel's routes know: an address may be a second one of
 * a link, or one of a range that is delivered here, so comparing with a list of addresses would miss some. */
#include <errno.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "protocol/fetch/fetch_internal.h"

enum { ADDRESS_MAX = 16 };

struct question {
    struct nlmsghdr head;
    struct rtmsg route;
    struct rtattr destination;
    uint8_t address[ADDRESS_MAX];
};

/* IPv4 that is wrapped into IPv6 goes by the routes of IPv4. */
static int ask_about(const struct sockaddr *address, struct question *out)
{
    const struct sockaddr_in *four = (const void *)address;
    const struct sockaddr_in6 *six = (const void *)address;
    const void *bytes;
    size_t len;

    if (address->sa_family == AF_INET) {
        bytes = &four->sin_addr;
        len = sizeof(four->sin_addr);
    } else if (address->sa_family != AF_INET6) {
        return -EAFNOSUPPORT;
    } else if (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
        bytes = six->sin6_addr.s6_addr + 12;
        len = sizeof(four->sin_addr);
    } else {
        bytes = &six->sin6_addr;
        len = sizeof(six->sin6_addr);
    }
    *out = (struct question){
        .head = {.nlmsg_type = RTM_GETROUTE, .nlmsg_flags = NLM_F_REQUEST, .nlmsg_seq = 1},
        .route = {.rtm_family = len == ADDRESS_MAX ? AF_INET6 : AF_INET,
                  .rtm_dst_len = (uint8_t)(len * 8)},
        .destination = {.rta_type = RTA_DST, .rta_len = (uint16_t)RTA_LENGTH(len)},
    };
    memcpy(out->address, bytes, len);
    out->head.nlmsg_len = (uint32_t)(offsetof(struct question, address) + len);
    return 0;
}

static int read_answer(int fd)
{
    union {
        struct nlmsghdr head;
        char bytes[4096];
    } answer;
    ssize_t n = recv(fd, &answer, sizeof(answer), 0);

    if (n < 0)
        return -errno;
    if (!NLMSG_OK(&answer.head, (size_t)n))
        return -EBADMSG;
    if (answer.head.nlmsg_type == RTM_NEWROUTE &&
        answer.head.nlmsg_len >= NLMSG_LENGTH(sizeof(struct rtmsg)))
        return ((const struct rtmsg *)NLMSG_DATA(&answer.head))->rtm_type != RTN_UNICAST;
    if (answer.head.nlmsg_type == NLMSG_ERROR &&
        answer.head.nlmsg_len >= NLMSG_LENGTH(sizeof(struct nlmsgerr)))
        return ((const struct nlmsgerr *)NLMSG_DATA(&answer.head))->error; /* no way there */
    return -EBADMSG;
}

int fetch_address_local(const struct sockaddr *address)
{
    auto_close int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    struct timeval wait = {.tv_sec = 2};
    struct question question;
    int r = ask_about(address, &question);

    if (r < 0)
        return r;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) < 0 ||
        sendto(fd, &question, question.head.nlmsg_len, 0, (struct sockaddr *)&kernel,
               sizeof(kernel)) < 0)
        return -errno;
    return read_answer(fd);
}

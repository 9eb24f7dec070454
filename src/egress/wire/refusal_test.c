#include "egress/wire/refusal.h"

#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>

#include "base/buf.h"
#include "base/test.h"

/* 10.213.64.7 to 192.168.1.1, port 443. */
#define SYN                                                                            \
    "\x45\x00\x00\x28\x00\x00\x40\x00\x40\x06\x00\x00\x0a\xd5\x40\x07\xc0\xa8\x01\x01" \
    "\xc0\x00\x01\xbb"

static void put_attribute(struct buf *out, uint16_t type, struct str value)
{
    struct nlattr head = {.nla_len = (uint16_t)(sizeof(head) + value.len), .nla_type = type};

    (void)buf_add(out, &head, sizeof(head));
    (void)buf_add_str(out, value);
    while (out->len % 4)
        (void)buf_add_char(out, '\0');
}

static void put_message(struct buf *out, const char *why, struct str packet)
{
    struct nlmsghdr head = {.nlmsg_type = NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_PACKET};
    struct nfgenmsg family = {0};
    size_t begin = out->len;

    (void)buf_add(out, &head, sizeof(head));
    (void)buf_add(out, &family, sizeof(family));
    put_attribute(out, NFULA_PREFIX, str_n(why, strlen(why) + 1));
    put_attribute(out, NFULA_PAYLOAD, packet);
    head.nlmsg_len = (uint32_t)(out->len - begin);
    memcpy(out->p + begin, &head, sizeof(head));
}

static void check_syn(const struct refusal *refusal, const char *why)
{
    CHECK(refusal->source == 0x0ad54007 && refusal->address == 0xc0a80101);
    CHECK_INT(refusal->port, 443);
    CHECK_STR(str_of(refusal->protocol), "tcp");
    CHECK_STR(str_of(refusal->why), why);
}

TEST(packets_that_were_refused_are_read_one_after_the_other)
{
    auto_buf struct buf bytes = {0};
    struct refusal refusal;
    struct str rest;

    buf_init(&bytes, 4096);
    put_message(&bytes, "range", STR(SYN));
    put_message(&bytes, "denied", STR("\x60 no packet of IPv4, but long enough"));
    put_message(&bytes, "a reason that is longer than any of ours", STR(SYN));
    rest = buf_str(&bytes);
    CHECK(refusal_next(&rest, &refusal));
    check_syn(&refusal, "range");
    CHECK(refusal_next(&rest, &refusal));
    check_syn(&refusal, "");
    CHECK(!refusal_next(&rest, &refusal));
    CHECK_INT(rest.len, 0);
}

TEST(what_a_packet_does_not_have_is_left_out)
{
    const struct {
        struct str packet;
        const char *protocol;
    } packets[] = {
        {STR("\x45\0\0\x1c\0\0\0\0\x40\x01\0\0\x0a\xd5\x40\x07\xc0\xa8\x01\x01\x08\0\0\0"), "icmp"},
        {STR("\x45\0\0\x1c\0\0\0\0\x40\x11\0\0\x0a\xd5\x40\x07\xc0\xa8\x01\x01\0\x35"), "udp"},
        {STR("\x4f\0\0\x1c\0\0\0\0\x40\x11\0\0\x0a\xd5\x40\x07\xc0\xa8\x01\x01\0\x35\0\x35"),
         "udp"},
        {STR("\x45\0\0\x1c\0\0\0\x01\x40\x11\0\0\x0a\xd5\x40\x07\xc0\xa8\x01\x01\0\x35\0\x35"),
         "udp"},
        {STR("\x45\0\0\x1c\0\0\0\0\x40\x84\0\0\x0a\xd5\x40\x07\xc0\xa8\x01\x01\0\x35\0\x35"),
         "other"},
    };

    for (size_t i = 0; i < sizeof(packets) / sizeof(*packets); i++) {
        auto_buf struct buf bytes = {0};
        struct refusal refusal;
        struct str rest;

        buf_init(&bytes, 4096);
        put_message(&bytes, "closed", packets[i].packet);
        rest = buf_str(&bytes);
        CHECK(refusal_next(&rest, &refusal));
        CHECK_STR(str_of(refusal.protocol), packets[i].protocol);
        CHECK_INT(refusal.port, 0);
    }
}

TEST(messages_that_are_cut_off_anywhere_are_none)
{
    auto_buf struct buf bytes = {0};
    struct refusal refusal;

    buf_init(&bytes, 4096);
    put_message(&bytes, "range", STR(SYN));
    for (size_t len = 0; len < bytes.len; len++) {
        struct str rest = str_n(bytes.p, len);

        CHECK(!refusal_next(&rest, &refusal));
    }
}

/* The whole process but for its fence, on the loopback (live_rig.h). */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/test.h"
#include "egress/process/test/live_rig.h"
#include "protocol/json/json_shape.h"

#define POLICY  "{\"allowOut\":[\"a.example\",\"*.b.example\"],\"denyOut\":[\"0.0.0.0/0\"]}"
#define REQUEST "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"

TEST(what_the_gateway_refused_is_told_of_every_sandbox)
{
    /* One message of the kernel: why, and the head of a packet from 10.213.64.7 to 192.168.1.1, port 443. */
    static const char message[] = "\x48\0\0\0\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\x40"
                                  "\x0a\0\x0a\0range\0\0\0"
                                  "\x28\0\x09\0\x45\0\0\x28\0\0\x40\0\x40\x06\0\0\x0a\xd5\x40\x07"
                                  "\xc0\xa8\x01\x01\xc0\0\x01\xbb"
                                  "\0\0\0\0\0\0\0\0\0\0\0\0";
    const json_t *refused;

    start(NULL);
    CHECK(send(rig.log, message, sizeof(message) - 1, 0) > 0);
    {
        auto_json json_t *record = next_record("refused");

        refused = json_object_get(record, "refused");
        CHECK_STR(json_get_str(refused, "source"), "10.213.64.7");
        CHECK_STR(json_get_str(refused, "address"), "192.168.1.1");
        CHECK_STR(json_get_str(refused, "protocol"), "tcp");
        CHECK_STR(json_get_str(refused, "why"), "range");
        CHECK_INT(json_integer_value(json_object_get(refused, "port")), 443);
    }
    stop();
}

TEST(names_are_answered_only_where_they_are_allowed)
{
    struct dns_answer answer;

    start(POLICY);
    answer = ask("a.example", DNS_A);
    CHECK(answer.code == DNS_NO_ERROR && answer.count == 1 && answer.addresses[0] == SERVER);
    CHECK_INT(atomic_load(&rig.asked), 1);
    CHECK_INT(ask("a.example", DNS_A).count, 1);
    CHECK_INT(atomic_load(&rig.asked), 1); /* it was remembered */
    CHECK_INT(ask("x.b.example", DNS_A).count, 1);
    CHECK_INT(ask("b.example", DNS_A).code, DNS_REFUSED);
    CHECK_INT(ask("evil.example", DNS_A).code, DNS_REFUSED);
    CHECK_INT(atomic_load(&rig.asked), 2);
    expect_log("denied", "b.example", "no rule allows this name");
    expect_log("denied", "evil.example", "no rule allows this name");
    stop();
}

TEST(other_types_are_passed_on_or_empty)
{
    struct dns_answer answer;

    start(POLICY);
    answer = ask("a.example", DNS_AAAA);
    CHECK(answer.code == DNS_NO_ERROR && answer.count == 0);
    answer = ask("a.example", 65); /* HTTPS */
    CHECK(answer.code == DNS_NO_ERROR && answer.count == 0);
    CHECK_INT(atomic_load(&rig.asked), 0);
    CHECK_INT(ask("a.example", DNS_TXT).code, DNS_NO_ERROR);
    CHECK_INT(atomic_load(&rig.asked), 1);
    CHECK_INT(ask("evil.example", DNS_TXT).code, DNS_REFUSED);
    CHECK_INT(ask("none.b.example", DNS_A).code, DNS_NO_NAME);
    stop();
}

static void set_member(const char *address, const char *id, unsigned group, const char *name,
                       const char *more)
{
    auto_free char *line =
        xasprintf("{\"set\":{\"address\":\"%s\",\"id\":\"%s\",\"group\":%u,\"policy\":{\"peers\":"
                  "{\"network\":\"build\",\"name\":\"%s\"}%s}}}\n",
                  address, id, group, name, more);

    tell(line);
}

/* Nothing else is resolved where nothing is reached; what is open asks for the rest as ever. */
TEST(members_of_a_private_network_are_known_by_name)
{
    static const char nothing[] = ",\"denyOut\":[\"0.0.0.0/0\"]";

    start(NULL);
    set_member("127.0.0.7", "ibox", 7, "web", nothing);
    set_member("127.0.0.8", "iother", 7, "db", nothing);
    set_member("127.0.0.9", "istranger", 8, "mail", nothing);
    CHECK_INT(ask("db", DNS_A).addresses[0], 0x7f000008);
    CHECK_INT(ask("db.build.internal", DNS_A).addresses[0], 0x7f000008);
    CHECK_INT(ask("iother", DNS_A).addresses[0], 0x7f000008);
    CHECK_INT(ask("db", DNS_AAAA).count, 0);
    CHECK_INT(ask("db", DNS_AAAA).code, DNS_NO_ERROR);
    CHECK_INT(ask("mail", DNS_A).code, DNS_REFUSED);
    CHECK_INT(ask("mail.build.internal", DNS_A).code, DNS_NO_NAME);
    CHECK_INT(ask("a.example", DNS_A).code, DNS_REFUSED);
    CHECK_INT(atomic_load(&rig.asked), 0);
    set_member("127.0.0.7", "ibox", 7, "web", "");
    CHECK_INT(ask("a.example", DNS_A).addresses[0], SERVER);
    tell("{\"drop\":{\"address\":\"127.0.0.8\",\"id\":\"iother\"}}\n");
    CHECK_INT(ask("db.build.internal", DNS_A).code, DNS_NO_NAME);
    set_member("127.0.0.8", "inew", 7, "db", nothing);
    CHECK_INT(ask("db", DNS_A).addresses[0], 0x7f000008);
    set_member("127.0.0.7", "ibox", 0, "web", nothing);
    CHECK_INT(ask("db.build.internal", DNS_A).code, DNS_REFUSED);
    stop();
}

TEST(answers_that_are_cut_come_by_tcp)
{
    struct dns_answer answer;
    int fd;

    start(POLICY);
    answer = ask("big.b.example", DNS_A);
    CHECK(answer.count == 60 || answer.truncated);
    fd = dial(BOX, rig.dns_port);
    CHECK_INT(ask_tcp(fd, "big.b.example").count, 60);
    CHECK_INT(ask_tcp(fd, "a.example").count, 1);
    CHECK_INT(ask_tcp(fd, "evil.example").code, DNS_REFUSED);
    (void)close(fd);
    stop();
}

TEST(a_resolver_that_is_silent_is_a_failure_in_time)
{
    start(POLICY);
    CHECK_INT(ask("silent.b.example", DNS_A).code, DNS_SERVER_FAILURE);
    stop();
}

TEST(who_is_not_known_reaches_nothing)
{
    char text[16];
    int listener, fd;

    start(POLICY);
    listener = listen_at(SERVER);
    fd = dial(OTHER, rig.tcp_port);
    CHECK_INT(read_some(fd, text, sizeof(text)), -ECONNRESET);
    (void)close(fd);
    fd = dial(OTHER, rig.dns_port);
    CHECK_INT(read_some(fd, text, sizeof(text)), -ECONNRESET);
    (void)close(fd);
    CHECK(nobody_came(listener));
    stop();
}

TEST(a_request_for_an_allowed_name_is_joined)
{
    char text[256];
    int listener, fd, came;

    start(POLICY);
    (void)ask("a.example", DNS_A);
    listener = listen_at(SERVER);
    fd = dial(BOX, rig.tcp_port);
    CHECK(fd_write_full(fd, REQUEST, strlen(REQUEST)) == 0);
    came = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(fd_read_full(came, text, strlen(REQUEST)) == (ssize_t)strlen(REQUEST));
    CHECK(memcmp(text, REQUEST, strlen(REQUEST)) == 0);
    CHECK(fd_write_full(came, "HTTP/1.1 204 x\r\n\r\n", 18) == 0);
    CHECK_INT(read_some(fd, text, sizeof(text)), 18);
    expect_log("allowed", "a.example", "the name is allowed");
    /* Another host on the same connection: it breaks, and nothing of it arrives. */
    CHECK(fd_write_full(fd, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 39) == 0);
    CHECK(read_some(fd, text, sizeof(text)) <= 0);
    CHECK(read_some(came, text, sizeof(text)) <= 0);
    expect_log("denied", "evil.example", "no rule allows this name");
    (void)close(fd);
    (void)close(came);
    stop();
}

#define UPGRADE(to) \
    "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: " to "\r\n\r\n"
#define AGREED "HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"

/* One side says it, the other hears it, whole. */
static void carry(int from, int to, const char *text)
{
    char got[512];
    size_t len = strlen(text);

    CHECK(fd_write_full(from, text, len) == 0);
    CHECK_INT(fd_read_full(to, got, len), (int)len);
    CHECK(memcmp(got, text, len) == 0);
}

static void expect_broken(int fd, int came, const char *text)
{
    char got[64];

    CHECK(fd_write_full(fd, text, strlen(text)) == 0);
    CHECK(read_some(came, got, sizeof(got)) <= 0);
    (void)close(fd);
    (void)close(came);
}

static void join_at(int listener, int *out_fd, int *out_came, const char *request)
{
    char got[512];

    *out_fd = dial(BOX, rig.tcp_port);
    CHECK(fd_write_full(*out_fd, request, strlen(request)) == 0);
    *out_came = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK_INT(fd_read_full(*out_came, got, strlen(request)), (int)strlen(request));
}

TEST(what_follows_an_upgrade_is_free_once_its_own_answer_agrees)
{
    static const char evil[] = "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    int listener, fd, came;

    start(POLICY);
    (void)ask("a.example", DNS_A);
    listener = listen_at(SERVER);

    /* On a connection that was used before, too. */
    join_at(listener, &fd, &came, REQUEST);
    carry(came, fd, "HTTP/1.1 100 x\r\n\r\nHTTP/1.1 200 x\r\nContent-Length: 2\r\n\r\nok");
    carry(fd, came, "HEAD / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    carry(came, fd, "HTTP/1.1 200 x\r\nContent-Length: 2\r\n\r\n");
    carry(fd, came, UPGRADE("websocket"));
    carry(came, fd, AGREED);
    carry(fd, came, "\x81\x02hi");
    carry(came, fd, "\x81\x02ho");
    (void)close(fd);
    (void)close(came);

    /* A body that looks like an answer agrees to nothing. */
    join_at(listener, &fd, &came, REQUEST);
    carry(came, fd, "HTTP/1.1 200 x\r\nContent-Length: 18\r\n\r\n");
    carry(fd, came, UPGRADE("websocket"));
    carry(came, fd, "HTTP/1.1 101 x\r\n\r\n");
    expect_broken(fd, came, evil);

    /* Nor does an answer to what was asked before. */
    join_at(listener, &fd, &came, REQUEST);
    carry(fd, came, UPGRADE("websocket"));
    carry(came, fd, AGREED);
    expect_broken(fd, came, evil);
    stop();
}

TEST(an_upgrade_to_another_http_is_none)
{
    static const char *const asked[] = {UPGRADE("h2c"), UPGRADE("websocket, h2c"),
                                        UPGRADE("TLS/1.2"), UPGRADE("HTTP/2.0")};
    int listener, fd, came;

    start(POLICY);
    (void)ask("a.example", DNS_A);
    listener = listen_at(SERVER);
    for (size_t i = 0; i < sizeof(asked) / sizeof(*asked); i++) {
        join_at(listener, &fd, &came, asked[i]);
        carry(came, fd, AGREED);
        expect_broken(fd, came, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    }
    stop();
}

static void expect_403(const char *request, const char *reason)
{
    int fd = dial(BOX, rig.tcp_port);
    char text[2048];

    CHECK(fd_write_full(fd, request, strlen(request)) == 0);
    CHECK(read_some(fd, text, sizeof(text)) > 0);
    CHECK(str_starts(str_of(text), STR("HTTP/1.1 403 ")));
    CHECK(strstr(text, reason) != NULL);
    CHECK_INT(read_some(fd, text, sizeof(text)), 0);
    (void)close(fd);
}

TEST(a_denied_request_is_told_why)
{
    int listener;

    start(POLICY);
    listener = listen_at(SERVER);
    expect_403("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "no rule allows this name");
    expect_403(REQUEST, "never answered for this name");
    expect_403("GET / HTTP/1.0\r\n\r\n", "names no host");
    CHECK(nobody_came(listener));
    stop();
}

TEST(tls_without_a_name_gets_an_alert_and_other_bytes_a_reset)
{
    static const char hello[] =
        "\x16\x03\x01\x00\x2f\x01\x00\x00\x2b\x03\x03"
        "0123456789abcdef0123456789abcdef\x00\x00\x02\x13\x01\x01\x00\x00\x00";
    char text[64];
    int listener, fd;

    start(POLICY);
    listener = listen_at(SERVER);
    fd = dial(BOX, rig.tcp_port);
    CHECK(fd_write_full(fd, hello, sizeof(hello) - 1) == 0);
    CHECK_INT(read_some(fd, text, sizeof(text)), 7);
    CHECK(text[0] == 21 && text[6] == 49);
    (void)close(fd);
    expect_log("denied", NULL, "SNI");
    fd = dial(BOX, rig.tcp_port);
    CHECK(fd_write_full(fd, "\x00\x01", 2) == 0);
    CHECK_INT(read_some(fd, text, sizeof(text)), -ECONNRESET);
    (void)close(fd);
    expect_log("denied", NULL, "neither TLS nor");
    /* Who waits for a greeting does not wait long. */
    fd = dial(BOX, rig.tcp_port);
    CHECK_INT(read_some(fd, text, sizeof(text)), -ECONNRESET);
    (void)close(fd);
    expect_log("denied", NULL, "says nothing");
    CHECK(nobody_came(listener));
    stop();
}

TEST(a_range_that_is_allowed_is_not_looked_at)
{
    char text[16];
    int listener, fd, came;

    start("{\"allowOut\":[\"127.0.0.100\"],\"denyOut\":[\"0.0.0.0/0\"]}");
    listener = listen_at(SERVER);
    fd = dial(BOX, rig.tcp_port);
    came = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(fd_write_full(came, "hello", 5) == 0); /* the server speaks first */
    CHECK_INT(read_some(fd, text, sizeof(text)), 5);
    (void)close(came);
    CHECK_INT(read_some(fd, text, sizeof(text)), 0);
    (void)close(fd);
    stop();
}

TEST(a_new_policy_cuts_what_it_does_not_allow)
{
    char text[256];
    int listener, fd, came;

    start(POLICY);
    (void)ask("a.example", DNS_A);
    listener = listen_at(SERVER);
    fd = dial(BOX, rig.tcp_port);
    CHECK(fd_write_full(fd, REQUEST, strlen(REQUEST)) == 0);
    came = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(fd_read_full(came, text, strlen(REQUEST)) == (ssize_t)strlen(REQUEST));
    set_policy("{\"allowOut\":[\"a.example\"],\"denyOut\":[\"0.0.0.0/0\"]}");
    CHECK(fd_write_full(came, "x", 1) == 0);
    CHECK_INT(read_some(fd, text, sizeof(text)), 1);
    set_policy("{\"allowOut\":[\"c.example\"],\"denyOut\":[\"0.0.0.0/0\"]}");
    CHECK_INT(read_some(fd, text, sizeof(text)), -ECONNRESET);
    CHECK(read_some(came, text, sizeof(text)) <= 0);
    CHECK_INT(ask("a.example", DNS_A).code, DNS_REFUSED);
    (void)close(fd);
    (void)close(came);
    stop();
}

TEST(a_server_that_comes_again_drops_what_it_does_not_name)
{
    char text[16];
    int listener, fd;

    start(POLICY);
    listener = listen_at(SERVER);
    (void)fclose(rig.records);
    connect_server(&channel_name);
    CHECK_INT(ask("a.example", DNS_A).code, DNS_NO_ERROR); /* until it says so */
    tell("{\"synced\":true}\n");
    fd = dial(BOX, rig.tcp_port);
    CHECK_INT(read_some(fd, text, sizeof(text)), -ECONNRESET);
    (void)close(fd);
    CHECK(nobody_came(listener));
    set_policy(POLICY);
    CHECK_INT(ask("a.example", DNS_A).code, DNS_NO_ERROR);
    tell("{\"drop\":{\"address\":\"127.0.0.7\"}}\n");
    fd = dial(BOX, rig.tcp_port);
    CHECK_INT(read_some(fd, text, sizeof(text)), -ECONNRESET);
    (void)close(fd);
    stop();
}

TEST(what_was_carried_is_counted)
{
    char text[256];
    int listener, fd, came;
    json_int_t sent = 0;

    start(POLICY);
    (void)ask("a.example", DNS_A);
    listener = listen_at(SERVER);
    fd = dial(BOX, rig.tcp_port);
    CHECK(fd_write_full(fd, REQUEST, strlen(REQUEST)) == 0);
    came = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(fd_read_full(came, text, strlen(REQUEST)) == (ssize_t)strlen(REQUEST));
    (void)close(fd);
    (void)close(came);
    while (sent < (json_int_t)strlen(REQUEST)) {
        auto_json json_t *record = next_record("usage");
        const json_t *usage = json_object_get(record, "usage");

        sent = json_integer_value(json_object_get(usage, "sent"));
        CHECK_INT(json_integer_value(json_object_get(usage, "questions")), 1);
    }
    stop();
}

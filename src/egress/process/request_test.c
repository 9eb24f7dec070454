/* Every request of a connection is judged on its own: which host it names, whether that host has a rule, and which
 * headers are set. All names resolve to the same address (live_rig.h), so a connection that was opened for one host can
 * carry requests for another. */
#include <errno.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/test.h"
#include "egress/process/test/live_rig.h"
#include "protocol/json/json_shape.h"

#define RULES \
    "\"rules\":{\"a.example\":[{\"transform\":{\"headers\":{\"X-Who\":\"the sandbox\"}}}]}"
#define LISTS  "\"allowOut\":[\"a.example\",\"c.example\"],\"denyOut\":[\"0.0.0.0/0\"]"
#define CLOSED "{" LISTS "," RULES "}"
#define OPEN   "{" RULES "}"

#define REQUEST(host, more) "GET / HTTP/1.1\r\nHost: " host "\r\n" more "\r\n"
#define FORGED              "X-Who: the operator\r\n"
#define SET                 "X-Who: the sandbox\r\n"

struct wire_ends {
    int listener, fd, came;
};

static void say(int fd, const char *text)
{
    CHECK(fd_write_full(fd, text, strlen(text)) == 0);
}

/* All that arrives there next is this. */
static void expect_arrives(int fd, const char *want)
{
    auto_free char *text = xcalloc(1, strlen(want) + 1);

    CHECK_INT(fd_read_full(fd, text, strlen(want)), (int)strlen(want));
    CHECK_STR(str_of(text), want);
}

static void expect_cut(int fd)
{
    char text[2048];
    ssize_t got = read_some(fd, text, sizeof(text));

    if (got > 0)
        test_fail(__FILE__, __LINE__, "this arrived: %s", text);
}

/* One connection to the address that both names have; request is its first one. */
static struct wire_ends open_pair(const char *policy, const char *request)
{
    struct wire_ends pair;

    start(policy);
    CHECK_INT(ask("a.example", DNS_A).count, 1);
    CHECK_INT(ask("c.example", DNS_A).count, 1);
    pair.listener = listen_at(SERVER);
    pair.fd = dial(BOX, rig.tcp_port);
    say(pair.fd, request);
    pair.came = accept4(pair.listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(pair.came >= 0);
    return pair;
}

static void close_pair(const struct wire_ends *pair)
{
    (void)close(pair->fd);
    (void)close(pair->came);
    (void)close(pair->listener);
    stop();
}

TEST(a_later_request_for_a_host_with_a_rule_gets_its_header)
{
    static const char *const policies[] = {CLOSED, OPEN};

    for (size_t i = 0; i < 2; i++) {
        struct wire_ends pair = open_pair(policies[i], REQUEST("c.example", FORGED));

        expect_arrives(pair.came, REQUEST("c.example", FORGED));
        say(pair.came, "HTTP/1.1 204 x\r\n\r\n");
        expect_arrives(pair.fd, "HTTP/1.1 204 x\r\n\r\n");
        say(pair.fd, REQUEST("a.example", FORGED));
        expect_arrives(pair.came, REQUEST("a.example", SET));
        say(pair.fd, REQUEST("c.example", FORGED));
        expect_arrives(pair.came, REQUEST("c.example", FORGED));
        close_pair(&pair);
    }
}

TEST(pipelined_requests_are_judged_one_by_one)
{
    struct wire_ends pair =
        open_pair(CLOSED, REQUEST("c.example", FORGED) REQUEST("a.example", FORGED)
                              REQUEST("c.example", FORGED) REQUEST("a.example", FORGED));

    expect_arrives(pair.came, REQUEST("c.example", FORGED) REQUEST("a.example", SET)
                                  REQUEST("c.example", FORGED) REQUEST("a.example", SET));
    close_pair(&pair);
}

TEST(a_host_is_recognized_in_every_spelling)
{
#define SPELLINGS(more)        \
    REQUEST("A.Example", more) \
    REQUEST("a.example.", more) REQUEST("a.example:80", more) REQUEST("A.EXAMPLE.:8080", more)
    struct wire_ends pair = open_pair(CLOSED, REQUEST("c.example", "") SPELLINGS(FORGED));

    expect_arrives(pair.came, REQUEST("c.example", "") SPELLINGS(SET));
    close_pair(&pair);
}

/* What a server could read as a request for another host than the one that was judged. */
TEST(a_request_that_names_two_hosts_is_cut_off)
{
    static const char *const requests[] = {
        "GET http://a.example/ HTTP/1.1\r\nHost: c.example\r\n" FORGED "\r\n",
        "GET HTTP://A.example/ HTTP/1.1\r\nHost: c.example\r\n" FORGED "\r\n",
        "GET //a.example/ HTTP/1.1\r\nHost: c.example\r\nHost: a.example\r\n" FORGED "\r\n",
        "GET / HTTP/1.1\r\nHost: c.example\r\nhost: a.example\r\n" FORGED "\r\n",
        "GET / HTTP/1.1\r\nHost: c.example, a.example\r\n" FORGED "\r\n",
        "GET / HTTP/1.1\r\nHost: c.example\r\n a.example\r\n" FORGED "\r\n",
        "GET / HTTP/1.1\r\nHost: c.example:80:a.example\r\n" FORGED "\r\n",
        "GET / HTTP/1.1\r\nHost: c.example@a.example\r\n" FORGED "\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n" FORGED "\r\n",
        "GET / HTTP/1.1\r\n" FORGED "\r\n",
        "GET / HTTP/1.0\r\n" FORGED "\r\n",
        "CONNECT a.example:80 HTTP/1.1\r\nHost: c.example\r\n" FORGED "\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    };
    static const char *const policies[] = {CLOSED, OPEN, "{" LISTS "}"};

    for (size_t i = 0; i < sizeof(requests) / sizeof(*requests); i++) {
        for (size_t k = 0; k < 3; k++) {
            struct wire_ends pair = open_pair(policies[k], REQUEST("c.example", ""));

            expect_arrives(pair.came, REQUEST("c.example", ""));
            say(pair.fd, requests[i]);
            expect_cut(pair.came);
            close_pair(&pair);
        }
    }
}

/* The connection was open before anybody asked for the name of the host that has the rule. */
TEST(a_connection_that_is_not_rewritten_carries_no_request_for_a_host_with_a_rule)
{
    struct wire_ends pair;

    start(CLOSED);
    CHECK_INT(ask("c.example", DNS_A).count, 1);
    pair.listener = listen_at(SERVER);
    pair.fd = dial(BOX, rig.tcp_port);
    say(pair.fd, REQUEST("c.example", ""));
    pair.came = accept4(pair.listener, NULL, NULL, SOCK_CLOEXEC);
    expect_arrives(pair.came, REQUEST("c.example", ""));
    CHECK_INT(ask("a.example", DNS_A).count, 1);
    say(pair.fd, REQUEST("a.example", FORGED));
    expect_cut(pair.came);
    expect_log("allowed", "c.example", "");
    expect_log("denied", "a.example", "open a new connection");
    close_pair(&pair);
}

TEST(a_new_rule_for_another_host_at_the_address_cuts_the_connection)
{
    struct wire_ends pair = open_pair("{" LISTS "}", REQUEST("c.example", ""));

    expect_arrives(pair.came, REQUEST("c.example", ""));
    set_policy(CLOSED);
    expect_cut(pair.fd);
    close_pair(&pair);
}

/* Servers that hand headers on as variables (CGI, WSGI) make one of '-' and '_'. */
TEST(a_header_with_underscores_does_not_pass_for_the_one_that_is_set)
{
    struct wire_ends pair =
        open_pair(CLOSED, REQUEST("a.example", "X_Who: root\r\nx-whoever: me\r\n"));

    expect_arrives(pair.came, REQUEST("a.example", "x-whoever: me\r\n" SET));
    close_pair(&pair);
}

TEST(a_denied_request_is_logged_with_the_host_that_it_names)
{
    struct wire_ends pair = open_pair(CLOSED, REQUEST("c.example", ""));

    expect_arrives(pair.came, REQUEST("c.example", ""));
    say(pair.fd, REQUEST("evil.example", ""));
    expect_cut(pair.came);
    expect_log("allowed", "c.example", "");
    expect_log("denied", "evil.example", "no rule allows this name");
    close_pair(&pair);
}

/* The user's proxy looks up the name that it is given: what it reached is not the host of another name. */
TEST(a_proxied_connection_carries_requests_for_its_own_host_only)
{
    auto_free char *policy = NULL;
    uint16_t port;
    int listener, fd, came;

    start(NULL);
    listener = bound(SOCK_STREAM, 0x7f000001, 0, &port);
    policy = xasprintf(
        "{" LISTS "," RULES ",\"egressProxy\":{\"address\":\"http://127.0.0.1:%u\"}}", port);
    set_policy(policy);
    CHECK_INT(ask("a.example", DNS_A).count, 1);
    CHECK_INT(ask("c.example", DNS_A).count, 1);
    atomic_store(&rig.to, SERVER);
    atomic_store(&rig.to_port, 80);
    fd = dial(BOX, rig.tcp_port);
    say(fd, REQUEST("c.example", ""));
    came = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    expect_arrives(came, "CONNECT c.example:80 HTTP/1.1\r\nHost: c.example:80\r\n\r\n");
    say(came, "HTTP/1.1 200 x\r\n\r\n");
    expect_arrives(came, REQUEST("c.example", ""));
    say(fd, REQUEST("a.example", ""));
    expect_cut(came);
    expect_log("allowed", "c.example", "");
    expect_log("denied", "a.example", "another host");
    (void)close(fd);
    (void)close(came);
    (void)close(listener);
    stop();
}

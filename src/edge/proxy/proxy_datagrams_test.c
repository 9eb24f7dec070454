/* A client's stream and a socket of datagrams, both ends of each here: what comes out where, cut as it may be. */
#include "edge/proxy/proxy_datagrams.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/test.h"

enum { BIG = 60000, FLOOD = 2000 };

static struct loop *loop;
static struct proxy_datagrams *datagrams;
static int client_fd, server_fd, ends;

static void on_end(void *arg)
{
    (void)arg;
    ends++;
}

static void begin(struct str to_client, struct str from_client)
{
    int client[2], server[2];

    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, client), 0);
    CHECK_INT(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, server), 0);
    client_fd = client[1];
    server_fd = server[1];
    ends = 0;
    loop = loop_new();
    datagrams = proxy_datagrams_new(loop, stream_new(loop, client[0]), stream_new(loop, server[0]),
                                    to_client, from_client, on_end, NULL);
}

static void finish(void)
{
    proxy_datagrams_free(datagrams, false);
    loop_free(loop);
    (void)close(client_fd);
    (void)close(server_fd);
}

static void turn(void)
{
    for (int i = 0; i < 4; i++)
        (void)uv_run(loop_uv(loop), UV_RUN_NOWAIT);
}

static void say(struct str bytes)
{
    CHECK_INT(send(client_fd, bytes.p, bytes.len, MSG_NOSIGNAL), (int)bytes.len);
    turn();
}

static void expect(int fd, struct str wanted)
{
    static char bytes[BIG + 100];

    for (int i = 0; i < 1000; i++) {
        ssize_t got;

        turn();
        got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (got >= 0) {
            CHECK(str_eq(str_n(bytes, (size_t)got), wanted));
            return;
        }
        (void)poll(NULL, 0, 1);
    }
    CHECK(!"nothing came");
}

static void expect_nothing(int fd)
{
    char byte;

    turn();
    CHECK_INT(recv(fd, &byte, 1, MSG_DONTWAIT), -1);
}

TEST(datagrams_whole_and_apart)
{
    begin(STR("head"), STR("\0\2ab\0\1"));
    expect(client_fd, STR("head"));
    expect(server_fd, STR("ab"));
    expect_nothing(server_fd); /* its rest has not come */
    say(STR("c\0\0"));
    expect(server_fd, STR("c"));
    expect(server_fd, STR("")); /* an empty one is one */
    say(STR("\0\3x"));
    say(STR("y"));
    expect_nothing(server_fd);
    say(STR("z\0\1w"));
    expect(server_fd, STR("xyz"));
    expect(server_fd, STR("w"));
    CHECK_INT(send(server_fd, "answer", 6, 0), 6);
    expect(client_fd, STR("\0\6answer"));
    CHECK_INT(ends, 0);
    finish();
}

TEST(datagrams_large_ones)
{
    static char framed[BIG + 2];

    begin(STR(""), STR(""));
    memset(framed, 'x', sizeof(framed));
    framed[0] = (char)(BIG >> 8);
    framed[1] = (char)(BIG & 255);
    for (size_t at = 0; at < sizeof(framed);) {
        size_t len = sizeof(framed) - at < 7000 ? sizeof(framed) - at : 7000;

        say(str_n(framed + at, len));
        at += len;
    }
    expect(server_fd, str_n(framed + 2, BIG));
    CHECK_INT(send(server_fd, framed + 2, BIG, 0), BIG);
    expect(client_fd, str_n(framed, sizeof(framed)));
    finish();
}

TEST(datagrams_longer_than_there_are_end_it)
{
    begin(STR(""), STR(""));
    say(STR("\xff\xff more than a datagram holds"));
    CHECK_INT(ends, 1);
    expect_nothing(server_fd);
    finish();
}

TEST(datagrams_longer_than_there_are_end_it_at_once)
{
    begin(STR(""), STR("\xff\xf0"));
    turn();
    CHECK_INT(ends, 1);
    finish();
}

TEST(datagrams_end_with_the_client)
{
    begin(STR(""), STR(""));
    (void)shutdown(client_fd, SHUT_WR);
    turn();
    CHECK_INT(ends, 1);
    finish();
}

/* A client that reads nothing: what comes for it stays with the kernel, and whole ones come when it reads again. */
TEST(datagrams_slow_client_loses_some_and_no_half_ones)
{
    static char bytes[1 << 20], one[1000];
    size_t sent = 0, got = 0;
    ssize_t n;

    begin(STR(""), STR(""));
    memset(one, 'd', sizeof(one));
    for (int i = 0; i < FLOOD; i++) {
        sent += send(server_fd, one, sizeof(one), MSG_DONTWAIT) > 0;
        turn();
    }
    CHECK(sent < FLOOD);
    for (int quiet = 0; quiet < 50;) {
        turn();
        n = recv(client_fd, bytes + got, sizeof(bytes) - got, MSG_DONTWAIT);
        quiet = n > 0 ? 0 : quiet + 1;
        got += n > 0 ? (size_t)n : 0;
    }
    CHECK(got > 0 && got % (sizeof(one) + 2) == 0);
    CHECK_INT(got / (sizeof(one) + 2), sent);
    for (size_t at = 0; at < got; at += sizeof(one) + 2)
        CHECK(memcmp(bytes + at, "\x03\xe8", 2) == 0);
    CHECK_INT(ends, 0);
    finish();
}

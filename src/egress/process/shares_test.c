/* A team that takes all it can get leaves room for another one (share.h). The limits are lowered, so that few
 * connections reach them. */
#include <errno.h>
#include <poll.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/test.h"
#include "egress/process/test/live_rig.h"
#include "protocol/json/json_shape.h"

#define CLOSED "{\"allowOut\":[\"*.b.example\"],\"denyOut\":[\"0.0.0.0/0\"]}"

#define REQUEST "GET / HTTP/1.1\r\nHost: x.b.example\r\n\r\n"
#define RULES   "{\"rules\":{\"x.b.example\":[{\"transform\":{\"headers\":{\"X-Who\":\"it\"}}}]}}"

enum { RED = BOX, RED_BOXES = 4, BLUE = BOX + RED_BOXES, ALL = 40 };

static void set_box(uint32_t address, const char *team, const char *policy)
{
    auto_free char *line = xasprintf("{\"set\":{\"address\":\"127.0.0.%u\",\"id\":\"i%u\","
                                     "\"team\":\"%s\",\"policy\":%s}}\n",
                                     address & 255, address & 255, team, policy);

    tell(line);
}

/* Four sandboxes of one team and one of another. */
static void start_teams(enum share_kind kind, const char *policy)
{
    start(NULL);
    rig.egress->limits[kind].all = ALL; /* before anybody connects */
    for (uint32_t i = 0; i < RED_BOXES; i++)
        set_box(RED + i, "red", policy);
    set_box(BLUE, "blue", policy);
}

/* One connection from there: its descriptor, or -1 when it was refused. */
static int try_connect(uint32_t from, int listener, int *out_came)
{
    int fd = dial(from, rig.tcp_port);
    struct pollfd fds[] = {{.fd = fd, .events = POLLIN}, {.fd = listener, .events = POLLIN}};

    CHECK(poll(fds, 2, WAIT_MS) > 0);
    if (fds[1].revents) {
        *out_came = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        return fd;
    }
    (void)close(fd);
    return -1;
}

typedef int (*try_fn)(uint32_t from, int listener, int *out_came);

/* All that the red sandboxes can get. */
static int connect_all(try_fn try, int listener, int fds[ALL], int came[ALL])
{
    int count = 0, refused = 0;

    for (uint32_t i = 0; refused < RED_BOXES; i++) {
        int fd = try(RED + i % RED_BOXES, listener, &came[count]);

        refused = fd < 0 ? refused + 1 : 0;
        if (fd >= 0)
            fds[count++] = fd;
        CHECK(count < ALL);
    }
    return count;
}

/* A connection that is closed makes room for another one of its team. Closes all. */
static void check_given_back(try_fn try, int listener, int count, const int fds[ALL],
                             const int came[ALL])
{
    int fd, other;

    (void)close(fds[0]);
    (void)close(came[0]);
    WAIT_FOR((fd = try(RED, listener, &other)) >= 0);
    (void)close(fd);
    (void)close(other);
    for (int i = 1; i < count; i++) {
        (void)close(fds[i]);
        (void)close(came[i]);
    }
}

TEST(a_team_with_many_sandboxes_leaves_connections_for_others)
{
    int listener, count, fds[ALL], came[ALL], fd, other;

    start_teams(SHARE_CONNECTIONS, "{}");
    listener = listen_at(SERVER);
    count = connect_all(try_connect, listener, fds, came);
    CHECK(count > RED_BOXES && count <= ALL / 2);
    fd = try_connect(BLUE, listener, &other);
    CHECK(fd >= 0);
    CHECK(fd_write_full(other, "x", 1) == 0);
    {
        char text[4];

        CHECK_INT(read_some(fd, text, sizeof(text)), 1);
    }
    (void)close(fd);
    (void)close(other);
    check_given_back(try_connect, listener, count, fds, came);
    stop();
}

TEST(a_refused_connection_is_logged_with_whose_share_is_used_up)
{
    int listener, count, fds[ALL], came[ALL];

    start_teams(SHARE_CONNECTIONS, "{}");
    listener = listen_at(SERVER);
    count = connect_all(try_connect, listener, fds, came);
    for (int i = 0; i < count; i++)
        expect_log("allowed", NULL, "");
    expect_log("denied", NULL, "too many connections of this ");
    for (int i = 0; i < count; i++) {
        (void)close(fds[i]);
        (void)close(came[i]);
    }
    stop();
}

/* The sandbox learns the address of the host that has a rule. */
static void learn_address(uint32_t from)
{
    int fd = dial(from, rig.dns_port);

    CHECK_INT(ask_tcp(fd, "x.b.example").count, 1);
    (void)close(fd);
}

/* One request from there to the host with a rule: its connection, or -1 when it was refused. */
static int try_read(uint32_t from, int listener, int *out_came)
{
    int fd = dial(from, rig.tcp_port);
    struct pollfd fds[] = {{.fd = fd, .events = POLLIN}, {.fd = listener, .events = POLLIN}};
    char text[1024] = "";

    CHECK(fd_write_full(fd, REQUEST, sizeof(REQUEST) - 1) == 0);
    CHECK(poll(fds, 2, WAIT_MS) > 0);
    if (fds[1].revents) {
        *out_came = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        CHECK(read_some(*out_came, text, sizeof(text)) > 0);
        CHECK(strstr(text, "X-Who: it\r\n"));
        return fd;
    }
    CHECK(read_some(fd, text, sizeof(text)) > 0);
    CHECK(str_starts(str_of(text), STR("HTTP/1.1 403 ")));
    if (!strstr(text, " to hosts with rules at once"))
        test_fail(__FILE__, __LINE__, "the answer is %s", text);
    (void)close(fd);
    return -1;
}

TEST(a_team_with_many_connections_to_hosts_with_rules_leaves_some_to_others)
{
    int listener, count, fds[ALL], came[ALL], fd, other;

    start_teams(SHARE_READ, RULES);
    for (uint32_t from = RED; from <= BLUE; from++)
        learn_address(from);
    listener = listen_at(SERVER);
    count = connect_all(try_read, listener, fds, came);
    CHECK(count > RED_BOXES && count <= ALL / 2);
    fd = try_read(BLUE, listener, &other);
    CHECK(fd >= 0);
    (void)close(fd);
    (void)close(other);
    check_given_back(try_read, listener, count, fds, came);
    stop();
}

TEST(connections_whose_requests_cannot_be_read_use_no_share)
{
    /* TLS with x.b.example: nobody told the process of an authority to sign for it. */
    static const char hello[] =
        "\x16\x03\x01\x00\x43\x01\x00\x00\x3f\x03\x03"
        "01234567890123456789012345678901"
        "\x00\x00\x02\x13\x01\x01\x00\x00\x14\x00\x00\x00\x10\x00\x0e\x00\x00\x0bx.b.example";
    int listener, fd, came;
    char text[64];

    start_teams(SHARE_READ, RULES);
    learn_address(RED);
    listener = listen_at(SERVER);
    for (int i = 0; i < ALL; i++) {
        fd = dial(RED, rig.tcp_port);
        CHECK(fd_write_full(fd, hello, sizeof(hello) - 1) == 0);
        CHECK(read_some(fd, text, sizeof(text)) > 0); /* the alert */
        (void)close(fd);
        expect_log("allowed", "x.b.example", "");
        expect_log("denied", "x.b.example", "there is no authority to sign for the host");
    }
    fd = try_read(RED, listener, &came);
    CHECK(fd >= 0);
    (void)close(fd);
    (void)close(came);
    stop();
}

/* A question by datagram that nobody answers. */
static int ask_silent(uint32_t from, unsigned number)
{
    struct sockaddr_in near = at(from, 0), far = at(0x7f000001, rig.dns_port);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct dns_question question = {.type = DNS_A};
    auto_free char *name = xasprintf("silent.n%u.b.example", number);
    auto_buf struct buf text = {0};

    CHECK(host_name_set(&question.name, str_of(name)));
    buf_init(&text, DNS_MESSAGE_MAX);
    CHECK(dns_write_question(&text, 0x4242, &question));
    CHECK(bind(fd, (struct sockaddr *)&near, sizeof(near)) == 0);
    CHECK(sendto(fd, text.p, text.len, 0, (struct sockaddr *)&far, sizeof(far)) ==
          (ssize_t)text.len);
    return fd;
}

TEST(a_team_with_many_questions_leaves_the_resolver_to_others)
{
    int fds[2 * ALL];

    start_teams(SHARE_QUESTIONS, CLOSED);
    for (unsigned i = 0; i < 2 * ALL; i++)
        fds[i] = ask_silent(RED + i % RED_BOXES, i);
    expect_log("denied", NULL, "too many DNS queries of this ");
    {
        int fd = dial(BLUE, rig.dns_port);

        CHECK_INT(ask_tcp(fd, "x.b.example").count, 1);
        (void)close(fd);
    }
    for (unsigned i = 0; i < 2 * ALL; i++)
        (void)close(fds[i]);
    stop();
}

TEST(a_team_with_many_resolver_connections_leaves_some_to_others)
{
    int fds[2 * ALL], refused = 0, fd;

    start_teams(SHARE_CLIENTS, CLOSED);
    for (unsigned i = 0; i < 2 * ALL; i++)
        fds[i] = dial(RED + i % RED_BOXES, rig.dns_port);
    expect_log("denied", NULL, "to the resolver at once");
    fd = dial(BLUE, rig.dns_port);
    CHECK_INT(ask_tcp(fd, "x.b.example").count, 1);
    (void)close(fd);
    for (unsigned i = 0; i < 2 * ALL; i++) {
        struct pollfd one = {.fd = fds[i]};

        refused += poll(&one, 1, 0) > 0 && (one.revents & (POLLHUP | POLLERR));
        (void)close(fds[i]);
    }
    CHECK(refused >= 2 * ALL - ALL / 2);
    stop();
}

/* The begin of an HTTP request that does not end is kept until it is decided. */
TEST(a_team_with_much_unfinished_data_leaves_memory_to_others)
{
    char head[8192], text[256];
    int listener, fds[2 * ALL], fd, came;

    memset(head, 'a', sizeof(head));
    memcpy(head, "GET /", 5);
    start_teams(SHARE_BYTES, CLOSED);
    rig.egress->limits[SHARE_BYTES].all = 512 * 1024;
    for (unsigned i = 0; i < 2 * ALL; i++) {
        fds[i] = dial(RED + i % RED_BOXES, rig.tcp_port);
        (void)send(fds[i], head, sizeof(head), MSG_NOSIGNAL);
    }
    expect_log("denied", NULL, "too much unfinished data");
    listener = listen_at(SERVER);
    fd = dial(BLUE, rig.dns_port);
    CHECK_INT(ask_tcp(fd, "x.b.example").count, 1);
    (void)close(fd);
    fd = dial(BLUE, rig.tcp_port);
    CHECK(fd_write_full(fd, REQUEST, sizeof(REQUEST) - 1) == 0);
    came = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK_INT(fd_read_full(came, text, 37), 37);
    (void)close(fd);
    (void)close(came);
    for (unsigned i = 0; i < 2 * ALL; i++)
        (void)close(fds[i]);
    stop();
}

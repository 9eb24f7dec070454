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

/* All that the red sandboxes can get. */
static int connect_all(int listener, int fds[ALL], int came[ALL])
{
    int count = 0, refused = 0;

    for (uint32_t i = 0; refused < RED_BOXES; i++) {
        int fd = try_connect(RED + i % RED_BOXES, listener, &came[count]);

        refused = fd < 0 ? refused + 1 : 0;
        if (fd >= 0)
            fds[count++] = fd;
        CHECK(count < ALL);
    }
    return count;
}

TEST(a_team_with_many_sandboxes_leaves_connections_for_others)
{
    int listener, count, fds[ALL], came[ALL], fd, other;

    start_teams(SHARE_CONNECTIONS, "{}");
    listener = listen_at(SERVER);
    count = connect_all(listener, fds, came);
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
    /* What is closed can be used again. */
    (void)close(fds[0]);
    (void)close(came[0]);
    WAIT_FOR((fd = try_connect(RED, listener, &other)) >= 0);
    (void)close(fd);
    (void)close(other);
    for (int i = 1; i < count; i++) {
        (void)close(fds[i]);
        (void)close(came[i]);
    }
    stop();
}

TEST(a_refused_connection_is_logged_with_whose_share_is_used_up)
{
    int listener, count, fds[ALL], came[ALL];

    start_teams(SHARE_CONNECTIONS, "{}");
    listener = listen_at(SERVER);
    count = connect_all(listener, fds, came);
    for (int i = 0; i < count; i++)
        expect_log("allowed", NULL, "");
    expect_log("denied", NULL, "too many connections of this ");
    for (int i = 0; i < count; i++) {
        (void)close(fds[i]);
        (void)close(came[i]);
    }
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
    CHECK(fd_write_full(fd, "GET / HTTP/1.1\r\nHost: x.b.example\r\n\r\n", 37) == 0);
    came = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK_INT(fd_read_full(came, text, 37), 37);
    (void)close(fd);
    (void)close(came);
    for (unsigned i = 0; i < 2 * ALL; i++)
        (void)close(fds[i]);
    stop();
}

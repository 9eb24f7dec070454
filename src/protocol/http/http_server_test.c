/* Syntax, limits and timeouts. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "protocol/http/test/http_test_rig.h"

static struct rig rig;

static struct str count_of(struct str all, const char *what, int *out)
{
    ptrdiff_t at;

    *out = 0;
    while ((at = str_find_str(all, str_of(what))) >= 0) {
        all = str_skip(all, (size_t)at + strlen(what));
        (*out)++;
    }
    return all;
}

TEST(server_answers)
{
    rig_start(&rig, &rig_config);
    rig_expect(&rig, "GET /hello?x=1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
               "Content-Length: 5\r\nConnection: close\r\n\r\nhello");
    rig_expect(&rig, "GET /hello HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\n");
    rig_expect(&rig, "\r\nHEAD /hello HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
               "Content-Length: 5\r\nConnection: close\r\n\r\n");
    rig_expect(&rig, "GET /none HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", "HTTP/1.1 204");
    rig_expect(&rig, "GET /chunks HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
               "chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n");
    rig_expect(&rig, "GET /chunks HTTP/1.0\r\n\r\n", "\r\n\r\nabcdefg");
    rig_expect(&rig, "GET /evil HTTP/1.0\r\n\r\n", "X-A: b  Set-Cookie: c\r\n");
    CHECK_INT(seen.dones, 7);
    CHECK_INT(seen.finishes, 7);
    rig_stop(&rig);
}

/* Our descriptor whose peer is the other end of fd; -1: not there yet. */
static int other_end(int fd)
{
    struct sockaddr_in mine = {0}, peer = {0};
    socklen_t size = sizeof(mine);

    CHECK(getsockname(fd, (struct sockaddr *)&mine, &size) == 0);
    for (int other = 0; other < 1024; other++) {
        size = sizeof(peer);
        if (getpeername(other, (struct sockaddr *)&peer, &size) == 0 &&
            peer.sin_family == AF_INET && peer.sin_port == mine.sin_port)
            return other;
    }
    return -1;
}

/* Linux gives new connections the host's default, which may be one that paces. */
TEST(server_does_not_pace_its_own_host)
{
    char kind[16] = "";
    socklen_t size = sizeof(kind);
    int fd, other;

    rig_start(&rig, &rig_config);
    fd = rig_connect(&rig);
    while ((other = other_end(fd)) < 0)
        rig_turn(&rig);
    CHECK(getsockopt(other, IPPROTO_TCP, TCP_CONGESTION, kind, &size) == 0);
    CHECK(strcmp(kind, "reno") == 0);
    (void)close(fd);
    rig_stop(&rig);
}

TEST(server_head_has_no_body)
{
    int fd, errnum;
    struct buf out;

    rig_start(&rig, &rig_config);
    fd = rig_connect(&rig);
    buf_init(&out, 10000);
    rig_send(&rig, fd, STR("HEAD /chunks HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK(str_ends(buf_str(&out), STR("chunked\r\nConnection: close\r\n\r\n")));
    buf_done(&out);
    (void)close(fd);
    rig_stop(&rig);
}

TEST(server_reads_bodies)
{
    rig_start(&rig, &rig_config);
    rig_expect(
        &rig,
        "POST /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody",
        "\r\n\r\nbody");
    rig_expect(&rig,
               "POST /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
               "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: v\r\n\r\n",
               "\r\n\r\nabcde");
    rig_expect(&rig, "POST /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
               "Content-Length: 0\r\n");
    rig_expect(
        &rig,
        "POST /count HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody",
        "\r\n\r\ngot 4");
    CHECK_INT(seen.dones, 4);
    rig_stop(&rig);
}

TEST(server_takes_single_bytes)
{
    const char *text = "POST /echo HTTP/1.1\r\nHost: h\r\nX-Empty:\r\nX-Blank:   a b  \r\n"
                       "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
                       "GET /hello HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    int fd, errnum;
    struct buf out;

    rig_start(&rig, &rig_config);
    fd = rig_connect(&rig);
    buf_init(&out, 10000);
    for (const char *p = text; *p; p++) {
        rig_send(&rig, fd, str_n(p, 1));
        rig_turn(&rig);
    }
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK(str_find_str(buf_str(&out), STR("\r\n\r\nabcdeHTTP/1.1 200")) > 0);
    CHECK(str_ends(buf_str(&out), STR("hello")));
    buf_done(&out);
    (void)close(fd);
    rig_stop(&rig);
}

TEST(server_pipelining_keeps_order)
{
    const char *text = "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n"
                       "GET /later HTTP/1.1\r\nHost: h\r\n\r\n"
                       "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nthird"
                       "GET /hello HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    int fd, errnum, count;
    struct buf out;

    rig_start(&rig, &rig_config);
    fd = rig_connect(&rig);
    buf_init(&out, 10000);
    rig_send(&rig, fd, str_of(text));
    rig_read(&rig, fd, "hello", &out, &errnum);
    rig_wait_ms(&rig, 20);
    CHECK_INT(seen.requests, 2); /* one at a time: the third waits for the second's answer */
    CHECK(seen.kept);
    rig_reply(seen.kept, STR("second"));
    CHECK_INT(seen.dones, 1); /* never from inside the call */
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK_INT(errnum, 0);
    (void)count_of(buf_str(&out), "HTTP/1.1 200 OK", &count);
    CHECK_INT(count, 4);
    CHECK(str_find_str(buf_str(&out), STR("second")) < str_find_str(buf_str(&out), STR("third")));
    CHECK_INT(seen.finishes, 4);
    buf_done(&out);
    (void)close(fd);
    rig_stop(&rig);
}

TEST(server_unread_body_does_not_become_a_request)
{
    const char *text = "POST /hello HTTP/1.1\r\nHost: h\r\nContent-Length: 40\r\n\r\n"
                       "GET /later HTTP/1.1\r\nHost: inner\r\n\r\n...."
                       "GET /hello HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

    rig_start(&rig, &rig_config);
    rig_expect(&rig, text, "helloHTTP/1.1 200 OK\r\n");
    CHECK_INT(seen.requests, 2);
    CHECK(!seen.kept);
    rig_stop(&rig);
}

TEST(server_expect_continue)
{
    int fd, errnum;
    struct buf out;

    rig_start(&rig, &rig_config);
    fd = rig_connect(&rig);
    buf_init(&out, 10000);
    rig_send(&rig, fd,
             STR("POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
                 "Content-Length: 4\r\nConnection: close\r\n\r\n"));
    rig_read(&rig, fd, "100 Continue\r\n\r\n", &out, &errnum);
    rig_send(&rig, fd, STR("body"));
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK(str_ends(buf_str(&out), STR("body")));
    (void)close(fd);
    buf_done(&out);
    /* Nobody wants the body: no 100, and the connection ends with the answer. */
    fd = rig_connect(&rig);
    rig_send(&rig, fd,
             STR("POST /hello HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
                 "Content-Length: 4\r\n\r\n"));
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK(str_starts(buf_str(&out), STR("HTTP/1.1 200 OK\r\n")));
    CHECK(str_find_str(buf_str(&out), STR("Connection: close\r\n")) > 0);
    (void)close(fd);
    buf_done(&out);
    rig_stop(&rig);
}

TEST(server_refuses_smuggling)
{
    static const char *const bad[] = {
        "GET /hello HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "GET /hello HTTP/1.1\r\nHost: h\r\nContent-Length: 1, 1\r\n\r\na",
        "GET /hello HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\na",
        "GET /hello HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: h\r\nContent-Length: 0x1\r\n\r\na",
        "GET /hello HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: h\r\nContent-Length : 1\r\n\r\na",
        "GET /hello HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: h\r\nX: a\r\n folded\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: h\r\n\tX: a\r\n\r\n",
        "GET /hello HTTP/1.1\nHost: h\n\n",
        "GET /hello HTTP/1.1\r\nHost: h\nX: a\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: h\r\nX: a\rb\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: h\r\nX: a\r\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: h\r\nX\x01: a\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: h\r\n: a\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: h\r\nno colon\r\n\r\n",
        "GET /hello HTTP/1.1\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET http://other/hello HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET  /hello HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /he llo HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET hello HTTP/1.1\r\nHost: h\r\n\r\n",
        "G@T /hello HTTP/1.1\r\nHost: h\r\n\r\n",
        "\x16\x03\x01\x02",
        "GET /hello HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabcd\r\n",
        "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nno colon\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX:\r\n b\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX : a\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: a\n\r\n\r\n",
    };

    rig_start(&rig, &rig_config);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        rig_expect(&rig, bad[i], "HTTP/1.1 400 Bad Request\r\n");
    rig_expect(&rig, "GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n",
               "HTTP/1.1 ");
    rig_expect(&rig, "GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
               "HTTP/1.1 501 ");
    rig_expect(&rig, "CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n", "HTTP/1.1 501 ");
    rig_expect(&rig, "GET /hello\r\n\r\n", "HTTP/1.1 505 ");
    rig_expect(&rig, "GET / HTTP/2.0\r\nHost: h\r\n\r\n", "HTTP/1.1 505 ");
    CHECK(!seen.kept);
    rig_expect(&rig, "GET /hello HTTP/1.1\r\n\r\n",
               "{\"code\":400,\"message\":\"exactly one Host header is needed\"}");
    rig_wait_ms(&rig, 10);
    CHECK_INT(http_server_connections(rig.server), 0);
    rig_stop(&rig);
}

TEST(server_refuses_nul)
{
    int fd, errnum;
    struct buf out;

    rig_start(&rig, &rig_config);
    fd = rig_connect(&rig);
    buf_init(&out, 10000);
    rig_send(&rig, fd, STR("GET /hello HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n"));
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK(str_starts(buf_str(&out), STR("HTTP/1.1 400 ")));
    CHECK_INT(seen.requests, 0);
    buf_done(&out);
    (void)close(fd);
    rig_stop(&rig);
}

static void expect_long(const char *prefix, const char *piece, size_t times, const char *expected)
{
    struct buf request;

    buf_init(&request, 1 << 20);
    (void)buf_add_str(&request, str_of(prefix));
    for (size_t i = 0; i < times; i++)
        (void)buf_add_str(&request, str_of(piece));
    (void)buf_add_str(&request, STR("\r\n\r\n"));
    rig_expect(&rig, request.p, expected);
    buf_done(&request);
}

TEST(server_limits)
{
    rig_start(&rig, &rig_config);
    expect_long("GET /", "a", 20000, "HTTP/1.1 414 ");
    expect_long("GET /hello HTTP/1.1\r\nHost: h\r\nX: ", "a", 70000, "HTTP/1.1 431 ");
    expect_long("GET /hello HTTP/1.1\r\nHost: h", "\r\nX: a", 100, "HTTP/1.1 431 ");
    expect_long("GET /hello HTTP/1.1\r\nConnection: close\r\nHost: h", "\r\nX: a", 98,
                "HTTP/1.1 200 ");
    expect_long("", "\r\n", 40000, "HTTP/1.1 431 ");
    rig_expect(&rig, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n",
               "HTTP/1.1 413 ");
    expect_long("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
                "64\r\n"
                "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n",
                20, "{\"code\":413,\"message\":\"request body is too large\"}");
    rig_stop(&rig);
}

/* Whoever works keeps its place; whoever waits gives it to a new one, the longest first. */
TEST(server_connection_limit)
{
    static const char again[] = "GET /hello HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    struct http_server_config small = rig_config;
    int idle, head, works, errnum;
    struct buf out;

    small.max_connections = 2;
    rig_start(&rig, &small);
    buf_init(&out, 10000);
    idle = rig_connect(&rig);
    rig_wait_ms(&rig, 10);
    works = rig_connect(&rig);
    rig_send(&rig, works, STR("GET /later HTTP/1.1\r\nHost: h\r\n\r\n"));
    rig_wait_ms(&rig, 10);
    CHECK(seen.kept);
    rig_expect(&rig, again, "HTTP/1.1 200 ");
    rig_read(&rig, idle, NULL, &out, &errnum);
    CHECK_INT(out.len + (size_t)errnum, 0); /* closed without a word */
    (void)close(idle);
    head = rig_connect(&rig);
    rig_send(&rig, head, STR("GET /hello HTTP/1.1\r\n"));
    rig_wait_ms(&rig, 10);
    rig_expect(&rig, again, "HTTP/1.1 200 ");
    (void)close(head);
    head = rig_connect(&rig);
    rig_send(&rig, head, STR("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n"));
    rig_wait_ms(&rig, 10);
    rig_expect(&rig, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n", "HTTP/1.1 503 ");
    rig_reply(seen.kept, STR("at last"));
    rig_read(&rig, works, "at last", &out, &errnum);
    CHECK_INT(errnum, 0);
    (void)close(head);
    (void)close(works);
    buf_done(&out);
    rig_stop(&rig);
}

TEST(server_slow_clients)
{
    struct http_server_config quick = rig_config;
    int idle, errnum;
    struct buf out;

    quick.head_timeout_ms = quick.body_timeout_ms = quick.idle_timeout_ms = 100;
    rig_start(&rig, &quick);
    idle = rig_connect(&rig);
    rig_expect(&rig, "GET /hel", "HTTP/1.1 408 ");
    rig_expect(&rig, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc",
               "HTTP/1.1 408 ");
    CHECK_INT(seen.dones, 1);
    buf_init(&out, 1000);
    rig_read(&rig, idle, NULL, &out, &errnum);
    CHECK_INT(out.len, 0); /* silent */
    (void)close(idle);
    /* A head that trickles is cut all the same, a slow handler is not. */
    idle = rig_connect(&rig);
    rig_send(&rig, idle, STR("GET /later HTTP/1.1\r\nHost: h\r\n\r\n"));
    rig_wait_ms(&rig, 300);
    CHECK(seen.kept);
    rig_reply(seen.kept, STR("late"));
    rig_read(&rig, idle, "late", &out, &errnum);
    CHECK_INT(errnum, 0);
    (void)close(idle);
    buf_clear(&out);
    idle = rig_connect(&rig);
    for (int i = 0; i < 30; i++) {
        rig_send(&rig, idle, STR("\r\n"));
        rig_wait_ms(&rig, 10);
    }
    rig_read(&rig, idle, NULL, &out, &errnum);
    CHECK(str_starts(buf_str(&out), STR("HTTP/1.1 408 ")));
    (void)close(idle);
    buf_done(&out);
    rig_stop(&rig);
}

TEST(server_a_whole_body_has_a_deadline)
{
    struct http_server_config quick = rig_config;
    struct buf out;
    int fd, errnum;

    quick.whole_timeout_ms = 200; /* between bytes there is always less than body_timeout_ms */
    rig_start(&rig, &quick);
    buf_init(&out, 1000);
    fd = rig_connect(&rig);
    rig_send(&rig, fd, STR("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 900\r\n\r\n"));
    for (int i = 0; i < 800 && seen.dones == 0; i++) {
        rig_send(&rig, fd, STR("x"));
        rig_wait_ms(&rig, 10);
    }
    CHECK_INT(seen.dones, 1);
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK(str_starts(buf_str(&out), STR("HTTP/1.1 408 ")));
    (void)close(fd);
    buf_done(&out);
    /* The clock starts again with each request. */
    for (int i = 0; i < 3; i++) {
        rig_expect(&rig,
                   "POST /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: "
                   "3\r\n\r\nabc",
                   "abc");
        rig_wait_ms(&rig, 100);
    }
    rig_stop(&rig);
}

TEST(server_write_timeout)
{
    struct http_server_config quick = rig_config;
    int fd, small = 4096;

    quick.write_timeout_ms = 150;
    rig_start(&rig, &quick);
    fd = rig_connect(&rig);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    rig_send(&rig, fd, STR("GET /big HTTP/1.1\r\nHost: h\r\n\r\n"));
    for (int i = 0; i < 400 && seen.dones == 0; i++)
        rig_wait_ms(&rig, 10);
    CHECK_INT(seen.dones, 1);
    CHECK_INT(seen.finishes, 0);
    CHECK_INT(http_server_connections(rig.server), 0);
    (void)close(fd);
    rig_stop(&rig);
}

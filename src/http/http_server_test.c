#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "http/http_test_rig.h"

enum { BIG = 16 * 1024 * 1024 };

static struct rig rig;
static int requests, dones, finishes, data_calls, drains;
static size_t data_bytes, big_left;
static bool ended;
static struct http_exchange *kept;

static void on_done(struct http_exchange *ex, void *arg)
{
    (void)arg;
    dones++;
    finishes += http_finished(ex);
    if (ex == kept)
        kept = NULL;
}

static void reply_text(struct http_exchange *ex, struct str text)
{
    struct http_header type = {STR("Content-Type"), STR("text/plain")};

    http_reply(ex, 200, &type, 1, text);
}

static void on_whole_body(struct http_exchange *ex, struct str body, void *arg)
{
    (void)arg;
    reply_text(ex, body);
}

static void on_data(struct http_exchange *ex, struct str data, void *arg)
{
    data_calls++;
    data_bytes += data.len;
    if (arg)
        http_pause(ex);
}

static void on_end(struct http_exchange *ex, void *arg)
{
    char text[32];

    (void)arg;
    ended = true;
    (void)snprintf(text, sizeof(text), "got %zu", data_bytes);
    reply_text(ex, str_of(text));
}

static void produce(struct http_exchange *ex, void *arg)
{
    static char block[32768];

    drains += arg != NULL;
    memset(block, 'x', sizeof(block));
    while (big_left) {
        size_t len = big_left < sizeof(block) ? big_left : sizeof(block);

        big_left -= len;
        if (http_write(ex, block, len) > HTTP_HIGH_WATER)
            return;
    }
    http_end(ex);
}

static void send_file(struct http_exchange *ex)
{
    int fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    static char block[65536];

    memset(block, 'f', sizeof(block));
    for (int i = 0; i < BIG / (int)sizeof(block); i++)
        CHECK_INT(write(fd, block, sizeof(block)), sizeof(block));
    http_begin(ex, 200, NULL, 0, BIG - 10 + 4);
    http_write_file(ex, fd, 10, BIG - 10);
    (void)http_write(ex, "tail", 4);
    http_end(ex);
}

static void on_request(struct http_exchange *ex, void *arg)
{
    const struct http_request *request = http_request(ex);
    struct str path = request->path;

    (void)arg;
    requests++;
    http_on_done(ex, on_done, NULL);
    if (str_is(path, "/hello")) {
        reply_text(ex, STR("hello"));
    } else if (str_is(path, "/none")) {
        http_reply(ex, 204, NULL, 0, STR("ignored"));
    } else if (str_is(path, "/echo")) {
        http_read_all(ex, 1000, on_whole_body, NULL);
    } else if (str_is(path, "/count")) {
        http_read_stream(ex, on_data, on_end, NULL);
    } else if (str_is(path, "/pause")) {
        kept = ex;
        http_read_stream(ex, on_data, on_end, &rig);
    } else if (str_is(path, "/chunks")) {
        http_begin(ex, 200, NULL, 0, -1);
        (void)http_write(ex, "abc", 3);
        (void)http_write(ex, "", 0);
        (void)http_write(ex, "defg", 4);
        http_end(ex);
    } else if (str_is(path, "/big")) {
        big_left = BIG;
        http_begin(ex, 200, NULL, 0, BIG);
        http_on_drain(ex, produce, &rig);
        produce(ex, NULL);
    } else if (str_is(path, "/file")) {
        send_file(ex);
    } else if (str_is(path, "/short")) {
        http_begin(ex, 200, NULL, 0, 100);
        (void)http_write(ex, "only this", 9);
        http_end(ex);
    } else if (str_is(path, "/evil")) {
        struct http_header header = {STR("X-A"), STR("b\r\nSet-Cookie: c")};

        http_reply(ex, 200, &header, 1, STR_NONE);
    } else {
        kept = ex; /* answered by the test */
    }
}

static struct http_server_config config = {
    .on_request = on_request,
    .max_connections = 100,
    .head_timeout_ms = 5000,
    .idle_timeout_ms = 5000,
    .body_timeout_ms = 5000,
    .write_timeout_ms = 5000,
};

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
    rig_start(&rig, &config);
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
    CHECK_INT(dones, 7);
    CHECK_INT(finishes, 7);
    rig_stop(&rig);
}

TEST(server_head_has_no_body)
{
    int fd, errnum;
    struct buf out;

    rig_start(&rig, &config);
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
    rig_start(&rig, &config);
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
    CHECK_INT(dones, 4);
    rig_stop(&rig);
}

TEST(server_takes_single_bytes)
{
    const char *text = "POST /echo HTTP/1.1\r\nHost: h\r\nX-Empty:\r\nX-Blank:   a b  \r\n"
                       "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
                       "GET /hello HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    int fd, errnum;
    struct buf out;

    rig_start(&rig, &config);
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

    rig_start(&rig, &config);
    fd = rig_connect(&rig);
    buf_init(&out, 10000);
    rig_send(&rig, fd, str_of(text));
    rig_read(&rig, fd, "hello", &out, &errnum);
    rig_wait_ms(&rig, 20);
    CHECK_INT(requests, 2); /* one at a time: the third waits for the second's answer */
    CHECK(kept);
    reply_text(kept, STR("second"));
    CHECK_INT(dones, 1); /* never from inside the call */
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK_INT(errnum, 0);
    (void)count_of(buf_str(&out), "HTTP/1.1 200 OK", &count);
    CHECK_INT(count, 4);
    CHECK(str_find_str(buf_str(&out), STR("second")) < str_find_str(buf_str(&out), STR("third")));
    CHECK_INT(finishes, 4);
    buf_done(&out);
    (void)close(fd);
    rig_stop(&rig);
}

TEST(server_unread_body_does_not_become_a_request)
{
    const char *text = "POST /hello HTTP/1.1\r\nHost: h\r\nContent-Length: 40\r\n\r\n"
                       "GET /later HTTP/1.1\r\nHost: inner\r\n\r\n...."
                       "GET /hello HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

    rig_start(&rig, &config);
    rig_expect(&rig, text, "helloHTTP/1.1 200 OK\r\n");
    CHECK_INT(requests, 2);
    CHECK(!kept);
    rig_stop(&rig);
}

TEST(server_expect_continue)
{
    int fd, errnum;
    struct buf out;

    rig_start(&rig, &config);
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
        "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
        "chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        "ffffffffffffffff1\r\nabc",
    };

    rig_start(&rig, &config);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        rig_expect(&rig, bad[i], "HTTP/1.1 400 Bad Request\r\n");
    rig_expect(&rig, "GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n",
               "HTTP/1.1 ");
    rig_expect(&rig, "GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
               "HTTP/1.1 501 ");
    rig_expect(&rig, "CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n", "HTTP/1.1 501 ");
    rig_expect(&rig, "GET /hello\r\n\r\n", "HTTP/1.1 505 ");
    rig_expect(&rig, "GET / HTTP/2.0\r\nHost: h\r\n\r\n", "HTTP/1.1 505 ");
    CHECK(!kept);
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

    rig_start(&rig, &config);
    fd = rig_connect(&rig);
    buf_init(&out, 10000);
    rig_send(&rig, fd, STR("GET /hello HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n"));
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK(str_starts(buf_str(&out), STR("HTTP/1.1 400 ")));
    CHECK_INT(requests, 0);
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
    rig_start(&rig, &config);
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

TEST(server_connection_limit)
{
    struct http_server_config small = config;
    int first, errnum;
    struct buf out;

    small.max_connections = 1;
    rig_start(&rig, &small);
    first = rig_connect(&rig);
    rig_wait_ms(&rig, 10);
    rig_expect(&rig, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n", "HTTP/1.1 503 ");
    buf_init(&out, 10000);
    rig_send(&rig, first, STR("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n"));
    rig_read(&rig, first, "hello", &out, &errnum);
    buf_done(&out);
    (void)close(first);
    rig_stop(&rig);
}

TEST(server_slow_clients)
{
    struct http_server_config quick = config;
    int idle, errnum;
    struct buf out;

    quick.head_timeout_ms = quick.body_timeout_ms = quick.idle_timeout_ms = 100;
    rig_start(&rig, &quick);
    idle = rig_connect(&rig);
    rig_expect(&rig, "GET /hel", "HTTP/1.1 408 ");
    rig_expect(&rig, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc",
               "HTTP/1.1 408 ");
    CHECK_INT(dones, 1);
    buf_init(&out, 1000);
    rig_read(&rig, idle, NULL, &out, &errnum);
    CHECK_INT(out.len, 0); /* silent */
    (void)close(idle);
    /* A head that trickles is cut all the same, a slow handler is not. */
    idle = rig_connect(&rig);
    rig_send(&rig, idle, STR("GET /later HTTP/1.1\r\nHost: h\r\n\r\n"));
    rig_wait_ms(&rig, 300);
    CHECK(kept);
    reply_text(kept, STR("late"));
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

TEST(server_write_timeout)
{
    struct http_server_config quick = config;
    int fd, small = 4096;

    quick.write_timeout_ms = 150;
    rig_start(&rig, &quick);
    fd = rig_connect(&rig);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    rig_send(&rig, fd, STR("GET /big HTTP/1.1\r\nHost: h\r\n\r\n"));
    for (int i = 0; i < 400 && dones == 0; i++)
        rig_wait_ms(&rig, 10);
    CHECK_INT(dones, 1);
    CHECK_INT(finishes, 0);
    CHECK_INT(http_server_connections(rig.server), 0);
    (void)close(fd);
    rig_stop(&rig);
}

TEST(server_half_closed_client_gets_its_answer)
{
    int fd, errnum;
    struct buf out;

    rig_start(&rig, &config);
    fd = rig_connect(&rig);
    buf_init(&out, 10000);
    rig_send(&rig, fd, STR("POST /later HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab"));
    (void)shutdown(fd, SHUT_WR);
    rig_wait_ms(&rig, 30);
    CHECK(kept);
    http_read_all(kept, 10, on_whole_body, NULL);
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK_INT(errnum, 0);
    CHECK(str_ends(buf_str(&out), STR("\r\n\r\nab")));
    CHECK_INT(finishes, 1);
    (void)close(fd);
    /* ... but not when the request itself is cut short. */
    fd = rig_connect(&rig);
    buf_clear(&out);
    rig_send(&rig, fd, STR("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nab"));
    (void)shutdown(fd, SHUT_WR);
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK_INT(out.len, 0);
    CHECK_INT(dones, 2);
    CHECK_INT(finishes, 1);
    (void)close(fd);
    buf_done(&out);
    rig_stop(&rig);
}

TEST(server_sees_a_closed_unix_client)
{
    int fd;

    rig_start_unix(&rig, &config);
    fd = rig_connect(&rig);
    rig_send(&rig, fd, STR("GET /later HTTP/1.1\r\nHost: h\r\n\r\n"));
    rig_wait_ms(&rig, 10);
    CHECK(kept);
    (void)close(fd);
    rig_wait_ms(&rig, 30);
    CHECK(!kept);
    CHECK_INT(dones, 1);
    CHECK_INT(finishes, 0);
    rig_stop(&rig);
}

TEST(server_backpressure_out)
{
    int fd, errnum;
    struct buf out;

    rig_start(&rig, &config);
    fd = rig_connect(&rig);
    buf_init(&out, BIG + 1000);
    rig_send(&rig, fd, STR("GET /big HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
    rig_wait_ms(&rig, 20);
    CHECK(kept == NULL);
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK_INT(errnum, 0);
    CHECK(out.len > BIG && out.len < BIG + 400);
    (void)close(fd);
    buf_done(&out);
    rig_stop(&rig);
}

TEST(server_backpressure_in)
{
    enum { LEN = 4 * 1024 * 1024 };
    char *body = xcalloc(1, LEN);
    size_t sent = 0;
    int fd, errnum, before;
    struct buf out;

    rig_start(&rig, &config);
    fd = rig_connect(&rig);
    buf_init(&out, 10000);
    rig_send(&rig, fd,
             STR("POST /pause HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
                 "Content-Length: 4194304\r\n\r\n"));
    for (int i = 0; i < 100; i++) {
        ssize_t now = send(fd, body + sent, LEN - sent, MSG_DONTWAIT);

        sent += now > 0 ? (size_t)now : 0;
        rig_wait_ms(&rig, 1);
    }
    CHECK_INT(data_calls, 1); /* paused since */
    while (!ended) {
        ssize_t now = sent < LEN ? send(fd, body + sent, LEN - sent, MSG_DONTWAIT) : 0;

        sent += now > 0 ? (size_t)now : 0;
        before = data_calls;
        http_resume(kept);
        CHECK_INT(data_calls, before); /* not from inside the call */
        rig_turn(&rig);
        CHECK(data_calls <= before + 1);
    }
    CHECK_INT(data_bytes, LEN);
    rig_read(&rig, fd, "got 4194304", &out, &errnum);
    (void)close(fd);
    buf_done(&out);
    free(body);
    rig_stop(&rig);
}

TEST(server_sends_files)
{
    int fd, errnum;
    struct buf out;

    rig_start(&rig, &config);
    fd = rig_connect(&rig);
    buf_init(&out, BIG + 1000);
    rig_send(&rig, fd, STR("GET /file HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK_INT(errnum, 0);
    CHECK(str_ends(buf_str(&out), STR("fffftail")));
    CHECK_INT((ptrdiff_t)out.len - str_find_str(buf_str(&out), STR("\r\n\r\n")) - 4, BIG - 10 + 4);
    (void)close(fd);
    buf_done(&out);
    rig_stop(&rig);
}

TEST(server_short_body_breaks_the_connection)
{
    int fd, errnum;
    struct buf out;

    rig_start(&rig, &config);
    fd = rig_connect(&rig);
    buf_init(&out, 10000);
    rig_send(&rig, fd, STR("GET /short HTTP/1.1\r\nHost: h\r\n\r\n"));
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK_INT(errnum, ECONNRESET);
    CHECK_INT(dones, 1);
    CHECK_INT(finishes, 0);
    (void)close(fd);
    buf_done(&out);
    rig_stop(&rig);
}

TEST(server_abort_resets)
{
    int fd, errnum;
    struct buf out;

    rig_start(&rig, &config);
    fd = rig_connect(&rig);
    buf_init(&out, 10000);
    rig_send(&rig, fd, STR("GET /later HTTP/1.1\r\nHost: h\r\n\r\n"));
    rig_wait_ms(&rig, 10);
    http_begin(kept, 200, NULL, 0, -1);
    (void)http_write(kept, "part", 4);
    rig_read(&rig, fd, "part", &out, &errnum);
    http_abort(kept);
    CHECK_INT(dones, 0);
    CHECK(http_write(kept, "more", 4) > HTTP_HIGH_WATER);
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK_INT(errnum, ECONNRESET);
    CHECK_INT(dones, 1);
    CHECK_INT(finishes, 0);
    (void)close(fd);
    buf_done(&out);
    rig_stop(&rig);
}

TEST(server_begin_is_flushed_without_a_write)
{
    int fd, errnum;
    struct buf out;

    rig_start(&rig, &config);
    fd = rig_connect(&rig);
    buf_init(&out, 10000);
    rig_send(&rig, fd, STR("GET /later HTTP/1.1\r\nHost: h\r\n\r\n"));
    rig_wait_ms(&rig, 10);
    http_begin(kept, 200, NULL, 0, -1);
    rig_read(&rig, fd, "chunked\r\n\r\n", &out, &errnum);
    CHECK_INT(errnum, 0);
    (void)close(fd);
    buf_done(&out);
    rig_stop(&rig);
    CHECK_INT(dones, 1);
}

TEST(server_raw_answers)
{
    struct http_header length = {STR("Content-Length"), STR("2")};
    int fd, errnum;
    struct buf out;

    rig_start(&rig, &config);
    fd = rig_connect(&rig);
    buf_init(&out, 10000);
    for (int i = 0; i < 2; i++) { /* framed: kept open; unframed: ended by closing */
        rig_send(&rig, fd, STR("GET /later HTTP/1.1\r\nHost: h\r\n\r\n"));
        rig_wait_ms(&rig, 10);
        http_begin_raw(kept, 299, STR("Fi\rne"), &length, i == 0);
        (void)http_write(kept, "ok", 2);
        http_end(kept);
        rig_read(&rig, fd, i ? NULL : "ok", &out, &errnum);
        CHECK_INT(errnum, 0);
        if (i == 0)
            CHECK_STR(buf_str(&out), "HTTP/1.1 299 Fi ne\r\nContent-Length: 2\r\n\r\nok");
        buf_clear(&out);
    }
    (void)close(fd);
    buf_done(&out);
    rig_stop(&rig);
}

TEST(server_detach)
{
    int fd, own;
    char bytes[16];
    struct buf rest;

    rig_start(&rig, &config);
    fd = rig_connect(&rig);
    rig_send(
        &rig, fd,
        STR("GET /later HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nearly"));
    rig_wait_ms(&rig, 10);
    CHECK(http_request(kept)->upgrade);
    buf_init(&rest, 1000);
    own = http_detach(kept, &rest);
    CHECK(own >= 0);
    CHECK_STR(buf_str(&rest), "early");
    CHECK_INT(dones, 0);
    rig_wait_ms(&rig, 10);
    CHECK_INT(dones, 1);
    CHECK_INT(http_server_connections(rig.server), 0);
    CHECK_INT(write(own, "hi", 2), 2);
    CHECK_INT(read(fd, bytes, sizeof(bytes)), 2);
    CHECK_INT(write(fd, "hello", 5), 5);
    CHECK_INT(read(own, bytes, sizeof(bytes)), 5);
    buf_done(&rest);
    (void)close(fd);
    (void)close(own);
    rig_stop(&rig);
}

TEST(server_upgrade_refused_goes_on)
{
    rig_start(&rig, &config);
    rig_expect(&rig,
               "GET /hello HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
               "GET /hello HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
               "helloHTTP/1.1 200 OK");
    rig_stop(&rig);
}

static int idles;

static void on_idle(void *arg)
{
    (void)arg;
    idles++;
}

TEST(server_drain)
{
    int idle, busy, errnum;
    struct buf out;

    rig_start(&rig, &config);
    idle = rig_connect(&rig);
    busy = rig_connect(&rig);
    rig_send(&rig, busy, STR("GET /later HTTP/1.1\r\nHost: h\r\n\r\n"));
    rig_wait_ms(&rig, 10);
    http_server_drain(rig.server, on_idle, NULL);
    CHECK_INT(idles, 0);
    buf_init(&out, 10000);
    rig_read(&rig, idle, NULL, &out, &errnum);
    CHECK_INT(out.len, 0);
    CHECK_INT(idles, 0);
    reply_text(kept, STR("last"));
    rig_read(&rig, busy, NULL, &out, &errnum);
    CHECK(str_find_str(buf_str(&out), STR("Connection: close\r\n")) > 0);
    rig_wait_ms(&rig, 10);
    CHECK_INT(idles, 1);
    (void)close(idle);
    (void)close(busy);
    buf_done(&out);
    rig_stop(&rig);
}

TEST(server_free_ends_exchanges)
{
    int fd;

    rig_start(&rig, &config);
    fd = rig_connect(&rig);
    rig_send(&rig, fd, STR("GET /later HTTP/1.1\r\nHost: h\r\n\r\n"));
    rig_wait_ms(&rig, 10);
    CHECK(kept);
    rig_stop(&rig);
    CHECK_INT(dones, 1);
    CHECK(!kept);
    (void)close(fd);
}

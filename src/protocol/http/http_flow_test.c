/* Backpressure, aborts, take-overs and ends. */
#include <errno.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "protocol/http/http_outq.h"
#include "protocol/http/test/http_test_rig.h"
#include "protocol/stream/stream.h"

static struct rig rig;

/* The one connection of most tests. */
static int fd, errnum;
static struct buf out;

static void begin(void)
{
    rig_start(&rig, &rig_config);
    fd = rig_connect(&rig);
    buf_init(&out, 10000);
}

static void end(void)
{
    (void)close(fd);
    buf_done(&out);
    rig_stop(&rig);
}

static void on_whole_body(struct http_exchange *ex, struct str body, void *arg)
{
    (void)arg;
    rig_reply(ex, body);
}

TEST(server_half_closed_client_gets_its_answer)
{
    begin();
    rig_send(&rig, fd, STR("POST /later HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab"));
    (void)shutdown(fd, SHUT_WR);
    rig_wait_ms(&rig, 30);
    CHECK(seen.kept);
    http_read_all(seen.kept, 10, on_whole_body, NULL);
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK_INT(errnum, 0);
    CHECK(str_ends(buf_str(&out), STR("\r\n\r\nab")));
    CHECK_INT(seen.finishes, 1);
    (void)close(fd);
    /* ... but not when the request itself is cut short. */
    fd = rig_connect(&rig);
    buf_clear(&out);
    rig_send(&rig, fd, STR("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nab"));
    (void)shutdown(fd, SHUT_WR);
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK_INT(out.len, 0);
    CHECK_INT(seen.dones, 2);
    CHECK_INT(seen.finishes, 1);
    end();
}

TEST(server_sees_a_closed_unix_client)
{
    rig_start_unix(&rig, &rig_config);
    fd = rig_connect(&rig);
    rig_send(&rig, fd, STR("GET /later HTTP/1.1\r\nHost: h\r\n\r\n"));
    rig_wait_ms(&rig, 10);
    CHECK(seen.kept);
    (void)close(fd);
    rig_wait_ms(&rig, 30);
    CHECK(!seen.kept);
    CHECK_INT(seen.dones, 1);
    CHECK_INT(seen.finishes, 0);
    rig_stop(&rig);
}

TEST(server_sees_a_reset_after_a_half_close)
{
    struct linger hard = {.l_onoff = 1, .l_linger = 0};

    rig_start(&rig, &rig_config);
    fd = rig_connect(&rig);
    rig_send(&rig, fd, STR("GET /later HTTP/1.1\r\nHost: h\r\n\r\n"));
    (void)shutdown(fd, SHUT_WR);
    rig_wait_ms(&rig, 20);
    CHECK(seen.kept);
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    (void)close(fd);
    rig_wait_ms(&rig, 20);
    CHECK(!seen.kept);
    CHECK_INT(seen.finishes, 0);
    rig_stop(&rig);
}

TEST(server_ignores_urgent_data)
{
    begin();
    rig_send(&rig, fd, STR("GET /later HTTP/1.1\r\nHost: h\r\n\r\n"));
    rig_wait_ms(&rig, 5);
    rig_send(&rig, fd, STR("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n"));
    rig_wait_ms(&rig, 5);
    CHECK_INT(send(fd, "!", 1, MSG_OOB), 1);
    rig_wait_ms(&rig, 5);
    CHECK(seen.kept);
    rig_reply(seen.kept, STR("first"));
    rig_read(&rig, fd, "hello", &out, &errnum);
    CHECK_INT(errnum, 0);
    end();
}

TEST(server_backpressure_out)
{
    rig_start(&rig, &rig_config);
    fd = rig_connect(&rig);
    buf_init(&out, RIG_BIG + 1000);
    rig_send(&rig, fd, STR("GET /big HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
    rig_wait_ms(&rig, 20);
    CHECK(seen.kept == NULL);
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK_INT(errnum, 0);
    CHECK(out.len > RIG_BIG && out.len < RIG_BIG + 400);
    end();
}

TEST(server_backpressure_in)
{
    enum { LEN = 4 * 1024 * 1024 };
    char *body = xcalloc(1, LEN);
    size_t sent = 0;
    int before;

    begin();
    rig_send(&rig, fd,
             STR("POST /pause HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
                 "Content-Length: 4194304\r\n\r\n"));
    for (int i = 0; i < 100; i++) {
        ssize_t now = send(fd, body + sent, LEN - sent, MSG_DONTWAIT);

        sent += now > 0 ? (size_t)now : 0;
        rig_wait_ms(&rig, 1);
    }
    CHECK_INT(seen.data_calls, 1); /* paused since */
    while (!seen.ended) {
        ssize_t now = sent < LEN ? send(fd, body + sent, LEN - sent, MSG_DONTWAIT) : 0;

        sent += now > 0 ? (size_t)now : 0;
        before = seen.data_calls;
        http_resume(seen.kept);
        CHECK_INT(seen.data_calls, before); /* not from inside the call */
        rig_turn(&rig);
        CHECK(seen.data_calls <= before + 1);
    }
    CHECK_INT(seen.data_bytes, LEN);
    rig_read(&rig, fd, "got 4194304", &out, &errnum);
    (void)close(fd);
    buf_done(&out);
    free(body);
    rig_stop(&rig);
}

TEST(server_sends_files)
{
    rig_start(&rig, &rig_config);
    fd = rig_connect(&rig);
    buf_init(&out, RIG_BIG + 1000);
    rig_send(&rig, fd, STR("GET /file HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK_INT(errnum, 0);
    CHECK(str_ends(buf_str(&out), STR("fffftail")));
    CHECK_INT((ptrdiff_t)out.len - str_find_str(buf_str(&out), STR("\r\n\r\n")) - 4,
              RIG_BIG - 10 + 4);
    end();
}

TEST(server_short_body_breaks_the_connection)
{
    begin();
    rig_send(&rig, fd, STR("GET /short HTTP/1.1\r\nHost: h\r\n\r\n"));
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK_INT(errnum, ECONNRESET);
    CHECK_INT(seen.dones, 1);
    CHECK_INT(seen.finishes, 0);
    end();
}

TEST(server_abort_resets)
{
    begin();
    rig_send(&rig, fd, STR("GET /later HTTP/1.1\r\nHost: h\r\n\r\n"));
    rig_wait_ms(&rig, 10);
    http_begin(seen.kept, 200, NULL, 0, -1);
    (void)http_write(seen.kept, "part", 4);
    rig_read(&rig, fd, "part", &out, &errnum);
    http_abort(seen.kept);
    CHECK_INT(seen.dones, 0);
    CHECK(http_write(seen.kept, "more", 4) > HTTP_HIGH_WATER);
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK_INT(errnum, ECONNRESET);
    CHECK_INT(seen.dones, 1);
    CHECK_INT(seen.finishes, 0);
    end();
}

TEST(server_begin_is_flushed_without_a_write)
{
    begin();
    rig_send(&rig, fd, STR("GET /later HTTP/1.1\r\nHost: h\r\n\r\n"));
    rig_wait_ms(&rig, 10);
    http_begin(seen.kept, 200, NULL, 0, -1);
    rig_read(&rig, fd, "chunked\r\n\r\n", &out, &errnum);
    CHECK_INT(errnum, 0);
    end();
    CHECK_INT(seen.dones, 1);
}

TEST(server_raw_answers)
{
    struct pair lies[] = {{STR("Content-Length"), STR("7")},
                          {STR("Transfer-Encoding"), STR("chunked")}};
    struct http_framing framings[] = {{.kind = HTTP_BODY_LENGTH, .length = 2},
                                      {.kind = HTTP_BODY_UNTIL_CLOSE, .length = -1}};

    begin();
    for (int i = 0; i < 2; i++) { /* framed: seen.kept open; unframed: seen.ended by closing */
        rig_send(&rig, fd, STR("GET /later HTTP/1.1\r\nHost: h\r\n\r\n"));
        rig_wait_ms(&rig, 10);
        http_begin_raw(seen.kept, 299, STR("Fi\rne"), lies, 2, &framings[i]);
        (void)http_write(seen.kept, "ok", 2);
        http_end(seen.kept);
        rig_read(&rig, fd, i ? NULL : "ok", &out, &errnum);
        CHECK_INT(errnum, 0);
        CHECK_STR(buf_str(&out), i ? "HTTP/1.1 299 Fi ne\r\nConnection: close\r\n\r\nok"
                                   : "HTTP/1.1 299 Fi ne\r\nContent-Length: 2\r\n\r\nok");
        buf_clear(&out);
    }
    end();
}

TEST(server_detach)
{
    struct stream *own;
    struct iovec hi = http_iov("hi", 2);
    char bytes[16];
    struct buf rest;

    rig_start(&rig, &rig_config);
    fd = rig_connect(&rig);
    rig_send(
        &rig, fd,
        STR("GET /later HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nearly"));
    rig_wait_ms(&rig, 10);
    CHECK(http_request(seen.kept)->upgrade);
    buf_init(&rest, 1000);
    own = http_detach(seen.kept, &rest);
    CHECK(own);
    CHECK(stream_source_fd(own) >= 0 && stream_sink_fd(own) >= 0);
    CHECK_STR(buf_str(&rest), "early");
    CHECK_INT(seen.dones, 0);
    rig_wait_ms(&rig, 10);
    CHECK_INT(seen.dones, 1);
    CHECK_INT(http_server_connections(rig.server), 0);
    CHECK_INT(stream_write(own, &hi, 1, false), 2);
    CHECK_INT(read(fd, bytes, sizeof(bytes)), 2);
    CHECK_INT(write(fd, "hello", 5), 5);
    CHECK_INT(stream_read(own, bytes, sizeof(bytes)), 5);
    buf_done(&rest);
    (void)close(fd);
    stream_close(own, false);
    rig_stop(&rig);
}

TEST(server_upgrade_refused_goes_on)
{
    rig_start(&rig, &rig_config);
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
    int idle, busy;

    rig_start(&rig, &rig_config);
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
    rig_reply(seen.kept, STR("last"));
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
    rig_start(&rig, &rig_config);
    fd = rig_connect(&rig);
    rig_send(&rig, fd, STR("GET /later HTTP/1.1\r\nHost: h\r\n\r\n"));
    rig_wait_ms(&rig, 10);
    CHECK(seen.kept);
    rig_stop(&rig);
    CHECK_INT(seen.dones, 1);
    CHECK(!seen.kept);
    (void)close(fd);
}

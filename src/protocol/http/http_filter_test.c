/* Server and client behind a filter whose reads and writes are not those of the socket. What every other test of
 * this folder does goes through plain streams. */
#include <errno.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "protocol/http/http_client.h"
#include "protocol/http/http_outq.h"
#include "protocol/http/test/http_test_rig.h"
#include "protocol/stream/test/stream_test_filter.h"

static struct rig rig;
static int fd, errnum;
static struct buf out;

static void begin(void)
{
    rig_filtered = true;
    rig_start(&rig, &rig_config);
    fd = rig_connect(&rig);
    buf_init(&out, RIG_BIG + 10000);
}

static void end(void)
{
    (void)close(fd);
    buf_done(&out);
    rig_stop(&rig);
}

TEST(filtered_server_keeps_connections_and_pipelines)
{
    begin();
    rig_send(&rig, fd, STR("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n"));
    rig_read(&rig, fd, "hello", &out, &errnum);
    rig_send(&rig, fd,
             STR("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
                 "GET /chunks HTTP/1.1\r\nHost: h\r\n\r\n"
                 "GET /none HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK_INT(errnum, 0);
    CHECK(str_find_str(buf_str(&out), STR("\r\n\r\nabcHTTP/1.1 200")) > 0);
    CHECK(str_find_str(buf_str(&out), STR("4\r\ndefg\r\n0\r\n\r\nHTTP/1.1 204")) > 0);
    CHECK_INT(seen.finishes, 4);
    end();
}

TEST(filtered_server_takes_an_upload)
{
    enum { LEN = 2 * 1024 * 1024 };
    auto_free char *body = xcalloc(1, LEN);

    begin();
    rig_send(&rig, fd,
             STR("POST /count HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
                 "Content-Length: 2097152\r\n\r\n"));
    rig_read(&rig, fd, "100 Continue\r\n\r\n", &out, &errnum);
    rig_send(&rig, fd, str_n(body, LEN));
    rig_read(&rig, fd, "got 2097152", &out, &errnum);
    CHECK_INT(errnum, 0);
    end();
}

/* What a filter holds is not seen by poll: who pauses must get it all the same when he goes on. */
TEST(filtered_server_pauses)
{
    enum { LEN = 300 * 1000 };
    auto_free char *body = xcalloc(1, LEN);

    begin();
    rig_send(&rig, fd, STR("POST /pause HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\n\r\n"));
    rig_send(&rig, fd, str_n(body, LEN));
    while (!seen.ended) {
        rig_turn(&rig);
        if (seen.kept)
            http_resume(seen.kept);
    }
    rig_read(&rig, fd, "got 300000", &out, &errnum);
    CHECK_INT(errnum, 0);
    CHECK(seen.data_calls > 1);
    end();
}

static void download(const char *request, const char *ends)
{
    begin();
    rig_send(&rig, fd, str_of(request));
    rig_wait_ms(&rig, 5); /* it begins before somebody reads */
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK_INT(errnum, 0);
    CHECK(out.len > RIG_BIG - 10 && out.len < RIG_BIG + 400);
    CHECK(str_ends(buf_str(&out), str_of(ends)));
    CHECK_INT(seen.finishes, 1);
    end();
}

TEST(filtered_server_sends_bytes)
{
    download("GET /big HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", "xxxx");
}

TEST(filtered_server_sends_a_file)
{
    download("GET /file HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", "fffftail");
}

TEST(filtered_server_answers_before_it_has_read)
{
    auto_free char *body = xcalloc(1, 1 << 20);

    begin();
    rig_send(&rig, fd, STR("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1048576\r\n\r\n"));
    rig_send(&rig, fd, str_n(body, 1 << 20));
    rig_read(&rig, fd, "request body is too large", &out, &errnum);
    end();
}

TEST(filtered_server_cuts)
{
    begin();
    rig_send(&rig, fd, STR("GET /short HTTP/1.1\r\nHost: h\r\n\r\n"));
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK_INT(errnum, ECONNRESET);
    end();
}

TEST(filtered_server_sees_the_client_go)
{
    begin();
    rig_send(&rig, fd, STR("GET /later HTTP/1.1\r\nHost: h\r\n\r\n"));
    while (!seen.kept)
        rig_turn(&rig);
    CHECK(!http_client_left(seen.kept));
    http_begin(seen.kept, 200, NULL, 0, -1);
    (void)http_write(seen.kept, "x", 1);
    rig_read(&rig, fd, "x\r\n", &out, &errnum);
    (void)shutdown(fd, SHUT_WR);
    while (seen.kept)
        rig_turn(&rig);
    CHECK_INT(seen.finishes, 0);
    end();
}

TEST(filtered_server_detaches)
{
    struct iovec hi = http_iov("hi", 2);
    auto_buf struct buf rest = {0};
    struct stream *own;
    char bytes[16];
    ssize_t got;

    begin();
    rig_send(&rig, fd,
             STR("GET /later HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"));
    while (!seen.kept)
        rig_turn(&rig);
    buf_init(&rest, 1000);
    own = http_detach(seen.kept, &rest);
    CHECK(own);
    CHECK_INT(stream_source_fd(own), -1);
    CHECK_INT(stream_sink_fd(own), -1);
    CHECK_INT(stream_write(own, &hi, 1, false), 2);
    rig_read(&rig, fd, "hi", &out, &errnum);
    CHECK_INT(write(fd, "hello", 5), 5);
    while ((got = stream_read(own, bytes, sizeof(bytes))) == -EAGAIN)
        rig_turn(&rig);
    CHECK_STR(str_n(bytes, (size_t)got), "hello");
    stream_close(own, false);
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK_INT(errnum, 0);
    end();
}

/* ---- the client ---- */

static size_t got_bytes;
static int got_ends, got_drains, pauses;

static void on_head(struct http_client *client, int status, struct str reason,
                    const struct http_headers *headers, const struct http_framing *framing,
                    void *arg)
{
    (void)client;
    (void)reason;
    (void)headers;
    (void)framing;
    (void)arg;
    CHECK_INT(status, 200);
}

static void on_data(struct http_client *client, struct str raw, void *arg)
{
    (void)arg;
    got_bytes += raw.len;
    if (++pauses % 3 == 0)
        http_client_pause(client);
}

static void on_end(struct http_client *client, bool reusable, void *arg)
{
    (void)client;
    (void)arg;
    CHECK(reusable);
    got_ends++;
}

static void on_error(struct http_client *client, int error, void *arg)
{
    (void)client;
    (void)arg;
    test_fail(__FILE__, __LINE__, "error %d", error);
}

static void on_drain(struct http_client *client, void *arg)
{
    (void)client;
    (void)arg;
    got_drains++;
}

static const struct http_client_events events = {.on_head = on_head,
                                                 .on_data = on_data,
                                                 .on_end = on_end,
                                                 .on_error = on_error,
                                                 .on_drain = on_drain};

static void wait_for_end(struct http_client *client, int ends)
{
    while (got_ends < ends) {
        rig_turn(&rig);
        http_client_resume(client);
    }
}

TEST(filtered_client)
{
    enum { LEN = 4 * 1024 * 1024 };
    auto_free char *body = xcalloc(1, LEN);
    struct http_client *client;
    struct stream *stream;

    rig_filtered = true;
    rig_start(&rig, &rig_config);
    rig_filtered = false; /* the client has its own */
    stream = stream_new(rig.loop, rig_connect(&rig));
    stream_add_filter(stream, stream_test_filter(NULL));
    client = http_client_new(rig.loop, stream);
    http_client_start(client, &events, NULL, STR("GET /big HTTP/1.1\r\nHost: h\r\n\r\n"), false);
    wait_for_end(client, 1);
    CHECK_INT(got_bytes, RIG_BIG);
    CHECK(http_client_alive(client));
    got_bytes = 0;
    http_client_start(client, &events, NULL,
                      STR("POST /count HTTP/1.1\r\nHost: h\r\nContent-Length: 4194304\r\n\r\n"),
                      false);
    CHECK(http_client_write(client, body, LEN) > 0);
    wait_for_end(client, 2);
    CHECK_INT(seen.data_bytes, LEN);
    CHECK_INT(got_bytes, strlen("got 4194304"));
    CHECK_INT(got_drains, 1);
    http_client_free(client);
    rig_stop(&rig);
}

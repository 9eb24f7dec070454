/* Windows, many streams, slow and vanishing peers, timeouts, the end of the server. */
#include <sys/socket.h>

#include "base/cleanup.h"
#include "protocol/http2/http2.h"
#include "protocol/http2/test/http2_test_client.h"

enum { UPLOAD = 5 * 1024 * 1024 };

static struct rig rig;
static struct http2_client client;

static void begin_with(const struct http_server_config *config, uint32_t window, bool stingy)
{
    struct http_server_config own = *config;

    own.http2 = &http2_protocol;
    rig_start(&rig, &own);
    http2_client_open(&client, &rig, window, stingy);
}

static void begin(void)
{
    begin_with(&rig_config, 1 << 20, false);
}

static void end(void)
{
    http2_client_close(&client);
    rig_stop(&rig);
}

static struct http2_reply *get(const char *path)
{
    return http2_client_ask(&client, "GET", path, "", -1);
}

static void cancel(struct http2_reply *reply)
{
    CHECK_INT(
        nghttp2_submit_rst_stream(client.ng, 0, http2_client_id(&client, reply), NGHTTP2_CANCEL),
        0);
}

static void try_large_bodies(void)
{
    struct http2_reply *big, *file, *upload;

    begin();
    big = get("/big");
    file = get("/file");
    upload = http2_client_ask(&client, "POST", "/count", "", UPLOAD);
    HTTP2_WAIT(&client, big->closed && file->closed && upload->closed);
    CHECK_INT(big->bytes, RIG_BIG);
    CHECK_INT(file->bytes, RIG_BIG - 10 + 4);
    CHECK_INT(big->error + file->error + upload->error, 0);
    CHECK_STR(buf_str(&upload->body), "got 5242880");
    CHECK(seen.drains > 0);
    end();
}

TEST(http2_large_bodies_both_ways)
{
    try_large_bodies();
}

TEST(http2_large_bodies_through_a_filter)
{
    rig_filtered = true;
    try_large_bodies();
}

TEST(http2_many_streams_at_once)
{
    struct http_server_config config = rig_config;
    struct http2_reply *replies[400];

    config.max_connections = 1000;
    begin_with(&config, 1 << 20, false);
    for (int i = 0; i < 400; i++)
        replies[i] = i % 2 ? get("/hello") : http2_client_ask(&client, "POST", "/echo", "", 900);
    for (int i = 0; i < 400; i++) {
        HTTP2_WAIT(&client, replies[i]->closed);
        CHECK_INT(replies[i]->status, 200);
        CHECK_INT(replies[i]->bytes, i % 2 ? 5 : 900);
    }
    HTTP2_WAIT(&client, seen.finishes == 400);
    end();
}

TEST(http2_a_paused_body_holds_its_window_and_nobody_else)
{
    struct http2_reply *paused, *hello, *count;

    begin();
    paused = http2_client_ask(&client, "POST", "/pause", "", UPLOAD);
    HTTP2_WAIT(&client, seen.data_calls > 0);
    http2_client_turn(&client);
    hello = get("/hello");
    HTTP2_WAIT(&client, hello->closed);
    for (int i = 0; i < 200; i++)
        http2_client_turn(&client);
    CHECK_INT(seen.data_calls, 1);
    CHECK(UPLOAD - paused->upload_left <= HTTP2_WINDOW_WIDE + 2 * HTTP2_WINDOW);
    /* Another upload goes through beside it. */
    count = http2_client_ask(&client, "POST", "/echo", "", 1000);
    HTTP2_WAIT(&client, count->closed);
    CHECK_INT(count->bytes, 1000);
    while (!seen.ended) {
        if (seen.kept)
            http_resume(seen.kept);
        http2_client_turn(&client);
    }
    HTTP2_WAIT(&client, paused->closed);
    CHECK_STR(buf_str(&paused->body), "got 5242880");
    end();
}

TEST(http2_a_body_nobody_asked_for_is_bounded)
{
    struct http2_reply *upload;

    begin();
    upload = http2_client_ask(&client, "POST", "/keep", "", UPLOAD);
    HTTP2_WAIT(&client, seen.kept);
    for (int i = 0; i < 200; i++)
        http2_client_turn(&client);
    CHECK(UPLOAD - upload->upload_left <= HTTP2_WINDOW + 16384);
    /* Answered without it: the rest is not wanted, and the answer counts. */
    rig_reply(seen.kept, STR("no"));
    HTTP2_WAIT(&client, upload->closed);
    CHECK_STR(buf_str(&upload->body), "no");
    CHECK_INT(upload->error, NGHTTP2_NO_ERROR);
    CHECK(upload->upload_left > 0);
    CHECK_INT(seen.finishes, 1);
    end();
}

TEST(http2_a_stream_that_is_not_read_stops_only_itself)
{
    struct http2_reply *stuck, *hello;

    begin_with(&rig_config, 65535, true);
    stuck = get("/big");
    HTTP2_WAIT(&client, stuck->bytes == 65535);
    for (int i = 0; i < 50; i++) {
        hello = get("/hello");
        HTTP2_WAIT(&client, hello->closed);
    }
    CHECK_INT(stuck->bytes, 65535);
    CHECK(seen.big_left > RIG_BIG - 65535 - HTTP_HIGH_WATER - 2 * 32768);
    cancel(stuck);
    HTTP2_WAIT(&client, seen.dones == 51);
    CHECK_INT(seen.finishes, 50);
    end();
}

TEST(http2_write_timeout_resets_the_stream)
{
    struct http_server_config config = rig_config;
    struct http2_reply *stuck, *hello;

    config.write_timeout_ms = 100;
    begin_with(&config, 65535, true);
    stuck = get("/big");
    HTTP2_WAIT(&client, stuck->closed);
    CHECK_INT(stuck->error, NGHTTP2_ENHANCE_YOUR_CALM);
    hello = get("/hello");
    HTTP2_WAIT(&client, hello->closed);
    CHECK_INT(hello->status, 200);
    end();
}

TEST(http2_sees_a_client_leave)
{
    struct http2_reply *reply;

    begin();
    reply = get("/keep");
    HTTP2_WAIT(&client, seen.kept);
    CHECK(!http_client_left(seen.kept));
    cancel(reply);
    HTTP2_WAIT(&client, seen.dones == 1);
    CHECK_INT(seen.finishes, 0);
    reply = get("/keep");
    HTTP2_WAIT(&client, seen.kept);
    (void)shutdown(client.fd, SHUT_RDWR);
    CHECK(http_client_left(seen.kept));
    HTTP2_WAIT(&client, seen.dones == 2);
    CHECK_INT(seen.finishes, 0);
    end();
}

TEST(http2_a_broken_answer_is_a_reset)
{
    struct http2_reply *shorter, *aborted, *hello;

    begin();
    shorter = get("/short");
    aborted = get("/keep");
    HTTP2_WAIT(&client, shorter->closed && seen.kept);
    CHECK_INT(shorter->error, NGHTTP2_INTERNAL_ERROR);
    http_begin(seen.kept, 200, NULL, 0, -1);
    (void)http_write(seen.kept, "half", 4);
    http_abort(seen.kept);
    HTTP2_WAIT(&client, aborted->closed);
    CHECK_INT(aborted->error, NGHTTP2_INTERNAL_ERROR);
    hello = get("/hello");
    HTTP2_WAIT(&client, hello->closed);
    CHECK_INT(hello->status, 200);
    end();
}

TEST(http2_timeouts)
{
    struct http_server_config config = rig_config;
    struct http2_reply *late;

    config.body_timeout_ms = 60;
    config.idle_timeout_ms = 200;
    begin_with(&config, 1 << 20, false);
    late = http2_client_ask(&client, "POST", "/echo", "", 10);
    late->upload_hold = true;
    HTTP2_WAIT(&client, late->ended);
    CHECK_INT(late->status, 408);
    late->upload_hold = false;
    (void)nghttp2_session_resume_data(client.ng, http2_client_id(&client, late));
    HTTP2_WAIT(&client, client.goaway);
    CHECK_INT(client.goaway_error, NGHTTP2_NO_ERROR);
    HTTP2_WAIT(&client, client.gone);
    end();
}

TEST(http2_a_head_must_come_in_time)
{
    /* HEADERS without END_HEADERS, for which a CONTINUATION never comes. */
    static const char half[] = "\0\0\1\1\0\0\0\0\1\x82";
    struct http_server_config config = rig_config;

    config.head_timeout_ms = 60;
    begin_with(&config, 1 << 20, false);
    http2_client_raw(&client, half, sizeof(half) - 1);
    HTTP2_WAIT(&client, client.goaway && client.gone);
    CHECK_INT(seen.requests, 0);
    end();
}

static void on_idle(void *arg)
{
    *(bool *)arg = true;
}

TEST(http2_drains)
{
    struct http2_reply *kept, *hello;
    bool idle = false;

    begin();
    kept = get("/keep");
    HTTP2_WAIT(&client, seen.kept);
    http_server_drain(rig.server, on_idle, &idle);
    hello = get("/hello"); /* it did not know yet */
    HTTP2_WAIT(&client, client.goaway && client.goaway_last < 100);
    HTTP2_WAIT(&client, hello->closed);
    CHECK_INT(hello->status, 200);
    CHECK(!idle && !client.gone);
    rig_reply(seen.kept, STR("last"));
    HTTP2_WAIT(&client, kept->closed && client.gone);
    CHECK_STR(buf_str(&kept->body), "last");
    (void)close(client.fd);
    client.fd = -1;
    while (!idle)
        rig_turn(&rig);
    end();
}

TEST(http2_the_server_goes_in_the_middle)
{
    begin();
    (void)get("/big");
    (void)get("/keep");
    (void)http2_client_ask(&client, "POST", "/pause", "", UPLOAD);
    HTTP2_WAIT(&client, seen.requests == 3);
    end();
    CHECK_INT(seen.dones, 3);
}

static void free_server(struct http_exchange *ex, void *arg)
{
    (void)ex;
    (void)arg;
    http_server_free(take_ptr(&rig.server));
}

TEST(http2_a_handler_ends_the_server)
{
    struct http_server_config config = rig_config;

    config.on_request = free_server;
    begin_with(&config, 1 << 20, false);
    (void)get("/a");
    (void)get("/b");
    HTTP2_WAIT(&client, client.gone);
    http2_client_close(&client);
    loop_free(rig.loop);
}

/* Peers that make work and want nothing. Each attack is tried a little first, where it must do no harm. */
#include "protocol/http2/http2.h"
#include "protocol/http2/test/http2_test_client.h"

enum { FEW = 100, MANY = 4000 };

static struct rig rig;
static struct http2_client client;

static void begin(void)
{
    struct http_server_config config = rig_config;

    memset(&seen, 0, sizeof(seen));
    config.http2 = &http2_protocol;
    rig_start(&rig, &config);
    http2_client_open(&client, &rig, 1 << 20, false);
}

static void end(void)
{
    http2_client_close(&client);
    rig_stop(&rig);
}

/* The same frame again and again. */
static void flood(const void *frame, size_t len, int times)
{
    for (int i = 0; i < times && !client.gone && !client.goaway; i++) {
        rig_send(&rig, client.fd, str_n(frame, len));
        if (i % 50 == 0)
            http2_client_turn(&client);
    }
}

static void check_alive(void)
{
    struct http2_reply *hello = http2_client_ask(&client, "GET", "/hello", "", -1);

    HTTP2_WAIT(&client, hello->closed);
    CHECK_INT(hello->status, 200);
}

/* A stream is open meanwhile. */
static void try_flood(const void *frame, size_t len)
{
    for (int times = FEW; times <= MANY; times += MANY - FEW) {
        begin();
        (void)http2_client_ask(&client, "POST", "/keep", "", 0);
        client.replies[0].upload_hold = true;
        HTTP2_WAIT(&client, seen.kept);
        flood(frame, len, times);
        if (times == FEW) {
            check_alive();
            CHECK(!client.goaway);
        } else {
            HTTP2_WAIT(&client, client.goaway);
            CHECK_INT(client.goaway_error, NGHTTP2_ENHANCE_YOUR_CALM);
            HTTP2_WAIT(&client, client.gone);
            CHECK_INT(seen.dones, 1);
        }
        end();
    }
}

#define TRY_FLOOD(bytes) try_flood(bytes, sizeof(bytes) - 1)

TEST(http2_flood_of_pings)
{
    TRY_FLOOD("\0\0\10\6\0\0\0\0\0abcdefgh");
}

TEST(http2_flood_of_settings)
{
    int sent = 0;

    begin();
    while (!client.goaway && !client.gone && sent < MANY) {
        CHECK_INT(nghttp2_submit_settings(client.ng, NGHTTP2_FLAG_NONE, NULL, 0), 0);
        http2_client_turn(&client);
        if (++sent == FEW)
            check_alive();
    }
    HTTP2_WAIT(&client, client.goaway);
    CHECK_INT(client.goaway_error, NGHTTP2_ENHANCE_YOUR_CALM);
    CHECK(sent > FEW && sent < MANY);
    end();
}

TEST(http2_flood_of_empty_data)
{
    TRY_FLOOD("\0\0\0\0\0\0\0\0\1");
}

TEST(http2_flood_of_padding)
{
    TRY_FLOOD("\0\0\4\0\10\0\0\0\1\3\0\0\0");
}

TEST(http2_flood_of_window_updates)
{
    TRY_FLOOD("\0\0\4\10\0\0\0\0\0\0\0\0\1");
}

TEST(http2_flood_of_priorities)
{
    TRY_FLOOD("\0\0\5\2\0\0\0\0\1\0\0\0\0\20");
}

/* A type that nobody knows is to be ignored, not to be for nothing. */
TEST(http2_flood_of_unknown_frames)
{
    TRY_FLOOD("\0\0\0\102\0\0\0\0\0");
    TRY_FLOOD("\0\0\3\377\1\0\0\0\1abc");
}

/* GET / of authority "h" on a new stream, and perhaps its end at once. */
static void ask_raw(uint32_t id, bool reset)
{
    unsigned char frames[] = {
        0,    0,    6,    1,    5, 0,   0, 0, 0, /* HEADERS, END_STREAM, END_HEADERS */
        0x82, 0x86, 0x84, 0x41, 1, 'h',          /**/
        0,    0,    4,    3,    0, 0,   0, 0, 0, /* RST_STREAM */
        0,    0,    0,    8};

    for (int i = 0; i < 4; i++)
        frames[5 + i] = frames[20 + i] = (unsigned char)(id >> (24 - 8 * i));
    rig_send(&rig, client.fd, str_n(frames, reset ? sizeof(frames) : 15));
    http2_client_turn(&client);
}

/* CVE-2023-44487 */
TEST(http2_rapid_reset)
{
    uint32_t asked = 0;

    begin();
    http2_client_turn(&client);
    while (!client.goaway && !client.gone && asked < MANY) {
        ask_raw(2 * asked + 1, true);
        if (++asked == FEW)
            CHECK(!client.goaway && !client.gone);
    }
    HTTP2_WAIT(&client, client.goaway);
    CHECK_INT(client.goaway_error, NGHTTP2_ENHANCE_YOUR_CALM);
    if (asked <= FEW || asked >= MANY / 4)
        test_fail(__FILE__, __LINE__, "%u resets", asked);
    CHECK_INT(seen.dones, seen.requests);
    end();
}

/* A peer makes us reset: here by streams above what is allowed at once. */
TEST(http2_flood_of_refused_streams)
{
    begin();
    http2_client_turn(&client);
    for (uint32_t id = 1; id < 2 * MANY && !client.goaway && !client.gone; id += 2)
        ask_raw(id, false);
    HTTP2_WAIT(&client, client.goaway || client.gone);
    CHECK(seen.requests <= 100); /* as many as connections in rig_config */
    end();
}

/* A head that never ends, in CONTINUATION frames. */
TEST(http2_flood_of_continuations)
{
    static const char start[] = "\0\0\1\1\0\0\0\0\1\x82";
    static const char more[] = "\0\0\5\11\0\0\0\0\1\x40\1x\1y";

    begin();
    http2_client_raw(&client, start, sizeof(start) - 1);
    flood(more, sizeof(more) - 1, MANY);
    HTTP2_WAIT(&client, client.goaway || client.gone);
    CHECK_INT(seen.requests, 0);
    end();
}

/* One field in the table, named again by single bytes: a small frame becomes a huge head. */
TEST(http2_head_bomb)
{
    char frame[16384 + 9];
    size_t len = 9, value = 3000;

    begin();
    memset(frame, 0, sizeof(frame));
    frame[len++] = '\x40'; /* literal, to be remembered: "x" with 3,000 bytes */
    frame[len++] = 1;
    frame[len++] = 'x';
    frame[len++] = '\x7f';
    frame[len++] = (char)((value - 127) % 128 + 128);
    frame[len++] = (char)((value - 127) / 128);
    memset(frame + len, 'v', value);
    len += value;
    memset(frame + len, '\xbe', sizeof(frame) - len); /* the newest entry */
    len = sizeof(frame);
    frame[1] = (char)((len - 9) >> 8);
    frame[2] = (char)(len - 9);
    frame[3] = 1;
    frame[4] = 5;
    frame[8] = 1;
    http2_client_raw(&client, frame, len);
    HTTP2_WAIT(&client, client.goaway);
    CHECK_INT(client.goaway_error, NGHTTP2_ENHANCE_YOUR_CALM);
    CHECK_INT(seen.requests, 0);
    end();
}

/* Who reads nothing and asks for acknowledgements. */
TEST(http2_flood_of_acknowledgements_that_wait)
{
    static const char ping[] = "\0\0\10\6\0\0\0\0\0abcdefgh";
    struct http2_reply *big;

    begin();
    big = http2_client_ask(&client, "GET", "/big", "", -1);
    HTTP2_WAIT(&client, big->bytes > 0);
    for (int i = 0; i < MANY * 4; i++)
        rig_send(&rig, client.fd, str_n(ping, sizeof(ping) - 1));
    for (int i = 0; i < 200000 && !seen.dones; i++)
        rig_turn(&rig);
    CHECK_INT(seen.dones, 1);
    end();
}

/* The client against a server of nghttp2's at the other end of a socket pair, on the same thread. */
#include "protocol/http2/http2_client.h"

#include <errno.h>
#include <fcntl.h>
#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/test.h"
#include "protocol/http/http_server.h"

enum { BLOCK = 64 * 1024, BIG = 2 * 1024 * 1024, TURNS_MAX = 20000 };

/* What was told on either side, as text, and the two ends. */
static struct loop *loop;
static struct http2_client *client;
static nghttp2_session *peer;
static int peer_fd;
static struct buf log_buf, seen;
static size_t received, peer_received, drains;
static size_t left; /* of the peer's answer */
static bool pauses, over, peer_ended;

/* ---- the client's events ---- */

static void on_head(struct http2_client *from, int status, const struct http_headers *headers,
                    bool bare, void *arg)
{
    (void)from;
    (void)arg;
    (void)buf_printf(&log_buf, "(%d%s", status, bare ? " bare" : "");
    for (size_t i = 0; i < headers->count; i++)
        (void)buf_printf(&log_buf, " %.*s=%.*s", STR_ARG(headers->items[i].name),
                         STR_ARG(headers->items[i].value));
    (void)buf_add_char(&log_buf, ')');
}

static void on_data(struct http2_client *from, struct str data, void *arg)
{
    (void)arg;
    received += data.len;
    if (left + received < 100) /* of a short answer */
        (void)buf_add_str(&log_buf, data);
    if (pauses)
        http2_client_pause(from);
}

static void on_end(struct http2_client *from, const struct http_headers *trailers, void *arg)
{
    (void)from;
    (void)arg;
    over = true;
    for (size_t i = 0; i < trailers->count; i++)
        (void)buf_printf(&log_buf, "[%.*s=%.*s]", STR_ARG(trailers->items[i].name),
                         STR_ARG(trailers->items[i].value));
    (void)buf_add_str(&log_buf, STR("(end)"));
}

static void on_error(struct http2_client *from, int errnum, void *arg)
{
    (void)from;
    (void)arg;
    over = true;
    (void)buf_printf(&log_buf, "(error %s)", errnum == EPROTO ? "EPROTO" : "other");
}

static void on_drain(struct http2_client *from, void *arg)
{
    (void)from;
    (void)arg;
    drains++;
}

static const struct http2_client_events events = {.on_head = on_head,
                                                  .on_data = on_data,
                                                  .on_end = on_end,
                                                  .on_error = on_error,
                                                  .on_drain = on_drain};

/* ---- the peer ---- */

static int peer_header(nghttp2_session *ng, const nghttp2_frame *frame, const uint8_t *name,
                       size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                       void *arg)
{
    (void)ng;
    (void)frame;
    (void)flags;
    (void)arg;
    (void)buf_printf(&seen, "%.*s=%.*s ", (int)name_len, (const char *)name, (int)value_len,
                     (const char *)value);
    return 0;
}

static int peer_data(nghttp2_session *ng, uint8_t flags, int32_t id, const uint8_t *data,
                     size_t len, void *arg)
{
    (void)ng;
    (void)flags;
    (void)id;
    (void)data;
    (void)arg;
    peer_received += len;
    return 0;
}

static int peer_frame(nghttp2_session *ng, const nghttp2_frame *frame, void *arg)
{
    (void)ng;
    (void)arg;
    if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
        frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        peer_ended = true;
    return 0;
}

static ssize_t peer_send(nghttp2_session *ng, const uint8_t *p, size_t len, int flags, void *arg)
{
    ssize_t sent = send(peer_fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);

    (void)ng;
    (void)flags;
    (void)arg;
    return sent < 0 ? NGHTTP2_ERR_WOULDBLOCK : sent;
}

static void turn(void)
{
    static uint8_t bytes[BLOCK];
    ssize_t got;

    (void)uv_run(loop_uv(loop), UV_RUN_NOWAIT);
    got = recv(peer_fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got > 0)
        (void)nghttp2_session_mem_recv(peer, bytes, (size_t)got);
    (void)nghttp2_session_send(peer);
}

#define TURN_UNTIL(cond)                       \
    for (int turns_ = 0; !(cond); turns_++) {  \
        CHECK(turns_ < TURNS_MAX);             \
        turn();                                \
        if (turns_ > 100)                      \
            (void)poll(NULL, 0, turns_ > 500); \
    }

static void begin(bool has_body)
{
    static const struct pair items[] = {
        {STR_INIT(":method"), STR_INIT("POST")}, {STR_INIT(":scheme"), STR_INIT("http")},
        {STR_INIT(":path"), STR_INIT("/x")},     {STR_INIT(":authority"), STR_INIT("h")},
        {STR_INIT("te"), STR_INIT("trailers")},
    };
    struct http_headers headers = {.count = sizeof(items) / sizeof(*items)};
    nghttp2_session_callbacks *callbacks;
    struct pair copy[sizeof(items) / sizeof(*items)];
    int pair[2];

    memcpy(copy, items, sizeof(items));
    headers.items = copy;
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    CHECK_INT(nghttp2_session_callbacks_new(&callbacks), 0);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, peer_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, peer_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, peer_frame);
    nghttp2_session_callbacks_set_send_callback(callbacks, peer_send);
    CHECK_INT(nghttp2_session_server_new(&peer, callbacks, NULL), 0);
    nghttp2_session_callbacks_del(callbacks);
    CHECK_INT(nghttp2_submit_settings(peer, NGHTTP2_FLAG_NONE, NULL, 0), 0);
    buf_init(&log_buf, 1 << 20);
    buf_init(&seen, 1 << 20);
    peer_fd = pair[1];
    loop = loop_new();
    client = http2_client_new(loop, stream_new(loop, pair[0]), &headers, has_body, &events, NULL);
    CHECK(client);
    TURN_UNTIL(str_find_str(buf_str(&seen), STR("te=trailers")) >= 0);
}

static void finish(const char *wanted)
{
    CHECK_STR(buf_str(&log_buf), wanted);
    http2_client_free(client);
    nghttp2_session_del(peer);
    (void)close(peer_fd);
    loop_free(loop);
    buf_done(&log_buf);
    buf_done(&seen);
}

static nghttp2_nv nv(char *name, char *value)
{
    return (nghttp2_nv){(uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value), 0};
}

/* A body of `left` bytes, then a trailer. */
static ssize_t read_answer(nghttp2_session *ng, int32_t id, uint8_t *p, size_t size,
                           uint32_t *out_flags, nghttp2_data_source *source, void *arg)
{
    size_t len = left < size ? left : size;
    char name[] = "x-end", value[] = "1";
    nghttp2_nv trailer = nv(name, value);

    (void)source;
    (void)arg;
    memset(p, 'y', len);
    left -= len;
    if (!left) {
        *out_flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        (void)nghttp2_submit_trailer(ng, id, &trailer, 1);
    }
    return (ssize_t)len;
}

static void answer(size_t bytes)
{
    char status[] = ":status", ok[] = "200", name[] = "x-a", value[] = "b";
    nghttp2_nv head[] = {nv(status, ok), nv(name, value)};
    nghttp2_data_provider provider = {.read_callback = read_answer};

    left = bytes;
    CHECK_INT(nghttp2_submit_response(peer, 1, head, 2, bytes ? &provider : NULL), 0);
}

TEST(http2_client_passes_both_ways)
{
    struct pair item = {STR("x-own"), STR("t")};
    struct http_headers trailers = {&item, 1};

    begin(true);
    CHECK(!peer_ended);
    (void)http2_client_write(client, "hello", 5);
    TURN_UNTIL(peer_received == 5);
    http2_client_end(client, &trailers);
    TURN_UNTIL(peer_ended);
    CHECK(str_find_str(buf_str(&seen), STR(":path=/x ")) >= 0);
    CHECK(str_ends(buf_str(&seen), STR("x-own=t ")));
    answer(3);
    TURN_UNTIL(over);
    finish("(200 x-a=b)yyy[x-end=1](end)");
}

TEST(http2_client_bare_answer_and_early_heads)
{
    char status[] = ":status", early[] = "103";
    nghttp2_nv head[] = {nv(status, early)};

    begin(false);
    CHECK(peer_ended);
    CHECK_INT(nghttp2_submit_headers(peer, NGHTTP2_FLAG_NONE, 1, NULL, head, 1, NULL), 0);
    answer(0);
    TURN_UNTIL(over);
    finish("(200 bare x-a=b)(end)");
}

TEST(http2_client_an_answer_before_the_body_ends_it)
{
    begin(true);
    answer(2);
    TURN_UNTIL(over);
    CHECK_INT(http2_client_write(client, "late", 4), 0);
    finish("(200 x-a=b)yy[x-end=1](end)");
}

TEST(http2_client_reset_stream)
{
    begin(false);
    CHECK_INT(nghttp2_submit_rst_stream(peer, NGHTTP2_FLAG_NONE, 1, NGHTTP2_INTERNAL_ERROR), 0);
    TURN_UNTIL(over);
    finish("(error EPROTO)");
}

TEST(http2_client_reset_in_the_middle_of_the_answer)
{
    begin(false);
    answer(BIG);
    TURN_UNTIL(received > 0);
    CHECK_INT(nghttp2_submit_rst_stream(peer, NGHTTP2_FLAG_NONE, 1, NGHTTP2_CANCEL), 0);
    TURN_UNTIL(over);
    CHECK(str_ends(buf_str(&log_buf), STR("(error EPROTO)")));
    finish("(200 x-a=b)(error EPROTO)");
}

TEST(http2_client_peer_leaves)
{
    begin(false);
    CHECK_INT(shutdown(peer_fd, SHUT_RDWR), 0);
    TURN_UNTIL(over);
    finish("(error other)");
}

TEST(http2_client_garbage)
{
    static const char text[] = "HTTP/1.1 400 Bad Request\r\n\r\n";

    begin(false);
    CHECK_INT(send(peer_fd, text, sizeof(text) - 1, MSG_NOSIGNAL), (int)sizeof(text) - 1);
    TURN_UNTIL(over);
    finish("(error EPROTO)");
}

TEST(http2_client_refuses_a_head_that_is_too_long)
{
    enum { COUNT = HTTP_HEADER_COUNT_MAX + 2 };
    static char names[COUNT][16], status[] = ":status", ok[] = "200", value[] = "v";
    static nghttp2_nv head[COUNT + 1];

    begin(false);
    head[0] = nv(status, ok);
    for (int i = 0; i < COUNT; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "x-%d", i);
        head[i + 1] = nv(names[i], value);
    }
    CHECK_INT(nghttp2_submit_response(peer, 1, head, COUNT + 1, NULL), 0);
    TURN_UNTIL(over);
    finish("(error EPROTO)");
}

TEST(http2_client_pause_holds_the_peer)
{
    enum { WINDOW_MAX = 512 * 1024 };

    begin(false);
    pauses = true;
    answer(BIG);
    TURN_UNTIL(received > 0);
    for (int i = 0; i < 300; i++)
        turn();
    CHECK(received <= WINDOW_MAX);
    CHECK(!over);
    pauses = false;
    http2_client_resume(client);
    TURN_UNTIL(over);
    CHECK_INT(received, BIG);
    finish("(200 x-a=b)[x-end=1](end)");
}

TEST(http2_client_large_body_drains)
{
    static const char block[BLOCK];
    struct http_headers none = {0};
    size_t waiting = 0;

    begin(true);
    for (int i = 0; i < BIG / BLOCK; i++)
        waiting = http2_client_write(client, block, BLOCK);
    CHECK(waiting > HTTP_LOW_WATER);
    TURN_UNTIL(drains == 1);
    http2_client_end(client, &none);
    TURN_UNTIL(peer_ended);
    CHECK_INT(peer_received, BIG);
    answer(0);
    TURN_UNTIL(over);
    finish("(200 bare x-a=b)(end)");
}

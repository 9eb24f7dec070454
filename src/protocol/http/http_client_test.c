/* The asynchronous client. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "protocol/http/http_client.h"
#include "protocol/http/http_errors.h"
#include "protocol/http/test/http_test_rig.h"

static struct buf log_buf;
static int errors, ends, heads;
static struct http_framing framed;
static bool pause_on_data;

static void on_head(struct http_client *client, int status, struct str reason,
                    const struct http_headers *headers, const struct http_framing *framing,
                    void *arg)
{
    (void)client;
    (void)arg;
    framed = *framing;
    heads++;
    (void)buf_printf(&log_buf, "(%d %.*s %zu)", status, STR_ARG(reason), headers->count);
}

static void on_data(struct http_client *client, struct str raw, void *arg)
{
    (void)arg;
    (void)buf_add_str(&log_buf, raw);
    if (pause_on_data)
        http_client_pause(client);
}

static void on_end(struct http_client *client, bool reusable, void *arg)
{
    (void)arg;
    ends++;
    for (size_t i = 0; i < http_client_trailers(client)->count; i++)
        (void)buf_printf(&log_buf, "[%.*s=%.*s]",
                         STR_ARG(http_client_trailers(client)->items[i].name),
                         STR_ARG(http_client_trailers(client)->items[i].value));
    (void)buf_printf(&log_buf, "(end %d)", reusable);
}

static void on_error(struct http_client *client, int errnum, void *arg)
{
    (void)client;
    (void)arg;
    errors++;
    (void)buf_printf(&log_buf, "(error %d)", errnum);
}

static const struct http_client_events events = {
    .on_head = on_head, .on_data = on_data, .on_end = on_end, .on_error = on_error};

static void turn(struct loop *loop, int ms)
{
    for (int i = 0; i < ms; i++) {
        (void)uv_run(loop_uv(loop), UV_RUN_NOWAIT);
        (void)poll(NULL, 0, 1);
    }
}

/* Feeds a response in steps and compares the log of events. */
static void expect(struct str response, size_t step, bool head_only, bool close_after,
                   const char *wanted)
{
    struct loop *loop = loop_new();
    struct http_client *client;
    char request[100];
    int pair[2];

    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    client = http_client_new(loop, stream_new(loop, pair[0]));
    http_client_start(client, &events, NULL, STR("GET / HTTP/1.1\r\nHost: h\r\n\r\n"), head_only);
    buf_init(&log_buf, 100000);
    for (size_t at = 0; at < response.len; at += step) {
        size_t len = response.len - at < step ? response.len - at : step;

        (void)send(pair[1], response.p + at, len, MSG_NOSIGNAL);
        (void)uv_run(loop_uv(loop), UV_RUN_NOWAIT);
    }
    (void)recv(pair[1], request, sizeof(request),
               0); /* unread bytes would turn a close to a reset */
    if (close_after)
        (void)close(pair[1]);
    turn(loop, 3);
    CHECK_STR(buf_str(&log_buf), wanted);
    http_client_free(client);
    loop_free(loop);
    if (!close_after)
        (void)close(pair[1]);
    buf_done(&log_buf);
}

TEST(client_responses)
{
    struct str chunked = STR("HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\n\r\n"
                             "3\r\nabc\r\n0\r\n\r\n");

    expect(STR("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"), 1000, false, false,
           "(200 OK 1)hi(end 1)");
    expect(chunked, 1000, false, false, "(200 Fine 1)3\r\nabc\r\n0\r\n\r\n(end 1)");
    expect(chunked, 1, false, false, "(200 Fine 1)3\r\nabc\r\n0\r\n\r\n(end 1)");
    expect(STR("HTTP/1.1 204 No Content\r\n\r\n"), 1000, false, false, "(204 No Content 0)(end 1)");
    expect(STR("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"), 1000, true, false,
           "(200 OK 1)(end 1)");
    expect(STR("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nA: b\r\n\r\n"
               "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
           1000, false, false, "(200 OK 1)(end 1)");
    expect(STR("HTTP/1.1 200 OK\r\n\r\nuntil close"), 1000, false, true,
           "(200 OK 0)until close(end 0)");
    expect(STR("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"), 1000, false,
           false, "(200 OK 2)x(end 0)");
    expect(STR("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx"), 1000, false, false,
           "(200 OK 1)x(end 0)");
    expect(STR("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1"), 1000, false, false,
           "(200 OK 1)x(end 0)");
    expect(STR("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nraw"),
           1000, false, false, "(101 Switching Protocols 2)");
}

/* The decision about the body's end is one, and is told. */
TEST(client_framing)
{
    static const struct {
        const char *headers;
        int status;
        bool head_only;
        enum http_body_kind kind;
        int64_t length;
    } rows[] = {
        {"Content-Length: 3\r\n", 200, false, HTTP_BODY_LENGTH, 3},
        {"Transfer-Encoding: Chunked\r\n", 200, false, HTTP_BODY_CHUNKED, -1},
        {"Transfer-Encoding:\r\n chunked\r\n", 200, false, HTTP_BODY_CHUNKED, -1}, /* folded */
        {"Transfer-Encoding: identity\r\n", 200, false, HTTP_BODY_UNTIL_CLOSE, -1},
        {"", 200, false, HTTP_BODY_UNTIL_CLOSE, -1},
        {"Content-Length: 3\r\n", 200, true, HTTP_BODY_NONE, 3},
        {"Content-Length: 3\r\n", 304, false, HTTP_BODY_NONE, 3},
        {"Transfer-Encoding: chunked\r\n", 204, false, HTTP_BODY_NONE, -1},
    };
    static const char *const refused[] = {
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: chunked;q=1\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding:\r\n",
        "Transfer-Encoding: chun\r\n ked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding: \013chunked\r\n",
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
        "Content-Length: 3\r\nContent-Length: 3\r\n",
        "Content-Length: 3\r\nContent-Length: 4\r\n",
        "Content-Length: 3, 3\r\n",
        "Content-Length: +3\r\n",
        "Content-Length: 3 3\r\n",
        "Content-Length: 0x3\r\n",
        "Content-Length: -3\r\n",
        "Content-Length: 18446744073709551619\r\n",
        "Content-Length: 9223372036854775808\r\n",
    };
    char text[256], wanted[64];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bool none = rows[i].kind == HTTP_BODY_NONE;
        const char *body = none                                ? ""
                           : rows[i].kind == HTTP_BODY_CHUNKED ? "3\r\nabc\r\n0\r\n\r\n"
                                                               : "abc";

        (void)snprintf(text, sizeof(text), "HTTP/1.1 %d X\r\n%s\r\n%s", rows[i].status,
                       rows[i].headers, body);
        (void)snprintf(wanted, sizeof(wanted), "(%d X %d)%s(end %d)", rows[i].status,
                       rows[i].headers[0] != '\0', body, rows[i].kind != HTTP_BODY_UNTIL_CLOSE);
        expect(str_of(text), 1000, rows[i].head_only, rows[i].kind == HTTP_BODY_UNTIL_CLOSE,
               wanted);
        CHECK_INT(framed.kind, rows[i].kind);
        CHECK_INT(framed.length, rows[i].length);
    }
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        (void)snprintf(text, sizeof(text), "HTTP/1.1 200 X\r\n%s\r\n", refused[i]);
        expect(str_of(text), 1000, false, false, "(error 71)");
        expect(str_of(text), 1, false, false, "(error 71)");
    }
}

TEST(client_trailers_are_told_at_the_end)
{
    struct str trailers = STR("HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\n\r\n"
                              "3;x=y\r\nabc\r\n0\r\nSet-Cookie: a\r\nX: y\r\n\r\n");

    for (size_t step = 1; step <= trailers.len; step++)
        expect(trailers, step, false, false,
               "(200 Fine 1)3;x=y\r\nabc\r\n0\r\n[Set-Cookie=a][X=y](end 1)");
}

TEST(client_errors)
{
    char reset[32];

    (void)snprintf(reset, sizeof(reset), "(error %d)", ECONNRESET);
    expect(STR(""), 1, false, true, reset);
    expect(STR("HTTP/1.1 200 OK\r\n"), 1000, false, true, reset);
    expect(STR("garbage\r\n\r\n"), 1000, false, false, "(error 71)");
    (void)snprintf(reset, sizeof(reset), "(200 OK 1)ab(error %d)", ECONNRESET);
    expect(STR("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"), 1000, false, true, reset);
}

TEST(client_reuse_pause_and_idle_loss)
{
    struct loop *loop = loop_new();
    struct http_client *client;
    char bytes[100];
    int pair[2];

    buf_init(&log_buf, 1 << 20);
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    client = http_client_new(loop, stream_new(loop, pair[0]));
    for (int i = 0; i < 2; i++) {
        pause_on_data = i == 1;
        http_client_start(client, &events, NULL, STR("GET / HTTP/1.1\r\nHost: h\r\n\r\n"), false);
        turn(loop, 1);
        CHECK_INT(read(pair[1], bytes, sizeof(bytes)), 27);
        CHECK_INT(write(pair[1], "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab", 40), 40);
        turn(loop, 1);
        CHECK_INT(heads, i + 1);
        CHECK_INT(write(pair[1], "cd", 2), 2);
        turn(loop, 2);
        CHECK_INT(ends, pause_on_data ? 1 : i + 1);
        http_client_resume(client);
        turn(loop, 2);
        CHECK_INT(ends, i + 1);
    }
    CHECK_INT(errors, 0);
    http_client_resume(client);
    (void)close(pair[1]);
    turn(loop, 2);
    CHECK_INT(errors, 1);
    http_client_free(client);
    loop_free(loop);
    buf_done(&log_buf);
}

TEST(client_answer_before_the_request_was_taken)
{
    struct loop *loop = loop_new();
    struct http_client *client;
    char *big = xcalloc(1, 1 << 20);
    const char *answer = "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n";
    int pair[2];

    buf_init(&log_buf, 1000);
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    client = http_client_new(loop, stream_new(loop, pair[0]));
    http_client_start(client, &events, NULL, STR("POST / HTTP/1.1\r\n\r\n"), false);
    CHECK(http_client_write(client, big, 1 << 20) > 0);
    CHECK(write(pair[1], answer, strlen(answer)) > 0);
    (void)close(pair[1]);
    turn(loop, 5);
    CHECK_STR(buf_str(&log_buf), "(413 Too Large 1)(end 0)");
    http_client_free(client);
    loop_free(loop);
    buf_done(&log_buf);
    free(big);
}

TEST(errors_table)
{
    CHECK_INT(http_error_status(ERROR_NO_SPACE), 507);
    CHECK_INT(http_error_status(ERROR_CONFLICT), 409);
    CHECK_STR(str_of(http_error_connect_code(ERROR_CONFLICT)), "failed_precondition");
    CHECK_STR(str_of(http_error_connect_code((enum error_code)999)), "internal");
}

TEST(header_lookup)
{
    struct pair items[] = {
        {STR("Connection"), STR("keep-alive, Upgrade")},
        {STR("A"), STR("1")},
        {STR("a"), STR("2")},
    };
    struct http_headers headers = {items, 3};

    CHECK_STR(http_headers_get(&headers, "a"), "1");
    CHECK(!http_headers_get(&headers, "b").p);
    CHECK(http_headers_has_token(&headers, "connection", "upgrade"));
    CHECK(!http_headers_has_token(&headers, "connection", "up"));
    CHECK(http_headers_has_token(&headers, "A", "2"));
}

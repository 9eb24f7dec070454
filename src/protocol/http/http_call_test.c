/* The blocking client. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "protocol/http/http_call.h"
#include "protocol/http/http_dial.h"
#include "protocol/http/test/http_test_rig.h"

static void on_echo_body(struct http_exchange *ex, struct str body, void *arg)
{
    (void)arg;
    http_begin(ex, 201, NULL, 0, -1);
    (void)http_write(ex, "<", 1);
    (void)http_write(ex, body.p, body.len);
    (void)http_write(ex, ">", 1);
    http_end(ex);
}

static void on_request(struct http_exchange *ex, void *arg)
{
    (void)arg;
    if (str_is(http_request(ex)->path, "/never"))
        return;
    http_read_all(ex, 1 << 20, on_echo_body, NULL);
}

static void run_server(void *arg)
{
    loop_run(((struct rig *)arg)->loop);
}

static int whole(int fd, const struct http_call_request *request, uint32_t timeout_ms, size_t max,
                 const char *wanted, struct error *err)
{
    struct buf body;
    int status = 0, result = http_call_whole(fd, request, timeout_ms, max, &status, &body, err);

    if (result == 0) {
        CHECK_INT(status, 201);
        CHECK_STR(buf_str(&body), wanted);
    }
    buf_done(&body);
    return result;
}

static void run_calls(int (*dial)(struct rig *rig), struct rig *rig)
{
    static const struct pair header = {{"X-Y", 3}, {"z", 1}};
    static const struct pair bad = {{"X-Y", 3}, {"z\r\nA: b", 7}};
    struct http_call_request request = {.method = "POST",
                                        .target = "/echo",
                                        .headers = &header,
                                        .header_count = 1,
                                        .body = STR("text")};
    int fd = dial(rig);
    struct error err = {0};

    for (int i = 0; i < 3; i++)
        CHECK_INT(whole(fd, &request, 3000, 1000, "<text>", &err), 0);
    request.headers = &bad;
    CHECK_INT(whole(fd, &request, 3000, 1000, "", &err), -1);
    CHECK_INT(err.code, ERROR_INVALID);
    request.headers = &header;
    CHECK_INT(whole(fd, &request, 3000, 5, "", &err), -1);
    CHECK_INT(err.code, ERROR_LIMIT);
    (void)close(fd);
    fd = dial(rig);
    request.target = "/never";
    CHECK_INT(whole(fd, &request, 50, 1000, "", &err), -1);
    CHECK_INT(err.code, ERROR_TIMEOUT);
    (void)close(fd);
}

/* Chunks and a file go out, the answer comes in pieces. */
static void run_pieces(int (*dial)(struct rig *rig), struct rig *rig)
{
    struct http_call_request request = {
        .method = "PUT", .target = "/echo", .more = HTTP_CALL_CHUNKED, .after = HTTP_AFTER_CLOSE};
    auto_call struct http_call first = {.fd = dial(rig), .step_ms = 3000, .max = 100};
    auto_call struct http_call second = {.fd = dial(rig), .step_ms = 3000, .max = 100};
    auto_close int file = memfd_create("body", MFD_CLOEXEC);
    struct error why = {0};

    OK(http_call_start(&first, &request, &err));
    OK(http_call_send(&first, STR("one "), &err));
    OK(http_call_send(&first, STR("two"), &err));
    OK(http_call_send_end(&first, &err));
    OK(http_call_recv_head(&first, &err));
    CHECK_STR(http_call_header(&first, "transfer-encoding"), "chunked");
    OK(http_call_recv_all(&first, &err));
    CHECK_STR(buf_str(&first.body), "<one two>");
    CHECK_INT(http_call_recv(&first, &why), 0);

    CHECK_INT(write(file, "0123456789", 10), 10);
    CHECK_INT(lseek(file, 2, SEEK_SET), 2);
    request.more = 8;
    OK(http_call_start(&second, &request, &err));
    OK(http_call_send_file(&second, file, 8, &err));
    OK(http_call_recv_all(&second, &err));
    CHECK_STR(buf_str(&second.body), "<23456789>");
    CHECK_INT(http_call_send_file(&second, file, 1, &why), -1);
    CHECK_INT(why.code, ERROR_CONFLICT);
}

static int dial_tcp(struct rig *rig)
{
    struct error err = {0};
    char port[8];
    int fd;

    (void)snprintf(port, sizeof(port), "%u", rig->port);
    fd = http_dial_host("127.0.0.1", port, clock_mono_ms() + 3000, &err);
    CHECK(fd >= 0);
    return fd;
}

static int dial_unix(struct rig *rig)
{
    struct error err = {0};
    int fd = http_dial_unix(rig->unix_path, clock_mono_ms() + 3000, &err);

    CHECK(fd >= 0);
    return fd;
}

static const struct http_server_config config = {.on_request = on_request, .max_connections = 10};

TEST(call_over_tcp)
{
    struct rig rig = {0};
    uv_thread_t thread;

    rig_start(&rig, &config);
    CHECK_INT(uv_thread_create(&thread, run_server, &rig), 0);
    run_calls(dial_tcp, &rig);
    run_pieces(dial_tcp, &rig);
    loop_stop(rig.loop);
    CHECK_INT(uv_thread_join(&thread), 0);
    rig_stop(&rig);
}

TEST(call_over_unix)
{
    struct rig rig = {0};
    uv_thread_t thread;

    rig_start_unix(&rig, &config);
    CHECK_INT(uv_thread_create(&thread, run_server, &rig), 0);
    run_calls(dial_unix, &rig);
    run_pieces(dial_unix, &rig);
    loop_stop(rig.loop);
    CHECK_INT(uv_thread_join(&thread), 0);
    rig_stop(&rig);
}

TEST(dial_without_a_server)
{
    struct error err = {0};

    CHECK_INT(http_dial_unix("/tmp/no/such.sock", clock_mono_ms() + 1000, &err), -1);
    CHECK_INT(err.code, ERROR_UNAVAILABLE);
    CHECK_INT(http_dial_host("127.0.0.1", "1", clock_mono_ms() + 1000, &err), -1);
    CHECK_INT(err.code, ERROR_UNAVAILABLE);
}

/* A queue that is full is waited for, not longer than told. */
TEST(dial_a_full_queue)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    auto_close int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), first = -1;
    struct error err = {0};

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "/tmp/http-dial-%d.sock",
                   (int)getpid());
    CHECK_INT(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    CHECK_INT(listen(listener, 0), 0);
    first = http_dial_unix(address.sun_path, clock_mono_ms() + 1000, &err);
    CHECK(first >= 0);
    CHECK_INT(http_dial_unix(address.sun_path, clock_mono_ms() + 50, &err), -1);
    CHECK_INT(err.code, ERROR_TIMEOUT);
    (void)unlink(address.sun_path);
}

/* The other side of a socket pair answers with `answer`, all at once, and closes when told so. */
static void answer(struct http_call *call, const char *text, bool close_it, int *out_peer)
{
    int fds[2];

    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    CHECK_INT(write(fds[1], text, strlen(text)), (int)strlen(text));
    if (close_it)
        close_fd(&fds[1]);
    *out_peer = fds[1];
    *call = (struct http_call){.fd = fds[0], .deadline_ms = clock_mono_ms() + 3000, .max = 64};
}

TEST(call_upgraded)
{
    static const struct http_call_request request = {
        .method = "GET", .target = "/", .after = HTTP_AFTER_UPGRADE};
    auto_call struct http_call call = {.fd = -1};
    auto_close int peer = -1;
    struct error why = {0};
    char text[256];
    ssize_t n;

    answer(&call,
           "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\n"
           "Upgrade: tcp\r\nX-A: b\r\n\r\nraw",
           false, &peer);
    OK(http_call_start(&call, &request, &err));
    OK(http_call_recv_head(&call, &err));
    CHECK(call.raw);
    CHECK_INT(call.status, 101);
    CHECK_STR(http_call_header(&call, "x-a"), "b");
    CHECK_STR(buf_str(&call.body), "raw");
    CHECK_INT(http_call_take(&call, &why), HTTP_CALL_LATER);
    n = read(peer, text, sizeof(text));
    CHECK(n > 0 && memmem(text, (size_t)n, "Connection: Upgrade\r\n\r\n", 23));
    OK(http_call_send(&call, STR("more"), &err));
    CHECK_INT(read(peer, text, sizeof(text)), 4);
    close_fd(&peer);
    CHECK_INT(http_call_recv(&call, &why), 0);
    CHECK_INT(http_call_send(&call, STR("gone"), &why), -1);
    CHECK_INT(why.code, ERROR_UNAVAILABLE);
}

/* A refusal that comes before the body was read is an answer. */
TEST(call_refused_early)
{
    static const struct http_call_request request = {
        .method = "POST", .target = "/", .more = HTTP_CALL_CHUNKED};
    auto_call struct http_call call = {.fd = -1};
    int peer;

    answer(&call, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno", true, &peer);
    OK(http_call_start(&call, &request, &err));
    OK(http_call_send(&call, STR("body"), &err));
    CHECK(call.cut);
    OK(http_call_recv_all(&call, &err));
    CHECK_INT(call.status, 413);
    CHECK_STR(buf_str(&call.body), "no");
}

TEST(call_with_broken_answers)
{
    static const struct http_call_request request = {.method = "GET", .target = "/"};
    static const struct {
        const char *text;
        enum error_code code;
    } answers[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", ERROR_UNAVAILABLE},
        {"HTTP/1.1 200 OK\r\nContent-", ERROR_UNAVAILABLE},
        {"HTTP/1.1 101 UPGRADED\r\nUpgrade: unasked\r\n\r\nraw", ERROR_UNAVAILABLE},
        {"SSH-2.0-something\r\n", ERROR_UNAVAILABLE},
        {"", ERROR_UNAVAILABLE},
        {"HTTP/1.1 200 OK\r\n\r\nlonger than the sixty-four bytes that are taken of an answer in "
         "this test",
         ERROR_LIMIT},
    };

    for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++) {
        auto_call struct http_call call = {.fd = -1};
        struct error why = {0};
        int peer;

        answer(&call, answers[i].text, true, &peer);
        OK(http_call_start(&call, &request, &err));
        CHECK_INT(http_call_recv_all(&call, &why), -1);
        CHECK_INT(why.code, answers[i].code);
    }
}

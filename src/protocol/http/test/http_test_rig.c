#include "protocol/http/test/http_test_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"
#include "protocol/stream/test/stream_test_filter.h"

enum { WAIT_MS = 60 * 1000, SHOWN = 400 };

struct rig_seen seen;
bool rig_filtered;

static void start(struct rig *rig, const struct http_server_config *config, int fd)
{
    struct http_server_config own = *config;

    CHECK_INT(listen(fd, 64), 0);
    if (rig_filtered)
        own.filter = stream_test_filter;
    rig->loop = loop_new();
    rig->server = http_server_new(rig->loop, &own);
    CHECK_INT(http_server_listen(rig->server, fd), 0);
}

void rig_start(struct rig *rig, const struct http_server_config *config)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK_INT(bind(fd, (struct sockaddr *)&address, size), 0);
    CHECK_INT(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    rig->port = ntohs(address.sin_port);
    rig->unix_path[0] = '\0';
    start(rig, config, fd);
}

void rig_start_unix(struct rig *rig, const struct http_server_config *config)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    (void)snprintf(rig->unix_path, sizeof(rig->unix_path), "/tmp/http_test.%d.sock", getpid());
    (void)unlink(rig->unix_path);
    CHECK(str_copy(str_of(rig->unix_path), address.sun_path, sizeof(address.sun_path)));
    CHECK_INT(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    start(rig, config, fd);
}

void rig_stop(struct rig *rig)
{
    http_server_free(rig->server);
    loop_free(rig->loop);
    if (rig->unix_path[0])
        (void)unlink(rig->unix_path);
}

static int connect_to(struct rig *rig)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(rig->port)};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd;

    if (rig->unix_path[0]) {
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        CHECK(str_copy(str_of(rig->unix_path), un.sun_path, sizeof(un.sun_path)));
        CHECK_INT(connect(fd, (struct sockaddr *)&un, sizeof(un)), 0);
        return fd;
    }
    fd = socket(AF_INET, SOCK_STREAM, 0);
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK_INT(connect(fd, (struct sockaddr *)&in, sizeof(in)), 0);
    return fd;
}

int rig_connect(struct rig *rig)
{
    int fd = connect_to(rig);

    return rig_filtered ? stream_test_relay(fd) : fd;
}

void rig_turn(struct rig *rig)
{
    (void)uv_run(loop_uv(rig->loop), UV_RUN_NOWAIT);
}

void rig_wait_ms(struct rig *rig, int ms)
{
    int64_t end = clock_mono_ms() + ms;

    for (int turns = 0; turns < ms || clock_mono_ms() < end; turns++) {
        rig_turn(rig);
        (void)poll(NULL, 0, 1);
    }
}

void rig_send(struct rig *rig, int fd, struct str bytes)
{
    int64_t end = clock_mono_ms() + WAIT_MS * (int64_t)test_patience();

    while (bytes.len) {
        ssize_t sent = send(fd, bytes.p, bytes.len, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (sent > 0)
            bytes = str_skip(bytes, (size_t)sent);
        else if (errno != EAGAIN)
            return; /* the server may have closed; the reader will see */
        CHECK(clock_mono_ms() < end);
        rig_turn(rig);
    }
}

void rig_read(struct rig *rig, int fd, const char *until, struct buf *out, int *out_errnum)
{
    int64_t end = clock_mono_ms() + WAIT_MS * (int64_t)test_patience();

    *out_errnum = 0;
    while (!until || str_find_str(buf_str(out), str_of(until)) < 0) {
        char bytes[16384];
        ssize_t got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);

        if (got == 0)
            return;
        if (got > 0)
            CHECK(buf_add(out, bytes, (size_t)got));
        else if (errno != EAGAIN) {
            *out_errnum = errno;
            return;
        }
        if (clock_mono_ms() >= end)
            test_fail(__FILE__, __LINE__, "no end; got %zu bytes: '%.*s'", out->len,
                      out->len < SHOWN ? (int)out->len : SHOWN, out->p);
        rig_turn(rig);
    }
}

void rig_expect(struct rig *rig, const char *request, const char *expected)
{
    int fd = rig_connect(rig), errnum;
    struct buf out;

    buf_init(&out, 1 << 20);
    rig_send(rig, fd, str_of(request));
    rig_read(rig, fd, NULL, &out, &errnum);
    if (errnum || str_find_str(buf_str(&out), str_of(expected)) < 0)
        test_fail(__FILE__, __LINE__, "errno %d, no '%s' in '%.*s' for '%s'", errnum, expected,
                  STR_ARG(buf_str(&out)), request);
    buf_done(&out);
    (void)close(fd);
}

static void on_done(struct http_exchange *ex, void *arg)
{
    (void)arg;
    seen.dones++;
    seen.finishes += http_finished(ex);
    if (ex == seen.kept)
        seen.kept = NULL;
}

void rig_reply(struct http_exchange *ex, struct str text)
{
    struct pair type = {STR("Content-Type"), STR("text/plain")};

    http_reply(ex, 200, &type, 1, text);
}

static void on_whole_body(struct http_exchange *ex, struct str body, void *arg)
{
    (void)arg;
    rig_reply(ex, body);
}

static void on_data(struct http_exchange *ex, struct str data, void *arg)
{
    seen.data_calls++;
    seen.data_bytes += data.len;
    if (arg)
        http_pause(ex);
}

static void on_end(struct http_exchange *ex, void *arg)
{
    char text[32];

    (void)arg;
    seen.ended = true;
    (void)snprintf(text, sizeof(text), "got %zu", seen.data_bytes);
    rig_reply(ex, str_of(text));
}

static void produce(struct http_exchange *ex, void *arg)
{
    static char block[32768];

    seen.drains += arg != NULL;
    memset(block, 'x', sizeof(block));
    while (seen.big_left) {
        size_t len = seen.big_left < sizeof(block) ? seen.big_left : sizeof(block);

        seen.big_left -= len;
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
    for (int i = 0; i < RIG_BIG / (int)sizeof(block); i++)
        CHECK_INT(write(fd, block, sizeof(block)), sizeof(block));
    http_begin(ex, 200, NULL, 0, RIG_BIG - 10 + 4);
    http_write_file(ex, fd, 10, RIG_BIG - 10);
    (void)http_write(ex, "tail", 4);
    http_end(ex);
}

static void on_request(struct http_exchange *ex, void *arg)
{
    const struct http_request *request = http_request(ex);
    struct str path = request->path;

    (void)arg;
    seen.requests++;
    http_on_done(ex, on_done, NULL);
    if (str_is(path, "/hello")) {
        rig_reply(ex, STR("hello"));
    } else if (str_is(path, "/none")) {
        http_reply(ex, 204, NULL, 0, STR("ignored"));
    } else if (str_is(path, "/echo")) {
        http_read_all(ex, 1000, on_whole_body, NULL);
    } else if (str_is(path, "/count")) {
        http_read_stream(ex, on_data, on_end, NULL);
    } else if (str_is(path, "/pause")) {
        seen.kept = ex;
        http_read_stream(ex, on_data, on_end, &seen);
    } else if (str_is(path, "/chunks")) {
        http_begin(ex, 200, NULL, 0, -1);
        (void)http_write(ex, "abc", 3);
        (void)http_write(ex, "", 0);
        (void)http_write(ex, "defg", 4);
        http_end(ex);
    } else if (str_is(path, "/big")) {
        seen.big_left = RIG_BIG;
        http_begin(ex, 200, NULL, 0, RIG_BIG);
        http_on_drain(ex, produce, &seen);
        produce(ex, NULL);
    } else if (str_is(path, "/file")) {
        send_file(ex);
    } else if (str_is(path, "/short")) {
        http_begin(ex, 200, NULL, 0, 100);
        (void)http_write(ex, "only this", 9);
        http_end(ex);
    } else if (str_is(path, "/evil")) {
        struct pair header = {STR("X-A"), STR("b\r\nSet-Cookie: c")};

        http_reply(ex, 200, &header, 1, STR_NONE);
    } else {
        seen.kept = ex; /* answered by the test */
    }
}

const struct http_server_config rig_config = {
    .on_request = on_request,
    .max_connections = 100,
    .head_timeout_ms = 5000,
    .idle_timeout_ms = 5000,
    .body_timeout_ms = 5000,
    .write_timeout_ms = 5000,
};

/* Frames cut at places the input chooses, to a server whose handlers read and answer in all ways. */
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "protocol/http/http_conn.h"
#include "protocol/http2/http2.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_body(struct http_exchange *ex, struct str body, void *arg)
{
    (void)arg;
    http_reply(ex, 200, NULL, 0, body);
}

static void on_data(struct http_exchange *ex, struct str data, void *arg)
{
    (void)arg;
    if (data.len % 2)
        http_pause(ex);
    else
        (void)http_write(ex, data.p, data.len);
}

static void on_end(struct http_exchange *ex, void *arg)
{
    struct pair trailer = {STR("x-end"), STR("1")};

    (void)arg;
    http_end_trailers(ex, &trailer, 1);
}

static void on_request(struct http_exchange *ex, void *arg)
{
    const struct http_request *request = http_request(ex);

    (void)arg;
    switch (request->path.len % 4) {
    case 0:
        http_read_all(ex, 1000, on_body, NULL);
        break;
    case 1:
        http_begin(ex, 200, request->headers.items, request->headers.count, -1);
        http_read_stream(ex, on_data, on_end, NULL);
        break;
    case 2:
        http_reply(ex, 200, NULL, 0, request->target);
        break;
    default:
        http_abort(ex);
    }
}

static void turn(struct loop *loop, int fd)
{
    char bytes[65536];

    (void)uv_run(loop_uv(loop), UV_RUN_NOWAIT);
    while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        (void)uv_run(loop_uv(loop), UV_RUN_NOWAIT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_server_config config = {
        .on_request = on_request, .http2 = &http2_protocol, .max_connections = 20};
    struct str preface = http2_protocol.preface, all = str_n(data, size);
    struct http_address address = {0};
    struct http_server *server;
    struct loop *loop;
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
        return 0;
    loop = loop_new();
    server = http_server_new(loop, &config);
    http_conn_open(server, fds[0], &address, NULL);
    (void)send(fds[1], preface.p, preface.len, MSG_NOSIGNAL);
    while (all.len) {
        size_t step = (size_t)(unsigned char)all.p[0] * 3 + 1;

        if (step > all.len)
            step = all.len;
        (void)send(fds[1], all.p, step, MSG_NOSIGNAL);
        all = str_skip(all, step);
        turn(loop, fds[1]);
    }
    turn(loop, fds[1]);
    http_server_free(server);
    (void)close(fds[1]);
    loop_free(loop);
    return 0;
}

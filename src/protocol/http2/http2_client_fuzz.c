/* Frames of a hostile server, cut at places the input chooses, to a client that writes, pauses and ends. */
#include <sys/socket.h>
#include <unistd.h>

#include "protocol/http2/http2_client.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t bodies;
static bool over;

static void on_head(struct http2_client *client, int status, const struct http_headers *headers,
                    bool bare, void *arg)
{
    (void)client;
    (void)bare;
    (void)arg;
    if (status < 200 || headers->count > HTTP_HEADER_COUNT_MAX)
        __builtin_trap();
}

static void on_data(struct http2_client *client, struct str data, void *arg)
{
    (void)arg;
    bodies += data.len;
    if (data.len % 2)
        http2_client_pause(client);
}

static void on_end(struct http2_client *client, const struct http_headers *trailers, void *arg)
{
    (void)trailers;
    (void)arg;
    over = true;
    http2_client_free(client);
}

static void on_error(struct http2_client *client, int errnum, void *arg)
{
    (void)errnum;
    (void)arg;
    over = true;
    http2_client_free(client);
}

static void on_drain(struct http2_client *client, void *arg)
{
    (void)client;
    (void)arg;
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
    static const struct http2_client_events events = {on_head, on_data, on_end, on_error, on_drain};
    struct pair items[] = {{STR(":method"), STR("POST")},
                           {STR(":scheme"), STR("http")},
                           {STR(":path"), STR("/")},
                           {STR(":authority"), STR("h")}};
    struct http_headers headers = {items, 4}, none = {0};
    struct str all = str_n(data, size);
    struct http2_client *client;
    struct loop *loop;
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
        return 0;
    bodies = 0;
    over = false;
    loop = loop_new();
    client = http2_client_new(loop, stream_new(loop, fds[0]), &headers, size % 2, &events, NULL);
    while (client && all.len && !over) {
        size_t step = (size_t)(unsigned char)all.p[0] * 3 + 1;

        if (step > all.len)
            step = all.len;
        (void)send(fds[1], all.p, step, MSG_NOSIGNAL);
        all = str_skip(all, step);
        turn(loop, fds[1]);
        if (!over && step % 5 == 0)
            http2_client_resume(client);
        if (!over && size % 2 && step % 7 == 0)
            http2_client_end(client, &none);
    }
    if (client && !over)
        http2_client_free(client);
    if (bodies > size)
        __builtin_trap();
    (void)close(fds[1]);
    loop_free(loop);
    return 0;
}

/* What a client sends, cut at places the input chooses: nothing but whole datagrams comes out. */
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "edge/proxy/proxy_datagrams.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool ended;

static void on_end(void *arg)
{
    (void)arg;
    ended = true;
}

/* Bytes of all that came out. */
static size_t drain(int fd)
{
    static char bytes[65536];
    size_t all = 0;
    ssize_t got;

    while ((got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) >= 0)
        all += (size_t)got + 2;
    return all;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str all = str_n(data, size);
    struct proxy_datagrams *datagrams;
    int client[2], server[2];
    struct loop *loop;
    size_t out = 0;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, client) < 0)
        return 0;
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, server) < 0)
        abort();
    ended = false;
    loop = loop_new();
    datagrams = proxy_datagrams_new(loop, stream_new(loop, client[0]), stream_new(loop, server[0]),
                                    STR_NONE, STR_NONE, on_end, NULL);
    while (all.len && !ended) {
        size_t step = (size_t)(unsigned char)all.p[0] * 5 + 1;

        if (step > all.len)
            step = all.len;
        (void)send(client[1], all.p, step, MSG_NOSIGNAL);
        all = str_skip(all, step);
        (void)uv_run(loop_uv(loop), UV_RUN_NOWAIT);
        out += drain(server[1]);
    }
    if (out > size)
        abort();
    proxy_datagrams_free(datagrams, false);
    loop_free(loop);
    (void)close(client[1]);
    (void)close(server[1]);
    return 0;
}

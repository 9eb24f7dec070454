/* The send queue alone, on a socket pair: empty bodies, bodies that the stream takes in parts, bytes of each
 * kind of memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/test.h"
#include "protocol/http/http_outq.h"

static struct loop *loop;
static struct stream *stream;
static struct http_outq queue;
static int peer;

static void begin(void)
{
    int pair[2];

    loop = loop_new();
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    stream = stream_new(loop, pair[0]);
    peer = pair[1];
    queue = (struct http_outq){0};
}

static void end(void)
{
    http_outq_done(&queue);
    stream_close(stream, false);
    (void)close(peer);
    loop_free(loop);
}

/* Reads and flushes until the queue is empty. The bytes that arrived. */
static size_t drain(struct buf *in)
{
    char part[4096];
    ssize_t n;

    for (;;) {
        while ((n = read(peer, part, sizeof(part))) > 0)
            CHECK(buf_add(in, part, (size_t)n));
        if (!queue.pending)
            break;
        CHECK_INT(http_outq_flush(&queue, stream), 0);
    }
    return in->len;
}

TEST(outq_sends_a_head_without_a_body)
{
    static const enum http_memory kinds[] = {HTTP_COPIED, HTTP_STATIC, HTTP_OWNED};
    struct buf in;

    begin();
    buf_init(&in, 10000);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        buf_clear(&in);
        CHECK_INT(http_outq_send_body(&queue, stream, STR("head"), STR_NONE, kinds[i]), 0);
        http_outq_add_body(&queue, STR_NONE, kinds[i]);
        CHECK_INT(queue.pending, 0);
        CHECK_INT(drain(&in), 4);
    }
    buf_done(&in);
    end();
}

TEST(outq_sends_bodies_that_the_stream_takes_in_parts)
{
    static char fixed[1 << 20];
    static const enum http_memory kinds[] = {HTTP_COPIED, HTTP_STATIC, HTTP_OWNED};
    struct buf in;

    begin();
    buf_init(&in, sizeof(fixed) + 100);
    for (size_t i = 0; i < sizeof(fixed); i++)
        fixed[i] = (char)(i * 7 + i / 251);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        char *bytes = fixed;

        if (kinds[i] == HTTP_OWNED)
            memcpy(bytes = xmalloc(sizeof(fixed)), fixed, sizeof(fixed));
        buf_clear(&in);
        CHECK_INT(
            http_outq_send_body(&queue, stream, STR("head"), str_n(bytes, sizeof(fixed)), kinds[i]),
            0);
        CHECK(queue.pending > 0 && queue.blocked);
        CHECK(kinds[i] == HTTP_STATIC ? queue.memory < 1000 : queue.memory >= queue.pending);
        CHECK_INT(drain(&in), sizeof(fixed) + 4);
        CHECK(memcmp(in.p, "head", 4) == 0 && memcmp(in.p + 4, fixed, sizeof(fixed)) == 0);
        CHECK_INT(queue.memory, 0);
    }
    buf_done(&in);
    end();
}

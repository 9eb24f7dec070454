#include "envd/process/process_ring.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/test.h"
#include "envd/process/process.h"

static void collect(void *arg, enum process_channel channel, const char *p, size_t len)
{
    struct buf *out = arg;

    for (size_t i = 0; i < len; i++) {
        buf_add_char(out, (char)('0' + channel));
        buf_add_char(out, p[i]);
    }
}

static void check(const struct process_ring *ring, uint64_t from, const char *want)
{
    auto_buf struct buf got = {0};

    buf_init(&got, 1000);
    process_ring_each(ring, from, collect, &got);
    CHECK_STR(buf_str(&got), want);
}

TEST(ring_keeps_order_and_channels)
{
    struct process_ring ring = {0};

    check(&ring, 0, "");
    process_ring_add(&ring, PROCESS_STDOUT, "ab", 2);
    process_ring_add(&ring, PROCESS_STDOUT, "c", 1);
    process_ring_add(&ring, PROCESS_STDERR, "de", 2);
    process_ring_add(&ring, PROCESS_STDOUT, "f", 1);
    CHECK_INT(ring.total, 6);
    check(&ring, 0, "0a0b0c1d1e0f");
    check(&ring, 2, "0c1d1e0f");
    check(&ring, 3, "1d1e0f");
    check(&ring, 4, "1e0f");
    check(&ring, 6, "");
    check(&ring, 99, "");
    process_ring_done(&ring);
}

/* Against the plain truth: all output with its channels. */
TEST(ring_is_the_tail_of_everything)
{
    enum { EVER = 4000000 };
    auto_free char *truth = xmalloc(EVER * 2);
    struct process_ring ring = {0};
    size_t total = 0;
    unsigned seed = 1;

    while (total < EVER - 300000) {
        char bytes[200000];
        size_t len = (size_t)rand_r(&seed);
        enum process_channel channel = (enum process_channel)(rand_r(&seed) % 2);

        len = len % 3 == 0 ? len % sizeof(bytes) : len % 3 == 1 ? len % 2000 : len % 4;
        for (size_t i = 0; i < len; i++) {
            bytes[i] = (char)('a' + rand_r(&seed) % 26);
            truth[2 * (total + i)] = (char)('0' + channel);
            truth[2 * (total + i) + 1] = bytes[i];
        }
        process_ring_add(&ring, channel, bytes, len);
        total += len;
        CHECK_INT(ring.total, total);
        if (rand_r(&seed) % 8 == 0) {
            auto_buf struct buf got = {0};
            size_t from = total - ring.kept;

            buf_init(&got, 1 << 20);
            process_ring_each(&ring, 0, collect, &got);
            CHECK_INT(got.len, 2 * ring.kept);
            CHECK(memcmp(got.p, truth + 2 * from, got.len) == 0);
            /* Never less than promised, unless heads take the room; never much more. */
            CHECK(ring.kept <= PROCESS_RING_MAX * 3 / 2);
        }
    }
    process_ring_done(&ring);
}

TEST(ring_of_single_bytes)
{
    const struct process_replay all = {.wanted = true};
    struct process_ring ring = {0};
    auto_buf struct buf events = {0};
    struct error err = {0};

    for (int i = 0; i < 100000; i++)
        process_ring_add(&ring, i % 2 ? PROCESS_STDERR : PROCESS_STDOUT, "x", 1);
    CHECK_INT(ring.total, 100000);
    CHECK(ring.kept > 10000);
    CHECK(ring.records.cap <= 2 * PROCESS_RING_MAX);
    buf_init(&events, PROCESS_REPLAY_MAX);
    CHECK_INT(process_output_replay(&ring, &all, false, &events, &err), 0);
    CHECK(!events.overflowed);
    process_ring_done(&ring);
}

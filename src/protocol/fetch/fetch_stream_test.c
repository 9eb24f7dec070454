#include <poll.h>
#include <unistd.h>

#include "protocol/fetch/fetch.h"
#include "protocol/fetch/test/fetch_rig.h"

static void answer_late(struct fetch_rig_exchange *ex, void *arg)
{
    (void)arg;
    fetch_rig_send(ex, STR("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"));
    fetch_rig_chunk(ex, STR("first"));
    (void)usleep(200000); /* its reader waits by then; if not, the end is the same */
    fetch_rig_chunk(ex, STR("second"));
    fetch_rig_chunk(ex, STR(""));
}

TEST(stream_is_waited_for_elsewhere)
{
    struct fetch_rig *rig = fetch_rig_new(NULL, answer_late, NULL);
    struct fetch *fetch = fetch_new();
    struct fetch_request request = {.method = "GET", .url = fetch_rig_url(rig)};

    /* The second time on a connection that was kept. */
    for (int round = 0; round < 2; round++) {
        struct fetch_stream *stream;
        struct error err = {0};
        size_t got = 0;
        char piece[16];
        ssize_t n;

        CHECK_INT(fetch_open(fetch, &request, &stream, &err), 0);
        while ((n = fetch_read(stream, piece, sizeof(piece), 0, &err)) != 0) {
            struct pollfd fd = {.fd = fetch_stream_fd(stream), .events = POLLIN};

            if (n > 0) {
                got += (size_t)n;
                continue;
            }
            CHECK_INT(err.code, ERROR_TIMEOUT);
            CHECK(fd.fd >= 0);
            CHECK_INT(poll(&fd, 1, 20000), 1);
        }
        CHECK_INT(got, 11);
        fetch_close(stream);
    }
    fetch_free(fetch);
    fetch_rig_free(rig);
}

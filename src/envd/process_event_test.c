#include "envd/process_event.h"

#include <signal.h>

#include "base/test.h"
#include "rpc/connect.h"

static void check_message(struct buf *event, const char *want)
{
    struct str message;
    struct error err = {0};

    CHECK_INT(connect_decode_single(buf_str(event), &message, &err), 0);
    CHECK_STR(message, want);
    buf_clear(event);
}

TEST(process_events)
{
    auto_buf struct buf event;

    buf_init(&event, 4096);
    process_event_start(&event, 42);
    check_message(&event, "{\"event\":{\"start\":{\"pid\":42}}}");
    process_event_data(&event, PROCESS_STDERR, "ab", 2);
    check_message(&event, "{\"event\":{\"data\":{\"stderr\":\"YWI=\"}}}");
    process_event_data(&event, PROCESS_PTY, "\0\xff\n", 3);
    check_message(&event, "{\"event\":{\"data\":{\"pty\":\"AP8K\"}}}");
    process_event_keepalive(&event);
    check_message(&event, "{\"event\":{\"keepalive\":{}}}");
}

TEST(process_event_data_fits)
{
    for (size_t len = 0; len < 10; len++) {
        auto_buf struct buf event;

        buf_init(&event, process_event_data_size(len));
        process_event_data(&event, PROCESS_STDOUT, "0123456789", len);
        CHECK(!event.overflowed);
        CHECK_INT(event.len, process_event_data_size(len));
    }
}

TEST(process_event_ends)
{
    auto_buf struct buf event;

    buf_init(&event, 4096);
    process_event_end(&event, 0);
    check_message(
        &event,
        "{\"event\":{\"end\":{\"exitCode\":0,\"exited\":true,\"status\":\"exit status 0\"}}}");
    process_event_end(&event, 3 << 8);
    check_message(&event, "{\"event\":{\"end\":{\"exitCode\":3,\"exited\":true,\"status\":\"exit "
                          "status 3\",\"error\":\"exit status 3\"}}}");
    process_event_end(&event, SIGKILL);
    check_message(&event, "{\"event\":{\"end\":{\"exitCode\":-1,\"exited\":false,\"status\":"
                          "\"signal: killed\",\"error\":\"signal: killed\"}}}");
    process_event_end(&event, 40);
    check_message(&event, "{\"event\":{\"end\":{\"exitCode\":-1,\"exited\":false,\"status\":"
                          "\"signal: signal 40\",\"error\":\"signal: signal 40\"}}}");
}

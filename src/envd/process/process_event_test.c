#include "envd/process/process_event.h"

#include <signal.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "base/test.h"
#include "envd/core/codec.h"
#include "protocol/rpc/connect.h"

static void check_bytes(struct buf *event, struct str want)
{
    struct str message;
    struct error err = {0};

    CHECK_INT(connect_decode_single(buf_str(event), &message, &err), 0);
    CHECK(str_eq(message, want));
    buf_clear(event);
}

static void check_message(struct buf *event, const char *want)
{
    check_bytes(event, str_of(want));
}

TEST(process_events)
{
    auto_buf struct buf event = {0};

    buf_init(&event, 4096);
    process_event_start(&event, NULL, 42);
    check_message(&event, "{\"event\":{\"start\":{\"pid\":42}}}");
    process_event_data(&event, false, PROCESS_STDERR, "ab", 2);
    check_message(&event, "{\"event\":{\"data\":{\"stderr\":\"YWI=\"}}}");
    process_event_data(&event, false, PROCESS_PTY, "\0\xff\n", 3);
    check_message(&event, "{\"event\":{\"data\":{\"pty\":\"AP8K\"}}}");
    process_event_keepalive(&event, NULL);
    check_message(&event, "{\"event\":{\"keepalive\":{}}}");
}

TEST(process_event_data_fits)
{
    for (size_t len = 0; len < 10; len++) {
        auto_buf struct buf event = {0};

        buf_init(&event, process_event_data_size(false, len));
        process_event_data(&event, false, PROCESS_STDOUT, "0123456789", len);
        CHECK(!event.overflowed);
        CHECK_INT(event.len, process_event_data_size(false, len));
    }
}

TEST(process_event_ends)
{
    auto_buf struct buf event = {0};

    buf_init(&event, 4096);
    process_event_end(&event, NULL, 0, false);
    check_message(
        &event,
        "{\"event\":{\"end\":{\"exitCode\":0,\"exited\":true,\"status\":\"exit status 0\"}}}");
    process_event_end(&event, NULL, 3 << 8, false);
    check_message(&event, "{\"event\":{\"end\":{\"exitCode\":3,\"exited\":true,\"status\":\"exit "
                          "status 3\",\"error\":\"exit status 3\"}}}");
    process_event_end(&event, NULL, SIGKILL, false);
    check_message(&event, "{\"event\":{\"end\":{\"exitCode\":-1,\"exited\":false,\"status\":"
                          "\"signal: killed\",\"error\":\"signal: killed\"}}}");
    process_event_end(&event, NULL, SIGKILL, true);
    CHECK(strstr(event.p + 5,
                 "\"status\":\"signal: killed\",\"error\":\"signal: killed: out of memory\""));
    buf_clear(&event);
    process_event_end(&event, NULL, 40, false);
    check_message(&event, "{\"event\":{\"end\":{\"exitCode\":-1,\"exited\":false,\"status\":"
                          "\"signal: signal 40\",\"error\":\"signal: signal 40\"}}}");
}

/* The bulk form is written by hand; it must be what the tables say. */
TEST(process_event_data_is_what_the_tables_say)
{
    static const char *const names[] = {"stdout", "stderr", "pty"};
    static const size_t sizes[] = {0, 1, 121, 122, 127, 128, 16000, 16384, 65536};
    const struct proto_message *format = codec_find(STR("/process.Process/Start"))->response;
    auto_free char *bytes = xcalloc(1, 65536);
    auto_free char *text = xmalloc(BASE64_LEN(65536));

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) * 3; i++) {
        auto_buf struct buf event, json, want;
        struct error err = {0};
        size_t len = sizes[i / 3];

        buf_init(&event, process_event_data_size(true, len));
        buf_init(&json, 100000);
        buf_init(&want, 100000);
        process_event_data(&event, true, (enum process_channel)(i % 3), bytes, len);
        base64_encode(text, bytes, len);
        buf_printf(&json, "{\"event\":{\"data\":{\"%s\":\"%.*s\"}}}", names[i % 3],
                   (int)BASE64_LEN(len), text);
        CHECK_INT(connect_add_message(&want, format, buf_str(&json), &err), 0);
        CHECK_INT(event.len, want.len);
        CHECK(memcmp(event.p, want.p, want.len) == 0);
    }
}

TEST(process_events_in_the_binary_codec)
{
    const struct proto_message *format = codec_find(STR("/process.Process/Start"))->response;
    auto_buf struct buf event = {0};

    buf_init(&event, 4096);
    process_event_start(&event, format, 42);
    check_bytes(&event, STR("\x0a\x04\x0a\x02\x08\x2a"));
    process_event_keepalive(&event, format);
    check_bytes(&event, STR("\x0a\x02\x22\x00"));
    process_event_end(&event, format, SIGKILL, false);
    check_bytes(&event,
                STR("\x0a\x24\x1a\x22\x08\x01\x1a\x0esignal: killed\x22\x0esignal: killed"));
}

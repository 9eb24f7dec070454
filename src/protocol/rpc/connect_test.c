#include "protocol/rpc/connect.h"

#include "base/cleanup.h"
#include "base/test.h"

struct seen {
    struct buf text;
    int stop_after, count;
};

static int note(void *arg, uint8_t flags, struct str message)
{
    struct seen *seen = arg;

    buf_printf(&seen->text, "%u:%.*s|", flags, STR_ARG(message));
    return ++seen->count == seen->stop_after ? 7 : 0;
}

TEST(connect_envelope_bytes)
{
    auto_buf struct buf out = {0};

    buf_init(&out, 100);
    CHECK(connect_add(&out, 0, STR("{\"a\":1}")));
    CHECK_INT(out.len, 12);
    CHECK(memcmp(out.p, "\0\0\0\0\7{\"a\":1}", 12) == 0);
}

TEST(connect_end_frames)
{
    auto_buf struct buf out = {0};
    struct error err = {0};

    buf_init(&out, 1000);
    connect_add_end(&out, NULL);
    CHECK(out.len == 7 && memcmp(out.p, "\2\0\0\0\2{}", 7) == 0);
    buf_clear(&out);
    error_set(&err, ERROR_NOT_FOUND, "no \"x\"");
    connect_add_end(&out, &err);
    CHECK_INT(out.p[0], CONNECT_END);
    CHECK_STR(str_n(out.p + 5, out.len - 5),
              "{\"error\":{\"code\":\"not_found\",\"message\":\"no \\\"x\\\"\"}}");
}

TEST(connect_decodes_in_pieces)
{
    static const char wire[] = "\0\0\0\0\3abc\0\0\0\0\0\2\0\0\0\2{}";

    for (size_t piece = 1; piece < sizeof(wire); piece++) {
        struct connect_decoder decoder = {.max = 10};
        struct seen seen = {0};
        struct error err = {0};
        struct str data = str_n(wire, sizeof(wire) - 1);

        buf_init(&seen.text, 100);
        while (data.len > 0) {
            size_t n = data.len < piece ? data.len : piece;

            CHECK_INT(connect_decode(&decoder, str_n(data.p, n), note, &seen, &err), 0);
            data = str_skip(data, n);
        }
        CHECK_STR(buf_str(&seen.text), "0:abc|0:|2:{}|");
        CHECK(connect_decoder_idle(&decoder));
        connect_decoder_done(&decoder);
        buf_done(&seen.text);
    }
}

static enum error_code decode_error(struct str wire, size_t max)
{
    struct connect_decoder decoder = {.max = max};
    struct seen seen = {0};
    struct error err = {0};

    CHECK_INT(connect_decode(&decoder, wire, note, &seen, &err), -1);
    connect_decoder_done(&decoder);
    return err.code;
}

TEST(connect_refuses)
{
    CHECK_INT(decode_error(STR("\0\0\0\0\4"), 3), ERROR_LIMIT);
    CHECK_INT(decode_error(STR("\0\xff\xff\xff\xff"), 3), ERROR_LIMIT);
    CHECK_INT(decode_error(STR("\1\0\0\0\1"), 3), ERROR_UNSUPPORTED);
    CHECK_INT(decode_error(STR("\x80\0\0\0\1"), 3), ERROR_INVALID);
}

TEST(connect_callback_stops)
{
    struct connect_decoder decoder = {.max = 10};
    struct seen seen = {.stop_after = 1};
    struct error err = {0};

    buf_init(&seen.text, 100);
    CHECK_INT(connect_decode(&decoder, STR("\0\0\0\0\1a\0\0\0\0\1b"), note, &seen, &err), 7);
    CHECK_STR(buf_str(&seen.text), "0:a|");
    connect_decoder_done(&decoder);
    buf_done(&seen.text);
}

TEST(connect_single_message)
{
    struct str message;
    struct error err = {0};

    CHECK_INT(connect_decode_single(STR("\0\0\0\0\2{}"), &message, &err), 0);
    CHECK_STR(message, "{}");
    CHECK_INT(connect_decode_single(STR("\0\0\0"), &message, &err), -1);
    CHECK_INT(connect_decode_single(STR("\0\0\0\0\3{}"), &message, &err), -1);
    CHECK_INT(connect_decode_single(STR("\0\0\0\0\1{}"), &message, &err), -1);
    CHECK_INT(err.code, ERROR_INVALID);
}

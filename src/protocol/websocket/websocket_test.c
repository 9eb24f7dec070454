#include "protocol/websocket/websocket.h"

#include "base/alloc.h"
#include "base/test.h"

enum { MESSAGE_MAX = 1024 * 1024 };

/* A frame of a client with this first byte. */
static void add_frame(struct buf *out, uint8_t first, struct str data)
{
    size_t at = out->len;

    websocket_add(out, WEBSOCKET_CLIENT, 0, data);
    out->p[at] = (char)first;
}

/* One message, or the code of the failure (< 0), or 0 for none. */
static int parse_one(struct websocket_parser *parser, struct str *bytes,
                     struct websocket_message *out)
{
    int r = websocket_parse(parser, bytes, out);

    return r < 0 ? -out->code : r;
}

static int parse_frame(uint8_t first, struct str data)
{
    struct websocket_parser parser;
    struct websocket_message message;
    auto_buf struct buf bytes = {0};
    struct str rest;
    int r;

    buf_init(&bytes, 3 * MESSAGE_MAX);
    websocket_parser_init(&parser, WEBSOCKET_CLIENT, MESSAGE_MAX);
    add_frame(&bytes, first, data);
    rest = buf_str(&bytes);
    r = parse_one(&parser, &rest, &message);
    websocket_parser_done(&parser);
    return r;
}

TEST(websocket_handshake)
{
    char out[WEBSOCKET_ACCEPT_SIZE];

    /* The example of RFC 6455, 1.3. */
    CHECK(websocket_accept(STR("dGhlIHNhbXBsZSBub25jZQ=="), out));
    CHECK_STR(str_of(out), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    CHECK(!websocket_accept(STR("dGhlIHNhbXBsZSBub25jZ"), out));
    CHECK(!websocket_accept(STR("dGhlIHNhbXBsZSBub25j!!=="), out));
    CHECK(!websocket_accept(STR(""), out));
}

static void check_frame(enum websocket_side from, size_t length, const char *head, size_t head_len)
{
    auto_buf struct buf data = {0}, frame = {0};
    struct websocket_parser parser;
    struct websocket_message message;
    struct str bytes;

    buf_init(&data, length);
    for (size_t i = 0; i < length; i++)
        (void)buf_add_char(&data, (char)i);
    buf_init(&frame, length + WEBSOCKET_HEAD_MAX);
    websocket_add(&frame, from, WEBSOCKET_BINARY, buf_str(&data));
    CHECK(memcmp(frame.p, head, head_len) == 0);
    CHECK_INT(frame.len, head_len + (from == WEBSOCKET_CLIENT ? 4 : 0) + length);
    bytes = buf_str(&frame);
    websocket_parser_init(&parser, from, MESSAGE_MAX);
    CHECK_INT(websocket_parse(&parser, &bytes, &message), 1);
    CHECK_INT(message.opcode, WEBSOCKET_BINARY);
    CHECK(str_eq(message.data, buf_str(&data)));
    websocket_parser_done(&parser);
    bytes = buf_str(&frame); /* the other side does not send such ones */
    websocket_parser_init(&parser, from ^ 1, MESSAGE_MAX);
    CHECK_INT(parse_one(&parser, &bytes, &message), -WEBSOCKET_PROTOCOL_ERROR);
    websocket_parser_done(&parser);
}

TEST(websocket_frames_of_both_sides)
{
    check_frame(WEBSOCKET_SERVER, 0, "\x82\0", 2);
    check_frame(WEBSOCKET_SERVER, 125, "\x82\x7d", 2);
    check_frame(WEBSOCKET_SERVER, 126, "\x82\x7e\0\x7e", 4);
    check_frame(WEBSOCKET_SERVER, 65536, "\x82\x7f\0\0\0\0\0\1\0\0", 10);
    check_frame(WEBSOCKET_CLIENT, 0, "\x82\x80", 2);
    check_frame(WEBSOCKET_CLIENT, 3, "\x82\x83", 2);
    check_frame(WEBSOCKET_CLIENT, 65535, "\x82\xfe\xff\xff", 4);
    check_frame(WEBSOCKET_CLIENT, 65536, "\x82\xff\0\0\0\0\0\1\0\0", 10);
}

TEST(websocket_messages_come_whole_in_any_pieces)
{
    for (size_t piece = 1; piece < 40; piece++) {
        struct websocket_parser parser;
        struct websocket_message message;
        auto_buf struct buf bytes = {0};
        size_t seen = 0;

        buf_init(&bytes, 100000);
        websocket_parser_init(&parser, WEBSOCKET_CLIENT, MESSAGE_MAX);
        add_frame(&bytes, 0x81, STR("hello"));
        add_frame(&bytes, 0x02, STR("ab")); /* fragments, with a ping between them */
        add_frame(&bytes, 0x89, STR("ping"));
        add_frame(&bytes, 0x00, STR("cd"));
        add_frame(&bytes, 0x80, STR("ef"));
        add_frame(&bytes, 0x81, STR(""));
        add_frame(&bytes, 0x88,
                  STR("\x03\xe8"
                      "bye"));
        for (size_t at = 0; at < bytes.len; at += piece) {
            struct str part = str_n(bytes.p + at, bytes.len - at < piece ? bytes.len - at : piece);
            int r;

            while ((r = websocket_parse(&parser, &part, &message)) > 0) {
                static const char *const wanted[] = {"hello", "ping", "abcdef", "", "bye"};
                static const int opcodes[] = {1, 9, 2, 1, 8};

                CHECK_STR(message.data, wanted[seen]);
                CHECK_INT(message.opcode, opcodes[seen]);
                seen++;
            }
            CHECK_INT(r, 0);
        }
        CHECK_INT(seen, 5);
        CHECK_INT(message.code, 0);
        websocket_parser_done(&parser);
    }
}

TEST(websocket_breaches)
{
    auto_buf struct buf large = {0};
    struct websocket_message message;
    struct websocket_parser parser;
    struct str huge = STR("\x82\xff\x7f\0\0\0\0\0\0\0abcd");

    CHECK_INT(parse_frame(0x81, STR("ok")), 1);
    CHECK_INT(parse_frame(0xc1, STR("a")), -WEBSOCKET_PROTOCOL_ERROR); /* reserved bit */
    CHECK_INT(parse_frame(0x83, STR("a")), -WEBSOCKET_PROTOCOL_ERROR); /* unknown opcode */
    CHECK_INT(parse_frame(0x80, STR("a")), -WEBSOCKET_PROTOCOL_ERROR); /* continues nothing */
    CHECK_INT(parse_frame(0x09, STR("a")), -WEBSOCKET_PROTOCOL_ERROR); /* control in fragments */
    CHECK_INT(parse_frame(0x88, STR("a")), -WEBSOCKET_PROTOCOL_ERROR); /* half a code */
    CHECK_INT(parse_frame(0x88, STR("\x03\xed")), -WEBSOCKET_PROTOCOL_ERROR); /* 1005 */
    CHECK_INT(parse_frame(0x88, STR("\x03\xe8\xff")), -WEBSOCKET_BAD_TEXT);
    CHECK_INT(parse_frame(0x88, STR("")), 1);
    CHECK_INT(parse_frame(0x81, STR("\xff")), -WEBSOCKET_BAD_TEXT);
    CHECK_INT(parse_frame(0x82, STR("\xff")), 1);
    buf_init(&large, 2 * MESSAGE_MAX);
    CHECK(buf_reserve(&large, MESSAGE_MAX + 1));
    memset(large.p, 'a', MESSAGE_MAX + 1);
    CHECK_INT(parse_frame(0x82, str_n(large.p, MESSAGE_MAX)), 1);
    CHECK_INT(parse_frame(0x82, str_n(large.p, MESSAGE_MAX + 1)), -WEBSOCKET_TOO_LARGE);
    CHECK_INT(parse_frame(0x89, str_n(large.p, 126)), -WEBSOCKET_PROTOCOL_ERROR);
    websocket_parser_init(&parser, WEBSOCKET_CLIENT, MESSAGE_MAX);
    CHECK_INT(parse_one(&parser, &huge, &message), -WEBSOCKET_TOO_LARGE); /* by its head alone */
    CHECK(parser.in.cap < 1000);
    websocket_parser_done(&parser);
}

TEST(websocket_fragments_are_bounded_together)
{
    struct websocket_parser parser;
    struct websocket_message message;
    auto_buf struct buf bytes = {0};
    char part[1000];
    struct str rest;
    int r = 0;

    memset(part, 'a', sizeof(part));
    buf_init(&bytes, 4096);
    websocket_parser_init(&parser, WEBSOCKET_CLIENT, MESSAGE_MAX);
    for (int i = 0; i < 2000 && r == 0; i++) {
        buf_clear(&bytes);
        add_frame(&bytes, i ? 0x00 : 0x02, str_n(part, sizeof(part)));
        rest = buf_str(&bytes);
        r = parse_one(&parser, &rest, &message);
    }
    CHECK_INT(r, -WEBSOCKET_TOO_LARGE);
    websocket_parser_done(&parser);
}

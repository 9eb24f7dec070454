#include "protocol/rpc/proto.h"

#include "base/cleanup.h"
#include "base/test.h"
#include "protocol/json/json_shape.h"
#include "protocol/rpc/connect.h"
#include "protocol/rpc/proto_wire.h"

extern const struct connect_method proto_test_methods[];

static const struct proto_message *all(void)
{
    return proto_test_methods[0].request;
}

/* Decodes and compares with JSON text that has its members in the order of the bytes. */
static void check_decode(struct str bytes, const char *want)
{
    auto_json json_t *got = NULL;
    auto_free char *text = NULL;
    struct error err = {0};

    CHECK_INT(proto_decode(all(), bytes, &got, &err), 0);
    text = json_text(got);
    CHECK_STR(str_of(text), want);
}

static enum error_code decode_error(struct str bytes)
{
    auto_json json_t *got = NULL;
    struct error err = {0};

    CHECK_INT(proto_decode(all(), bytes, &got, &err), -1);
    CHECK(!got);
    return err.code;
}

static void check_encode(const char *json, struct str want)
{
    auto_buf struct buf out = {0};
    struct error err = {0};

    buf_init(&out, 1000);
    CHECK_INT(proto_encode(all(), str_of(json), &out, &err), 0);
    CHECK_INT(out.len, want.len);
    CHECK(memcmp(out.p ? out.p : "", want.p, want.len) == 0);
}

static enum error_code encode_error(const char *json)
{
    auto_buf struct buf out = {0};
    struct error err = {0};

    buf_init(&out, 100);
    CHECK_INT(proto_encode(all(), str_of(json), &out, &err), -1);
    return err.code;
}

/* Both ways. */
static void check_same(const char *json, struct str bytes)
{
    check_decode(bytes, json);
    check_encode(json, bytes);
}

TEST(proto_methods)
{
    CHECK_STR(str_of(proto_test_methods[0].path), "/test.Test/Echo");
    CHECK_STR(str_of(all()->name), "test.All");
    CHECK(proto_test_methods[0].response == all());
    CHECK(!proto_test_methods[1].path);
}

TEST(proto_numbers)
{
    check_same("{\"number\":300}", STR("\x08\xac\x02"));
    check_same("{\"number\":4294967295}", STR("\x08\xff\xff\xff\xff\x0f"));
    check_same("{\"size\":-1}", STR("\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"));
    check_same("{\"size\":9223372036854775807}", STR("\x10\xff\xff\xff\xff\xff\xff\xff\xff\x7f"));
    check_same("{\"exitCode\":-1}", STR("\x18\x01"));
    check_same("{\"exitCode\":-2147483648}", STR("\x18\xff\xff\xff\xff\x0f"));
    check_same("{\"exitCode\":2147483647}", STR("\x18\xfe\xff\xff\xff\x0f"));
    check_same("{\"flag\":true}", STR("\x20\x01"));
    check_encode("{\"size\":\"1234567890123\"}", STR("\x10\xcb\x89\xec\x8f\xf7\x23"));
    /* Wider than the kind: cut off, as generated readers do. */
    check_decode(STR("\x08\x81\x80\x80\x80\x10"), "{\"number\":1}");
    check_decode(STR("\x20\x07"), "{\"flag\":true}");
}

TEST(proto_enums)
{
    check_same("{\"color\":\"COLOR_DEEP_BLUE\"}", STR("\x28\xac\x02"));
    check_same("{\"color\":77}", STR("\x28\x4d"));
    check_same("{\"color\":-1}", STR("\x28\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"));
    check_encode("{\"color\":1}", STR("\x28\x01"));
    CHECK_INT(encode_error("{\"color\":\"COLOR_PINK\"}"), ERROR_INVALID);
}

TEST(proto_text_and_bytes)
{
    check_same("{\"text\":\"h\xc3\xa9\"}", STR("\x32\x03h\xc3\xa9"));
    check_same("{\"raw\":\"AP8K\"}", STR("\x3a\x03\x00\xff\x0a"));
    check_encode("{\"text\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\\u20ac\"}",
                 STR("\x32\x11\"\\/\b\f\n\r\t\xc3\xa9\xf0\x9f\x98\x80\xe2\x82\xac"));
    CHECK_INT(decode_error(STR("\x32\x01\xff")), ERROR_INVALID);
    CHECK_INT(decode_error(STR("\x32\x03"
                               "a\0b")),
              ERROR_INVALID);
    CHECK_INT(encode_error("{\"raw\":\"*\"}"), ERROR_INVALID);
    CHECK_INT(encode_error("{\"text\":\"\\ud83d\"}"), ERROR_INVALID);
    CHECK_INT(encode_error("{\"text\":\"\\udc00\"}"), ERROR_INVALID);
    CHECK_INT(encode_error("{\"text\":\"\\q\"}"), ERROR_INVALID);
}

TEST(proto_messages_and_maps)
{
    check_same("{\"inner\":{\"someText\":\"a\"}}", STR("\x42\x03\x0a\x01"
                                                       "a"));
    check_same("{\"inner\":{}}", STR("\x42\x00"));
    check_same("{\"pairs\":{\"k\":\"v\"}}", STR("\x52\x06\x0a\x01k\x12\x01v"));
    check_decode(STR("\x52\x00\x52\x05\x12\x01v\x0a\x00"), "{\"pairs\":{\"\":\"v\"}}");
    check_decode(STR("\x52\x06\x0a\x01k\x12\x01v\x52\x06\x0a\x01k\x12\x01w"),
                 "{\"pairs\":{\"k\":\"w\"}}");
    CHECK_INT(decode_error(STR("\x52\x03\x0a\x01\xff")), ERROR_INVALID);
    CHECK_INT(decode_error(STR("\x52\x03\x12\x01\0")), ERROR_INVALID);
    CHECK_INT(decode_error(STR("\x52\x02\x0a\x01")), ERROR_INVALID);
}

TEST(proto_times)
{
    check_same("{\"time\":\"2026-08-01T12:34:56.123456Z\"}",
               STR("\x4a\x0b\x08\xf0\xcf\xb7\xd3\x06\x10\x80\x94\xef\x3a"));
    check_same("{\"time\":\"1970-01-01T00:00:00.000000Z\"}", STR("\x4a\x00"));
    check_encode(
        "{\"time\":\"1969-12-31T23:59:59.5Z\"}",
        STR("\x4a\x11\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x10\x80\xca\xb5\xee\x01"));
    CHECK_INT(encode_error("{\"time\":\"yesterday\"}"), ERROR_INVALID);
    CHECK_INT(decode_error(STR("\x4a\x02\x08\x80")), ERROR_INVALID);
    CHECK_INT(decode_error(STR("\x4a\x07\x08\x80\x83\xd1\xff\xaf\x07")), ERROR_INVALID);
    CHECK_INT(decode_error(STR("\x4a\x06\x10\x80\x94\xeb\xdc\x03")), ERROR_INVALID);
}

TEST(proto_repeated)
{
    check_same("{\"words\":[\"a\",\"\",\"b\"]}", STR("\x5a\x01"
                                                     "a\x5a\x00\x5a\x01"
                                                     "b"));
    check_same("{\"numbers\":[1,300,0]}", STR("\x62\x04\x01\xac\x02\x00"));
    check_decode(STR("\x60\x01\x62\x02\xac\x02\x60\x00"), "{\"numbers\":[1,300,0]}");
    check_same("{\"inners\":[{},{\"someText\":\"x\"}]}", STR("\x6a\x00\x6a\x03\x0a\x01x"));
    check_same("{\"raws\":[\"\",\"AA==\"]}", STR("\xa2\x01\x00\xa2\x01\x01\x00"));
    check_same("{\"colors\":[\"COLOR_RED\",5]}", STR("\xaa\x01\x02\x01\x05"));
    check_encode("{\"words\":[]}", STR(""));
    CHECK_INT(decode_error(STR("\x62\x01\x80")), ERROR_INVALID);
    CHECK_INT(encode_error("{\"words\":[1]}"), ERROR_INVALID);
    CHECK_INT(encode_error("{\"words\":\"a\"}"), ERROR_INVALID);
}

TEST(proto_defaults_and_presence)
{
    check_encode("{\"number\":0,\"size\":\"0\",\"exitCode\":0,\"flag\":false,\"color\":"
                 "\"COLOR_NONE\",\"text\":\"\",\"raw\":\"\",\"inner\":null}",
                 STR(""));
    check_same("{\"maybeText\":\"\",\"maybeFlag\":false}", STR("\x72\x00\x78\x00"));
    check_same("{\"pid\":0}", STR("\x80\x01\x00"));
    check_decode(STR(""), "{}");
}

TEST(proto_last_of_a_oneof_stays)
{
    check_decode(STR("\x80\x01\x07\x8a\x01\x01t"), "{\"tag\":\"t\"}");
    check_decode(STR("\x8a\x01\x01t\x92\x01\x00\x80\x01\x07"), "{\"pid\":7}");
    check_decode(STR("\x92\x01\x03\x0a\x01x\x92\x01\x00"), "{\"one\":{\"someText\":\"x\"}}");
}

TEST(proto_repeated_members_merge)
{
    check_decode(STR("\x08\x01\x08\x02"), "{\"number\":2}");
    check_decode(STR("\x9a\x01\x02\x08\x01\x9a\x01\x02\x20\x01"),
                 "{\"deeper\":{\"number\":1,\"flag\":true}}");
}

TEST(proto_unknown_members_are_skipped)
{
    check_decode(STR("\xf0\x07\x05\xf1\x07"
                     "12345678\xf2\x07\x02zz\xf5\x07"
                     "1234\x08\x01"),
                 "{\"number\":1}");
    /* A group with a group inside. */
    check_decode(STR("\xf3\x07\x08\x01\xfb\x07\xfc\x07\xf4\x07\x08\x02"), "{\"number\":2}");
    /* Known numbers of another wire type. */
    check_decode(STR("\x0a\x01x\x30\x07\x0d"
                     "1234\x08\x03"),
                 "{\"number\":3}");
    check_encode("{\"x\":{\"a\":[1,{\"b\":\"}]\\\"\"}]},\"y\":-1.5e3,\"number\":3, \"z\" : null }",
                 STR("\x08\x03"));
}

TEST(proto_broken_bytes)
{
    CHECK_INT(decode_error(STR("\x08")), ERROR_INVALID);
    CHECK_INT(decode_error(STR("\x08\x80\x80")), ERROR_INVALID);
    /* Eleven bytes, and ten with too many bits. */
    CHECK_INT(decode_error(STR("\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01")), ERROR_INVALID);
    CHECK_INT(decode_error(STR("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02")), ERROR_INVALID);
    CHECK_INT(decode_error(STR("\x32\x05"
                               "abc")),
              ERROR_INVALID);
    CHECK_INT(decode_error(STR("\x32\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x")), ERROR_INVALID);
    CHECK_INT(decode_error(STR("\x00\x01")), ERROR_INVALID);
    CHECK_INT(decode_error(STR("\x80\x80\x80\x80\x10\x01")), ERROR_INVALID);
    CHECK_INT(decode_error(STR("\x0e\x01")), ERROR_INVALID);
    CHECK_INT(decode_error(STR("\x0f\x01")), ERROR_INVALID);
    CHECK_INT(decode_error(STR("\xf4\x07")), ERROR_INVALID);
    CHECK_INT(decode_error(STR("\xf3\x07\xfc\x07")), ERROR_INVALID);
    CHECK_INT(decode_error(STR("\xf3\x07")), ERROR_INVALID);
    CHECK_INT(decode_error(STR("\xf1\x07"
                               "1234567")),
              ERROR_INVALID);
}

TEST(proto_broken_text)
{
    static const char *const texts[] = {"",
                                        "[]",
                                        "{",
                                        "{\"number\"",
                                        "{\"number\":",
                                        "{\"number\":1",
                                        "{\"number\":1 \"flag\":true}",
                                        "{\"number\":1,}",
                                        "{\"text\":\"a",
                                        "{\"text\":\"a\\",
                                        "{\"text\":\"\\u12",
                                        "{\"number\":1.5}",
                                        "{\"number\":-1}",
                                        "{\"number\":4294967296}",
                                        "{\"exitCode\":2147483648}",
                                        "{\"flag\":1}",
                                        "{\"flag\":\"true\"}",
                                        "{\"inner\":[]}",
                                        "{\"inner\":nul}",
                                        "{\"pairs\":{\"a\":1}}",
                                        "{\"pairs\":{\"a\"}}",
                                        "{\"pairs\":[]}",
                                        "{\"unknown\":[",
                                        "{\"unknown\":\"\\",
                                        "{\"unknown\"}"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        CHECK_INT(encode_error(texts[i]), ERROR_INVALID);
}

TEST(proto_nesting_is_limited)
{
    auto_buf struct buf bytes, json;

    buf_init(&bytes, 1000);
    buf_init(&json, 1000);
    for (int i = 0; i < PROTO_DEPTH_MAX; i++) {
        proto_wire_add_length(&bytes, 0);
        buf_reserve(&bytes, 2);
        memmove(bytes.p + 2, bytes.p, bytes.len);
        memcpy(bytes.p, "\x9a\x01", 2);
        buf_grew(&bytes, 2);
        buf_add_str(&json, STR("{\"deeper\":"));
    }
    buf_add_str(&json, STR("{}"));
    for (int i = 0; i < PROTO_DEPTH_MAX; i++)
        buf_add_char(&json, '}');
    check_same(json.p, buf_str(&bytes));

    proto_wire_add_length(&bytes, 0);
    buf_reserve(&bytes, 2);
    memmove(bytes.p + 2, bytes.p, bytes.len);
    memcpy(bytes.p, "\x9a\x01", 2);
    buf_grew(&bytes, 2);
    CHECK_INT(decode_error(buf_str(&bytes)), ERROR_INVALID);

    buf_clear(&bytes);
    for (int i = 0; i < 17; i++)
        buf_add_str(&bytes, STR("\xf3\x07"));
    CHECK_INT(decode_error(buf_str(&bytes)), ERROR_INVALID);
}

TEST(proto_values_are_limited)
{
    auto_buf struct buf bytes = {0};

    buf_init(&bytes, 4 * PROTO_VALUES_MAX);
    for (int i = 0; i < PROTO_VALUES_MAX; i++)
        buf_add_str(&bytes, STR("\x5a\x00"));
    {
        auto_json json_t *got = NULL;
        struct error err = {0};

        CHECK_INT(proto_decode(all(), buf_str(&bytes), &got, &err), 0);
    }
    buf_add_str(&bytes, STR("\x5a\x00"));
    CHECK_INT(decode_error(buf_str(&bytes)), ERROR_LIMIT);
}

TEST(proto_encode_stops_at_the_limit)
{
    static const char json[] =
        "{\"number\":7,\"text\":\"some text\",\"raw\":\"AAAA\",\"inner\":{\"someText\":\"b\"},"
        "\"pairs\":{\"k\":\"v\"},\"words\":[\"x\",\"y\"],\"numbers\":[1,2],\"time\":"
        "\"2026-08-01T12:34:56Z\"}";
    size_t whole;

    {
        auto_buf struct buf out = {0};
        struct error err = {0};

        buf_init(&out, 1000);
        CHECK_INT(proto_encode(all(), str_of(json), &out, &err), 0);
        whole = out.len;
    }
    for (size_t max = 0; max < whole; max++) {
        auto_buf struct buf out = {0};
        struct error err = {0};

        buf_init(&out, max);
        CHECK_INT(proto_encode(all(), str_of(json), &out, &err), -1);
        CHECK_INT(err.code, ERROR_LIMIT);
    }
}

TEST(connect_messages_in_both_codecs)
{
    auto_buf struct buf out = {0};
    struct error err = {0};

    buf_init(&out, 100);
    CHECK_INT(connect_add_message(&out, NULL, STR("{\"number\":1}"), &err), 0);
    CHECK(out.len == 17 && memcmp(out.p, "\0\0\0\0\x0c{\"number\":1}", 17) == 0);
    CHECK_INT(connect_add_message(&out, all(), STR("{\"number\":1}"), &err), 0);
    CHECK(out.len == 24 && memcmp(out.p + 17, "\0\0\0\0\2\x08\x01", 7) == 0);
    CHECK_INT(connect_add_message(&out, all(), STR("{\"number\":true}"), &err), -1);
    CHECK_INT(out.len, 24);
}

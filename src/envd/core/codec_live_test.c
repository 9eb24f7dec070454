/* The binary codec on a running envd, byte by byte. Generated clients are in tests/functional. */
#include "base/cleanup.h"
#include "base/test.h"
#include "envd/core/codec.h"
#include "envd/test/live_rig.h"
#include "protocol/json/json_shape.h"

#define UNARY  "Content-Type: application/proto\r\n"
#define STREAM "Content-Type: application/connect+proto\r\n"

/* A request given as JSON, the answer in out. */
static int call(const struct live *live, const char *path, const char *json, struct buf *out)
{
    const struct connect_method *method = codec_find(str_of(path));
    auto_buf struct buf body = {0};
    struct error err = {0};

    buf_init(&body, 1000);
    CHECK_INT(proto_encode(method->request, str_of(json), &body, &err), 0);
    return live_call(live, "POST", path, UNARY, buf_str(&body), out);
}

static json_t *decoded(const char *path, struct str bytes)
{
    struct error err = {0};
    json_t *json;

    CHECK_INT(proto_decode(codec_find(str_of(path))->response, bytes, &json, &err), 0);
    return json;
}

TEST(codec_live_unary)
{
    static const char stat[] = "/filesystem.Filesystem/Stat";
    auto_json json_t *answer = NULL;
    auto_buf struct buf out = {0};
    const json_t *entry;
    struct live live;

    live_start(&live);
    CHECK_INT(call(&live, stat, "{\"path\":\"/etc/passwd\"}", &out), 200);
    answer = decoded(stat, buf_str(&out));
    entry = json_object_get(answer, "entry");
    CHECK_STR(json_get_str(entry, "name"), "passwd");
    CHECK_STR(json_get_str(entry, "type"), "FILE_TYPE_FILE");
    CHECK(json_integer_value(json_object_get(entry, "size")) > 0);
    CHECK_INT(call(&live, stat, "{\"path\":\"/none\"}", &out), 404);
    CHECK(str_starts(buf_str(&out), STR("{\"code\":\"not_found\"")));
    CHECK_INT(live_call(&live, "POST", stat, UNARY, STR("\x0a\x09/"), &out), 400);
    CHECK(str_starts(buf_str(&out), STR("{\"code\":\"invalid_argument\"")));
    CHECK_INT(live_call(&live, "POST", stat, STREAM, STR(""), &out), 415);
    CHECK_INT(live_call(&live, "POST", "/process.Process/List", UNARY, STR(""), &out), 200);
    CHECK_INT(out.len, 0);
    live_stop(&live);
}

/* Takes the next envelope off. */
static struct str next(struct buf *bytes, uint8_t *flags, char *space, size_t size)
{
    const unsigned char *head = (const unsigned char *)bytes->p;
    size_t len;

    CHECK(bytes->len >= CONNECT_HEAD_SIZE);
    len = (size_t)head[3] << 8 | head[4];
    CHECK(bytes->len >= CONNECT_HEAD_SIZE + len && len <= size);
    *flags = head[0];
    memcpy(space, bytes->p + CONNECT_HEAD_SIZE, len);
    buf_drop(bytes, CONNECT_HEAD_SIZE + len);
    return str_n(space, len);
}

TEST(codec_live_stream)
{
    static const char start[] = "/process.Process/Start";
    static const char request[] = "{\"process\":{\"cmd\":\"/bin/sh\",\"args\":[\"-c\",\"printf "
                                  "'a\\\\000b'; exit 7\"],\"envs\":{\"X\":\"y\"}},\"stdin\":false}";
    auto_buf struct buf body, out = {0};
    struct error err = {0};
    struct live live;
    char space[512];
    uint8_t flags;
    struct str message;

    live_start(&live);
    buf_init(&body, 1000);
    CHECK_INT(connect_add_message(&body, codec_find(str_of(start))->request, str_of(request), &err),
              0);
    CHECK_INT(live_call(&live, "POST", start, STREAM, buf_str(&body), &out), 200);
    message = next(&out, &flags, space, sizeof(space));
    CHECK(flags == 0 && str_starts(message, str_n("\x0a", 1)));
    message = next(&out, &flags, space, sizeof(space));
    CHECK(flags == 0 && str_eq(message, STR("\x0a\x07\x12\x05\x0a\x03"
                                            "a\0b")));
    message = next(&out, &flags, space, sizeof(space));
    {
        auto_json json_t *end = decoded(start, message);
        auto_free char *text = json_text(end);

        CHECK_STR(str_of(text), "{\"event\":{\"end\":{\"exitCode\":7,\"exited\":true,\"status\":"
                                "\"exit status 7\",\"error\":\"exit status 7\"}}}");
    }
    message = next(&out, &flags, space, sizeof(space));
    CHECK_INT(flags, CONNECT_END);
    CHECK_STR(message, "{}");
    CHECK_INT(out.len, 0);
    live_stop(&live);
}

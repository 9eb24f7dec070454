#include "base/buf.h"
#include "base/test.h"
#include "protocol/http/http_multipart.h"

static struct buf seen;

static int on_part(void *arg, struct str name, struct str filename)
{
    (void)arg;
    (void)buf_printf(&seen, "[%.*s|%.*s:", STR_ARG(name), STR_ARG(filename));
    return 0;
}

static int on_data(void *arg, struct str data)
{
    (void)arg;
    (void)buf_add_str(&seen, data);
    return 0;
}

static int on_part_end(void *arg)
{
    (void)arg;
    (void)buf_add_char(&seen, ']');
    return 0;
}

static const struct http_multipart_events events = {on_part, on_data, on_part_end};

static const char body[] =
    "preamble\r\n--b0\r\n"
    "Content-Disposition: form-data; name=\"file\"; filename=\"/a/b \\\"c;d\"\r\n"
    "Content-Type: text/plain\r\n\r\n"
    "one\r\n--b1\r\n-\r\n\r\n--b\r\n--b0  \r\n"
    "content-disposition:form-data;name=x\r\n\r\n"
    "\r\n--b0\r\n"
    "Content-Disposition: form-data; name=\"u\"; filename*=UTF-8''%c3%a9.txt\r\n"
    "\r\ntwo\r\n--b0--\r\nepilogue";
static const char wanted[] =
    "[file|/a/b \"c;d:one\r\n--b1\r\n-\r\n\r\n--b][x|:][u|\xc3\xa9.txt:two]";

static int run(const char *type, struct str text, size_t step, bool *out_complete)
{
    struct http_multipart *reader = http_multipart_new(str_of(type), &events, NULL);
    int result = 0;

    CHECK(reader);
    buf_clear(&seen);
    for (size_t at = 0; at < text.len && result == 0; at += step) {
        struct str piece = str_skip(text, at);

        if (piece.len > step)
            piece.len = step;
        result = http_multipart_feed(reader, piece);
    }
    *out_complete = http_multipart_complete(reader);
    http_multipart_free(reader);
    return result;
}

TEST(multipart_any_cut)
{
    bool complete;

    buf_init(&seen, 100000);
    for (size_t step = 1; step <= sizeof(body); step++) {
        CHECK_INT(
            run("multipart/form-data; boundary=b0", str_n(body, sizeof(body) - 1), step, &complete),
            0);
        CHECK(complete);
        CHECK_STR(buf_str(&seen), wanted);
    }
    buf_done(&seen);
}

TEST(multipart_starts_with_the_boundary)
{
    bool complete;

    buf_init(&seen, 1000);
    CHECK_INT(run("Multipart/Form-Data; charset=x; boundary=\"b 0\"",
                  STR("--b 0\r\nContent-Disposition: form-data; name=a\r\n\r\nv\r\n--b 0--"), 7,
                  &complete),
              0);
    CHECK(complete);
    CHECK_STR(buf_str(&seen), "[a|:v]");
    buf_done(&seen);
}

TEST(multipart_refuses)
{
    static const char *const types[] = {
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=\"open",
        "multipart/mixed; boundary=b",
        ("multipart/form-data; boundary=12345678901234567890123456789012345678901234567890123456"
         "789012345678901"),
        "text/plain",
        "",
    };
    static const char *const bodies[] = {
        "--b\r\nContent-Type: text/plain\r\n\r\nx\r\n--b--",
        "--bX\r\n--b!\r\n",
        "--b\r\n\r\n",
    };
    bool complete;

    buf_init(&seen, 1000);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        CHECK(!http_multipart_new(str_of(types[i]), &events, NULL));
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
        CHECK_INT(run("multipart/form-data; boundary=b", str_of(bodies[i]), 3, &complete), -1);
    CHECK_INT(run("multipart/form-data; boundary=b",
                  STR("--b\r\nContent-Disposition: form-data; name=a\r\n\r\nv\r\n--b-"), 5,
                  &complete),
              0);
    CHECK(!complete);
    buf_done(&seen);
}

TEST(multipart_long_head)
{
    struct buf text;
    bool complete;

    buf_init(&seen, 1000);
    buf_init(&text, 100000);
    (void)buf_add_str(&text, STR("--b\r\nContent-Disposition: form-data; name=a\r\nX: "));
    for (int i = 0; i < 20000; i++)
        (void)buf_add_char(&text, 'x');
    CHECK_INT(run("multipart/form-data; boundary=b", buf_str(&text), 1000, &complete), -1);
    CHECK_INT(run("multipart/form-data; boundary=b", buf_str(&text), 100000, &complete), -1);
    buf_done(&text);
    buf_done(&seen);
}

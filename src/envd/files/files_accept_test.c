#include <stdlib.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/test.h"
#include "envd/files/files_accept.h"
#include "envd/files/files_type.h"
#include "envd/files/gzip.h"

TEST(accept_encodings)
{
    static const struct {
        const char *header;
        bool identity_only;
        enum files_encoding want;
    } cases[] = {
        {NULL, false, FILES_IDENTITY},
        {"", false, FILES_IDENTITY},
        {"gzip", false, FILES_GZIP},
        {"GZIP", false, FILES_GZIP},
        {"  gzip  ", false, FILES_GZIP},
        {"gzip, deflate", false, FILES_GZIP},
        {"deflate, gzip, br", false, FILES_GZIP},
        {"gzip;q=1.0", false, FILES_GZIP},
        {"gzip ; q=0.8", false, FILES_GZIP},
        {"gzip;q=invalid", false, FILES_GZIP},
        {"gzip;x=1;q=0.001", false, FILES_GZIP},
        {"identity", false, FILES_IDENTITY},
        {"*", false, FILES_IDENTITY},
        {"br", false, FILES_IDENTITY},
        {"deflate, br", false, FILES_IDENTITY},
        {"br;q=0.5, gzip;q=1.0, deflate;q=0.8", false, FILES_GZIP},
        {"br;q=1.0, gzip;q=0.5", false, FILES_GZIP},
        {"gzip;q=0.5, identity;q=1.0", false, FILES_IDENTITY},
        {"gzip;q=0, identity", false, FILES_IDENTITY},
        {"gzip;q=0, br", false, FILES_IDENTITY},
        {"gzip;q=0.0", false, FILES_IDENTITY},
        {"br, identity;q=0", false, FILES_NOTHING},
        {"*, identity;q=0", false, FILES_GZIP},
        {"gzip;q=0, *, identity;q=0", false, FILES_NOTHING},
        {"*;q=0", false, FILES_NOTHING},
        {"gzip; q=1,*; q=0", false, FILES_GZIP},
        {"gzip; q=1,*; q=0", true, FILES_NOTHING},
        {"gzip, identity;q=0", true, FILES_NOTHING},
        {"gzip", true, FILES_IDENTITY},
        {"identity, *;q=0", true, FILES_IDENTITY},
        {"identity, gzip", false, FILES_IDENTITY},
        {"gzip, identity", false, FILES_GZIP},
        {",,;;q=,", false, FILES_IDENTITY},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (files_accept_encoding(str_of(cases[i].header), cases[i].identity_only) != cases[i].want)
            test_fail(__FILE__, __LINE__, "'%s'", cases[i].header);
    CHECK_INT(files_content_encoding(STR_NONE), FILES_IDENTITY);
    CHECK_INT(files_content_encoding(STR("identity")), FILES_IDENTITY);
    CHECK_INT(files_content_encoding(STR("Gzip;q=1.0")), FILES_GZIP);
    CHECK_INT(files_content_encoding(STR("br")), FILES_NOTHING);
    CHECK_INT(files_content_encoding(STR("gzip, gzip")), FILES_NOTHING);
}

TEST(accept_dates)
{
    char text[FILES_DATE_SIZE];
    int64_t seconds;

    files_accept_date(784111777, text);
    CHECK_STR(str_of(text), "Sun, 06 Nov 1994 08:49:37 GMT");
    CHECK(files_accept_parse_date(str_of(text), &seconds));
    CHECK_INT(seconds, 784111777);
    CHECK(files_accept_parse_date(STR("Sunday, 06-Nov-94 08:49:37 GMT"), &seconds));
    CHECK_INT(seconds, 784111777);
    CHECK(files_accept_parse_date(STR("Sun Nov  6 08:49:37 1994"), &seconds));
    CHECK_INT(seconds, 784111777);
    CHECK(!files_accept_parse_date(STR("yesterday"), &seconds));
    CHECK(!files_accept_parse_date(STR(""), &seconds));
    CHECK(!files_accept_parse_date(STR("Sun, 06 Nov 1994 08:49:37 GMT and more"), &seconds));
}

static struct files_answer ask(const char *name, const char *value, const char *name2,
                               const char *value2)
{
    static const struct files_version version = {
        .size = 100, .mtime_s = 784111777, .etag = "\"abc\""};
    struct pair items[] = {{str_of(name), str_of(value)}, {str_of(name2), str_of(value2)}};
    struct http_headers headers = {items, name2 ? 2 : 1};

    return files_accept_part(&headers, &version);
}

TEST(accept_ranges)
{
    static const struct {
        const char *range;
        int status;
        int64_t offset, length;
    } cases[] = {
        {"bytes=0-4", 206, 0, 5},
        {"bytes=10-", 206, 10, 90},
        {"bytes=-10", 206, 90, 10},
        {"bytes=-1000", 206, 0, 100},
        {"bytes=0-1000", 206, 0, 100},
        {"bytes=99-99", 206, 99, 1},
        {"bytes= 1 - 2 ", 206, 1, 2},
        {"bytes=100-", 416, 0, 0},
        {"bytes=5-4", 416, 0, 0},
        {"bytes=-0", 416, 0, 0},
        {"bytes=-", 416, 0, 0},
        {"bytes=", 416, 0, 0},
        {"bytes=a-b", 416, 0, 0},
        {"bytes=1", 416, 0, 0},
        {"bytes=--1", 416, 0, 0},
        {"bytes=9223372036854775807-", 416, 0, 0},
        {"bytes=0-9223372036854775807", 206, 0, 100},
        {"bytes=99999999999999999999-", 416, 0, 0},
        {"lines=1-2", 416, 0, 0},
        {"bytes=0-1,5-6", 200, 0, 100},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct files_answer got = ask("Range", cases[i].range, NULL, NULL);

        if (got.status != cases[i].status || got.offset != cases[i].offset ||
            got.length != cases[i].length)
            test_fail(__FILE__, __LINE__, "'%s': %d %lld %lld", cases[i].range, got.status,
                      (long long)got.offset, (long long)got.length);
    }
    CHECK_INT(ask("Range", "bytes=0-4", "If-Range", "\"abc\"").status, 206);
    CHECK_INT(ask("Range", "bytes=0-4", "If-Range", "\"other\"").status, 200);
    CHECK_INT(ask("Range", "bytes=0-4", "If-Range", "W/\"abc\"").status, 200);
    CHECK_INT(ask("Range", "bytes=0-4", "If-Range", "Sun, 06 Nov 1994 08:49:37 GMT").status, 206);
    CHECK_INT(ask("Range", "bytes=0-4", "If-Range", "Sun, 06 Nov 1994 08:49:36 GMT").status, 200);
}

TEST(accept_conditions)
{
    CHECK_INT(ask("X", "", NULL, NULL).status, 200);
    CHECK_INT(ask("If-None-Match", "\"abc\"", NULL, NULL).status, 304);
    CHECK_INT(ask("If-None-Match", "\"x\", W/\"abc\"", NULL, NULL).status, 304);
    CHECK_INT(ask("If-None-Match", "*", NULL, NULL).status, 304);
    CHECK_INT(ask("If-None-Match", "\"x\"", NULL, NULL).status, 200);
    /* The tag is stronger than the date. */
    CHECK_INT(
        ask("If-None-Match", "\"x\"", "If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT").status,
        200);
    CHECK_INT(ask("If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT", NULL, NULL).status, 304);
    CHECK_INT(ask("If-Modified-Since", "Sun, 06 Nov 1994 08:49:36 GMT", NULL, NULL).status, 200);
    CHECK_INT(ask("If-Modified-Since", "junk", NULL, NULL).status, 200);
    CHECK_INT(ask("If-Match", "\"abc\"", NULL, NULL).status, 200);
    CHECK_INT(ask("If-Match", "W/\"abc\"", NULL, NULL).status, 412);
    CHECK_INT(ask("If-Unmodified-Since", "Sun, 06 Nov 1994 08:49:36 GMT", NULL, NULL).status, 412);
}

TEST(file_types)
{
    CHECK_STR(files_type_of(STR("a.txt")), "text/plain; charset=utf-8");
    CHECK_STR(files_type_of(STR("a.b.JSON")), "application/json");
    CHECK_STR(files_type_of(STR("archive.tar.gz")), "application/gzip");
    CHECK_STR(files_type_of(STR("png")), "application/octet-stream");
    CHECK_STR(files_type_of(STR("a.")), "application/octet-stream");
    CHECK_STR(files_type_of(STR("")), "application/octet-stream");
}

TEST(file_dispositions)
{
    static const struct {
        const char *name, *want;
    } cases[] = {
        {"test.txt", "inline; filename=test.txt"},
        {".env", "inline; filename=.env"},
        {"my document.pdf", "inline; filename=\"my document.pdf\""},
        {"file\"name.txt", "inline; filename=\"file\\\"name.txt\""},
        {"file\\name.txt", "inline; filename=\"file\\\\name.txt\""},
        {"it's.txt", "inline; filename=it's.txt"},
        {"\xe6\x96\x87\xe6\xa1\xa3.pdf", "inline; filename*=utf-8''%E6%96%87%E6%A1%A3.pdf"},
        {"line\nbreak", "inline; filename*=utf-8''line%0Abreak"},
        {"bad\xff.txt", "inline; filename*=utf-8''bad%FF.txt"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        auto_arena struct arena arena = {0};

        CHECK_STR(files_type_disposition(&arena, str_of(cases[i].name)), cases[i].want);
    }
}

static int collect(void *arg, struct str data)
{
    return buf_add_str(arg, data) ? 0 : -1;
}

static int unpack(struct str packed, size_t step, struct buf *out, struct error *err)
{
    struct gunzip *gunzip = gunzip_new();
    int r = 0;

    for (size_t at = 0; at < packed.len && r == 0; at += step)
        r = gunzip_feed(gunzip,
                        str_n(packed.p + at, packed.len - at < step ? packed.len - at : step),
                        collect, out, err);
    if (r == 0 && !gunzip_complete(gunzip))
        r = 1;
    gunzip_free(gunzip);
    return r;
}

TEST(gzip_round_trips)
{
    auto_buf struct buf text, packed, back;
    struct gzip *gzip;
    struct error err = {0};

    buf_init(&text, 1 << 22);
    buf_init(&packed, 1 << 22);
    buf_init(&back, 1 << 22);
    for (unsigned i = 0; i < 100000; i++)
        buf_printf(&text, "%u ", i * 2654435761u);
    for (int member = 0; member < 2; member++) {
        gzip = gzip_new();
        for (size_t at = 0; at < text.len; at += 30000) {
            size_t len = text.len - at < 30000 ? text.len - at : 30000;

            CHECK_INT(
                gzip_feed(gzip, str_n(text.p + at, len), at + len == text.len, collect, &packed),
                0);
        }
        gzip_free(gzip);
        CHECK(packed.len < text.len * (unsigned)(member + 1));
        for (size_t step = 1; step < 100000; step = step * 7 + 1) {
            buf_clear(&back);
            CHECK_INT(unpack(buf_str(&packed), step, &back, &err), 0);
            CHECK_INT(back.len, text.len * (unsigned)(member + 1));
            CHECK(memcmp(back.p, text.p, text.len) == 0);
        }
    }
    buf_clear(&back);
    CHECK_INT(unpack(str_n(packed.p, packed.len - 1), 1000, &back, &err), 1);
    buf_clear(&back);
    packed.p[packed.len / 2] = (char)~packed.p[packed.len / 2];
    CHECK_INT(unpack(buf_str(&packed), 1000, &back, &err), -1);
    CHECK_INT(err.code, ERROR_INVALID);
    CHECK_INT(unpack(STR("this is not gzip data"), 1000, &back, &err), -1);
}

#include "egress/wire/sniff.h"

#include "base/buf.h"
#include "base/test.h"

static void put_u16(struct buf *out, size_t value)
{
    (void)buf_add_char(out, (char)(value >> 8));
    (void)buf_add_char(out, (char)value);
}

static void put_names(struct buf *out, struct str name)
{
    put_u16(out, 0);
    put_u16(out, name.len + 5);
    put_u16(out, name.len + 3);
    (void)buf_add_char(out, '\0');
    put_u16(out, name.len);
    (void)buf_add_str(out, name);
}

static void put_extension(struct buf *out, unsigned type, struct str data)
{
    put_u16(out, type);
    put_u16(out, data.len);
    (void)buf_add_str(out, data);
}

/* The handshake message around some extensions. */
static void put_hello(struct buf *out, struct str extensions)
{
    size_t len = 34 + 1 + 4 + 2 + 2 + extensions.len;
    char random[32] = {0};

    (void)buf_add(out, "\x01\x00", 2);
    put_u16(out, len);
    (void)buf_add(out, "\x03\x03", 2);
    (void)buf_add(out, random, sizeof(random));
    (void)buf_add(out, "\x00\x00\x02\x13\x01\x01\x00", 7);
    put_u16(out, extensions.len);
    (void)buf_add_str(out, extensions);
}

/* In records of that size. */
static void put_records(struct buf *out, struct str message, size_t size)
{
    while (message.len) {
        size_t len = message.len < size ? message.len : size;

        (void)buf_add(out, "\x16\x03\x01", 3);
        put_u16(out, len);
        (void)buf_add(out, message.p, len);
        message = str_skip(message, len);
    }
}

static void make_tls(struct buf *out, struct str extensions, size_t record)
{
    auto_buf struct buf hello = {0};

    buf_init(&hello, HELLO_MAX);
    put_hello(&hello, extensions);
    buf_init(out, HELLO_MAX);
    put_records(out, buf_str(&hello), record);
}

static void make_named(struct buf *out, const char *name, size_t record)
{
    auto_buf struct buf extensions = {0};

    buf_init(&extensions, HELLO_MAX);
    put_extension(&extensions, 43, STR("\x02\x03\x04"));
    put_names(&extensions, str_of(name));
    make_tls(out, buf_str(&extensions), record);
}

TEST(the_name_of_a_hello_is_found_however_it_is_cut)
{
    for (size_t record = 1; record < 200; record += 7) {
        auto_buf struct buf tls = {0};
        struct sniffed sniffed;

        make_named(&tls, "WWW.Example.COM", record);
        for (size_t len = 0; len < tls.len; len++)
            CHECK_INT(sniff_read(str_n(tls.p, len), &sniffed), SNIFF_MORE);
        CHECK_INT(sniff_read(buf_str(&tls), &sniffed), SNIFF_TLS);
        CHECK_STR(host_name_str(&sniffed.name), "www.example.com");
        CHECK(!sniffed.hides && !sniffed.fault);
    }
}

TEST(a_hello_without_a_usable_name_is_tls_with_a_fault)
{
    static const char *const names[] = {"", "a..b", "a b", "a\200b", "-.-/"};
    auto_buf struct buf plain = {0};
    struct sniffed sniffed;

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        auto_buf struct buf tls = {0};

        make_named(&tls, names[i], 4096);
        CHECK_INT(sniff_read(buf_str(&tls), &sniffed), SNIFF_TLS);
        CHECK(sniffed.name.len == 0 || sniffed.fault);
        CHECK(sniffed.fault);
    }
    make_tls(&plain, STR("\x00\x2b\x00\x00"), 4096);
    CHECK_INT(sniff_read(buf_str(&plain), &sniffed), SNIFF_TLS);
    CHECK(sniffed.fault && !sniffed.name.len);
}

TEST(an_encrypted_hello_is_told_and_its_outer_name_counts)
{
    auto_buf struct buf extensions = {0}, tls = {0};
    struct sniffed sniffed;

    buf_init(&extensions, HELLO_MAX);
    put_names(&extensions, STR("outer.example"));
    put_extension(&extensions, 0xfe0d, STR("\x00\x01"));
    make_tls(&tls, buf_str(&extensions), 4096);
    CHECK_INT(sniff_read(buf_str(&tls), &sniffed), SNIFF_TLS);
    CHECK(sniffed.hides);
    CHECK_STR(host_name_str(&sniffed.name), "outer.example");
}

TEST(hellos_that_are_none_are_refused)
{
    auto_buf struct buf twice = {0}, tls = {0}, empty = {0};
    struct sniffed sniffed;

    /* Two names: who reads the first and who reads the last would differ. */
    buf_init(&twice, HELLO_MAX);
    put_names(&twice, STR("a.example"));
    put_names(&twice, STR("b.example"));
    make_tls(&tls, buf_str(&twice), 4096);
    CHECK_INT(sniff_read(buf_str(&tls), &sniffed), SNIFF_OTHER);
    make_tls(&empty, STR("\x00\x00\x00\x09\x00\x00"), 4096);
    CHECK_INT(sniff_read(buf_str(&empty), &sniffed), SNIFF_OTHER);
    CHECK_INT(sniff_read(STR("\x16\x03\x01\x00\x00"), &sniffed), SNIFF_OTHER);
    CHECK_INT(sniff_read(STR("\x16\x03\x01\x7f\xff"), &sniffed), SNIFF_OTHER);
    CHECK_INT(sniff_read(STR("\x16\x03\x01\x00\x01\x02"), &sniffed), SNIFF_OTHER);
    CHECK_INT(sniff_read(STR("\x16\x03\x01\x00\x04\x01\xff\xff\xff"), &sniffed), SNIFF_OTHER);
    CHECK_INT(sniff_read(STR("\x16\x02"), &sniffed), SNIFF_OTHER);
    CHECK(sniffed.fault);
}

TEST(the_host_of_a_request_is_found)
{
    struct str request =
        STR("GET / HTTP/1.1\r\nAccept: x\r\nHost: WWW.Example.com:8080\r\n\r\nbody");
    size_t head = request.len - 4;
    struct sniffed sniffed;

    for (size_t len = 1; len < head; len++)
        CHECK_INT(sniff_read(str_n(request.p, len), &sniffed), SNIFF_MORE);
    CHECK_INT(sniff_read(request, &sniffed), SNIFF_HTTP);
    CHECK_STR(host_name_str(&sniffed.name), "www.example.com");
}

TEST(requests_that_leave_the_host_open_name_none)
{
    struct sniffed sniffed;

    CHECK_INT(sniff_read(STR("GET / HTTP/1.0\r\n\r\n"), &sniffed), SNIFF_HTTP);
    CHECK(sniffed.fault && !sniffed.name.len);
    CHECK_INT(sniff_read(STR("GET / HTTP/1.1\r\nHost: a:b\r\n\r\n"), &sniffed), SNIFF_HTTP);
    CHECK(sniffed.fault && !sniffed.name.len);
    CHECK_INT(sniff_read(STR("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), &sniffed),
              SNIFF_OTHER);
    CHECK_INT(sniff_read(STR("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n"), &sniffed), SNIFF_OTHER);
    CHECK_INT(sniff_read(STR("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), &sniffed), SNIFF_OTHER);
    CHECK_INT(sniff_read(STR("SSH-2.0-x\r\n"), &sniffed), SNIFF_OTHER);
    CHECK_INT(sniff_read(STR("\x00\x00\x00\x08"), &sniffed), SNIFF_OTHER);
    CHECK(sniffed.fault);
}

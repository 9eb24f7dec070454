#include "egress/wire/via.h"

#include "base/test.h"
#include "protocol/json/json_shape.h"

static struct {
    struct via *via;
    struct via_dialog dialog;
    struct buf out;
    struct host_name name;
} at;

static void begin(const char *settings, const char *name)
{
    auto_json json_t *json = json_loads(settings, 0, NULL);
    struct via_target target = {.name = &at.name, .address = 0x01020304, .port = 443};

    OK(via_new(json, &at.via, &err));
    at.name = (struct host_name){0};
    if (name)
        CHECK(host_name_set(&at.name, str_of(name)));
    buf_init(&at.out, 4096);
    via_begin(&at.dialog, at.via, &target, &at.out);
}

static void done(void)
{
    via_free(at.via);
    buf_done(&at.out);
}

static void expect_said(struct str want)
{
    CHECK(str_eq(buf_str(&at.out), want));
    buf_clear(&at.out);
}

static void expect_step(struct str in, enum via_step step, size_t left)
{
    CHECK_INT(via_feed(&at.dialog, &in, &at.out), step);
    CHECK_INT(in.len, left);
}

static void expect_failed(struct str in, const char *part)
{
    CHECK_INT(via_feed(&at.dialog, &in, &at.out), VIA_FAILED);
    CHECK(strstr(at.dialog.fault, part));
}

#define PLAIN "{\"address\":\"127.0.0.1:1080\"}"
#define NAMED "{\"address\":\"socks5://proxy.example:1080\",\"username\":\"u\",\"password\":\"pw\"}"
#define HTTP  "{\"address\":\"http://proxy.example:3128\",\"username\":\"u\",\"password\":\"pw\"}"

TEST(socks_is_asked_for_an_address)
{
    begin(PLAIN, NULL);
    CHECK(at.via->address == 0x7f000001 && at.via->port == 1080 && !at.via->name.len);
    expect_said(STR("\5\1\0"));
    expect_step(STR("\5"), VIA_MORE, 1);
    expect_step(STR("\5\0"), VIA_MORE, 0);
    expect_said(STR("\5\1\0\1\1\2\3\4\1\xbb"));
    expect_step(STR("\5\0\0\1\0\0\0\0\0"), VIA_MORE, 9);
    expect_step(STR("\5\0\0\1\0\0\0\0\0\0SSH"), VIA_OPEN, 3);
    done();
}

TEST(socks_gets_credentials_and_a_name)
{
    begin(NAMED, "a.example");
    CHECK_STR(host_name_str(&at.via->name), "proxy.example");
    expect_said(STR("\5\2\0\2"));
    expect_step(STR("\5\2"), VIA_MORE, 0);
    expect_said(STR("\1\1u\2pw"));
    expect_step(STR("\1\0"), VIA_MORE, 0);
    expect_said(STR("\5\1\0\3\11a.example\1\xbb"));
    expect_step(STR("\5\0\0\3\2xy\0\0"), VIA_OPEN, 0);
    done();
}

TEST(socks_says_why_not)
{
    static const struct {
        const char *settings;
        struct str said;
        const char *part;
    } cases[] = {
        {PLAIN, STR_INIT("HTTP/1.1 400"), "does not speak SOCKS5"},
        {PLAIN, STR_INIT("\5\xff"), "wants credentials"},
        {PLAIN, STR_INIT("\5\2"), "was not offered"},
        {NAMED, STR_INIT("\5\xff"), "neither"},
        {NAMED, STR_INIT("\5\2\1\1"), "refuses the credentials"},
        {PLAIN, STR_INIT("\5\0\5\2"), "does not allow"},
        {PLAIN, STR_INIT("\5\0\5\5"), "refused"},
        {PLAIN, STR_INIT("\5\0\5\x63"), "unknown"},
        {PLAIN, STR_INIT("\5\0\5\0\0\7x"), "malformed"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        begin(cases[i].settings, NULL);
        expect_failed(cases[i].said, cases[i].part);
        done();
    }
}

TEST(connect_is_asked_with_credentials)
{
    begin(HTTP, "a.example");
    expect_said(STR("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n"
                    "Proxy-Authorization: Basic dTpwdw==\r\n\r\n"));
    expect_step(STR("HTTP/1.1 200 Conn"), VIA_MORE, 17);
    expect_step(STR("HTTP/1.1 200 Connection established\r\nX: y\r\n\r\nSSH"), VIA_OPEN, 3);
    done();
    begin(HTTP, NULL);
    expect_said(STR("CONNECT 1.2.3.4:443 HTTP/1.1\r\nHost: 1.2.3.4:443\r\n"
                    "Proxy-Authorization: Basic dTpwdw==\r\n\r\n"));
    expect_step(STR("HTTP/1.1 200 x\r\nContent-Length: 5\r\n\r\n"), VIA_OPEN, 0);
    done();
}

TEST(connect_says_why_not)
{
    begin(HTTP, NULL);
    expect_failed(STR("HTTP/1.1 407 x\r\n\r\n"), "credentials");
    expect_failed(STR("HTTP/1.0 503 x\r\n\r\n"), "refuses");
    expect_failed(STR("\5\xff"), "does not speak HTTP");
    done();
}

static void expect_not(const char *settings)
{
    auto_json json_t *json = json_loads(settings, 0, NULL);
    struct error err;
    struct via *via;

    if (via_new(json, &via, &err) == 0)
        test_fail(__FILE__, __LINE__, "was taken: %s", settings);
}

TEST(proxies_that_cannot_be_are_refused)
{
    expect_not("{}");
    expect_not("{\"address\":\"proxy.example\"}");
    expect_not("{\"address\":\"proxy.example:0\"}");
    expect_not("{\"address\":\"proxy.example:65536\"}");
    expect_not("{\"address\":\"https://proxy.example:443\"}");
    expect_not("{\"address\":\":1080\"}");
    expect_not("{\"address\":\"a:1\",\"password\":\"x\"}");
    expect_not("{\"address\":\"a:1\",\"username\":\"\"}");
}

TEST(proxies_are_compared)
{
    begin(NAMED, NULL);
    struct via *copy = via_copy(at.via);

    CHECK(via_same(copy, at.via) && !via_same(copy, NULL) && via_same(NULL, NULL));
    copy->password[0] = 'x';
    CHECK(!via_same(copy, at.via));
    via_free(copy);
    done();
}

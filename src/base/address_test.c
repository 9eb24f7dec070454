#include "base/address.h"

#include "base/test.h"

static void expect_url(const char *listen, const char *url)
{
    char text[ADDRESS_URL_SIZE];
    union address address;

    if (!address_parse(listen, &address))
        test_fail(__FILE__, __LINE__, "'%s' is refused", listen);
    address_url(&address, text);
    CHECK_STR(str_of(text), url);
}

TEST(spellings_of_where_to_listen)
{
    static const char *const bad[] = {
        "",           "3000",        "127.0.0.1",    "::1:3000",
        "[::1]",      "[::1:3000",   "box:3000",     "127.0.0.1:65536",
        "1.2.3:3000", "127.0.0.1:x", "[127.0.0.1]:1"};
    union address address;

    expect_url("127.0.0.1:3000", "http://127.0.0.1:3000");
    expect_url("localhost:3000", "http://127.0.0.1:3000");
    expect_url("[::1]:3000", "http://[::1]:3000");
    expect_url("10.0.0.5:80", "http://10.0.0.5:80");
    expect_url("0.0.0.0:3000", "http://127.0.0.1:3000");
    expect_url(":3000", "http://127.0.0.1:3000");
    expect_url("[::]:3000", "http://127.0.0.1:3000");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (address_parse(bad[i], &address))
            test_fail(__FILE__, __LINE__, "'%s' is taken", bad[i]);
}

static bool reached(const char *listen, const char *url)
{
    union address address;
    struct str host;
    uint16_t port = 0;

    CHECK(address_parse(listen, &address));
    CHECK(address_of_url(str_of(url), &host, &port));
    return address_is_reached(&address, host, port);
}

TEST(spellings_of_a_server_itself)
{
    static const char *const listens[] = {"127.0.0.1:3000", "[::1]:3000", "0.0.0.0:3000", ":3000"};
    static const char *const own[] = {"http://localhost:3000",   "http://127.0.0.1:3000/",
                                      "http://[::1]:3000",       "http://0.0.0.0:3000",
                                      "http://LOCALHOST:3000/x", "http://[::]:3000"};

    for (size_t i = 0; i < sizeof(listens) / sizeof(listens[0]); i++) {
        for (size_t j = 0; j < sizeof(own) / sizeof(own[0]); j++)
            if (!reached(listens[i], own[j]))
                test_fail(__FILE__, __LINE__, "%s is not %s", own[j], listens[i]);
        CHECK(!reached(listens[i], "http://localhost:3001"));
        CHECK(!reached(listens[i], "http://localhost"));
        CHECK(!reached(listens[i], "http://203.0.113.7:3000"));
        CHECK(!reached(listens[i], "https://api.e2b.app"));
    }
    CHECK(reached("10.0.0.5:80", "http://10.0.0.5"));
    CHECK(!reached("10.0.0.5:3000", "http://localhost:3000"));
    CHECK(!reached("127.0.0.1:3000", "http://127.0.0.2:3000"));
    CHECK(reached(":3000", "http://127.0.0.2:3000"));
}

TEST(hosts_and_ports_of_urls)
{
    static const char *const bad[] = {"",           "http://",     "http://:80",
                                      "http://a:0", "http://[::1", "a:x"};
    struct str host;
    uint16_t port = 7;

    CHECK(address_of_url(STR("https://[::1]/x:9"), &host, &port));
    CHECK_STR(host, "[::1]");
    CHECK_INT(port, 443);
    CHECK(address_of_url(STR("sandboxes.example:8080"), &host, &port));
    CHECK_STR(host, "sandboxes.example");
    CHECK_INT(port, 8080);
    CHECK(address_of_url(STR("sandboxes.example"), &host, &port));
    CHECK_INT(port, 8080);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (address_of_url(str_of(bad[i]), &host, &port))
            test_fail(__FILE__, __LINE__, "'%s' is taken", bad[i]);
}

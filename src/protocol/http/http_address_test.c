#include "protocol/http/http_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "base/str.h"
#include "base/test.h"

static bool is_public(const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};

    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        return http_address_public((struct sockaddr *)&v4);
    CHECK_INT(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
    return http_address_public((struct sockaddr *)&v6);
}

TEST(addresses_that_are_public)
{
    static const char *const yes[] = {
        "1.1.1.1",     "9.255.255.255", "11.0.0.0",    "100.63.255.255", "100.128.0.0",
        "126.0.0.1",   "128.0.0.1",     "169.253.0.1", "172.15.255.255", "172.32.0.0",
        "192.0.1.0",   "192.169.0.1",   "198.17.0.1",  "198.20.0.0",     "223.255.255.255",
        "2606:4700::", "2a00::1",       "2001:200::1", "::ffff:1.1.1.1", "2002:101:101::1",
    };
    static const char *const no[] = {
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.255",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.19.255.255",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::7f00:1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.1.1",
        "64:ff9b::a00:1",
        "fe80::1",
        "fc00::1",
        "fd00:ec2::254",
        "ff02::1",
        "2002:7f00:1::1",
        "2002:a9fe:a9fe::",
        "2001:0:1::1",
        "100::1",
    };
    struct sockaddr other = {.sa_family = AF_UNIX};

    for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++)
        if (!is_public(yes[i]))
            test_fail(__FILE__, __LINE__, "%s is public", yes[i]);
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
        if (is_public(no[i]))
            test_fail(__FILE__, __LINE__, "%s is not public", no[i]);
    CHECK(!http_address_public(&other));
}

static bool is_loopback(const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};

    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        return http_address_loopback((struct sockaddr *)&v4);
    CHECK_INT(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
    return http_address_loopback((struct sockaddr *)&v6);
}

TEST(addresses_of_the_host_itself)
{
    struct sockaddr other = {.sa_family = AF_UNIX};

    CHECK(is_loopback("127.0.0.1") && is_loopback("127.255.0.1") && is_loopback("::1") &&
          is_loopback("::ffff:127.0.0.1"));
    CHECK(!is_loopback("126.0.0.1") && !is_loopback("10.127.0.1") && !is_loopback("::") &&
          !is_loopback("::7f00:1") && !is_loopback("::ffff:10.0.0.1") && !is_loopback("2a00::1"));
    CHECK(!http_address_loopback(&other));
}

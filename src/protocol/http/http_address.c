#include "protocol/http/http_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

static bool v4_public(const void *bytes)
{
    static const struct {
        uint32_t net;
        int bits;
    } closed[] = {
        {0x00000000, 8},  /* this network */
        {0x0a000000, 8},  /* private */
        {0x64400000, 10}, /* shared */
        {0x7f000000, 8},  /* loopback */
        {0xa9fe0000, 16}, /* link-local */
        {0xac100000, 12}, /* private */
        {0xc0000000, 24}, /* protocol assignments */
        {0xc0a80000, 16}, /* private */
        {0xc6120000, 15}, /* benchmarks */
        {0xe0000000, 3},  /* multicast, reserved, broadcast */
    };
    uint32_t address;

    memcpy(&address, bytes, sizeof(address));
    address = ntohl(address);
    for (size_t i = 0; i < sizeof(closed) / sizeof(closed[0]); i++)
        if ((address ^ closed[i].net) >> (32 - closed[i].bits) == 0)
            return false;
    return true;
}

static bool v6_public(const struct in6_addr *address)
{
    const uint8_t *b = address->s6_addr;

    if (IN6_IS_ADDR_V4MAPPED(address))
        return v4_public(b + 12);
    if (b[0] == 0x20 && b[1] == 0x02) /* 6to4 */
        return v4_public(b + 2);
    if (b[0] == 0x20 && b[1] == 0x01 && (b[2] & 0xfe) == 0) /* Teredo, ORCHID and the like */
        return false;
    /* 2000::/3 is all that is public; the rest is local, multicast or not given out. */
    return (b[0] & 0xe0) == 0x20;
}

bool http_address_public(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return v4_public(&((const struct sockaddr_in *)(const void *)address)->sin_addr);
    return address->sa_family == AF_INET6 &&
           v6_public(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

bool http_address_loopback(const struct sockaddr *address)
{
    const struct sockaddr_in *v4 = (const void *)address;
    const struct sockaddr_in6 *v6 = (const void *)address;

    if (address->sa_family == AF_INET)
        return ((const uint8_t *)&v4->sin_addr)[0] == 127;
    return address->sa_family == AF_INET6 &&
           (IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) ||
            (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) && v6->sin6_addr.s6_addr[12] == 127));
}

/* Addresses of boxes, which come from their slots, and of resolvers. */
#include <arpa/inet.h>
#include <stdio.h>

#include "base/str.h"
#include "host/network/network_internal.h"

uint32_t network_address_of(uint32_t slot)
{
    return NETWORK_SANDBOXES + slot;
}

void network_address_text(uint32_t address, char out[NETWORK_TEXT_SIZE])
{
    (void)snprintf(out, NETWORK_TEXT_SIZE, "%u.%u.%u.%u", address >> 24, address >> 16 & 255,
                   address >> 8 & 255, address & 255);
}

bool network_address_overlap(uint32_t a, uint8_t a_prefix, uint32_t b, uint8_t b_prefix)
{
    uint8_t prefix = a_prefix < b_prefix ? a_prefix : b_prefix;

    return prefix == 0 || (a ^ b) >> (32 - prefix) == 0;
}

bool network_address_is_ours(uint32_t address)
{
    return network_address_overlap(address, 32, NETWORK_SANDBOXES, NETWORK_SANDBOXES_PREFIX);
}

/* Loopback resolvers (a stub on the host) cannot be reached from another namespace, and sandboxes
 * have their own addresses: both would fail later and in silence. */
int network_address_parse(const char *text, uint32_t *out, struct error *err)
{
    struct in_addr parsed;
    uint32_t address;

    if (inet_pton(AF_INET, text, &parsed) != 1)
        return error_set(err, ERROR_INVALID, "resolver '%s' is not an IPv4 address", text);
    address = ntohl(parsed.s_addr);
    if (address >> 24 == 127 || address >> 24 == 0 || address >> 28 >= 14)
        return error_set(err, ERROR_INVALID, "resolver '%s' cannot be reached by sandboxes", text);
    if (network_address_is_ours(address))
        return error_set(err, ERROR_INVALID, "resolver '%s' lies in the sandboxes' range", text);
    *out = address;
    return 0;
}

/* The rest of what is blocked is nobody's business: the host's own, link-local (where clouds have their metadata), multicast. */
int network_private_check(const char *text, struct error *err)
{
    static const struct box_range ranges[] = {
        {0x0a000000, 8}, {0x64400000, 10}, {0xac100000, 12}, {0xc0a80000, 16}, {0xc6120000, 15}};
    struct str rest = str_of(text), head = str_split(&rest, '/');
    char address[INET_ADDRSTRLEN];
    uint64_t prefix = 32;
    struct in_addr parsed;

    if (!str_copy(head, address, sizeof(address)) || inet_pton(AF_INET, address, &parsed) != 1 ||
        (rest.p && (!str_to_u64(rest, &prefix) || prefix > 32)))
        return error_set(err, ERROR_INVALID, "'%.64s' is not a range of IPv4 addresses", text);
    for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++)
        if (prefix >= ranges[i].prefix && box_range_has(&ranges[i], ntohl(parsed.s_addr)))
            return 0;
    return error_set(
        err, ERROR_INVALID,
        "'%.64s' is not within 10.0.0.0/8, 100.64.0.0/10, 172.16.0.0/12, 192.168.0.0/16 or "
        "198.18.0.0/15: only those can be allowed",
        text);
}

/* Addresses of boxes, which come from their slots, and of resolvers. */
#include <arpa/inet.h>
#include <stdio.h>

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
    if (network_address_overlap(address, 32, NETWORK_SANDBOXES, NETWORK_SANDBOXES_PREFIX))
        return error_set(err, ERROR_INVALID, "resolver '%s' lies in the sandboxes' range", text);
    *out = address;
    return 0;
}

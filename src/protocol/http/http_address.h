/* Which addresses are somebody else's on the public internet. For URLs that a stranger gave us: a check of
 * the name would not do, since names lead where their owner likes. */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>

/* False for this host, private, shared, link-local (cloud metadata included), multicast and reserved
 * ranges, also when they are wrapped into IPv6; and for all that is not IP. */
bool http_address_public(const struct sockaddr *address);
/* The address by which a host speaks to itself. */
bool http_address_loopback(const struct sockaddr *address);

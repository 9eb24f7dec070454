/* Plain HTTP from elsewhere is sent to HTTPS. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct http_exchange;

/* True when it was answered with the way to go. Who is on this host (a proxy that ends TLS itself, the command
 * line) is served as it is. */
bool redirect_handle(struct http_exchange *ex, uint16_t tls_port);

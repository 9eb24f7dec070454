/* One TLS connection, used like a non-blocking socket. */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "protocol/http/http_call.h"

struct cli_url;

/* Connects, checks the server's certificate against the system's authorities (or $SSL_CERT_FILE).
 * *out_fd: to wait on; it stays the connection's. */
int cli_tls_open(const struct cli_url *url, uint32_t timeout_ms, struct http_carrier **out,
                 int *out_fd, struct error *err);

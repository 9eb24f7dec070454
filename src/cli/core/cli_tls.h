/* One TLS connection, used like a non-blocking socket. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct cli_tls;
struct cli_url;

/* Connects, checks the server's certificate against the system's authorities (or $SSL_CERT_FILE).
 * *out_fd: to wait on; it stays the connection's. */
int cli_tls_open(const struct cli_url *url, uint32_t timeout_ms, struct cli_tls **out, int *out_fd,
                 struct error *err);
/* As send() and recv(): -1 with errno, EAGAIN when it has to be waited for. Bytes may be left inside
 * although the descriptor is not readable: receive until EAGAIN before waiting. */
ssize_t cli_tls_send(struct cli_tls *tls, const void *p, size_t len);
ssize_t cli_tls_recv(struct cli_tls *tls, void *p, size_t len);
void cli_tls_close(struct cli_tls *tls); /* NULL is fine */

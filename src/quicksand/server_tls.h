/* TLS in the server: the certificates that the warden hands over, now and whenever it is asked to. */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "quicksand/config.h"

enum { SERVER_DOMAIN_SIZE = CONFIG_TEXT_SIZE + 8, SERVER_HSTS_SIZE = 32 };

struct server_tls;
struct stream_filter;

/* Takes the warden's channel, which has the first certificates. */
int server_tls_open(int channel_consume, struct server_tls **out, struct error *err);
/* A filter for one connection: http_server_config.filter. */
struct stream_filter *server_tls_filter(struct server_tls *tls);
/* The domain as clients need it, with the port of HTTPS unless that is 443, and the header Strict-Transport-Security
 * ("" = send none). What is not needed stays as it was. */
void server_tls_words(const struct config *config, uint16_t port, char domain[SERVER_DOMAIN_SIZE],
                      char hsts[SERVER_HSTS_SIZE]);
/* After the last connection. */
void server_tls_close(struct server_tls *tls);

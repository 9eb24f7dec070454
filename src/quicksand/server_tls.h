/* TLS in the server: the certificates that the warden hands over, now and whenever it is asked to. */
#pragma once

#include "base/error.h"

struct server_tls;
struct stream_filter;

/* Takes the warden's channel, which has the first certificates. */
int server_tls_open(int channel_consume, struct server_tls **out, struct error *err);
/* A filter for one connection: http_server_config.filter. */
struct stream_filter *server_tls_filter(struct server_tls *tls);
/* After the last connection. */
void server_tls_close(struct server_tls *tls);

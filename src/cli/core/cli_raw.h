/* The bare connection to a port of a sandbox, and what is passed through it. */
#pragma once

#include "cli/core/cli_client.h"

/* Connected when it returns 0. http_call_done() is due in any case. udp: what passes are datagrams, two bytes of length in
 * front of each. */
int cli_raw_open(const struct cli_server *server, const struct cli_sandbox *sandbox, uint16_t port,
                 bool udp, struct http_call *stream, struct error *err);
/* Passes bytes on, both ways, until both have ended. in and out may be the same; they are non-blocking from here
 * on. */
int cli_raw_pump(struct http_call *stream, int in, int out, struct error *err);

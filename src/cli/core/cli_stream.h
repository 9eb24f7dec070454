/* A request to the server, plain or over TLS: one per connection. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "protocol/http/http_call.h"

struct cli_url {
    char host[256]; /* without brackets */
    uint16_t port;
    bool tls;
};

/* "http://host[:port][/]", or https. */
int cli_url_parse(const char *text, struct cli_url *out, struct error *err);

/* Connects and sends the head. timeout_ms: for each wait, 0 = none. http_call_done() is due also after
 * a failure. */
int cli_stream_open(struct http_call *stream, const struct cli_url *url,
                    const struct http_call_request *request, uint32_t timeout_ms, size_t max,
                    struct error *err);

/* One blocking request with a deadline, for workers and the command line. */
#pragma once

#include "base/buf.h"
#include "base/error.h"
#include "protocol/http/http.h"

struct http_call {
    /* where: exactly one */
    const char *unix_path;
    const char *host; /* name or address, with `port` */
    uint16_t port;
    int fd; /* a connected socket to use and keep open (keep-alive), when >= 0 with neither above */
    /* what */
    const char *method;
    const char *target;
    const struct http_header *headers; /* Host and Content-Length are added */
    size_t header_count;
    struct str body;
    uint32_t timeout_ms; /* for the whole call */
    size_t response_max;
};

/* On success *out_status is set and the (de-chunked) body is in out_body (which the caller inits).
 * Failures to connect are ERROR_UNAVAILABLE, deadline ERROR_TIMEOUT. */
int http_call(const struct http_call *call, int *out_status, struct buf *out_body,
              struct error *err);

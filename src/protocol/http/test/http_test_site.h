/* For tests of what answers HTTP: a server on 127.0.0.1 with a thread of its own, and a client that
 * sends bytes as they are. Each test runs in a process of its own, so nothing is taken down. */
#pragma once

#include "base/buf.h"
#include "protocol/http/http_server.h"

struct http_site {
    struct loop *loop;
    struct http_server *server;
    uint16_t port;
};

void http_site_start(struct http_site *site,
                     void (*on_request)(struct http_exchange *ex, void *arg), void *arg);
/* The same with another limit for the time between two parts of a body. */
void http_site_start_with(struct http_site *site,
                          void (*on_request)(struct http_exchange *ex, void *arg), void *arg,
                          uint32_t body_timeout_ms);
/* A connection on which the request was sent. */
int http_site_ask(const struct http_site *site, const char *request);
void http_site_read_all(int fd, struct buf *out);
/* All of the answer: begins with `begins` and has `has` in it (NULL = anything). */
void http_site_check(const struct http_site *site, const char *request, const char *begins,
                     const char *has);

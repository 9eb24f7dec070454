/* For tests: the runtime's API over real sockets, on a domain of its own (v1_fake.h). */
#pragma once

#include "base/buf.h"
#include "edge/api_runtime/test/v1_fake.h"
#include "edge/api_runtime/v1.h"
#include "protocol/http/test/http_test_site.h"
#include "protocol/loop/workers.h"

#define KEY   "X-API-KEY: " V1_FAKE_KEY "\r\n"
#define CLOSE "Host: x\r\nConnection: close\r\n"
#define ONE   "/api/v1/sandboxes/" V1_FAKE_ID

struct site {
    struct http_site http;
    struct workers *workers;
    struct v1 *v1;
    struct loop_errand drain_errand;
    _Atomic bool idle;
};

/* Each test runs in a process of its own, so nothing is taken down. */
void site_start(struct site *site, size_t threads, size_t queue_max);
/* Sends; the answer is to be read. */
int site_ask(const struct site *site, const char *request);
/* Reads until the text is there (or the peer closes, which fails). */
void site_read_until(int fd, struct buf *out, const char *text);

/* A request about the one sandbox; the socket that its answer comes on. */
int site_post(const struct site *site, const char *what, const char *accept, const char *body);
/* The answer has all of these texts, NULL-terminated. */
void site_check(int fd_consume, const char *const *has);

/* For tests: the runtime's API over real sockets, on a domain of its own (v1_fake.h). */
#pragma once

#include <pthread.h>

#include "api_v1/v1.h"
#include "api_v1/v1_fake.h"
#include "base/buf.h"
#include "http/http_server.h"
#include "loop/workers.h"

#define KEY   "X-API-KEY: " V1_FAKE_KEY "\r\n"
#define CLOSE "Host: x\r\nConnection: close\r\n"
#define ONE   "/api/v1/sandboxes/" V1_FAKE_ID

struct site {
    struct loop *loop;
    struct workers *workers;
    struct http_server *server;
    struct v1 *v1;
    uint16_t port;
    pthread_t thread;
    struct loop_job drain_job;
    _Atomic bool idle;
};

/* Each test runs in a process of its own, so nothing is taken down. */
void site_start(struct site *site, size_t threads, size_t queue_max);
int site_dial(const struct site *site);
/* Sends; the answer is to be read. */
int site_ask(const struct site *site, const char *request);
/* Reads until the text is there (or the peer closes, which fails). */
void site_read_until(int fd, struct buf *out, const char *text);
void site_read_all(int fd, struct buf *out);

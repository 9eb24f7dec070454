/* The way through the server, the workers and back, over a real socket. */
#include <time.h>

#include "api/api.h"
#include "api/api_fake.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/test.h"
#include "http/http_limits.h"
#include "http/http_test_site.h"
#include "loop/workers.h"

#define KEY "X-API-KEY: " API_FAKE_KEY "\r\n"

struct site {
    struct http_site http;
    struct workers *workers;
    struct http_limits *limits;
};

static void on_request(struct http_exchange *ex, void *arg)
{
    api_handle(arg, ex);
}

static void site_start(struct site *site, size_t threads, size_t queue_max)
{
    struct api_config config = {0};

    log_set_level(LOG_WARN);
    site->workers = workers_new(threads, queue_max);
    site->limits = http_limits_new(&(struct http_limits_config){.body_bytes = 4 * 1024 * 1024});
    config.limits = site->limits;
    for (size_t i = 0; i < API_LANE_COUNT; i++)
        config.lanes[i].workers = site->workers;
    http_site_start(&site->http, on_request, api_new(&config));
}

#define CLOSE "Host: x\r\nConnection: close\r\n"

TEST(over_http)
{
    struct site site;

    site_start(&site, 2, 10);
    http_site_check(&site.http, "GET /health HTTP/1.1\r\n" CLOSE "\r\n", "HTTP/1.1 200 ",
                    "Health check successful");
    http_site_check(&site.http, "GET /nowhere HTTP/1.1\r\n" CLOSE "\r\n", "HTTP/1.1 404 ",
                    "\"code\":404");
    http_site_check(&site.http, "GET /sandboxes HTTP/1.1\r\n" CLOSE "\r\n", "HTTP/1.1 401 ",
                    "\"code\":401");
    http_site_check(&site.http, "GET /sandboxes HTTP/1.1\r\nX-API-KEY: no\r\n" CLOSE "\r\n",
                    "HTTP/1.1 401 ", "Invalid API key");
    http_site_check(&site.http, "PATCH /sandboxes HTTP/1.1\r\n" CLOSE "\r\n", "HTTP/1.1 405 ",
                    "Allow: POST, GET, HEAD, OPTIONS\r\n");
    http_site_check(&site.http, "OPTIONS /sandboxes HTTP/1.1\r\n" CLOSE "\r\n", "HTTP/1.1 204 ",
                    "Access-Control-Allow-Origin: *\r\n");
    http_site_check(&site.http, "GET /v2/sandboxes HTTP/1.1\r\n" KEY CLOSE "\r\n", "HTTP/1.1 200 ",
                    "X-Total-Running: 0\r\n");
    http_site_check(&site.http, "HEAD /v2/sandboxes HTTP/1.1\r\n" KEY CLOSE "\r\n", "HTTP/1.1 200 ",
                    "\r\n\r\n");
    CHECK_INT(api_fake.creates, 0);
    http_site_check(&site.http,
                    "POST /sandboxes HTTP/1.1\r\n" KEY CLOSE "Transfer-Encoding: chunked\r\n\r\n"
                    "7\r\n{\"templ\r\ne\r\nateID\":\"base\"}\r\n0\r\n\r\n",
                    "HTTP/1.1 201 ", "\"sandboxID\":\"i0000000000000000000\"");
    CHECK_INT(api_fake.creates, 1);
    http_site_check(&site.http,
                    "DELETE /sandboxes/i0000000000000000000 HTTP/1.1\r\n" KEY CLOSE "\r\n",
                    "HTTP/1.1 204 ", NULL);
    http_site_check(&site.http,
                    "POST /sandboxes/i0000000000000000000/timeout HTTP/1.1\r\n" KEY CLOSE
                    "Content-Length: 1000000\r\n\r\n",
                    "HTTP/1.1 413 ", "\"code\":413");
}

TEST(a_full_queue_is_503)
{
    static const char create[] =
        "POST /sandboxes HTTP/1.1\r\n" KEY CLOSE "Content-Length: 18\r\n\r\n{\"templateID\":\"a\"}";
    auto_close int one = -1, two = -1;
    struct site site;

    api_fake.delay_ms = 900;
    site_start(&site, 1, 1);
    one = http_site_ask(&site.http, create);
    (void)nanosleep(&(struct timespec){.tv_nsec = 200 * 1000000}, NULL);
    two = http_site_ask(&site.http, create);
    (void)nanosleep(&(struct timespec){.tv_nsec = 200 * 1000000}, NULL);
    http_site_check(&site.http, create, "HTTP/1.1 503 ", "Retry-After: 1\r\n");
}

TEST(an_operation_finishes_without_its_client)
{
    static const char create[] = "POST /sandboxes HTTP/1.1\r\nHost: x\r\n" KEY
                                 "Content-Length: 18\r\n\r\n{\"templateID\":\"a\"}";
    struct site site;
    int fd;

    api_fake.delay_ms = 300;
    site_start(&site, 1, 4);
    fd = http_site_ask(&site.http, create);
    (void)nanosleep(&(struct timespec){.tv_nsec = 100 * 1000000}, NULL);
    (void)close(fd);
    for (int i = 0; i < 100 && __atomic_load_n(&api_fake.creates, __ATOMIC_SEQ_CST) == 0; i++)
        (void)nanosleep(&(struct timespec){.tv_nsec = 20 * 1000000}, NULL);
    CHECK_INT(__atomic_load_n(&api_fake.creates, __ATOMIC_SEQ_CST), 1);
    http_site_check(&site.http, "GET /health HTTP/1.1\r\n" CLOSE "\r\n", "HTTP/1.1 200 ", NULL);
    /* A request cut inside its body. */
    fd = http_site_ask(&site.http, "POST /sandboxes HTTP/1.1\r\nHost: x\r\n" KEY
                                   "Content-Length: 18\r\n\r\n{\"templateID\"");
    (void)nanosleep(&(struct timespec){.tv_nsec = 50 * 1000000}, NULL);
    (void)close(fd);
    http_site_check(&site.http, "GET /v2/sandboxes HTTP/1.1\r\n" KEY CLOSE "\r\n", "HTTP/1.1 200 ",
                    "X-Total-Running: 1\r\n");
}

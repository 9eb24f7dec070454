/* The way through the server, the workers and back, over a real socket. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>

#include "api/api.h"
#include "api/api_fake.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/test.h"
#include "http/http_server.h"
#include "loop/workers.h"

#define KEY "X-API-KEY: " API_FAKE_KEY "\r\n"

struct site {
    struct loop *loop;
    struct workers *workers;
    struct http_server *server;
    struct api *api;
    uint16_t port;
    pthread_t thread;
};

static void on_request(struct http_exchange *ex, void *arg)
{
    api_handle(arg, ex);
}

static void *serve(void *arg)
{
    loop_run(arg);
    return NULL;
}

/* Each test runs in a process of its own, so nothing is taken down. */
static void site_start(struct site *site, size_t threads, size_t queue_max)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    log_set_level(LOG_WARN);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0 && listen(fd, 64) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&address, &size) == 0);
    site->port = ntohs(address.sin_port);
    site->loop = loop_new();
    site->workers = workers_new(threads, queue_max);
    site->api = api_new(&(struct api_config){.workers = site->workers});
    site->server = http_server_new(site->loop, &(struct http_server_config){
                                                   .on_request = on_request,
                                                   .arg = site->api,
                                                   .max_connections = 100,
                                                   .head_timeout_ms = 5000,
                                                   .idle_timeout_ms = 5000,
                                                   .body_timeout_ms = 5000,
                                                   .write_timeout_ms = 5000,
                                               });
    CHECK_INT(http_server_listen(site->server, fd), 0);
    CHECK_INT(pthread_create(&site->thread, NULL, serve, site->loop), 0);
}

static int dial(const struct site *site)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons(site->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    return fd;
}

/* Sends bytes, reads until the server closes. */
static void talk(const struct site *site, const char *request, struct buf *out)
{
    auto_close int fd = dial(site);

    buf_init(out, 1024 * 1024);
    CHECK_INT(fd_write_full(fd, request, strlen(request)), 0);
    for (;;) {
        char *to = buf_reserve(out, 4096);
        ssize_t n = read(fd, to, 4096);

        if (n <= 0)
            break;
        buf_grew(out, (size_t)n);
    }
}

static void check_talk(const struct site *site, const char *request, const char *begins,
                       const char *has)
{
    auto_buf struct buf answer = {0};

    talk(site, request, &answer);
    if (!str_starts(buf_str(&answer), str_of(begins)) ||
        (has && str_find_str(buf_str(&answer), str_of(has)) < 0))
        test_fail(__FILE__, __LINE__, "'%s' and '%s' are not in '%s'", begins, has ? has : "",
                  answer.p ? answer.p : "");
}

#define CLOSE "Host: x\r\nConnection: close\r\n"

TEST(over_http)
{
    struct site site;

    site_start(&site, 2, 10);
    check_talk(&site, "GET /health HTTP/1.1\r\n" CLOSE "\r\n", "HTTP/1.1 200 ",
               "Health check successful");
    check_talk(&site, "GET /nowhere HTTP/1.1\r\n" CLOSE "\r\n", "HTTP/1.1 404 ", "\"code\":404");
    check_talk(&site, "GET /sandboxes HTTP/1.1\r\n" CLOSE "\r\n", "HTTP/1.1 401 ", "\"code\":401");
    check_talk(&site, "GET /sandboxes HTTP/1.1\r\nX-API-KEY: no\r\n" CLOSE "\r\n", "HTTP/1.1 401 ",
               "Invalid API key");
    check_talk(&site, "PATCH /sandboxes HTTP/1.1\r\n" CLOSE "\r\n", "HTTP/1.1 405 ",
               "Allow: POST, GET, HEAD, OPTIONS\r\n");
    check_talk(&site, "OPTIONS /sandboxes HTTP/1.1\r\n" CLOSE "\r\n", "HTTP/1.1 204 ",
               "Access-Control-Allow-Origin: *\r\n");
    check_talk(&site, "GET /v2/sandboxes HTTP/1.1\r\n" KEY CLOSE "\r\n", "HTTP/1.1 200 ",
               "X-Total-Running: 0\r\n");
    check_talk(&site, "HEAD /v2/sandboxes HTTP/1.1\r\n" KEY CLOSE "\r\n", "HTTP/1.1 200 ",
               "\r\n\r\n");
    CHECK_INT(api_fake.creates, 0);
    check_talk(&site,
               "POST /sandboxes HTTP/1.1\r\n" KEY CLOSE "Transfer-Encoding: chunked\r\n\r\n"
               "7\r\n{\"templ\r\ne\r\nateID\":\"base\"}\r\n0\r\n\r\n",
               "HTTP/1.1 201 ", "\"sandboxID\":\"i0000000000000000000\"");
    CHECK_INT(api_fake.creates, 1);
    check_talk(&site, "DELETE /sandboxes/i0000000000000000000 HTTP/1.1\r\n" KEY CLOSE "\r\n",
               "HTTP/1.1 204 ", NULL);
    check_talk(&site,
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
    one = dial(&site);
    CHECK_INT(fd_write_full(one, create, sizeof(create) - 1), 0);
    (void)nanosleep(&(struct timespec){.tv_nsec = 200 * 1000000}, NULL);
    two = dial(&site);
    CHECK_INT(fd_write_full(two, create, sizeof(create) - 1), 0);
    (void)nanosleep(&(struct timespec){.tv_nsec = 200 * 1000000}, NULL);
    check_talk(&site, create, "HTTP/1.1 503 ", "Retry-After: 1\r\n");
}

TEST(an_operation_finishes_without_its_client)
{
    static const char create[] = "POST /sandboxes HTTP/1.1\r\nHost: x\r\n" KEY
                                 "Content-Length: 18\r\n\r\n{\"templateID\":\"a\"}";
    struct site site;
    int fd;

    api_fake.delay_ms = 300;
    site_start(&site, 1, 4);
    fd = dial(&site);
    CHECK_INT(fd_write_full(fd, create, sizeof(create) - 1), 0);
    (void)nanosleep(&(struct timespec){.tv_nsec = 100 * 1000000}, NULL);
    (void)close(fd);
    for (int i = 0; i < 100 && __atomic_load_n(&api_fake.creates, __ATOMIC_SEQ_CST) == 0; i++)
        (void)nanosleep(&(struct timespec){.tv_nsec = 20 * 1000000}, NULL);
    CHECK_INT(__atomic_load_n(&api_fake.creates, __ATOMIC_SEQ_CST), 1);
    check_talk(&site, "GET /health HTTP/1.1\r\n" CLOSE "\r\n", "HTTP/1.1 200 ", NULL);
    /* A request cut inside its body. */
    fd = dial(&site);
    CHECK_INT(fd_write_full(fd, create, sizeof(create) - 5), 0);
    (void)nanosleep(&(struct timespec){.tv_nsec = 50 * 1000000}, NULL);
    (void)close(fd);
    check_talk(&site, "GET /v2/sandboxes HTTP/1.1\r\n" KEY CLOSE "\r\n", "HTTP/1.1 200 ",
               "X-Total-Running: 1\r\n");
}

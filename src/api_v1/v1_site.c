#include "api_v1/v1_site.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/test.h"

static void on_request(struct http_exchange *ex, void *arg)
{
    if (!v1_handle(arg, ex))
        http_reply(ex, 418, NULL, 0, STR("not ours"));
}

static void *serve(void *arg)
{
    loop_run(arg);
    return NULL;
}

void site_start(struct site *site, size_t threads, size_t queue_max)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    *site = (struct site){0};
    log_set_level(LOG_ERROR);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0 && listen(fd, 256) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&address, &size) == 0);
    site->port = ntohs(address.sin_port);
    site->loop = loop_new();
    site->workers = workers_new_elastic(threads, queue_max);
    site->v1 = v1_new(&(struct v1_config){.workers = site->workers, .heartbeat_ms = 100});
    site->server = http_server_new(site->loop, &(struct http_server_config){
                                                   .on_request = on_request,
                                                   .arg = site->v1,
                                                   .max_connections = 1000,
                                                   .head_timeout_ms = 5000,
                                                   .idle_timeout_ms = 5000,
                                                   .body_timeout_ms = 5000,
                                                   .write_timeout_ms = 5000,
                                               });
    CHECK_INT(http_server_listen(site->server, fd), 0);
    CHECK_INT(pthread_create(&site->thread, NULL, serve, site->loop), 0);
}

int site_dial(const struct site *site)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons(site->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    return fd;
}

int site_ask(const struct site *site, const char *request)
{
    int fd = site_dial(site);

    CHECK_INT(fd_write_full(fd, request, strlen(request)), 0);
    return fd;
}

void site_read_until(int fd, struct buf *out, const char *text)
{
    int64_t end = clock_mono_ms() + 10000;

    while (!out->p || !memmem(out->p, out->len, text, strlen(text))) {
        struct pollfd pfd = {.fd = fd, .events = POLLIN};
        char *to = buf_reserve(out, 65536);
        ssize_t n;

        if (poll(&pfd, 1, (int)(end - clock_mono_ms())) != 1)
            test_fail(__FILE__, __LINE__, "'%s' did not come, but '%s'", text,
                      out->p ? out->p : "");
        CHECK(to);
        n = read(fd, to, 65536);
        if (n <= 0)
            test_fail(__FILE__, __LINE__, "closed before '%s', after '%s'", text,
                      out->p ? out->p : "");
        buf_grew(out, (size_t)n);
        out->p[out->len] = '\0';
    }
}

void site_read_all(int fd, struct buf *out)
{
    for (;;) {
        char *to = buf_reserve(out, 65536);
        ssize_t n = read(fd, to, 65536);

        CHECK(to);
        if (n <= 0)
            break;
        buf_grew(out, (size_t)n);
    }
}

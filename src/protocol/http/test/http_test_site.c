#include "protocol/http/test/http_test_site.h"

#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/test.h"

static void *serve(void *arg)
{
    loop_run(arg);
    return NULL;
}

void http_site_start(struct http_site *site,
                     void (*on_request)(struct http_exchange *ex, void *arg), void *arg)
{
    http_site_start_with(site, on_request, arg, 5000);
}

void http_site_start_with(struct http_site *site,
                          void (*on_request)(struct http_exchange *ex, void *arg), void *arg,
                          uint32_t body_timeout_ms)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    pthread_t thread;

    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0 && listen(fd, 256) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&address, &size) == 0);
    site->port = ntohs(address.sin_port);
    site->loop = loop_new();
    site->server = http_server_new(site->loop, &(struct http_server_config){
                                                   .on_request = on_request,
                                                   .arg = arg,
                                                   .max_connections = 1000,
                                                   .head_timeout_ms = 5000,
                                                   .idle_timeout_ms = 5000,
                                                   .body_timeout_ms = body_timeout_ms,
                                                   .write_timeout_ms = 5000,
                                               });
    CHECK_INT(http_server_listen(site->server, fd), 0);
    CHECK_INT(pthread_create(&thread, NULL, serve, site->loop), 0);
}

int http_site_ask(const struct http_site *site, const char *request)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons(site->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    CHECK_INT(fd_write_full(fd, request, strlen(request)), 0);
    return fd;
}

void http_site_read_all(int fd, struct buf *out)
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

void http_site_check(const struct http_site *site, const char *request, const char *begins,
                     const char *has)
{
    auto_close int fd = http_site_ask(site, request);
    auto_buf struct buf answer = {0};

    buf_init(&answer, 4 * 1024 * 1024);
    http_site_read_all(fd, &answer);
    if (!str_starts(buf_str(&answer), str_of(begins)) ||
        (has && str_find_str(buf_str(&answer), str_of(has)) < 0))
        test_fail(__FILE__, __LINE__, "'%s' and '%s' are not in '%s'", begins, has ? has : "",
                  answer.p ? answer.p : "");
}

#include "edge/api_runtime/test/v1_site.h"

#include <poll.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/test.h"
#include "protocol/http/http_limits.h"

static void on_request(struct http_exchange *ex, void *arg)
{
    if (!v1_handle(arg, ex))
        http_reply(ex, 418, NULL, 0, STR("not ours"));
}

void site_start(struct site *site, size_t threads, size_t queue_max)
{
    *site = (struct site){0};
    log_set_level(LOG_ERROR);
    site->workers = workers_new_elastic(threads, queue_max);
    site->v1 = v1_new(&(struct v1_config){
        .lanes = {{site->workers, threads > 2 ? threads - 1 : 0},
                  {site->workers, threads > 2 ? threads - 1 : 0},
                  {site->workers, 0}},
        .limits = http_limits_new(&(struct http_limits_config){.body_bytes = 4 * 1024 * 1024}),
        .file_directory = "/tmp",
        .heartbeat_ms = 100});
    http_site_start(&site->http, on_request, site->v1);
}

int site_ask(const struct site *site, const char *request)
{
    return http_site_ask(&site->http, request);
}

enum { PIECE = 32768 }; /* half of what tests keep room for: an answer may come in pieces */

void site_read_until(int fd, struct buf *out, const char *text)
{
    int64_t end = clock_mono_ms() + 10000 * test_patience();

    while (!out->p || !memmem(out->p, out->len, text, strlen(text))) {
        struct pollfd pfd = {.fd = fd, .events = POLLIN};
        char *to = buf_reserve(out, PIECE);
        ssize_t n;

        if (poll(&pfd, 1, (int)(end - clock_mono_ms())) != 1)
            test_fail(__FILE__, __LINE__, "'%s' did not come, but '%s'", text,
                      out->p ? out->p : "");
        CHECK(to);
        n = read(fd, to, PIECE);
        if (n <= 0)
            test_fail(__FILE__, __LINE__, "closed before '%s', after '%s'", text,
                      out->p ? out->p : "");
        buf_grew(out, (size_t)n);
        out->p[out->len] = '\0';
    }
}

int site_post(const struct site *site, const char *what, const char *accept, const char *body)
{
    char request[1024];

    (void)snprintf(request, sizeof(request),
                   "POST " ONE "/%s HTTP/1.1\r\n" KEY CLOSE
                   "Accept: %s\r\nContent-Length: %zu\r\n\r\n%s",
                   what, accept, strlen(body), body);
    return site_ask(site, request);
}

void site_check(int fd_consume, const char *const *has)
{
    auto_close int fd = fd_consume;
    auto_buf struct buf answer = {0};

    buf_init(&answer, 1 << 20);
    http_site_read_all(fd, &answer);
    for (; *has; has++)
        if (str_find_str(buf_str(&answer), str_of(*has)) < 0)
            test_fail(__FILE__, __LINE__, "no '%s' in '%.*s'", *has, STR_ARG(buf_str(&answer)));
}

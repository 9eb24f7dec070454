/* Commands whose output is told as it comes, over real sockets. */
#include <unistd.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "base/test.h"
#include "edge/api_runtime/test/v1_site.h"

static int ask_for(const struct site *site, const char *what, const char *accept, const char *body)
{
    char request[1024];

    (void)snprintf(request, sizeof(request),
                   "POST " ONE "/%s HTTP/1.1\r\n" KEY CLOSE
                   "Accept: %s\r\nContent-Length: %zu\r\n\r\n%s",
                   what, accept, strlen(body), body);
    return site_ask(site, request);
}

static int ask_execute(const struct site *site, const char *accept, const char *body)
{
    return ask_for(site, "execute", accept, body);
}

static void check_answer(int fd_consume, const char *const *has)
{
    auto_close int fd = fd_consume;
    auto_buf struct buf answer = {0};

    buf_init(&answer, 1 << 20);
    http_site_read_all(fd, &answer);
    for (; *has; has++)
        if (str_find_str(buf_str(&answer), str_of(*has)) < 0)
            test_fail(__FILE__, __LINE__, "no '%s' in '%.*s'", *has, STR_ARG(buf_str(&answer)));
}

static void check_execute(const struct site *site, const char *accept, const char *body,
                          const char *const *has)
{
    check_answer(ask_execute(site, accept, body), has);
}

#define STREAM "{\"command\":\"x\",\"stream\":true}"

TEST(v1_execute_streams)
{
    struct site site;

    site_start(&site, 4, 100);
    /* As lines of text; a character whose bytes come one by one is whole. */
    check_execute(&site, "*/*", STREAM,
                  (const char *const[]){
                      "HTTP/1.1 200 OK", "Content-Type: application/x-ndjson",
                      "{\"process_id\":\"exe_1\",\"type\":\"started\"}\n",
                      "{\"type\":\"stdout\",\"data\":\"one\"}\n",
                      "{\"type\":\"stdout\",\"data\":\"\xc3\xa9\"}\n",
                      "\"exit_code\":3,\"duration_ms\":7,\"timed_out\":false,\"truncated\":false",
                      NULL});
    /* As events, in bytes. */
    check_execute(&site, "text/event-stream", "{\"command\":\"x\",\"encoding\":\"base64\"}",
                  (const char *const[]){
                      "Content-Type: text/event-stream",
                      "event: stderr\ndata: {\"type\":\"stderr\",\"data\":\"Zf8=\"}\n\n",
                      "event: stdout\ndata: {\"type\":\"stdout\",\"data\":\"b25lww==\"}\n\n",
                      "event: exit\n", NULL});
    check_execute(&site, "application/x-ndjson", "{\"command\":\"x\",\"output_limit\":2}",
                  (const char *const[]){"\"data\":\"on\"}", "\"truncated\":true", NULL});
    check_execute(&site, "text/event-stream", "{\"command\":\"x\",\"stream\":false}",
                  (const char *const[]){"\"stdout\":\"out", NULL});
    /* What keeps it from running is an ordinary answer. */
    v1_fake.fail = (struct error){.code = ERROR_CONFLICT, .message = "no"};
    check_execute(&site, "*/*", STREAM,
                  (const char *const[]){"HTTP/1.1 409", "\"code\":\"conflict\"", NULL});
}

TEST(v1_code_whole_and_streamed)
{
    struct site site;

    site_start(&site, 4, 100);
    check_answer(ask_for(&site, "code", "*/*", "{\"code\":\"1\"}"),
                 (const char *const[]){"HTTP/1.1 200 OK", "{\"execution_count\":4}", NULL});
    check_answer(ask_for(&site, "code", "*/*", "{\"code\":\"1\",\"stream\":true}"),
                 (const char *const[]){"Content-Type: application/x-ndjson",
                                       "{\"type\":\"stdout\",\"text\":\"x\"}\n",
                                       "{\"execution_count\":4,\"type\":\"exit\"}\n", NULL});
    check_answer(ask_for(&site, "code", "text/event-stream", "{\"code\":\"1\"}"),
                 (const char *const[]){"Content-Type: text/event-stream",
                                       "data: {\"type\":\"stdout\",\"text\":\"x\"}\n\n", NULL});
    check_answer(ask_for(&site, "code", "*/*", "{}"),
                 (const char *const[]){"HTTP/1.1 400", "'code' is needed", NULL});
    check_answer(
        ask_for(&site, "code", "*/*", "{\"code\":\"1\",\"language\":\"js\",\"context_id\":\"x\"}"),
        (const char *const[]){"HTTP/1.1 400", "either", NULL});
    v1_fake.fail = (struct error){.code = ERROR_UNSUPPORTED, .message = "none here"};
    check_answer(ask_for(&site, "code", "*/*", "{\"code\":\"1\",\"stream\":true}"),
                 (const char *const[]){"HTTP/1.1 409", "none here", NULL});
}

static void wait_stopped(void)
{
    WAIT_FOR(v1_fake.stopped == 1);
}

static void stop_site(struct loop_errand *job)
{
    struct site *site = container_of(job, struct site, drain_errand);

    v1_drain(site->v1, site->http.loop);
}

TEST(v1_execute_stream_whose_client_goes)
{
    auto_buf struct buf answer = {0};
    struct site site;
    int fd;

    buf_init(&answer, 1 << 20);
    v1_fake.hangs = true;
    site_start(&site, 4, 100);
    fd = ask_execute(&site, "*/*", STREAM);
    site_read_until(fd, &answer, "\xc3\xa9");
    (void)close(fd);
    wait_stopped();
}

/* Until all buffers on the way to the client are full. */
static void wait_stream_stalls(void)
{
    size_t before;

    do {
        before = v1_fake.taken;
        (void)usleep(50000);
    } while (before == 0 || before != v1_fake.taken);
    CHECK(before < v1_fake.output_size);
}

/* Not a byte is read, then the client goes: the worker must not wait for ever. */
TEST(v1_execute_stream_nobody_reads)
{
    auto_buf struct buf answer = {0};
    struct site site;
    int fd;

    buf_init(&answer, 1 << 20);
    v1_fake.output_size = (size_t)100 << 20;
    site_start(&site, 4, 100);
    fd = ask_execute(&site, "*/*", STREAM);
    site_read_until(fd, &answer, "started");
    wait_stream_stalls();
    (void)close(fd);
    wait_stopped();
}

TEST(v1_execute_stream_when_the_server_stops)
{
    auto_buf struct buf answer = {0};
    struct site site;
    int fd;

    buf_init(&answer, 1 << 20);
    v1_fake.hangs = true;
    site_start(&site, 4, 100);
    fd = ask_execute(&site, "*/*", STREAM);
    site_read_until(fd, &answer, "\xc3\xa9");
    site.drain_errand.fn = stop_site;
    loop_post(site.http.loop, &site.drain_errand);
    site_read_until(fd, &answer, "{\"type\":\"error\",\"error\":{\"code\":\"unavailable\"");
    http_site_read_all(fd, &answer);
    wait_stopped();
    (void)close(fd);
}

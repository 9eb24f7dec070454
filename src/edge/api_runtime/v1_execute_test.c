/* Commands whose output is told as it comes, over real sockets. */
#include <unistd.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "base/test.h"
#include "edge/api_runtime/test/v1_site.h"

static int ask_execute(const struct site *site, const char *accept, const char *body)
{
    return site_post(site, "execute", accept, body);
}

static void check_execute(const struct site *site, const char *accept, const char *body,
                          const char *const *has)
{
    site_check(ask_execute(site, accept, body), has);
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

/* The way through the server, the workers and back, over real sockets. */
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/log.h"
#include "base/test.h"
#include "edge/api_runtime/test/v1_site.h"
#include "protocol/http/test/http_test_site.h"
#include "protocol/loop/workers.h"
#include "protocol/websocket/websocket.h"

TEST(v1_over_http)
{
    struct site site;

    site_start(&site, 4, 10);
    http_site_check(&site.http, "GET /sandboxes HTTP/1.1\r\n" CLOSE "\r\n", "HTTP/1.1 418 ", NULL);
    http_site_check(&site.http, "GET /api/v10 HTTP/1.1\r\n" CLOSE "\r\n", "HTTP/1.1 418 ", NULL);
    http_site_check(&site.http, "GET /api/v1/health HTTP/1.1\r\n" CLOSE "\r\n", "HTTP/1.1 200 ",
                    "\"status\":\"ok\"");
    http_site_check(&site.http, "GET /api/v1/openapi.json HTTP/1.1\r\n" CLOSE "\r\n",
                    "HTTP/1.1 200 ", "/sandboxes/{id}/execute");
    http_site_check(&site.http, "GET /api/v1/no HTTP/1.1\r\n" CLOSE "\r\n", "HTTP/1.1 404 ",
                    "\"code\":\"not_found\"");
    http_site_check(&site.http, "GET /api/v1/sandboxes HTTP/1.1\r\n" CLOSE "\r\n", "HTTP/1.1 401 ",
                    "WWW-Authenticate: Bearer");
    http_site_check(&site.http, "GET /api/v1/sandboxes HTTP/1.1\r\nX-API-KEY: no\r\n" CLOSE "\r\n",
                    "HTTP/1.1 401 ", "\"code\":\"unauthorized\"");
    http_site_check(&site.http,
                    "GET /api/v1/sandboxes HTTP/1.1\r\nAuthorization: Bearer " V1_FAKE_KEY
                    "\r\n" CLOSE "\r\n",
                    "HTTP/1.1 200 ", V1_FAKE_ID);
    http_site_check(&site.http,
                    "GET /api/v1/sandboxes?access_token=" V1_FAKE_KEY " HTTP/1.1\r\n" CLOSE "\r\n",
                    "HTTP/1.1 200 ", V1_FAKE_ID);
    http_site_check(&site.http, "PATCH /api/v1/sandboxes HTTP/1.1\r\n" CLOSE "\r\n",
                    "HTTP/1.1 405 ", "Allow: POST, GET");
    http_site_check(&site.http, "OPTIONS /api/v1/sandboxes HTTP/1.1\r\n" CLOSE "\r\n",
                    "HTTP/1.1 204 ", "X-Agent-ID");
    http_site_check(&site.http,
                    "POST /api/v1/sandboxes HTTP/1.1\r\n" KEY CLOSE "Content-Length: 2\r\n\r\n[]",
                    "HTTP/1.1 400 ", "must be a JSON object");
    http_site_check(&site.http,
                    "POST /api/v1/sandboxes HTTP/1.1\r\n" KEY CLOSE "Content-Length: 1\r\n\r\n{",
                    "HTTP/1.1 400 ", "\"code\":\"invalid\"");
    http_site_check(&site.http,
                    "POST /api/v1/sandboxes HTTP/1.1\r\n" KEY CLOSE
                    "Content-Length: 9999999\r\n\r\n",
                    "HTTP/1.1 413 ", "\"code\":\"too_large\"");
    http_site_check(&site.http, "DELETE " ONE " HTTP/1.1\r\n" KEY CLOSE "\r\n", "HTTP/1.1 204 ",
                    NULL);
    http_site_check(&site.http, "GET " ONE " HTTP/1.1\r\n" KEY CLOSE "X-Agent-ID: a2\r\n\r\n",
                    "HTTP/1.1 403 ", "\"code\":\"forbidden\"");
    http_site_check(&site.http, "GET " ONE "?agent_id=a1 HTTP/1.1\r\n" KEY CLOSE "\r\n",
                    "HTTP/1.1 200 ", V1_FAKE_ID);
}

TEST(v1_pages)
{
    struct site site;

    site_start(&site, 4, 10);
    http_site_check(&site.http, "GET /ui HTTP/1.1\r\n" CLOSE "\r\n", "HTTP/1.1 308 ",
                    "Location: /\r\n");
    http_site_check(&site.http, "GET /ui/terminal?sandbox=x HTTP/1.1\r\n" CLOSE "\r\n",
                    "HTTP/1.1 200 ",
                    "Content-Security-Policy: default-src 'none'; script-src 'self';");
    http_site_check(&site.http, "GET / HTTP/1.1\r\nAccept: text/html,*/*\r\n" CLOSE "\r\n",
                    "HTTP/1.1 200 ", "Content-Type: text/html");
    http_site_check(&site.http,
                    "GET / HTTP/1.1\r\nAccept: text/html\r\nAccept-Encoding: br, gzip\r\n" CLOSE
                    "\r\n",
                    "HTTP/1.1 200 ", "Content-Encoding: gzip");
    http_site_check(&site.http, "GET / HTTP/1.1\r\nAccept: text/html\r\n" CLOSE "\r\n",
                    "HTTP/1.1 200 ", "<div id=\"app\"></div>");
    http_site_check(
        &site.http,
        "GET / HTTP/1.1\r\nAccept: text/html\r\nCookie: a=b\r\nCookie: quicksand=x\r\n" CLOSE
        "\r\n",
        "HTTP/1.1 200 ", "<nav aria-label=\"Pages\">");
    http_site_check(&site.http, "GET /ui/no HTTP/1.1\r\n" CLOSE "\r\n", "HTTP/1.1 404 ", NULL);
    http_site_check(&site.http, "POST /ui/ HTTP/1.1\r\n" CLOSE "\r\n", "HTTP/1.1 405 ", NULL);
}

/* The page names its files by their content: they are kept for good, the page itself is asked for each time. */
TEST(v1_page_files)
{
    struct site site;
    auto_buf struct buf page = {0};
    auto_free char *script = NULL;
    auto_close int fd = -1;
    ptrdiff_t at;

    site_start(&site, 4, 10);
    http_site_check(&site.http, "GET / HTTP/1.1\r\nAccept: text/html\r\n" CLOSE "\r\n",
                    "HTTP/1.1 200 ", "Cache-Control: no-cache\r\n");
    fd = http_site_ask(&site.http, "GET / HTTP/1.1\r\nAccept: text/html\r\n" CLOSE "\r\n");
    buf_init(&page, 4 * 1024 * 1024);
    http_site_read_all(fd, &page);
    at = str_find_str(buf_str(&page), STR("src=\"/ui/app-"));
    CHECK(at >= 0);
    script = xasprintf("GET %.*s HTTP/1.1\r\n" CLOSE "\r\n", (int)strcspn(page.p + at + 5, "\""),
                       page.p + at + 5);
    http_site_check(&site.http, script, "HTTP/1.1 200 ", "Content-Type: text/javascript");
    http_site_check(&site.http, script, "HTTP/1.1 200 ",
                    "Cache-Control: public, max-age=31536000, immutable\r\n");
    http_site_check(&site.http, script, "HTTP/1.1 200 ", "ETag: \"");
}

#define SIGNIN "/api/v1/signin"
#define COOKIE "Cookie: other=1; quicksand=" V1_FAKE_KEY "\r\n"

/* A cookie counts where only our own pages can have asked. */
TEST(v1_cookie)
{
    struct site site;

    site_start(&site, 4, 10);
    http_site_check(&site.http, "POST " SIGNIN " HTTP/1.1\r\n" KEY CLOSE "\r\n", "HTTP/1.1 201 ",
                    "Set-Cookie: quicksand=qsb_fake; Path=/; Max-Age=604800; HttpOnly; "
                    "SameSite=Strict\r\n");
    http_site_check(&site.http,
                    "POST " SIGNIN " HTTP/1.1\r\nX-Forwarded-Proto: https\r\n" KEY CLOSE "\r\n",
                    "HTTP/1.1 201 ", "Set-Cookie: __Host-quicksand=qsb_fake; ");
    http_site_check(&site.http,
                    "POST " SIGNIN "/redeem HTTP/1.1\r\nX-Signin-Link: qsl_fake\r\n" CLOSE "\r\n",
                    "HTTP/1.1 201 ", "Set-Cookie: ");
    http_site_check(&site.http, "POST " SIGNIN "/redeem HTTP/1.1\r\n" CLOSE "\r\n", "HTTP/1.1 401 ",
                    "\"code\":\"unauthorized\"");
    http_site_check(&site.http, "GET " ONE " HTTP/1.1\r\n" COOKIE CLOSE "\r\n", "HTTP/1.1 401 ",
                    NULL);
    http_site_check(&site.http,
                    "GET " ONE " HTTP/1.1\r\nX-Quicksand-Page: 1\r\n" COOKIE CLOSE "\r\n",
                    "HTTP/1.1 200 ", V1_FAKE_ID);
    http_site_check(&site.http,
                    "GET " ONE " HTTP/1.1\r\nSec-Fetch-Site: same-origin\r\n" COOKIE CLOSE "\r\n",
                    "HTTP/1.1 200 ", V1_FAKE_ID);
    http_site_check(&site.http,
                    "GET " ONE
                    " HTTP/1.1\r\nX-Quicksand-Page: 1\r\nSec-Fetch-Site: same-site\r\n" COOKIE CLOSE
                    "\r\n",
                    "HTTP/1.1 401 ", NULL);
    http_site_check(&site.http,
                    "GET " ONE
                    " HTTP/1.1\r\nX-Quicksand-Page: 1\r\nX-Forwarded-Proto: https\r\n" COOKIE CLOSE
                    "\r\n",
                    "HTTP/1.1 401 ", NULL);
    http_site_check(&site.http,
                    "DELETE " ONE " HTTP/1.1\r\nSec-Fetch-Site: same-origin\r\n" COOKIE CLOSE
                    "\r\n",
                    "HTTP/1.1 401 ", NULL);
}

TEST(v1_busy)
{
    auto_close int first = -1, second = -1;
    struct site site;

    v1_fake.delay_ms = 60000;
    site_start(&site, 1, 1);
    first = site_ask(&site, "POST " ONE "/execute HTTP/1.1\r\n" KEY CLOSE
                            "Content-Length: 15\r\n\r\n{\"command\":\"a\"}");
    WAIT_FOR(workers_threads(site.workers) == 1 && workers_waiting(site.workers) == 0 &&
             workers_idle(site.workers) == 0);
    second = site_ask(&site, "POST " ONE "/execute HTTP/1.1\r\n" KEY CLOSE
                             "Content-Length: 15\r\n\r\n{\"command\":\"a\"}");
    WAIT_FOR(workers_waiting(site.workers) == 1);
    http_site_check(&site.http, "GET /api/v1/health HTTP/1.1\r\n" CLOSE "\r\n", "HTTP/1.1 503 ",
                    "Retry-After: 1");
}

/* One team never has all the workers: what is above waits, and whoever goes leaves the line. */
TEST(v1_busy_team)
{
    enum { ASKED = 12 };
    struct site site;
    int fds[ASKED];
    int64_t begin;

    v1_fake.delay_ms = 500;
    site_start(&site, 4, 3); /* three for a team */
    begin = clock_mono_ms();
    for (int i = 0; i < ASKED; i++) {
        fds[i] = site_ask(&site, "POST " ONE "/execute HTTP/1.1\r\n" KEY CLOSE
                                 "Content-Length: 15\r\n\r\n{\"command\":\"a\"}");
        uv_sleep(10); /* so that they come in this order */
    }
    for (int i = 0; i < 100; i++) /* others do not wait */
        http_site_check(&site.http, "GET /api/v1/health HTTP/1.1\r\n" CLOSE "\r\n", "HTTP/1.1 200 ",
                        NULL);
    for (int i = 4; i < 7; i++) /* these go before it is their turn */
        close_fd(&fds[i]);
    for (int i = 0; i < ASKED; i++) {
        auto_buf struct buf got = {0};

        if (fds[i] < 0)
            continue;
        buf_init(&got, 65536);
        site_read_until(fds[i], &got, "HTTP/1.1 200 ");
        close_fd(&fds[i]);
    }
    CHECK(clock_mono_ms() - begin >= 1400); /* nine by three */
}

TEST(v1_files_stream)
{
    auto_close int fd = -1;
    auto_buf struct buf answer = {0};
    struct site site;
    char block[65536];

    v1_fake.file_size = (size_t)20 * 1024 * 1024;
    site_start(&site, 4, 10);
    buf_init(&answer, (size_t)64 * 1024 * 1024);
    fd = site_ask(&site, "GET " ONE "/files?path=/f HTTP/1.1\r\n" KEY CLOSE "\r\n");
    site_read_until(fd, &answer, "application/octet-stream");
    uv_sleep(200); /* the worker waits for us: nothing is lost, nothing piles up */
    http_site_read_all(fd, &answer);
    CHECK(answer.len > v1_fake.file_size && str_ends(buf_str(&answer), STR("\r\n0\r\n\r\n")));
    close_fd(&fd);
    /* One that breaks must not look complete. */
    buf_clear(&answer);
    fd = site_ask(&site, "GET " ONE "/files?path=/broken HTTP/1.1\r\n" KEY CLOSE "\r\n");
    http_site_read_all(fd, &answer);
    CHECK(!str_ends(buf_str(&answer), STR("\r\n0\r\n\r\n")));
    close_fd(&fd);
    fd = site_ask(&site, "PUT " ONE "/files?path=/f HTTP/1.1\r\n" KEY CLOSE
                         "Content-Length: 10485760\r\nExpect: 100-continue\r\n\r\n");
    buf_clear(&answer);
    site_read_until(fd, &answer, "100 Continue");
    memset(block, 'x', sizeof(block));
    for (int i = 0; i < 160; i++)
        CHECK_INT(fd_write_full(fd, block, sizeof(block)), 0);
    site_read_until(fd, &answer, "\"size\":10485760");
    CHECK_INT(v1_fake.written, 10485760);
    CHECK(strstr(v1_fake.asked, "write(/f,10485760)"));
}

TEST(v1_files_small_things)
{
    struct site site;

    site_start(&site, 4, 10);
    http_site_check(&site.http, "GET " ONE "/files?path=/empty HTTP/1.1\r\n" KEY CLOSE "\r\n",
                    "HTTP/1.1 200 ", "application/octet-stream");
    http_site_check(&site.http, "GET " ONE "/files HTTP/1.1\r\n" KEY CLOSE "\r\n", "HTTP/1.1 400 ",
                    "'path'");
    http_site_check(&site.http,
                    "GET /api/v1/sandboxes/no/files?path=/f HTTP/1.1\r\n" KEY CLOSE "\r\n",
                    "HTTP/1.1 404 ", "not_found");
    http_site_check(&site.http,
                    "PUT /api/v1/sandboxes/no/files?path=/f HTTP/1.1\r\n" KEY CLOSE
                    "Content-Length: 5\r\n\r\nhello",
                    "HTTP/1.1 404 ", "not_found");
    http_site_check(&site.http, "DELETE " ONE "/files?path=/f HTTP/1.1\r\n" KEY CLOSE "\r\n",
                    "HTTP/1.1 204 ", NULL);
    v1_fake.directory = true;
    http_site_check(&site.http, "GET " ONE "/files?path=/d HTTP/1.1\r\n" KEY CLOSE "\r\n",
                    "HTTP/1.1 200 ", "\"entries\":[{\"name\":\"a\"");
}

/* An upload whose client goes ends the worker. */
TEST(v1_upload_broken)
{
    struct site site;
    int fd;

    site_start(&site, 4, 10);
    fd = site_ask(&site, "PUT " ONE "/files?path=/f HTTP/1.1\r\n" KEY CLOSE
                         "Content-Length: 1000\r\n\r\nhello");
    WAIT_FOR(v1_fake.written >= 5);
    close_fd(&fd);
    CHECK_INT(workers_free_within(site.workers, 5000), 0);
    CHECK_INT(v1_fake.written, 5);
}

static void on_idle(void *arg)
{
    ((struct site *)arg)->idle = true;
}

static void drain(struct loop_errand *job)
{
    struct site *site = container_of(job, struct site, drain_errand);

    v1_drain(site->v1, site->http.loop);
    http_server_drain(site->http.server, on_idle, site);
}

static void site_drain(struct site *site)
{
    site->drain_errand.fn = drain;
    loop_post(site->http.loop, &site->drain_errand);
    WAIT_FOR(site->idle);
}

TEST(v1_logs)
{
    auto_close int fd = -1;
    auto_buf struct buf answer = {0};
    struct site site;

    v1_fake.log_at = 25;
    site_start(&site, 4, 10);
    http_site_check(&site.http,
                    "GET " ONE "/processes/job_1/logs?after=20 HTTP/1.1\r\n" KEY CLOSE "\r\n",
                    "HTTP/1.1 200 ", "\r\n01234\r\n0\r\n\r\n");
    http_site_check(&site.http,
                    "GET " ONE "/processes/job_1/logs?limit=3 HTTP/1.1\r\n" KEY CLOSE "\r\n",
                    "HTTP/1.1 200 ", "\r\n012\r\n0\r\n\r\n");
    v1_fake.job_running = true;
    buf_init(&answer, 1024 * 1024);
    fd = site_ask(&site, "GET " ONE "/processes/job_1/logs HTTP/1.1\r\n" KEY CLOSE
                         "Accept: text/event-stream\r\nLast-Event-ID: 20\r\n\r\n");
    site_read_until(fd, &answer,
                    "id: 25\nevent: output\ndata: {\"after\":25,\"data\":\"01234\"}\n\n");
    v1_fake.log_at = 30;
    site_read_until(fd, &answer,
                    "id: 30\nevent: output\ndata: {\"after\":30,\"data\":\"56789\"}\n\n");
    v1_fake.job_running = false;
    site_read_until(fd, &answer, "event: exit\n");
    site_read_until(fd, &answer, "\r\n0\r\n\r\n");
    close_fd(&fd);
    /* One that would go on ends with the server. */
    v1_fake.job_running = true;
    buf_clear(&answer);
    fd = site_ask(&site, "GET " ONE "/processes/job_1/logs?follow HTTP/1.1\r\n" KEY CLOSE "\r\n");
    site_read_until(fd, &answer, "0123456789");
    site_drain(&site);
    site_read_until(fd, &answer, "\r\n0\r\n\r\n");
}

/* ---- events ---- */

#define EVENTS(query) "GET /api/v1/events" query " HTTP/1.1\r\n" KEY "Host: x\r\n"

static void wait_for_watchers(size_t count)
{
    WAIT_FOR(v1_fake_watchers() == count);
}

TEST(v1_events)
{
    auto_close int fd = -1;
    auto_buf struct buf got = {0};
    struct site site;

    site_start(&site, 4, 10);
    buf_init(&got, 1024 * 1024);
    v1_fake_event("sandbox.old", "a1");
    fd = site_ask(&site, EVENTS("?agent_id=a1") "\r\n");
    site_read_until(fd, &got, "retry: 2000\n\n");
    CHECK(strstr(got.p, "Content-Type: text/event-stream"));
    site_read_until(fd, &got, "\n:heartbeat\n\n");
    v1_fake_event("sandbox.other", "a2");
    v1_fake_event("sandbox.paused", "a1");
    site_read_until(
        fd, &got, "id: 3\nevent: sandbox.paused\ndata: {\"id\":3,\"type\":\"sandbox.paused\"}\n\n");
    CHECK(!strstr(got.p, "sandbox.other") && !strstr(got.p, "sandbox.old"));
    close_fd(&fd);
    wait_for_watchers(0);
    /* Coming back. */
    buf_clear(&got);
    fd = site_ask(&site, EVENTS("") "Last-Event-ID: 1\r\n\r\n");
    site_read_until(fd, &got, "id: 3\n");
    CHECK(strstr(got.p, "id: 2\n") && !strstr(got.p, "id: 1\n"));
    close_fd(&fd);
    buf_clear(&got);
    fd = site_ask(&site, EVENTS("?since=0") "\r\n");
    site_read_until(fd, &got, "id: 3\n");
    CHECK(strstr(got.p, "id: 1\n"));
    close_fd(&fd);
    buf_clear(&got);
    fd = site_ask(&site, "GET /api/v1/sse?agent_id=a1 HTTP/1.1\r\n" KEY "Host: x\r\n\r\n");
    site_read_until(fd, &got, "id: 3\nevent: sandbox_status\n");
    CHECK(strstr(got.p, "id: 1\nevent: sandbox_status\n"));
}

/* What memory has lost comes from the store, and then memory goes on. */
TEST(v1_events_from_the_store)
{
    auto_close int fd = -1;
    auto_buf struct buf got = {0};
    struct site site;

    site_start(&site, 4, 10);
    buf_init(&got, 4 * 1024 * 1024);
    for (int i = 0; i < 300; i++)
        v1_fake_event("x", "a");
    v1_fake.memory_missed = true;
    fd = site_ask(&site, EVENTS("?since=10") "\r\n");
    site_read_until(fd, &got, "id: 300\n");
    CHECK(v1_fake.store_reads >= 5);
    v1_fake.memory_missed = false;
    v1_fake_event("x", "a");
    site_read_until(fd, &got, "id: 301\n");
    for (int i = 11; i <= 301; i++) {
        char line[24];
        char *at;

        (void)snprintf(line, sizeof(line), "id: %d\n", i);
        at = strstr(got.p, line);
        if (!at || strstr(at + 1, line))
            test_fail(__FILE__, __LINE__, "event %d did not come once", i);
    }
}

enum { CLIENTS = 200 };

TEST(v1_events_to_many_and_the_end)
{
    struct site site;
    struct buf got[CLIENTS] = {0};
    int fds[CLIENTS];

    site_start(&site, 16, 1000);
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = site_ask(&site, EVENTS("?since=0") "\r\n");
        buf_init(&got[i], 1024 * 1024);
    }
    wait_for_watchers(CLIENTS);
    for (int i = 0; i < 50; i++)
        v1_fake_event("x", "a");
    for (int i = 0; i < CLIENTS; i++)
        site_read_until(fds[i], &got[i], "id: 50\n");
    /* A server that stops does not wait for them. */
    site_drain(&site);
    for (int i = 0; i < CLIENTS; i++) {
        site_read_until(fds[i], &got[i], "\r\n0\r\n\r\n");
        buf_done(&got[i]);
    }
    wait_for_watchers(0);
}

/* A client that does not read is held by its connection and not by us. */
TEST(v1_events_slow_reader)
{
    auto_close int fd = -1;
    auto_buf struct buf got = {0};
    struct site site;
    int small = 65536;

    site_start(&site, 4, 10);
    buf_init(&got, 64 * 1024 * 1024);
    fd = site_ask(&site, "");
    CHECK_INT(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
    CHECK_INT(fd_write_full(fd, EVENTS("?since=0") "\r\n", strlen(EVENTS("?since=0") "\r\n")), 0);
    wait_for_watchers(1);
    v1_fake.event_pad = 2000;
    for (int i = 0; i < 5000; i++)
        v1_fake_event("x", "a");
    uv_sleep(200); /* all buffers on the way are full by then */
    site_read_until(fd, &got, "id: 5000\n");
    site_drain(&site);
}

/* ---- terminals ---- */

#define UPGRADE                                                                             \
    "Host: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" \
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
#define TERMINAL "GET " ONE "/terminal?cols=80&rows=24"

static void send_frame(int fd, uint8_t first, const char *text)
{
    auto_buf struct buf frame = {0};

    buf_init(&frame, strlen(text) + WEBSOCKET_HEAD_MAX);
    websocket_add(&frame, WEBSOCKET_CLIENT, first, str_of(text));
    CHECK_INT(fd_write_full(fd, frame.p, frame.len), 0);
}

static void wait_for_terminals(int count)
{
    WAIT_FOR(v1_fake.terminals == count);
}

TEST(v1_terminal)
{
    auto_close int fd = -1;
    auto_buf struct buf got = {0};
    struct site site;

    site_start(&site, 4, 10);
    buf_init(&got, 1024 * 1024);
    fd = site_ask(&site, TERMINAL " HTTP/1.1\r\n" KEY UPGRADE "\r\n");
    site_read_until(fd, &got, "{\"type\":\"ready\",\"terminal_id\":\"term_1\"}");
    CHECK(str_starts(buf_str(&got), STR("HTTP/1.1 101 ")));
    CHECK(strstr(got.p, "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    CHECK(strstr(got.p, "\r\n\r\n\x81")); /* the first frame is that text */
    send_frame(fd, 0x81, "{\"type\":\"resize\",\"cols\":100,\"rows\":30}");
    site_read_until(fd, &got, "\x82\x08[100x30]");
    send_frame(fd, 0x81, "{\"type\":\"input\",\"data\":\"abc\"}");
    site_read_until(fd, &got,
                    "\x82\x03"
                    "abc");
    send_frame(fd, 0x81, "plain");
    site_read_until(fd, &got, "\x82\x05plain");
    send_frame(fd, 0x82, "{\"type\":\"x\"}");
    site_read_until(fd, &got, "{\"type\":\"x\"}");
    send_frame(fd, 0x89, "hi");
    site_read_until(fd, &got, "\x8a\x02hi");
    (void)v1_fake_print("bye");
    v1_fake_exit(3);
    site_read_until(fd, &got,
                    "\x82\x03"
                    "bye");
    site_read_until(fd, &got, "exited with 3");
    send_frame(fd, 0x88, "\x03\xe8");
    wait_for_terminals(0);
}

TEST(v1_terminal_ends)
{
    auto_close int fd = -1;
    auto_buf struct buf got = {0};
    struct site site;

    site_start(&site, 4, 10);
    buf_init(&got, 1024 * 1024);
    http_site_check(&site.http, TERMINAL " HTTP/1.1\r\n" KEY CLOSE "\r\n", "HTTP/1.1 409 ",
                    "unsupported-terminal");
    http_site_check(&site.http, TERMINAL " HTTP/1.1\r\n" UPGRADE "\r\n", "HTTP/1.1 401 ",
                    "unauthorized");
    http_site_check(&site.http,
                    TERMINAL "&agent_id=a2 HTTP/1.1\r\n" KEY UPGRADE "Connection: close\r\n\r\n",
                    "HTTP/1.1 403 ", "forbidden");
    /* A client that just goes. */
    fd = site_ask(&site, TERMINAL "&terminal_id=t HTTP/1.1\r\n" KEY UPGRADE "\r\n");
    site_read_until(fd, &got, "term_old");
    wait_for_terminals(1);
    close_fd(&fd);
    wait_for_terminals(0);
    /* The key as a protocol; the protocol is agreed on. */
    buf_clear(&got);
    fd = site_ask(&site, TERMINAL
                  " HTTP/1.1\r\n" UPGRADE "Sec-WebSocket-Protocol: quicksand, "
                  "key.ZTJiXzAxMjM0NTY3ODkwMTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODk\r\n\r\n");
    site_read_until(fd, &got, "ready");
    CHECK(strstr(got.p, "Sec-WebSocket-Protocol: quicksand\r\n"));
    /* A broken frame. */
    send_frame(fd, 0x83, "x");
    site_read_until(fd, &got, "\x88\x19\x03\xea");
    close_fd(&fd);
    wait_for_terminals(0);
    /* No PTY: 1011 and the reason. */
    v1_fake.terminal_fails = true;
    buf_clear(&got);
    fd = site_ask(&site, TERMINAL " HTTP/1.1\r\n" KEY UPGRADE "\r\n");
    site_read_until(fd, &got, "\x03\xf3provider 'x' has no pty");
    close_fd(&fd);
    /* The server stops. */
    v1_fake.terminal_fails = false;
    buf_clear(&got);
    fd = site_ask(&site, TERMINAL " HTTP/1.1\r\n" KEY UPGRADE "\r\n");
    site_read_until(fd, &got, "ready");
    site_drain(&site);
    site_read_until(fd, &got, "\x03\xe9the server is stopping");
}

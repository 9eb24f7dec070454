/* The way through the server, the workers and back, over a real socket. */
#include <time.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/test.h"
#include "domain/sandbox/sandbox_creates.h"
#include "edge/api_e2b/api_internal.h"
#include "edge/api_e2b/test/api_fake.h"
#include "edge/api_e2b/test/api_test_request.h"
#include "protocol/http/http_limits.h"
#include "protocol/http/test/http_test_site.h"
#include "protocol/loop/workers.h"

#define KEY "X-API-KEY: " API_FAKE_KEY "\r\n"

struct site {
    struct http_site http;
    struct workers *workers;
    struct http_limits *limits;
    struct api *api;
};

static void on_request(struct http_exchange *ex, void *arg)
{
    api_handle(arg, ex);
}

static void site_start_limited(struct site *site, size_t threads, size_t queue_max,
                               size_t create_max)
{
    struct api_config config = {.creates = sandbox_creates_new(create_max),
                                .secrets = new_secrets(),
                                .file_directory = "/tmp",
                                .upload_max = 1 << 20};

    log_set_level(LOG_WARN);
    site->workers = workers_new(threads, queue_max);
    site->limits = http_limits_new(&(struct http_limits_config){.body_bytes = 4 * 1024 * 1024});
    config.limits = site->limits;
    for (size_t i = 0; i < API_LANE_COUNT; i++)
        config.lanes[i].workers = site->workers;
    site->api = api_new(&config);
    http_site_start(&site->http, on_request, site->api);
}

static void site_start(struct site *site, size_t threads, size_t queue_max)
{
    site_start_limited(site, threads, queue_max, 0);
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

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

/* The request line of an upload by a good link. */
static void upload_line(struct site *site, char *out, size_t size)
{
    struct api_call call = new_call("GET", "/templates/mine/files/" HASH);
    const char *url;

    call.api = site->api;
    CHECK_INT(run(&call), 201);
    url = strstr(call.text, "/templates/uploads/");
    (void)snprintf(out, size, "PUT %.*s HTTP/1.1\r\n" CLOSE, (int)strcspn(url, "\""), url);
    call_done(&call);
}

TEST(uploads_go_to_a_file_by_a_signed_link)
{
    char line[512], text[640];
    struct site site;

    site_start(&site, 2, 10);
    upload_line(&site, line, sizeof(line));
    (void)snprintf(text, sizeof(text), "%sContent-Length: 5\r\n\r\nhello", line);
    http_site_check(&site.http, text, "HTTP/1.1 200 ", NULL);
    CHECK_INT(api_fake.file_length, 5);
    CHECK_STR(str_of(api_fake.file_team), "team-1");
    (void)snprintf(text, sizeof(text),
                   "%sTransfer-Encoding: chunked\r\n\r\n4\r\nwell\r\n3\r\n, I\r\n0\r\n\r\n", line);
    http_site_check(&site.http, text, "HTTP/1.1 200 ", NULL);
    CHECK_INT(api_fake.file_length, 7);
    (void)snprintf(text, sizeof(text), "%sTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", line);
    http_site_check(&site.http, text, "HTTP/1.1 400 ", "empty");
    (void)snprintf(text, sizeof(text), "%s\r\n", line);
    http_site_check(&site.http, text, "HTTP/1.1 400 ", "empty");
    (void)snprintf(text, sizeof(text), "%sContent-Length: 2000000\r\n\r\n", line);
    http_site_check(&site.http, text, "HTTP/1.1 413 ", "at most 1 MiB");
    /* An API key is no link. */
    http_site_check(&site.http,
                    "PUT /templates/uploads/" HASH " HTTP/1.1\r\n" KEY CLOSE
                    "Content-Length: 5\r\n\r\n",
                    "HTTP/1.1 403 ", "not a link of this server");
    api_fake.banned = true;
    (void)snprintf(text, sizeof(text), "%sContent-Length: 5\r\n\r\nhello", line);
    http_site_check(&site.http, text, "HTTP/1.1 403 ", "banned");
}

#define CREATE_HEAD "POST /sandboxes HTTP/1.1\r\n" KEY CLOSE
#define CREATE_BODY "Content-Length: 18\r\n\r\n{\"templateID\":\"a\"}"
static const char create[] = CREATE_HEAD CREATE_BODY;

static void hold(bool held)
{
    __atomic_store_n(&api_fake.held, held, __ATOMIC_SEQ_CST);
}

static void until(const size_t *counter, size_t value)
{
    WAIT_FOR(__atomic_load_n(counter, __ATOMIC_SEQ_CST) == value);
}

static void until_under_way(const struct site *site, size_t value)
{
    struct sandbox_creates_stats stats;

    WAIT_FOR((sandbox_creates_stats(site->api->config.creates, &stats), stats.under_way == value));
}

TEST(a_full_queue_is_503)
{
    auto_close int one = -1, two = -1;
    struct site site;

    hold(true);
    site_start(&site, 1, 1);
    one = http_site_ask(&site.http, create);
    until(&api_fake.begun, 1);
    two = http_site_ask(&site.http, create);
    until_under_way(&site, 2);
    http_site_check(&site.http, create, "HTTP/1.1 503 ", "Retry-After: 1\r\n");
    hold(false);
    until(&api_fake.creates, 2);
}

TEST(creates_beyond_the_limit_are_429)
{
    auto_close int one = -1, two = -1;
    struct site site;

    hold(true);
    site_start_limited(&site, 1, 10, 2);
    one = http_site_ask(&site.http, create);
    two = http_site_ask(&site.http, create);
    until_under_way(&site, 2);
    http_site_check(&site.http, create, "HTTP/1.1 429 ", "Retry-After: 1\r\n");
    hold(false);
    until(&api_fake.creates, 2);
    until_under_way(&site, 0);
    http_site_check(&site.http, create, "HTTP/1.1 201 ", NULL);
}

TEST(an_operation_finishes_without_its_client)
{
    struct site site;
    int fd;

    hold(true);
    site_start(&site, 1, 4);
    fd = http_site_ask(&site.http, CREATE_HEAD "Idempotency-Key: k\r\n" CREATE_BODY);
    until(&api_fake.begun, 1);
    (void)close(fd);
    hold(false);
    until(&api_fake.creates, 1);
    http_site_check(&site.http, "GET /health HTTP/1.1\r\n" CLOSE "\r\n", "HTTP/1.1 200 ", NULL);
    /* A request cut inside its body. */
    fd = http_site_ask(&site.http, CREATE_HEAD "Content-Length: 18\r\n\r\n{\"templateID\"");
    (void)close(fd);
    http_site_check(&site.http, "GET /v2/sandboxes HTTP/1.1\r\n" KEY CLOSE "\r\n", "HTTP/1.1 200 ",
                    "X-Total-Running: 1\r\n");
    CHECK_INT(api_fake.kills, 0);
}

TEST(a_create_without_its_client_is_taken_back)
{
    struct site site;
    int first, second;

    hold(true);
    site_start(&site, 1, 4);
    first = http_site_ask(&site.http, create);
    until(&api_fake.begun, 1);
    second = http_site_ask(&site.http, create);
    until_under_way(&site, 2);
    (void)close(first);
    (void)close(second);
    hold(false);
    until(&api_fake.kills, 2);
    until_under_way(&site, 0);
    http_site_check(&site.http, create, "HTTP/1.1 201 ", NULL);
    CHECK_INT(api_fake.creates, 3);
    CHECK_INT(api_fake.kills, 2);
}

/* Bodies of requests that were parsed. */
static size_t parses;

json_t *__real_json_loadb(const char *p, size_t len, size_t flags, json_error_t *error);
json_t *__wrap_json_loadb(const char *p, size_t len, size_t flags, json_error_t *error);

json_t *__wrap_json_loadb(const char *p, size_t len, size_t flags, json_error_t *error)
{
    if (flags & JSON_REJECT_DUPLICATES)
        __atomic_add_fetch(&parses, 1, __ATOMIC_SEQ_CST);
    return __real_json_loadb(p, len, flags, error);
}

/* Its key is one that memory does not know, as all of the fake's are. */
static void check_once(const struct site *site, const char *path, const char *body,
                       const char *begins)
{
    char text[512];

    api_fake.finds = parses = 0;
    (void)snprintf(text, sizeof(text),
                   "POST %s HTTP/1.1\r\n" KEY CLOSE "Content-Length: %zu\r\n\r\n%s", path,
                   strlen(body), body);
    http_site_check(&site->http, text, begins, NULL);
    CHECK_INT(api_fake.finds, 1);
    CHECK_INT(parses, 1);
}

TEST(a_request_is_authenticated_and_parsed_once_on_however_many_lanes)
{
    struct site site;

    site_start(&site, 2, 10);
    check_once(&site, "/sandboxes", "{\"templateID\":\"a\"}", "HTTP/1.1 201 ");
    api_fake.waits = true;
    check_once(&site, "/v2/sandboxes", "{\"templateID\":\"a\"}", "HTTP/1.1 201 ");
    CHECK_INT(api_fake.creates, 2);
    api_fake.paused = true;
    check_once(&site, "/v2/sandboxes/i0000000000000000000/connect", "{\"timeout\":9}",
               "HTTP/1.1 201 ");
    CHECK_INT(api_fake.resume.timeout_s, 9);
    api_fake.paused = true;
    check_once(&site, "/sandboxes/i0000000000000000000/resume", "{\"timeout\":8}", "HTTP/1.1 201 ");
    CHECK_INT(api_fake.resume.timeout_s, 8);
    check_once(&site, "/sandboxes/i0000000000000000000/timeout", "{\"timeout\":0}",
               "HTTP/1.1 204 ");
    CHECK_INT(api_fake.timeout_s, 0);
}

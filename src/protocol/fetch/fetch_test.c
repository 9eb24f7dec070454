#include "protocol/fetch/fetch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "protocol/fetch/fetch_internal.h"
#include "protocol/fetch/test/fetch_rig.h"

enum { BIG = 4 * 1024 * 1024 };

static void answer_streams(struct fetch_rig_exchange *ex)
{
    if (strcmp(ex->target, "/broken") == 0) {
        fetch_rig_send(ex, STR("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"));
        fetch_rig_chunk(ex, STR("half"));
        ex->close = true;
    } else if (strcmp(ex->target, "/slow") == 0) {
        fetch_rig_send(ex, STR("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"));
        fetch_rig_chunk(ex, STR("first"));
        while (!fetch_rig_stopping(ex->rig))
            (void)usleep(10000);
        ex->close = true;
    } else if (strncmp(ex->target, "/hang", 5) == 0) {
        while (!fetch_rig_stopping(ex->rig))
            (void)usleep(10000);
        ex->close = true;
    } else if (strcmp(ex->target, "/big") == 0) {
        auto_free char *data = xcalloc(1, BIG);

        for (size_t i = 0; i < BIG; i++)
            data[i] = (char)('a' + i % 23);
        fetch_rig_answer(ex, 200, NULL, str_n(data, BIG));
    } else {
        fetch_rig_send(ex, STR("HTTP/1.1 103 Early\r\nLink: x\r\n\r\n"
                               "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"));
        fetch_rig_chunk(ex, STR("one "));
        fetch_rig_chunk(ex, STR("two"));
        fetch_rig_chunk(ex, STR(""));
    }
}

static void answer(struct fetch_rig_exchange *ex, void *arg)
{
    (void)arg;
    if (strcmp(ex->target, "/echo") == 0)
        fetch_rig_answer(ex, 200, NULL, buf_str(&ex->body));
    else if (strcmp(ex->target, "/head") == 0)
        fetch_rig_answer(ex, 200, NULL, buf_str(&ex->head));
    else if (strcmp(ex->target, "/busy") == 0)
        fetch_rig_answer(ex, 429, "Retry-After: 7\r\n", STR("later"));
    else if (strcmp(ex->target, "/away") == 0)
        fetch_rig_answer(ex, 302, "Location: /echo\r\n", STR("moved"));
    else if (strcmp(ex->target, "/connection") == 0)
        fetch_rig_answer(ex, 200, NULL, ex->connection == 1 ? STR("1") : STR("more"));
    else if (strcmp(ex->target, "/garbage") == 0) {
        fetch_rig_send(ex, STR("\x16\x03 this is no HTTP at all\r\n\r\n"));
        ex->close = true;
    } else
        answer_streams(ex);
}

static char url[160];

static const char *at(struct fetch_rig *rig, const char *path)
{
    (void)snprintf(url, sizeof(url), "%s%s", fetch_rig_url(rig), path);
    return url;
}

TEST(call)
{
    struct fetch_rig *rig = fetch_rig_new(NULL, answer, NULL);
    struct fetch *fetch = fetch_new();
    const struct pair headers[] = {{STR("X-Key"), STR("value")}, {STR("X-None"), STR("")}};
    auto_response struct fetch_response out = {0}, head = {0}, busy = {0}, away = {0};
    struct error err = {0};

    CHECK_INT(fetch_call(fetch,
                         &(struct fetch_request){
                             .method = "POST", .url = at(rig, "/echo"), .body = STR("hello")},
                         &out, &err),
              0);
    CHECK_INT(out.status, 200);
    CHECK_INT(out.retry_after_s, -1);
    CHECK_STR(buf_str(&out.body), "hello");
    CHECK_INT(fetch_call(fetch,
                         &(struct fetch_request){.method = "DELETE",
                                                 .url = at(rig, "/head"),
                                                 .headers = headers,
                                                 .header_count = 2},
                         &head, &err),
              0);
    CHECK(str_find_str(buf_str(&head.body), STR("X-Key: value\r\n")) > 0);
    CHECK(str_find_str(buf_str(&head.body), STR("X-None:")) > 0);
    CHECK(str_find_str(buf_str(&head.body), STR("Content-Type")) < 0);
    CHECK(str_starts(buf_str(&head.body), STR("DELETE /head ")));
    CHECK_INT(fetch_call(fetch, &(struct fetch_request){.method = "GET", .url = at(rig, "/busy")},
                         &busy, &err),
              0);
    CHECK_INT(busy.status, 429);
    CHECK_INT(busy.retry_after_s, 7);
    CHECK_INT(fetch_call(fetch, &(struct fetch_request){.method = "GET", .url = at(rig, "/away")},
                         &away, &err),
              0);
    CHECK_INT(away.status, 302);
    fetch_free(fetch);
    fetch_rig_free(rig);
}

static enum error_code fails(struct fetch *fetch, const struct fetch_request *request,
                             struct error *err)
{
    auto_response struct fetch_response out = {0};

    *err = (struct error){0};
    if (fetch_call(fetch, request, &out, err) == 0)
        test_fail(__FILE__, __LINE__, "%s was answered with %d", request->url, out.status);
    return err->code;
}

TEST(call_failures)
{
    struct fetch_rig *rig = fetch_rig_new(NULL, answer, NULL);
    struct fetch *fetch = fetch_new();
    const struct pair split = {STR("X-Key"), STR("a\r\nX-Other: b")};
    struct error err;
    int64_t begun;

    CHECK_INT(fails(fetch,
                    &(struct fetch_request){
                        .method = "GET", .url = at(rig, "/big"), .response_max = 1000},
                    &err),
              ERROR_LIMIT);
    CHECK_INT(
        fails(fetch, &(struct fetch_request){.method = "GET", .url = at(rig, "/garbage")}, &err),
        ERROR_UNAVAILABLE);
    CHECK_INT(
        fails(fetch, &(struct fetch_request){.method = "GET", .url = at(rig, "/broken")}, &err),
        ERROR_UNAVAILABLE);
    begun = clock_mono_ms();
    CHECK_INT(fails(fetch,
                    &(struct fetch_request){
                        .method = "GET", .url = at(rig, "/hang?key=s3"), .timeout_ms = 200},
                    &err),
              ERROR_TIMEOUT);
    CHECK(clock_mono_ms() - begun < 3000);
    CHECK(!strstr(err.message, "s3"));
    CHECK(strstr(err.message, "GET 127.0.0.1:") != NULL);
    CHECK_INT(fails(fetch,
                    &(struct fetch_request){.method = "GET", .url = "http://u:pw@127.0.0.1:1/"},
                    &err),
              ERROR_UNAVAILABLE);
    CHECK(!strstr(err.message, "pw"));
    CHECK_INT(
        fails(fetch, &(struct fetch_request){.method = "GET", .url = "file:///etc/passwd"}, &err),
        ERROR_INVALID);
    CHECK_INT(fails(fetch, &(struct fetch_request){.method = "GET", .url = "http://a b/"}, &err),
              ERROR_INVALID);
    CHECK_INT(
        fails(fetch,
              &(struct fetch_request){
                  .method = "GET", .url = at(rig, "/echo"), .headers = &split, .header_count = 1},
              &err),
        ERROR_INVALID);
    fetch_free(fetch);
    fetch_rig_free(rig);
}

TEST(deadline_ends_a_request_before_its_timeout)
{
    struct fetch_rig *rig = fetch_rig_new(NULL, answer, NULL);
    struct fetch *fetch = fetch_new();
    struct fetch_request hang = {.method = "GET", .url = at(rig, "/hang"), .timeout_ms = 30000};
    struct fetch_stream *stream;
    int64_t begin_ms = clock_mono_ms();
    struct error err;

    hang.deadline_us = clock_mono_us() + 300000;
    CHECK_INT(fails(fetch, &hang, &err), ERROR_TIMEOUT);
    CHECK(clock_mono_ms() - begin_ms >= 290 && clock_mono_ms() - begin_ms < 5000);
    /* Nothing is left: nothing is sent. */
    begin_ms = clock_mono_ms();
    CHECK_INT(fails(fetch, &hang, &err), ERROR_TIMEOUT);
    CHECK_INT(fetch_open(fetch, &hang, &stream, &err), -1);
    CHECK_INT(err.code, ERROR_TIMEOUT);
    CHECK(clock_mono_ms() - begin_ms < 200);
    hang.deadline_us = 0;
    hang.timeout_ms = 100;
    CHECK_INT(fails(fetch, &hang, &err), ERROR_TIMEOUT);
    fetch_free(fetch);
    fetch_rig_free(rig);
}

TEST(connection_is_kept)
{
    struct fetch_rig *rig = fetch_rig_new(NULL, answer, NULL);
    struct fetch *fetch = fetch_new();
    struct error err = {0};

    for (int i = 0; i < 20; i++) {
        auto_response struct fetch_response out = {0};

        CHECK_INT(
            fetch_call(fetch,
                       &(struct fetch_request){.method = "GET", .url = at(rig, "/connection")},
                       &out, &err),
            0);
        CHECK_STR(buf_str(&out.body), "1");
    }
    fetch_free(fetch);
    fetch_rig_free(rig);
}

/* The second request on a connection is taken, and the connection closed without an answer. */
static void close_second(struct fetch_rig_exchange *exchange, void *arg)
{
    atomic_int *last = arg;

    if (exchange->connection == atomic_load(last)) {
        atomic_store(last, -1);
        exchange->close = true;
        return;
    }
    atomic_store(last, exchange->connection);
    fetch_rig_answer(exchange, 200, "", STR("ok"));
}

TEST(what_may_not_happen_twice_is_sent_once)
{
    static const struct {
        const char *method;
        bool repeatable;
        int result, requests;
    } cases[] = {{"POST", false, -1, 2},
                 {"PATCH", false, -1, 2},
                 {"POST", true, 0, 3},
                 {"GET", false, 0, 3},
                 {"DELETE", false, 0, 3}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        atomic_int last = 0;
        struct fetch_rig *rig = fetch_rig_new(NULL, close_second, &last);
        struct fetch *fetch = fetch_new();
        struct fetch_request request = {
            .method = cases[i].method, .url = at(rig, "/x"), .repeatable = cases[i].repeatable};
        auto_response struct fetch_response first = {0}, second = {0};
        struct error err = {0};

        if (cases[i].result < 0)
            request.body = STR("{}");
        CHECK_INT(fetch_call(fetch, &request, &first, &err), 0);
        CHECK_INT(fetch_call(fetch, &request, &second, &err), cases[i].result);
        if (cases[i].result < 0)
            CHECK_INT(err.code, ERROR_UNAVAILABLE);
        CHECK_INT(fetch_rig_requests(rig), cases[i].requests);
        fetch_free(fetch);
        fetch_rig_free(rig);
    }
}

TEST(public_addresses_only)
{
    struct fetch_rig *rig = fetch_rig_new(NULL, answer, NULL);
    struct fetch *fetch = fetch_new();
    struct fetch_request request = {
        .method = "POST", .url = at(rig, "/connection"), .reach = FETCH_DIRECT};
    auto_response struct fetch_response out = {0};
    auto_free char *name = xasprintf("http://localhost%s/", strrchr(fetch_rig_url(rig), ':'));
    struct error err = {0};

    CHECK_INT(fetch_call(fetch, &request, &out, &err), 0);
    request.reach = FETCH_PUBLIC; /* the connection that is kept is not for this */
    CHECK_INT(fails(fetch, &request, &err), ERROR_FORBIDDEN);
    request.url = name;
    CHECK_INT(fails(fetch, &request, &err), ERROR_FORBIDDEN);
    CHECK_INT(fetch_rig_requests(rig), 1);
    fetch_free(fetch);
    fetch_rig_free(rig);
}

TEST(urls)
{
    static const char *const bad[] = {"",
                                      "ftp://x",
                                      "http://",
                                      "http://a b/",
                                      "http://a/\r\nX: y",
                                      "http://a:0",
                                      "http://a:x/",
                                      "http://a:65536/",
                                      "http://[::1/x/",
                                      "http://a/\x7f",
                                      "http://a/\xc3\xa4",
                                      "http://u@h/",
                                      "http://u:p@h/"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (fetch_url_ok(bad[i]))
            test_fail(__FILE__, __LINE__, "%s", bad[i]);
    CHECK(fetch_url_ok("https://example.com"));
    CHECK(fetch_url_ok("http://[::1]:8080?a=b#c"));
    CHECK(fetch_url_ok("http://127.0.0.1:1/x"));
}

TEST(a_location_is_followed_from_where_it_was_told)
{
    static const struct {
        const char *location, *leads; /* NULL = nowhere */
    } rows[] = {
        {"https://b.example/x?y=1", "https://b.example/x?y=1"},
        {"/other?z", "http://a.example:81/other?z"},
        {"third", "http://a.example:81/one/third"},
        {"../up", "http://a.example:81/up"},
        {"//c.example/d", "http://c.example/d"},
        {"?q=2", "http://a.example:81/one/two?q=2"},
        {"", NULL},
        {"file:///etc/passwd", NULL},
        {"gopher://b.example/", NULL},
        {"http://user@b.example/", NULL},
        {"http://b.example:0/", NULL},
        {"http://b.example/with space", NULL},
    };
    char out[64];

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        bool leads =
            fetch_url_follow("http://a.example:81/one/two?q=1", rows[i].location, out, sizeof(out));

        CHECK_INT(leads, rows[i].leads != NULL);
        if (leads)
            CHECK_STR(str_of(out), rows[i].leads);
    }
    CHECK(!fetch_url_follow("http://a.example/", "/much-too-long", out, 20));
}

TEST(unix_socket)
{
    struct fetch_rig *rig = fetch_rig_new("fetch_test.sock", answer, NULL);
    struct fetch *fetch = fetch_new();
    auto_response struct fetch_response out = {0};
    struct error err = {0};

    CHECK_INT(fetch_call(fetch,
                         &(struct fetch_request){.method = "POST",
                                                 .url = at(rig, "/echo"),
                                                 .unix_path = "fetch_test.sock",
                                                 .body = STR("by path")},
                         &out, &err),
              0);
    CHECK_STR(buf_str(&out.body), "by path");
    CHECK_INT(fails(fetch,
                    &(struct fetch_request){
                        .method = "GET", .url = "http://localhost/", .unix_path = "absent.sock"},
                    &err),
              ERROR_UNAVAILABLE);
    fetch_free(fetch);
    fetch_rig_free(rig);
}

struct stop {
    struct fetch *fetch;
    struct fetch_rig *rig;
    int requests; /* under way when it stops */
    atomic_bool still;
};

static bool moves(void *arg, const char *unix_path)
{
    CHECK_STR(str_of(unix_path), "fetch_test.sock");
    return !atomic_load(&((struct stop *)arg)->still);
}

static void *stop_later(void *arg)
{
    struct stop *stop = arg;

    WAIT_FOR(fetch_rig_requests(stop->rig) == stop->requests);
    atomic_store(&stop->still, true);
    fetch_cut(stop->fetch, "another.sock");
    (void)usleep(100000); /* which nobody here notices */
    fetch_cut(stop->fetch, "fetch_test.sock");
    return NULL;
}

static int find_named(void *arg, const char *name, char *out, size_t size)
{
    ++*(int *)arg;
    return strcmp(name, "somebody") == 0 && str_copy(STR("fetch_test.sock"), out, size)
               ? 0
               : -ECONNREFUSED;
}

/* Nobody here knows where a name leads; its connections are kept like others. */
TEST(the_gate_says_where_a_name_leads)
{
    struct fetch_rig *rig = fetch_rig_new("fetch_test.sock", answer, NULL);
    struct fetch *fetch = fetch_new();
    struct fetch_request request = {
        .method = "GET", .url = "http://localhost/slow", .unix_path = "somebody"};
    struct fetch_response response;
    struct fetch_stream *stream = NULL;
    int connects = 0;
    char piece[16];

    fetch_set_gate(fetch, &(struct fetch_gate){.arg = &connects, .find = find_named});
    OK(fetch_open(fetch, &request, &stream, &err));
    CHECK_INT(fetch_read(stream, piece, sizeof(piece), 5000, &(struct error){0}), 5);
    fetch_close(stream);
    request.url = "http://localhost/";
    for (int i = 0; i < 3; i++) {
        OK(fetch_call(fetch, &request, &response, &err));
        buf_done(&response.body);
    }
    CHECK_INT(connects, 2);
    request.unix_path = "nobody";
    CHECK_INT(fails(fetch, &request, &(struct error){0}), ERROR_UNAVAILABLE);
    fetch_free(fetch);
    fetch_rig_free(rig);
}

/* What waits ends at once, what comes later does not begin. */
TEST(other_side_is_stopped)
{
    struct fetch_rig *rig = fetch_rig_new("fetch_test.sock", answer, NULL);
    struct fetch *fetch = fetch_new();
    struct stop stop = {.fetch = fetch, .rig = rig, .requests = 2};
    struct fetch_request hang = {
        .method = "POST", .url = at(rig, "/hang"), .unix_path = "fetch_test.sock"};
    struct fetch_request slow = {
        .method = "GET", .url = "http://localhost/slow", .unix_path = "fetch_test.sock"};
    struct fetch_stream *stream = NULL, *begun = NULL;
    struct error err = {0};
    pthread_t thread;
    char piece[16];

    fetch_set_gate(fetch, &(struct fetch_gate){.open = moves, .arg = &stop});
    CHECK_INT(fetch_open(fetch, &slow, &begun, &err), 0);
    CHECK_INT(fetch_read(begun, piece, sizeof(piece), 5000, &err), 5);
    CHECK(pthread_create(&thread, NULL, stop_later, &stop) == 0);
    CHECK_INT(fails(fetch, &hang, &err), ERROR_UNAVAILABLE);
    CHECK_INT(err.errnum, ECONNABORTED);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_INT(fetch_read(begun, piece, sizeof(piece), 10000, &err), -1);
    CHECK_INT(err.code, ERROR_UNAVAILABLE);

    atomic_store(&stop.still, false);
    stop.requests = 3;
    CHECK(pthread_create(&thread, NULL, stop_later, &stop) == 0);
    CHECK_INT(fetch_open(fetch, &hang, &stream, &err), -1);
    CHECK_INT(err.code, ERROR_UNAVAILABLE);
    CHECK_INT(err.errnum, ECONNABORTED);
    CHECK(pthread_join(thread, NULL) == 0);

    CHECK_INT(fails(fetch, &hang, &err), ERROR_CONFLICT);
    CHECK_INT(err.errnum, EHOSTDOWN);
    CHECK_INT(fetch_open(fetch, &hang, &stream, &err), -1);
    CHECK_INT(err.code, ERROR_CONFLICT);
    CHECK_INT(err.errnum, EHOSTDOWN);
    fetch_close(begun);
    fetch_free(fetch);
    fetch_rig_free(rig);
}

struct source {
    size_t left, fail_at;
};

static ssize_t give(void *arg, void *p, size_t size)
{
    struct source *source = arg;
    size_t n = source->left < size ? source->left : size;

    if (source->fail_at && source->left <= source->fail_at)
        return -1;
    memset(p, 'u', n);
    source->left -= n;
    return (ssize_t)n;
}

TEST(upload)
{
    struct fetch_rig *rig = fetch_rig_new(NULL, answer, NULL);
    struct fetch *fetch = fetch_new();
    struct error err = {0};

    for (int later = 0; later < 2; later++) {
        struct source source = {.left = BIG};
        auto_response struct fetch_response out = {0};

        CHECK_INT(
            fetch_call(fetch,
                       &(struct fetch_request){.method = "POST",
                                               .url = at(rig, "/echo"),
                                               .source = give,
                                               .source_arg = &source,
                                               .response_max = BIG,
                                               .source_length = later ? FETCH_BODY_LATER : BIG},
                       &out, &err),
            0);
        CHECK_INT(out.body.len, BIG);
        CHECK(out.body.p[BIG - 1] == 'u');
    }
    CHECK_INT(fails(fetch,
                    &(struct fetch_request){.method = "POST",
                                            .url = at(rig, "/echo"),
                                            .source = give,
                                            .source_arg =
                                                &(struct source){.left = BIG, .fail_at = BIG / 2},
                                            .source_length = FETCH_BODY_LATER},
                    &err),
              ERROR_CONFLICT);
    fetch_free(fetch);
    fetch_rig_free(rig);
}

static ssize_t read_all(struct fetch_stream *stream, struct buf *out, struct error *err)
{
    char piece[7000];
    ssize_t n;

    while ((n = fetch_read(stream, piece, sizeof(piece), 5000, err)) > 0)
        (void)buf_add(out, piece, (size_t)n);
    return n;
}

TEST(stream)
{
    struct fetch_rig *rig = fetch_rig_new(NULL, answer, NULL);
    struct fetch *fetch = fetch_new();
    auto_buf struct buf all = {0};
    struct fetch_stream *stream;
    struct error err = {0};

    buf_init(&all, BIG);
    CHECK_INT(fetch_open(fetch, &(struct fetch_request){.method = "GET", .url = at(rig, "/")},
                         &stream, &err),
              0);
    CHECK_INT(fetch_status(stream), 200);
    CHECK_INT(read_all(stream, &all, &err), 0);
    CHECK_STR(buf_str(&all), "one two");
    fetch_close(stream);
    buf_clear(&all);
    CHECK_INT(fetch_open(fetch, &(struct fetch_request){.method = "GET", .url = at(rig, "/big")},
                         &stream, &err),
              0);
    CHECK_INT(read_all(stream, &all, &err), 0);
    CHECK_INT(all.len, BIG);
    for (size_t i = 0; i < BIG; i++)
        CHECK(all.p[i] == (char)('a' + i % 23));
    fetch_close(stream);
    fetch_free(fetch);
    fetch_rig_free(rig);
}

TEST(stream_failures)
{
    struct fetch_rig *rig = fetch_rig_new(NULL, answer, NULL);
    struct fetch *fetch = fetch_new();
    auto_buf struct buf all = {0};
    struct fetch_stream *stream;
    struct error err = {0};
    char piece[16];

    buf_init(&all, BIG);
    CHECK_INT(fetch_open(fetch, &(struct fetch_request){.method = "GET", .url = at(rig, "/broken")},
                         &stream, &err),
              0);
    CHECK_INT(read_all(stream, &all, &err), -1);
    CHECK_INT(err.code, ERROR_UNAVAILABLE);
    CHECK_STR(buf_str(&all), "half");
    fetch_close(stream);
    CHECK_INT(fetch_open(fetch,
                         &(struct fetch_request){
                             .method = "GET", .url = at(rig, "/hang"), .timeout_ms = 100},
                         &stream, &err),
              -1);
    CHECK_INT(err.code, ERROR_TIMEOUT);
    CHECK_INT(fetch_open(
                  fetch,
                  &(struct fetch_request){.method = "GET", .url = at(rig, "/slow"), .idle_ms = 300},
                  &stream, &err),
              0);
    CHECK_INT(fetch_read(stream, piece, sizeof(piece), 5000, &err), 5);
    CHECK_INT(fetch_read(stream, piece, sizeof(piece), 10, &err), -1);
    CHECK_INT(err.code, ERROR_TIMEOUT);
    CHECK_INT(fetch_read(stream, piece, sizeof(piece), 60000, &err), -1);
    CHECK_INT(err.code, ERROR_TIMEOUT);
    fetch_close(stream);
    fetch_free(fetch);
    fetch_rig_free(rig);
}

static void *cancel_later(void *arg)
{
    (void)usleep(100000); /* the other thread reads by then; if not, the end is the same */
    fetch_cancel(arg);
    return NULL;
}

TEST(stream_cancelled)
{
    struct fetch_rig *rig = fetch_rig_new(NULL, answer, NULL);
    struct fetch *fetch = fetch_new();
    struct fetch_stream *stream;
    struct error err = {0};
    pthread_t thread;
    char piece[16];

    CHECK_INT(fetch_open(fetch, &(struct fetch_request){.method = "GET", .url = at(rig, "/slow")},
                         &stream, &err),
              0);
    CHECK_INT(fetch_read(stream, piece, sizeof(piece), 5000, &err), 5);
    CHECK(pthread_create(&thread, NULL, cancel_later, stream) == 0);
    CHECK_INT(fetch_read(stream, piece, sizeof(piece), 15000, &err), -1);
    CHECK_INT(err.code, ERROR_CONFLICT);
    CHECK_INT(fetch_read(stream, piece, sizeof(piece), 15000, &err), -1);
    CHECK_INT(err.code, ERROR_CONFLICT);
    CHECK(pthread_join(thread, NULL) == 0);
    fetch_close(stream);
    fetch_free(fetch);
    fetch_rig_free(rig);
}

static void *call_often(void *arg)
{
    struct fetch *fetch = arg;

    for (int i = 0; i < 50; i++) {
        auto_response struct fetch_response out = {0};
        struct error err = {0};

        CHECK_INT(
            fetch_call(fetch,
                       &(struct fetch_request){.method = "POST", .url = url, .body = STR("x")},
                       &out, &err),
            0);
        CHECK_STR(buf_str(&out.body), "x");
    }
    return NULL;
}

TEST(threads)
{
    struct fetch_rig *rig = fetch_rig_new(NULL, answer, NULL);
    struct fetch *fetch = fetch_new();
    pthread_t threads[16];

    (void)at(rig, "/echo");
    for (size_t i = 0; i < 16; i++)
        CHECK(pthread_create(&threads[i], NULL, call_often, fetch) == 0);
    for (size_t i = 0; i < 16; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK_INT(fetch_rig_requests(rig), 800);
    fetch_free(fetch);
    fetch_rig_free(rig);
}

TEST(public_only)
{
    /* Every way to write this host. */
    static const char *const hosts[] = {
        "127.0.0.1",          "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0",
        "[::ffff:127.0.0.1]", "[::1]", "localhost",  "x@127.0.0.1"};
    struct fetch_rig *rig = fetch_rig_new(NULL, answer, NULL);
    struct fetch *fetch = fetch_new();
    const char *port = strrchr(fetch_rig_url(rig), ':');
    auto_response struct fetch_response first = {0};
    struct fetch_stream *stream = NULL;
    struct error err = {0};

    /* A connection that somebody else was allowed to make is not used either. */
    CHECK_INT(fetch_call(fetch,
                         &(struct fetch_request){.method = "GET", .url = at(rig, "/connection")},
                         &first, &err),
              0);
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        auto_response struct fetch_response out = {0};
        char text[160];
        struct fetch_request request = {.method = "POST", .url = text, .reach = FETCH_PUBLIC};

        (void)snprintf(text, sizeof(text), "http://%s%s/connection", hosts[i], port);
        err = (struct error){0};
        CHECK_INT(fetch_call(fetch, &request, &out, &err), -1);
        /* Where there is no IPv6 its loopback is not even tried. */
        if (err.code != ERROR_FORBIDDEN && !(err.code == ERROR_UNAVAILABLE && hosts[i][0] == '['))
            test_fail(__FILE__, __LINE__, "%s: %s", text, err.message);
        CHECK_INT(fetch_open(fetch, &request, &stream, &err), -1);
    }
    CHECK_INT(fetch_rig_requests(rig), 1);
    fetch_free(fetch);
    fetch_rig_free(rig);
}

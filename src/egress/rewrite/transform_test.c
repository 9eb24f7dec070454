#include "egress/rewrite/transform.h"

#include <stdlib.h>

#include "base/test.h"
#include "protocol/json/json_shape.h"

#define RULES                                                                             \
    "{\"a.example\":[{\"transform\":{\"headers\":{\"Authorization\":\"old\","             \
    "\"X-Gone\":null}}},{\"transform\":{\"headers\":{\"authorization\":\"Bearer s\"}}}]," \
    "\"*.b.example\":[{\"transform\":{\"headers\":{\"X-Key\":\"k\"}}}]}"

static struct {
    struct rules rules;
    struct transform transform;
    struct buf out;
} at;

static const char *choose(void *arg, const struct http_request *request, const struct rule **out)
{
    struct host_name host;

    (void)arg;
    if (!host_name_set(&host, http_headers_get(&request->headers, "host")))
        return "no host";
    if (str_is(host_name_str(&host), "denied.example"))
        return "denied";
    *out = rules_for(&at.rules, &host);
    return NULL;
}

static void begin(void)
{
    auto_json json_t *json = json_loads(RULES, 0, NULL);

    rules_init(&at.rules);
    OK(rules_read(&at.rules, json, &err));
    transform_init(&at.transform, choose, NULL);
    buf_init(&at.out, (size_t)1024 * 1024);
}

static void done(void)
{
    transform_done(&at.transform);
    rules_done(&at.rules);
    buf_done(&at.out);
}

/* What is left has to wait. */
static struct str say(const char *text)
{
    struct str in = str_of(text);

    CHECK(transform_request(&at.transform, &in, &at.out));
    return in;
}

static void expect(const char *want)
{
    CHECK_STR(buf_str(&at.out), want);
    buf_clear(&at.out);
}

static void answer(const char *text)
{
    CHECK(transform_answer(&at.transform, str_of(text)));
}

TEST(headers_are_set_and_replaced)
{
    begin();
    (void)say("GET /x?y HTTP/1.1\r\nHost: a.example\r\nauthorization: mine\r\nAUTHORIZATION: "
              "again\r\nx-gone: 1\r\nAccept: */*\r\n\r\n");
    expect("GET /x?y HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\nAuthorization: Bearer "
           "s\r\n\r\n");
    (void)say("GET / HTTP/1.1\r\nHost: x.b.example\r\nX-Key: mine\r\n\r\n");
    expect("GET / HTTP/1.1\r\nHost: x.b.example\r\nX-Key: k\r\n\r\n");
    (void)say("GET / HTTP/1.1\r\nHost: b.example\r\nX-Key: mine\r\n\r\n");
    expect("GET / HTTP/1.1\r\nHost: b.example\r\nX-Key: mine\r\n\r\n");
    done();
}

TEST(bodies_have_one_end)
{
    begin();
    (void)say("POST / HTTP/1.1\r\nHost: c.example\r\nContent-Length: 5\r\nConnection: "
              "close, x\r\n\r\nhello");
    expect("POST / HTTP/1.1\r\nHost: c.example\r\nConnection: close\r\nContent-Length: "
           "5\r\n\r\nhello");
    (void)say("POST / HTTP/1.1\r\nHost: c.example\r\nTransfer-Encoding: Chunked\r\nTE: "
              "trailers\r\n\r\n5;x=y\r\nhello\r\n00\r\nEvil: 1\r\n\r\nGET / HTTP/1.0\r\nHost: "
              "a.example\r\n\r\n");
    expect("POST / HTTP/1.1\r\nHost: c.example\r\nTransfer-Encoding: "
           "chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.0\r\nHost: "
           "a.example\r\nAuthorization: Bearer s\r\n\r\n");
    done();
}

TEST(it_does_not_matter_how_bytes_are_cut)
{
    static const char text[] = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\nabc"
                               "GET / HTTP/1.1\r\nHost: c.example\r\n\r\n";

    begin();
    for (size_t i = 0; i < sizeof(text) - 1; i++) {
        struct str byte = str_n(text + i, 1);

        CHECK(transform_request(&at.transform, &byte, &at.out) && !byte.len);
    }
    expect("POST / HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer s\r\nContent-Length: "
           "3\r\n\r\nabcGET / HTTP/1.1\r\nHost: c.example\r\n\r\n");
    done();
}

static void expect_refused(const char *text)
{
    struct str in = str_of(text);

    begin();
    if (transform_request(&at.transform, &in, &at.out))
        test_fail(__FILE__, __LINE__, "was taken: %s", text);
    CHECK(!at.out.len && at.transform.fault);
    done();
}

#define HEAD "POST / HTTP/1.1\r\nHost: a.example\r\n"

TEST(what_could_be_read_in_two_ways_is_refused)
{
    expect_refused(HEAD "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n");
    expect_refused(HEAD "Content-Length: 3\r\nContent-Length: 3\r\n\r\n");
    expect_refused(HEAD "Content-Length: +3\r\n\r\n");
    expect_refused(HEAD "Transfer-Encoding: gzip, chunked\r\n\r\n");
    expect_refused(HEAD "Transfer-Encoding : chunked\r\n\r\n");
    expect_refused(HEAD "Transfer-Encoding:\r\n chunked\r\n\r\n");
    expect_refused(HEAD "X: 1\nTransfer-Encoding: chunked\r\n\r\n");
    expect_refused(HEAD "Host: b.example\r\n\r\n");
    expect_refused("GET http://c.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n");
    expect_refused("CONNECT c.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n");
    expect_refused("TRACE / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    expect_refused("GET / HTTP/1.1\r\nHost: denied.example\r\n\r\n");
    expect_refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
}

#define SOCKET                                                                           \
    "GET /s HTTP/1.1\r\nHost: a.example\r\nConnection: keep-alive, Upgrade\r\nUpgrade: " \
    "websocket\r\nSec-WebSocket-Key: x\r\n\r\n"
#define REST "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"

TEST(nothing_is_set_in_what_follows_an_upgrade)
{
    struct str left;

    begin();
    left = say(SOCKET REST);
    expect("GET /s HTTP/1.1\r\nHost: a.example\r\nSec-WebSocket-Key: x\r\nAuthorization: Bearer "
           "s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    CHECK(str_is(left, REST) && transform_waits(&at.transform));
    answer("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP");
    CHECK(transform_waits(&at.transform));
    answer("/1.1 101 S");
    answer("witching\r\nUpgrade: websocket\r\n\r\n\x81\x02hi");
    CHECK(!transform_waits(&at.transform));
    CHECK(transform_request(&at.transform, &left, &at.out));
    expect(REST);
    done();
}

TEST(an_upgrade_that_is_declined_changes_nothing)
{
    struct str left;

    begin();
    (void)say("HEAD / HTTP/1.1\r\nHost: c.example\r\n\r\n");
    left = say(SOCKET REST);
    buf_clear(&at.out);
    answer("HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"); /* to HEAD: nothing follows */
    CHECK(transform_waits(&at.transform));
    answer("HTTP/1.1 400 No\r\nContent-Length: 12\r\n\r\nHTTP/1.1 101");
    CHECK(!transform_waits(&at.transform));
    CHECK(transform_request(&at.transform, &left, &at.out));
    expect("GET / HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer s\r\n\r\n");
    done();
}

TEST(other_protocols_are_not_asked_for)
{
    begin();
    (void)say("GET / HTTP/1.1\r\nHost: c.example\r\nConnection: Upgrade, "
              "HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n");
    expect("GET / HTTP/1.1\r\nHost: c.example\r\n\r\n");
    CHECK(!transform_answer(&at.transform, STR("HTTP/1.1 101 x\r\n\r\n")));
    CHECK(at.transform.fault);
    done();
}

TEST(an_answer_that_is_not_understood_is_the_last)
{
    struct str in = STR(REST);

    begin();
    (void)say(REST);
    answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\nx");
    buf_clear(&at.out);
    CHECK(!transform_request(&at.transform, &in, &at.out) && !at.out.len);
    done();
}

TEST(requests_ahead_of_their_answers_are_counted)
{
    struct str left = STR_NONE;

    begin();
    for (int i = 0; i <= ASKED_MAX; i++)
        left = say(REST);
    CHECK(left.len && transform_waits(&at.transform));
    answer("HTTP/1.1 204 x\r\n\r\n");
    CHECK(!transform_waits(&at.transform));
    done();
}

static void expect_no_rules(const char *text, const char *part)
{
    auto_json json_t *json = json_loads(text, 0, NULL);
    struct error err;
    struct rules rules;

    rules_init(&rules);
    if (rules_read(&rules, json, &err) == 0 || !strstr(err.message, part))
        test_fail(__FILE__, __LINE__, "was taken: %s", text);
    rules_done(&rules);
}

TEST(rules_that_cannot_be_are_refused)
{
    expect_no_rules("[]", "must be an object");
    expect_no_rules("{\"a b\":[]}", "is no host");
    expect_no_rules("{\"*\":[]}", "is no host");
    expect_no_rules("{\"a.example\":{}}", "is no host");
    expect_no_rules("{\"a.example\":[{\"transform\":{\"headers\":{\"Host\":\"x\"}}}]}", "'Host'");
    expect_no_rules("{\"a.example\":[{\"transform\":{\"headers\":{\"A:\":\"x\"}}}]}", "'A:'");
    expect_no_rules("{\"a.example\":[{\"transform\":{\"headers\":{\"A\":\"x\\r\\nB: c\"}}}]}",
                    "one line");
    expect_no_rules("{\"a.example\":[{\"transform\":{\"headers\":{\"A\":1}}}]}", "one line");
}

TEST(the_nearest_rule_counts)
{
    auto_json json_t *json = json_loads(
        "{\"*.example\":[{\"transform\":{\"headers\":{\"A\":\"1\"}}}],\"*.a.example\":[{"
        "\"transform\":{\"headers\":{\"A\":\"2\"}}}],\"x.a.example\":[{\"transform\":{\"headers\":"
        "{\"A\":\"3\"}}}],\"y.a.example\":[{}]}",
        0, NULL);
    static const char *const cases[][2] = {
        {"x.a.example", "3"}, {"y.a.example", "2"}, {"z.y.a.example", "2"}, {"a.example", "1"}};
    struct host_name name;
    struct rules rules;

    rules_init(&rules);
    OK(rules_read(&rules, json, &err));
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        CHECK(host_name_set(&name, str_of(cases[i][0])));
        CHECK_STR(str_of(rules_for(&rules, &name)->headers[0].value), cases[i][1]);
    }
    CHECK(host_name_set(&name, STR("example")) && !rules_for(&rules, &name));
    rules_done(&rules);
}

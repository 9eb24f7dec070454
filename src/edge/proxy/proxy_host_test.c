/* The parts without sockets. */
#include "base/buf.h"
#include "base/test.h"
#include "edge/proxy/proxy_guard.h"
#include "edge/proxy/proxy_head.h"
#include "edge/proxy/proxy_host.h"

static void expect(const char *host, const char *id, const char *port, enum proxy_host result,
                   const char *wanted_id, int wanted_port)
{
    struct proxy_target target = {0};
    const char *error = "";
    enum proxy_host got = proxy_host_parse(str_of(host), str_of(id), str_of(port), &target, &error);

    if (got != result)
        test_fail(__FILE__, __LINE__, "host '%s': %d, not %d", host ? host : "", got, result);
    if (got == PROXY_HOST_OK) {
        CHECK_STR(str_of(target.id), wanted_id);
        CHECK_INT(target.port, wanted_port);
    } else if (got == PROXY_HOST_BAD) {
        CHECK_STR(str_of(error), wanted_id);
    }
}

TEST(host_forms)
{
    expect("3000-iabc123.e2b.dev", NULL, NULL, PROXY_HOST_OK, "iabc123", 3000);
    expect("3000-iabc123.localhost:3000", NULL, NULL, PROXY_HOST_OK, "iabc123", 3000);
    expect("49983-iabc-6532622b-x.sbx.test", NULL, NULL, PROXY_HOST_OK, "iabc", 49983);
    expect("8080-IABC.Sbx.Test", NULL, NULL, PROXY_HOST_OK, "iabc", 8080);
    /* The host decides alone. */
    expect("1-a.b", "other", "2", PROXY_HOST_OK, "a", 1);
    expect("65535-a.b", NULL, NULL, PROXY_HOST_OK, "a", 65535);
    expect("65536-a.b", NULL, NULL, PROXY_HOST_BAD, "Invalid host", 0);
    expect("0-a.b", NULL, NULL, PROXY_HOST_BAD, "Invalid host", 0);
    expect("000080-a.b", NULL, NULL, PROXY_HOST_BAD, "Invalid host", 0);
    expect("80-a.", NULL, NULL, PROXY_HOST_BAD, "Invalid host", 0);
    expect("80-.b", NULL, NULL, PROXY_HOST_BAD, "Invalid sandbox ID", 0);
    expect("80-a_b.c", NULL, NULL, PROXY_HOST_BAD, "Invalid sandbox ID", 0);
    expect("80-a%2e.c", NULL, NULL, PROXY_HOST_BAD, "Invalid sandbox ID", 0);
    expect("80-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.b", NULL, NULL,
           PROXY_HOST_BAD, "Invalid sandbox ID", 0);
}

TEST(host_headers)
{
    static const char *const hosts[] = {"localhost",    "localhost:3000", "127.0.0.1:3000",
                                        "[::1]:3000",   "10.1.2.3",       "sandbox.e2b.dev",
                                        "api.sbx.test", "80-nodot",       NULL};

    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        expect(hosts[i], "iabc", "49983", PROXY_HOST_OK, "iabc", 49983);
        expect(hosts[i], "iabc-6532622b", "80", PROXY_HOST_OK, "iabc", 80);
        expect(hosts[i], "iabc", NULL, PROXY_HOST_BAD, "missing header", 0);
        expect(hosts[i], NULL, "80", PROXY_HOST_BAD, "missing header", 0);
        expect(hosts[i], "", "80", PROXY_HOST_BAD, "missing header", 0);
        expect(hosts[i], "../x", "80", PROXY_HOST_BAD, "Invalid sandbox ID", 0);
        expect(hosts[i], "a/b", "80", PROXY_HOST_BAD, "Invalid sandbox ID", 0);
        expect(hosts[i], "iabc", "x", PROXY_HOST_BAD, "Invalid sandbox port", 0);
        expect(hosts[i], "iabc", "-1", PROXY_HOST_BAD, "Invalid sandbox port", 0);
        if (!hosts[i] || strncmp(hosts[i], "sandbox.", 8) != 0)
            expect(hosts[i], NULL, NULL, PROXY_HOST_NONE, NULL, 0);
        else
            expect(hosts[i], NULL, NULL, PROXY_HOST_BAD, "missing header", 0);
    }
}

TEST(guard_control_routes)
{
    static const char *const refused[] = {
        "/init",          "//init",    "/./init",   "/init/",   "/%69nit",   "/%2569nit",
        "/x/../init",     "/init/.",   "/init;a=b", "/Init",    "/init%00",  "/init%2f",
        "/%2finit",       "/init%3fx", "/init/x",   "/freeze",  "/unfreeze", "/collapse",
        "/fsfreeze",      "/fsthaw",   "/upgrade",  "/%5cinit", "/init%20",  "/%252569nit",
        "/x/%2e%2e/init", "init",
    };
    static const char *const passed[] = {
        "/",       "/health",  "/initial", "/files?path=/init",
        "/a/init", "/%zzinit", "",         "/process.Process/Start"};

    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        if (!proxy_guard_is_control(str_of(refused[i])))
            test_fail(__FILE__, __LINE__, "'%s' passed", refused[i]);
    }
    for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]); i++) {
        if (proxy_guard_is_control(str_of(passed[i])))
            test_fail(__FILE__, __LINE__, "'%s' refused", passed[i]);
    }
}

TEST(guard_envds_paths)
{
    static const char *const envds[] = {"/health",
                                        "/files",
                                        "/files/compose",
                                        "/metrics",
                                        "/init",
                                        "/process.Process/Start",
                                        "/filesystem.Filesystem/Stat"};
    static const char *const others[] = {
        "/",        "/sandboxes/i/connect", "/v2/sandboxes", "/filesystem", "/healthy",
        "/process", "/api/v1/sandboxes"};

    for (size_t i = 0; i < sizeof(envds) / sizeof(envds[0]); i++)
        CHECK(proxy_guard_is_envds(str_of(envds[i])));
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        CHECK(!proxy_guard_is_envds(str_of(others[i])));
}

TEST(guard_of_deep_paths)
{
    auto_buf struct buf path = {0};

    buf_init(&path, 4096);
    (void)buf_add_str(&path, STR("/init"));
    for (int i = 0; i < 100; i++)
        (void)buf_add_str(&path, STR("/a"));
    for (int i = 0; i < 100; i++)
        (void)buf_add_str(&path, STR("/.."));
    CHECK(proxy_guard_is_control(buf_str(&path)));
    (void)buf_add_str(&path, STR("/../files"));
    CHECK(!proxy_guard_is_control(buf_str(&path)));
}

TEST(guard_traffic_token)
{
    struct route route = {.traffic_token = "secret"};

    CHECK_INT(proxy_guard_traffic(&route, 3000, STR_NONE), PROXY_TRAFFIC_MISSING);
    CHECK_INT(proxy_guard_traffic(&route, 3000, STR("")), PROXY_TRAFFIC_MISSING);
    CHECK_INT(proxy_guard_traffic(&route, 3000, STR("secre")), PROXY_TRAFFIC_INVALID);
    CHECK_INT(proxy_guard_traffic(&route, 3000, STR("secretsecret")), PROXY_TRAFFIC_INVALID);
    CHECK_INT(proxy_guard_traffic(&route, 3000, STR("secreT")), PROXY_TRAFFIC_INVALID);
    CHECK_INT(proxy_guard_traffic(&route, 3000, STR("secret")), PROXY_TRAFFIC_OK);
    CHECK_INT(proxy_guard_traffic(&route, PROXY_ENVD_PORT, STR_NONE), PROXY_TRAFFIC_OK);
    route.traffic_token[0] = '\0';
    CHECK_INT(proxy_guard_traffic(&route, 3000, STR_NONE), PROXY_TRAFFIC_OK);
}

TEST(head_rewriting)
{
    struct pair items[] = {
        {STR("Host"), STR("80-i.d")},
        {STR("Connection"), STR("keep-alive, X-Hop, Host")},
        {STR("X-Hop"), STR("1")},
        {STR("Keep-Alive"), STR("5")},
        {STR("Expect"), STR("100-continue")},
        {STR("Transfer-Encoding"), STR("chunked")},
        {STR("E2B-Traffic-Access-Token"), STR("secret")},
        {STR("X-Forwarded-For"), STR("9.9.9.9")},
        {STR("Accept"), STR("*/*")},
    };
    struct http_request request = {.method = STR("POST"),
                                   .target = STR("/a?b=c"),
                                   .headers = {items, sizeof(items) / sizeof(items[0])},
                                   .content_length = -1,
                                   .chunked = true,
                                   .minor = 1};
    struct proxy_head_origin origin = {.peer = "1.2.3.4", .mask = ""};
    struct buf out;

    buf_init(&out, 10000);
    proxy_head_request(&request, &origin, &out);
    CHECK_STR(buf_str(&out),
              "POST /a?b=c HTTP/1.1\r\nHost: 80-i.d\r\nAccept: */*\r\n"
              "Transfer-Encoding: chunked\r\nX-Forwarded-For: 9.9.9.9, 1.2.3.4\r\n"
              "X-Forwarded-Proto: http\r\nX-Forwarded-Host: 80-i.d\r\nConnection: close\r\n\r\n");
    buf_clear(&out);
    request.chunked = false;
    request.content_length = 0;
    origin.mask = "localhost:80";
    proxy_head_request(&request, &origin, &out);
    CHECK_STR(buf_str(&out),
              "POST /a?b=c HTTP/1.1\r\nHost: localhost:80\r\nAccept: */*\r\n"
              "Content-Length: 0\r\nX-Forwarded-For: 9.9.9.9, 1.2.3.4\r\n"
              "X-Forwarded-Proto: http\r\nX-Forwarded-Host: 80-i.d\r\nConnection: close\r\n\r\n");
    buf_clear(&out);
    request.upgrade = true;
    origin.envd = true;
    origin.mask = "";
    items[1] = (struct pair){STR("Upgrade"), STR("websocket")};
    proxy_head_request(&request, &origin, &out);
    CHECK_STR(buf_str(&out), "POST /a?b=c HTTP/1.1\r\nHost: 80-i.d\r\nX-Hop: 1\r\n"
                             "X-Forwarded-For: 9.9.9.9\r\nAccept: */*\r\nContent-Length: 0\r\n"
                             "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    buf_done(&out);
}

/* Protocols that carry further requests, and wishes with a body, are not passed on. */
TEST(signing_in_a_connection_binds_it)
{
    static const struct {
        const char *value;
        bool binds;
    } cases[] = {{"NTLM", true},
                 {"negotiate abc", true},
                 {"Basic abc", false},
                 {"Bearer x", false},
                 {"", false}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pair items[] = {{STR("Accept"), STR("NTLM")},
                               {STR("Authorization"), str_of(cases[i].value)}};
        struct http_request request = {
            .method = STR("GET"), .headers = {items, 2}, .content_length = -1, .minor = 1};

        CHECK_INT(proxy_head_binds(&request.headers, "authorization"), cases[i].binds);
        CHECK_INT(proxy_head_keeps(&request), !cases[i].binds);
    }
}

TEST(upgrades)
{
    static const struct {
        const char *asked, *answered;
        bool passed, switched;
    } rows[] = {
        {"websocket", "websocket", true, true},
        {"websocket", "WebSocket", true, true},
        {"websocket", "h2c", true, false},
        {"websocket", "", true, false},
        {"a, b", "b", true, true},
        {"a, b", "a, b", true, false},
        {"h2c", "h2c", false, false},
        {"websocket, H2C", "websocket", false, false},
        {"HTTP/2.0", "HTTP/2.0", false, false},
        {"TLS/1.0, HTTP/1.1", "TLS/1.0", false, false},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct pair items[] = {{STR("Connection"), STR("Upgrade")},
                               {STR("Upgrade"), str_of(rows[i].asked)}};
        struct pair back[] = {{STR("Upgrade"), str_of(rows[i].answered)}};
        struct http_headers answer = {back, 1};
        struct http_request request = {
            .headers = {items, 2}, .content_length = -1, .upgrade = true, .minor = 1};

        CHECK_INT(http_upgrades(&request), rows[i].passed);
        CHECK_INT(proxy_head_switches(&request, &answer), rows[i].switched);
        request.content_length = 1;
        CHECK(!http_upgrades(&request));
        CHECK(!proxy_head_switches(&request, &answer));
    }
}

static void expect_response(enum proxy_place place, const char *wanted)
{
    struct pair items[] = {
        {STR("content-type"), STR("text/html")},
        {STR("Content-Disposition"), STR("inline; filename=a.html")},
        {STR("Set-Cookie"), STR("a=b")},
        {STR("CLEAR-SITE-DATA"), STR("*")},
        {STR("Service-Worker-Allowed"), STR("/")},
        {STR("X-Content-Type-Options"), STR("no")},
        {STR("WWW-Authenticate"), STR("Basic")},
        {STR("Location"), STR("/ui")},
        {STR("Keep-Alive"), STR("5")},
    };
    struct http_headers answer = {items, sizeof(items) / sizeof(items[0])}, kept;
    struct arena arena = {0};
    struct buf out;

    buf_init(&out, 4096);
    kept = proxy_head_response(&answer, place, &arena);
    for (size_t i = 0; i < kept.count; i++)
        (void)buf_printf(&out, "%.*s: %.*s\n", STR_ARG(kept.items[i].name),
                         STR_ARG(kept.items[i].value));
    CHECK_STR(buf_str(&out), wanted);
    buf_done(&out);
    arena_done(&arena);
}

#define CAGE                                                              \
    "Content-Security-Policy: sandbox\nX-Content-Type-Options: nosniff\n" \
    "Vary: E2b-Sandbox-Id, E2b-Sandbox-Port, X-Access-Token\n"

TEST(answers_on_the_control_planes_host)
{
    expect_response(PROXY_PLACE_OWN,
                    "content-type: text/html\nContent-Disposition: inline; filename=a.html\n"
                    "Set-Cookie: a=b\nCLEAR-SITE-DATA: *\nService-Worker-Allowed: /\n"
                    "X-Content-Type-Options: no\nWWW-Authenticate: Basic\nLocation: /ui\n");
    expect_response(PROXY_PLACE_HEADER,
                    "content-type: text/html\nContent-Disposition: inline; filename=a.html\n"
                    "WWW-Authenticate: Basic\nLocation: /ui\n" CAGE);
    expect_response(PROXY_PLACE_LINK, "content-type: text/html\n" CAGE
                                      "Content-Disposition: attachment; filename=a.html\n");
}

TEST(guard_scripts)
{
    struct pair item = {STR("Service-Worker"), STR("script")};
    struct http_request request = {.headers = {&item, 1}};

    CHECK(proxy_guard_is_script(&request));
    item = (struct pair){STR("Sec-Fetch-Dest"), STR("script")};
    CHECK(proxy_guard_is_script(&request));
    item.value = STR("document");
    CHECK(!proxy_guard_is_script(&request));
    item.value = STR("image");
    CHECK(!proxy_guard_is_script(&request));
}

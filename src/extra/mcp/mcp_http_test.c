/* The way through the server, the workers and back, over real sockets, on a domain of the tests' own. */
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/test.h"
#include "edge/api_runtime/test/v1_fake.h"
#include "extra/mcp/mcp.h"
#include "protocol/http/http_limits.h"
#include "protocol/http/test/http_test_site.h"
#include "protocol/loop/workers.h"

#define KEY   "Authorization: Bearer " V1_FAKE_KEY "\r\n"
#define CLOSE "Host: x\r\nConnection: close\r\n"

struct site {
    struct http_site http;
    struct workers *control, *work;
    struct mcp *mcp;
};

static void on_request(struct http_exchange *ex, void *arg)
{
    if (!mcp_handle(arg, ex))
        http_reply(ex, 418, NULL, 0, STR("not ours"));
}

/* each: how many workers the lanes have. */
static void start_with(struct site *site, const char *fixtures, size_t each)
{
    log_set_level(LOG_ERROR);
    site->control = workers_new_elastic(each, 16);
    site->work = workers_new_elastic(each, 16);
    site->mcp = mcp_new(&(struct mcp_config){
        .lanes = {[MCP_LANE_CONTROL] = {site->control, 0}, [MCP_LANE_WORK] = {site->work, 0}},
        .limits = http_limits_new(&(struct http_limits_config){.body_bytes = 64 * 1024 * 1024}),
        .domain = "sand.example",
        .fixtures = fixtures});
    http_site_start(&site->http, on_request, site->mcp);
}

static void start(struct site *site, const char *fixtures)
{
    start_with(site, fixtures, 4);
}

static void post(const struct site *site, const char *heads, const char *body, char *out,
                 size_t size)
{
    (void)snprintf(out, size,
                   "POST /mcp HTTP/1.1\r\n" CLOSE "Accept: application/json, text/event-stream\r\n"
                   "%sContent-Length: %zu\r\n\r\n%s",
                   heads, strlen(body), body);
    (void)site;
}

static void check(const struct site *site, const char *heads, const char *body, const char *begins,
                  const char *has)
{
    char request[4096];

    post(site, heads, body, request, sizeof(request));
    http_site_check(&site->http, request, begins, has);
}

static void check_call(const struct site *site, const char *name, const char *args, const char *has)
{
    char body[2048];

    (void)snprintf(body, sizeof(body),
                   "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":"
                   "\"%s\",\"arguments\":%s}}",
                   name, args);
    check(site, KEY, body, "HTTP/1.1 200 ", has);
}

TEST(mcp_who_may_ask)
{
    const char *ping = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}";
    struct site site;

    start(&site, NULL);
    http_site_check(&site.http, "POST /mcpx HTTP/1.1\r\n" CLOSE "\r\n", "HTTP/1.1 418 ", NULL);
    http_site_check(&site.http, "GET /mcp HTTP/1.1\r\n" KEY CLOSE "\r\n", "HTTP/1.1 405 ",
                    "Allow: POST");
    http_site_check(&site.http, "OPTIONS /mcp HTTP/1.1\r\n" CLOSE "\r\n", "HTTP/1.1 204 ",
                    "Mcp-Session-Id");
    http_site_check(&site.http, "DELETE /mcp HTTP/1.1\r\n" KEY CLOSE "Mcp-Session-Id: s\r\n\r\n",
                    "HTTP/1.1 204 ", NULL);
    check(&site, "", ping, "HTTP/1.1 401 ", "WWW-Authenticate: Bearer");
    check(&site, "Authorization: Bearer no\r\n", ping, "HTTP/1.1 401 ", "\"id\":null");
    check(&site, KEY, ping, "HTTP/1.1 200 ", "\"id\":1,\"result\":{}");
    check(&site, KEY "Origin: http://localhost:8080\r\n", ping, "HTTP/1.1 200 ", NULL);
    check(&site, KEY "Origin: https://sand.example\r\n", ping, "HTTP/1.1 200 ", NULL);
    check(&site, KEY "Origin: http://evil.example.com\r\n", ping, "HTTP/1.1 403 ", "origin");
    check(&site, KEY "Origin: null\r\n", ping, "HTTP/1.1 403 ", NULL);
    http_site_check(&site.http,
                    "POST /mcp?api_key=" V1_FAKE_KEY " HTTP/1.1\r\n" CLOSE
                    "Content-Length: 40\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}",
                    "HTTP/1.1 200 ", "\"result\"");
}

TEST(mcp_methods)
{
    struct site site;

    start(&site, NULL);
    check(&site, KEY, "nonsense", "HTTP/1.1 400 ", "-32700");
    check(&site, KEY, "[]", "HTTP/1.1 400 ", "-32600");
    check(&site, KEY, "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"no/such\"}", "HTTP/1.1 200 ",
          "\"id\":7,\"error\":{\"code\":-32601");
    check(&site, KEY, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}",
          "HTTP/1.1 202 ", NULL);
    check(&site, KEY, "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}", "HTTP/1.1 202 ", NULL);
    check(&site, KEY,
          "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":"
          "\"2025-06-18\",\"capabilities\":{}}}",
          "HTTP/1.1 200 ", "\"protocolVersion\":\"2025-06-18\"");
    check(&site, KEY,
          "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":"
          "\"2\",\"capabilities\":{}}}",
          "HTTP/1.1 200 ", "Mcp-Session-Id: ");
    check(&site, KEY, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}", "HTTP/1.1 200 ",
          "\"name\":\"run_command\"");
    check(&site, KEY "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: ping\r\n",
          "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{\"_meta\":{"
          "\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","
          "\"io.modelcontextprotocol/clientCapabilities\":{}}}}",
          "HTTP/1.1 404 ", "-32601");
    check(&site, KEY "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: server/discover\r\n",
          "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{"
          "\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","
          "\"io.modelcontextprotocol/clientCapabilities\":{}}}}",
          "HTTP/1.1 200 ", "\"resultType\":\"complete\"");
}

TEST(mcp_tools_do_what_they_say)
{
    struct site site;

    start(&site, NULL);
    check_call(&site, "nothing", "{}", "\"code\":-32602");
    check_call(&site, "run_command", "{}", "the argument 'command' is missing");
    check_call(&site, "run_command", "{\"command\":7}", "must be of the type string");
    check_call(&site, "run_command", "{\"command\":\"true\",\"what\":1}", "no argument 'what'");
    check_call(&site, "run_command", "{\"command\":\"true\",\"sandbox_id\":\"" V1_FAKE_ID "\"}",
               "\"exit_code\":3");
    check_call(&site, "run_command", "{\"command\":\"true\"}", "\"isError\":false");
    CHECK(strstr(v1_fake.asked, "ensure(mcp:k,,,1) "));
    check_call(&site, "sandbox_list", "{}", V1_FAKE_ID);
    check_call(&site, "sandbox_kill", "{\"sandbox_id\":\"" V1_FAKE_ID "\"}", "\"killed\":true");
    check_call(&site, "sandbox_url", "{\"port\":70000}", "must be from 1 to 65535");
    v1_fake.file_size = 300000;
    check_call(&site, "read_file", "{\"path\":\"/a\",\"sandbox_id\":\"" V1_FAKE_ID "\"}",
               "\"next\":262144");
    check_call(&site, "write_file",
               "{\"path\":\"/a\",\"content\":\"eHh4\",\"encoding\":\"base64\",\"sandbox_id\":"
               "\"" V1_FAKE_ID "\"}",
               "\"size\":3");
    CHECK_INT(v1_fake.written, 3);
    v1_fake.fail = (struct error){.code = ERROR_QUOTA, .message = "too many " V1_FAKE_SECRET};
    check_call(&site, "sandbox_create", "{}", "too many ***");
    v1_fake.fail = (struct error){.code = ERROR_INTERNAL, .message = "path /secret"};
    check_call(&site, "sandbox_create", "{}", "internal error");
}

TEST(mcp_code_and_screens)
{
    struct site site;

    start(&site, NULL);
    check_call(&site, "run_code", "{\"code\":\"1\"}",
               "\"content\":[{\"type\":\"text\",\"text\":\"x\"}]");
    CHECK(strstr(v1_fake.asked, "ensure(mcp-code-interpreter-v1:k,code-interpreter-v1,,1) "));
    check_call(&site, "run_code", "{\"code\":\"plot\",\"sandbox_id\":\"" V1_FAKE_ID "\"}",
               "{\"type\":\"image\",\"data\":\"aGk=\",\"mimeType\":\"image/png\"}");
    check_call(&site, "run_code", "{\"code\":\"plot\",\"sandbox_id\":\"" V1_FAKE_ID "\"}",
               "\"results\":[{\"is_main_result\":false,\"text\":\"<Figure>\",\"formats\":[\"text\","
               "\"png\"]}]");
    check_call(&site, "run_code", "{\"code\":\"1\",\"language\":\"r\",\"context_id\":\"c\"}",
               "either 'language' or 'context_id'");
    check_call(&site, "desktop_screenshot", "{\"sandbox_id\":\"" V1_FAKE_ID "\"}",
               "{\"type\":\"image\",\"data\":\"iVBORw0KGgo=\",\"mimeType\":\"image/png\"}");
    check_call(&site, "desktop_click",
               "{\"x\":7,\"y\":8,\"count\":2,\"sandbox_id\":\"" V1_FAKE_ID "\"}", "\"done\":true");
    CHECK(strstr(v1_fake.asked, "desktop(1,7,8,2,0) "));
    check_call(&site, "desktop_key", "{\"keys\":[\"a\",\"b\"]}", "\"done\":true");
    CHECK(strstr(v1_fake.asked, "ensure(mcp-desktop:k,desktop,,1) "));
    check_call(&site, "desktop_key", "{\"keys\":\"a\"}", "must be of the type array");
    check_call(&site, "desktop_drag", "{\"x\":1,\"y\":2}", "the argument 'to_x' is missing");
    check_call(&site, "desktop_move", "{\"x\":-1,\"y\":2}", "must be from 0 to 16384");
}

TEST(mcp_pages_of_a_browser)
{
    struct site site;

    start(&site, NULL);
    check_call(&site, "browser_open", "{\"url\":\"http://a/\"}", "\"url\":\"about:blank\"");
    CHECK(strstr(v1_fake.asked, "ensure(mcp-browser:k,browser,,1) "));
    CHECK(strstr(v1_fake.asked, "browser(goto,http://a/) "));
    check_call(&site, "browser_text", "{\"selector\":\"b\",\"sandbox_id\":\"" V1_FAKE_ID "\"}",
               "\"truncated\":false");
    check_call(&site, "browser_screenshot", "{\"sandbox_id\":\"" V1_FAKE_ID "\"}",
               "\"mimeType\":\"image/png\"");
    check_call(&site, "browser_pdf", "{\"sandbox_id\":\"" V1_FAKE_ID "\"}",
               "\"mimeType\":\"application/pdf\"");
    check_call(&site, "browser_open", "{}", "the argument 'url' is missing");
    check_call(&site, "browser_type", "{\"text\":\"a\",\"key\":\"F13\"}", "'key' must be one of");
    check_call(&site, "browser_click", "{\"x\":-1,\"y\":2}", "must be from 0 to 32768");
}

/* meta: what follows the arguments. */
static int ask_hanging(const struct site *site, const char *heads, const char *meta)
{
    char body[1024], request[4096];

    (void)snprintf(
        body, sizeof(body),
        "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"tools/call\",\"params\":{\"name\":"
        "\"run_command\",\"arguments\":{\"command\":\"c\",\"sandbox_id\":\"" V1_FAKE_ID "\"}%s}}",
        meta);
    post(site, heads, body, request, sizeof(request));
    return http_site_ask(&site->http, request);
}

TEST(mcp_output_is_progress_and_cancelling_ends_it)
{
    auto_buf struct buf text = {0};
    struct site site;
    int fd;

    buf_init(&text, 1 << 20);
    start(&site, NULL);
    v1_fake.hangs = true;
    fd = ask_hanging(&site, KEY "Mcp-Session-Id: s1\r\n", ",\"_meta\":{\"progressToken\":\"t\"}");
    /* Of another session, and another id: nothing happens. */
    check(&site, KEY "Mcp-Session-Id: s2\r\n",
          "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/"
          "cancelled\",\"params\":{\"requestId\":\"x\"}}",
          "HTTP/1.1 202 ", NULL);
    check(
        &site, KEY "Mcp-Session-Id: s1\r\n",
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}",
        "HTTP/1.1 202 ", NULL);
    CHECK_INT(v1_fake.stopped, 0);
    WAIT_FOR(strstr(v1_fake.asked, "exec("));
    check(&site, KEY "Mcp-Session-Id: s1\r\n",
          "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/"
          "cancelled\",\"params\":{\"requestId\":\"x\"}}",
          "HTTP/1.1 202 ", NULL);
    http_site_read_all(fd, &text);
    CHECK(strstr(text.p, "text/event-stream"));
    CHECK(strstr(text.p, "\"progressToken\":\"t\""));
    CHECK(strstr(text.p, "\"code\":-32800"));
}

TEST(mcp_a_client_that_leaves_ends_its_command)
{
    struct site site;
    char byte;
    int fd;

    start(&site, NULL);
    v1_fake.hangs = true;
    /* Before anything was answered, and in the middle of a stream. */
    fd = ask_hanging(&site, KEY, "");
    WAIT_FOR(strstr(v1_fake.asked, "exec("));
    (void)close(fd);
    WAIT_FOR(v1_fake.stopped == 1);
    fd = ask_hanging(&site, KEY, ",\"_meta\":{\"progressToken\":\"t\"}");
    CHECK(read(fd, &byte, 1) == 1);
    (void)close(fd);
    WAIT_FOR(v1_fake.stopped == 2);
}

TEST(mcp_commands_take_no_worker_of_kill_and_list)
{
    struct site site;
    int fds[3];

    start_with(&site, NULL, 1);
    v1_fake.hangs = true;
    for (size_t i = 0; i < 3; i++)
        fds[i] = ask_hanging(&site, KEY, "");
    WAIT_FOR(strstr(v1_fake.asked, "exec("));
    check_call(&site, "sandbox_list", "{}", V1_FAKE_ID);
    check_call(&site, "sandbox_kill", "{\"sandbox_id\":\"" V1_FAKE_ID "\"}", "\"killed\":true");
    check(&site, KEY, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}", "HTTP/1.1 200 ",
          "\"result\":{}");
    CHECK_INT(v1_fake.stopped, 0);
    for (size_t i = 0; i < 3; i++)
        (void)close(fds[i]);
    WAIT_FOR(v1_fake.stopped >= 1);
}

TEST(mcp_fixtures)
{
    struct site site;

    start(
        &site,
        "{\"capabilities\":{\"tools\":{},\"prompts\":{}},\"tools\":[{\"name\":\"canned\"}],"
        "\"answers\":["
        "{\"method\":\"tools/call\",\"name\":\"canned\",\"result\":{\"content\":[]}},"
        "{\"method\":\"resources/read\",\"uri\":\"test://a/*/b\",\"result\":{\"id\":\"<{{*}}>\"}},"
        "{\"method\":\"prompts/get\",\"result\":{\"text\":\"{{one}}, {{two}}\"}}]}");
    check(&site, KEY, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}", "HTTP/1.1 200 ",
          "\"name\":\"canned\"");
    check_call(&site, "canned", "{}", "\"content\":[]");
    check(&site, KEY,
          "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"resources/read\",\"params\":{\"uri\":"
          "\"test://a/12/b\"}}",
          "HTTP/1.1 200 ", "<12>");
    check(&site, KEY,
          "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"prompts/get\",\"params\":{\"arguments\":{"
          "\"one\":\"1\",\"two\":\"2\"}}}",
          "HTTP/1.1 200 ", "1, 2");
}

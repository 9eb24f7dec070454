/* The gateway against hostile MCP servers: programs of bash that answer as a server would, and then misbehave. The loop
 * is run by the test, so that the clock can be moved between two of its turns. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/test.h"
#include "extra/mcp/gateway/gateway.h"
#include "protocol/json/json_shape.h"

/* Initialised, and with one tool. */
#define READY                                                                       \
    "read l; echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}'; read l; read l; " \
    "echo '{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"tools\":[{\"name\":\"t\"}]}}'; "

enum { CALLS = 100 };

static struct gateway all;
static struct {
    int answered, refused;
    char why[256];
} seen;

/* As in main.c, but the process stays. */
void gateway_tell(struct gateway *gateway, const char *what)
{
    (void)gateway;
    (void)what;
}

static void on_answer(void *arg, json_t *answer, const char *why)
{
    (void)arg;
    seen.answered += answer != NULL;
    seen.refused += answer == NULL;
    if (why)
        (void)snprintf(seen.why, sizeof(seen.why), "%s", why);
}

static bool turn(void)
{
    (void)uv_run(loop_uv(all.loop), UV_RUN_NOWAIT);
    return false;
}

#define RUN_UNTIL(cond) WAIT_FOR(turn() || (cond))

static struct server *add_server(const char *line)
{
    struct server_config config = {
        .name = xstrdup("npm/test"), .run = xstrdup(line), .cwd = xstrdup("/")};
    struct server *server;

    if (!all.loop) {
        all.loop = loop_new();
        list_init(&all.requests);
        all.told_fd = -1;
    }
    server = server_new(&all, &config);
    all.servers[all.count++] = server;
    server_start(server);
    return server;
}

static struct asked *call(struct server *server)
{
    return server_ask(server, "tools/call", json_pack("{s:s}", "name", "t"),
                      &(struct asked){.on_answer = on_answer});
}

TEST(calls_that_took_too_long_end_together)
{
    struct server *server = add_server(READY "cat >/dev/null");

    RUN_UNTIL(all.ready == 1);
    for (int i = 0; i < CALLS; i++)
        CHECK(call(server));
    clock_test_pass((GATEWAY_CALL_MS + INT64_C(1000)) * 1000);
    RUN_UNTIL(seen.refused > 0);
    CHECK_INT(seen.refused, CALLS);
    CHECK_STR(str_of(seen.why), "it took too long to answer");
}

TEST(a_server_learns_that_nobody_waits_for_a_call_any_more)
{
    char path[] = "/tmp/mcp-gateway-XXXXXX", text[4096] = "";
    auto_free char *line = NULL;
    struct server *server;
    int fd = mkstemp(path);

    CHECK(fd >= 0);
    line = xasprintf(READY "cat >%s", path);
    server = add_server(line);
    RUN_UNTIL(all.ready == 1);
    CHECK(call(server));
    clock_test_pass((GATEWAY_CALL_MS + INT64_C(1000)) * 1000);
    RUN_UNTIL(seen.refused == 1);
    RUN_UNTIL(pread(fd, text, sizeof(text) - 1, 0) > 0 && strstr(text, "notifications/cancelled"));
    CHECK(strstr(text, "\"requestId\":3"));
    (void)close(fd);
    (void)unlink(path);
}

/* The gateway has one thread: what one server makes it do, all others wait for. */
TEST(a_server_that_sends_empty_lines_does_not_hold_up_another)
{
    struct server *good;
    int64_t begun;

    (void)add_server(READY "exec yes ''");
    good =
        add_server(READY "while read l; do n=${l#*\\\"id\\\":}; n=${n%%[!0-9]*}; echo "
                         "\"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":$n,\\\"result\\\":{}}\"; done");
    RUN_UNTIL(all.ready == 2);
    begun = clock_mono_ms();
    for (int i = 0; i < 10; i++) {
        CHECK(call(good));
        RUN_UNTIL(seen.answered == i + 1);
    }
    CHECK(clock_mono_ms() - begun < 5000 * (int64_t)test_patience());
}

/* After each of them the list is asked for: one at a time, so that calls keep their places. */
TEST(a_flood_of_changed_lists_leaves_room_for_calls)
{
    struct server *server = add_server(
        READY "read l; for ((i = 0; i < 2000; i++)); do echo "
              "'{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}'; done; "
              "echo '{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}'; cat >/dev/null");
    int taken = 0;

    RUN_UNTIL(all.ready == 1);
    CHECK(call(server));
    RUN_UNTIL(seen.answered == 1); /* it is behind the flood */
    for (int i = 0; i < CALLS; i++)
        taken += call(server) != NULL;
    CHECK_INT(taken, CALLS);
}

TEST(all_servers_together_have_a_limit_of_tools)
{
    static const char many[] =
        "read l; echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}'; read l; read l; printf "
        "'{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"tools\":['; for ((i = 0; i < 1000; i++)); do "
        "printf '{\"name\":\"t%d\"},' $i; done; echo '{\"name\":\"last\"}]}}'; cat >/dev/null";
    struct server *one = add_server(many), *two;

    RUN_UNTIL(all.ready == 1);
    two = add_server(many);
    RUN_UNTIL(all.ready == 2);
    CHECK_INT(json_array_size(server_tools(one)), 1001);
    CHECK_INT(json_array_size(server_tools(one)) + json_array_size(server_tools(two)),
              GATEWAY_TOOLS_MAX);
}

TEST(tools_have_a_limit_of_bytes)
{
    static const char large[] =
        "read l; echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}'; read l; read l; "
        "x=$(head -c 60000 /dev/zero | tr '\\0' x); printf "
        "'{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"tools\":['; for ((i = 0; i < 120; i++)); do "
        "printf '{\"name\":\"t%d\",\"description\":\"%s\"},' $i $x; done; "
        "echo '{\"name\":\"last\"}]}}'; cat >/dev/null";
    struct server *server = add_server(large);
    auto_free char *text = NULL;

    RUN_UNTIL(all.ready == 1);
    text = json_text(server_tools(server));
    CHECK(strlen(text) <= GATEWAY_TOOLS_BYTES_MAX + 4096);
}

/* A server that does not read: what cannot be sent is refused, not forgotten. */
TEST(a_call_that_cannot_be_sent_is_refused)
{
    auto_free char *large = xcalloc(1, (4 << 20) + 1);
    struct server *server = add_server(READY "while kill -0 $PPID; do sleep 0.2; done");
    bool refused = false;

    memset(large, 'x', 4 << 20);
    RUN_UNTIL(all.ready == 1);
    for (int i = 0; i < 20 && !refused; i++)
        refused = !server_ask(server, "tools/call", json_pack("{s:s}", "name", large),
                              &(struct asked){.on_answer = on_answer});
    CHECK(refused);
}

/* What installs a server is as hostile as the server. */
TEST(an_installer_does_not_get_the_token)
{
    char path[] = "/tmp/mcp-gateway-XXXXXX", text[64] = "";
    int fd = mkstemp(path);
    char name[] = "npm/test", cwd[] = "/tmp";
    auto_free char *line = xasprintf("echo \"<$GATEWAY_ACCESS_TOKEN>\" >%s", path);
    struct server_config config = {.name = name, .install = line, .cwd = cwd};

    test_needs_root();
    /* It makes /opt/mcp, which is not to stay. */
    CHECK(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
          mount("tmpfs", "/opt", "tmpfs", 0, NULL) == 0);
    CHECK(setenv("GATEWAY_ACCESS_TOKEN", "secret", 1) == 0);
    OK(config_install(&config, &err));
    CHECK(pread(fd, text, sizeof(text) - 1, 0) > 0);
    CHECK_STR(str_of(text), "<>\n");
    CHECK_STR(str_of(getenv("GATEWAY_ACCESS_TOKEN")), "secret");
    (void)close(fd);
    (void)unlink(path);
}

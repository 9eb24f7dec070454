/* The commands that talk to a server, against a small one that plays the API and envd. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/test.h"
#include "cli/core/cli_test.h"
#include "protocol/http/http_server.h"
#include "protocol/json/json_shape.h"
#include "protocol/rpc/connect.h"

#define ID            "i0123456789abcdefghi"
#define ARG(s)        (char *)(uintptr_t)(s)
#define RUN(out, ...) cli_test_run((char *[]){ARG("quicksand"), __VA_ARGS__, NULL}, out)

/* What the server saw and what it is to do; one test per process. */
static struct {
    int creates, kills, lists, closes;
    struct buf create_body, start_body, input, file;
    const char *end;     /* the last record */
    bool wait_for_stdin; /* the stream ends when stdin was closed */
    bool hang;           /* the stream never ends */
    struct http_exchange *stream;
    int64_t file_size;
} seen;

static void json_reply(struct http_exchange *ex, int status, const char *text)
{
    http_reply(ex, status, NULL, 0, str_of(text));
}

static void on_create(struct http_exchange *ex, struct str body, void *arg)
{
    (void)arg;
    seen.creates++;
    (void)buf_add_str(&seen.create_body, body);
    json_reply(ex, 201, "{\"sandboxID\":\"" ID "\",\"envdAccessToken\":\"tok\"}");
}

/* ---- the runtime ---- */

static void add_record(const char *text)
{
    (void)http_write(seen.stream, text, strlen(text));
}

static void finish_records(void)
{
    add_record(seen.end);
    http_end(seen.stream);
}

static void on_execute(struct http_exchange *ex, struct str body, void *arg)
{
    (void)arg;
    if (str_find_str(body, STR("\"stream\"")) < 0) {
        json_reply(ex, 200, "{\"exit_code\":0,\"stdout\":\"\",\"stderr\":\"\"}");
        return;
    }
    (void)buf_add_str(&seen.start_body, body);
    __atomic_store_n(&seen.stream, ex, __ATOMIC_SEQ_CST);
    http_begin(ex, 200, NULL, 0, -1);
    add_record("{\"process_id\":\"exe_1\",\"type\":\"started\"}\n{\"type\":\"stdout\",\"da");
    add_record("ta\":\"aGVs\"}\n{\"type\":\"heartbeat\"}\n");
    add_record("{\"data\":\"bG8K\",\"type\":\"stdout\"}\n");
    if (!seen.wait_for_stdin && !seen.hang)
        finish_records();
}

static void on_execute_input(struct http_exchange *ex, struct str body, void *arg)
{
    auto_json json_t *json = NULL;
    struct error err = {0};
    struct str data;

    (void)arg;
    if (str_is(http_request(ex)->method, "PUT")) {
        (void)buf_add_str(&seen.input, body);
        http_reply(ex, 204, NULL, 0, STR(""));
        return;
    }
    CHECK_INT(json_parse(body, &json, &err), 0);
    data = json_get_str(json, "data_base64");
    CHECK(!data.p || base64_decode(data, &seen.input));
    http_reply(ex, 204, NULL, 0, STR_NONE);
    if (json_is_true(json_object_get(json, "close"))) {
        seen.closes++;
        if (seen.wait_for_stdin)
            finish_records();
    }
}

static void on_up(struct http_exchange *ex, struct str body, void *arg)
{
    (void)arg;
    seen.creates++;
    (void)buf_add_str(&seen.create_body, body);
    json_reply(ex, 201, "{\"id\":\"" ID "\"}");
}

/* 1001 of them: a page and one more. */
static void list_page(struct http_exchange *ex, struct str query)
{
    json_t *list = json_array();
    auto_json json_t *page = json_pack("{s:o}", "sandboxes", list);
    bool second = str_find_str(query, STR("before=")) >= 0;
    auto_free char *text = NULL;

    seen.lists++;
    for (int i = second ? 999 : 0; i < (second ? 1001 : 1000); i++)
        (void)json_array_append_new(list, json_pack("{s:o, s:s, s:s, s:s, s:s}", "id",
                                                    json_sprintf("i%d", i), "provider", "e2b",
                                                    "template", "base", "state", "running",
                                                    "created_at", "2026-01-01T00:00:00.000001Z"));
    text = json_text(page);
    json_reply(ex, 200, text);
}

static void on_file_data(struct http_exchange *ex, struct str data, void *arg)
{
    (void)ex;
    (void)arg;
    seen.file_size += (int64_t)data.len;
    (void)buf_add_str(&seen.file, data);
}

static void on_file_end(struct http_exchange *ex, void *arg)
{
    (void)arg;
    json_reply(ex, 200, "{}");
}

static void files(struct http_exchange *ex)
{
    if (str_is(http_request(ex)->method, "PUT"))
        http_read_stream(ex, on_file_data, on_file_end, NULL);
    else if (str_find_str(http_request(ex)->query, STR("missing")) >= 0)
        json_reply(ex, 404, "{\"error\":{\"code\":\"not_found\",\"message\":\"no such file\"}}");
    else
        http_reply(ex, 200, NULL, 0, buf_str(&seen.file));
}

static void runtime(struct http_exchange *ex)
{
    struct str path = http_request(ex)->path;

    if (str_is(path, "/api/v1/sandboxes") && str_is(http_request(ex)->method, "POST")) {
        http_read_all(ex, 1024 * 1024, on_up, NULL);
    } else if (str_is(path, "/api/v1/sandboxes/" ID "/execute")) {
        http_read_all(ex, 1024 * 1024, on_execute, NULL);
    } else if (str_is(path, "/api/v1/sandboxes/" ID "/processes/exe_1/input")) {
        http_read_all(ex, 1024 * 1024, on_execute_input, NULL);
    } else if (str_is(path, "/api/v1/sandboxes")) {
        list_page(ex, http_request(ex)->query);
    } else if (str_is(path, "/api/v1/sandboxes/" ID "/files")) {
        files(ex);
    } else if (str_is(path, "/api/v1/sandboxes/" ID) && str_is(http_request(ex)->method, "GET")) {
        json_reply(ex, 200, "{\"id\":\"" ID "\",\"state\":\"running\"}");
    } else if (str_is(path, "/api/v1/sandboxes/" ID)) {
        seen.kills++;
        http_reply(ex, 204, NULL, 0, STR_NONE);
    } else {
        json_reply(ex, 404, "{\"error\":{\"code\":\"not_found\",\"message\":\"no such thing\"}}");
    }
}

static void on_request(struct http_exchange *ex, void *arg)
{
    const struct http_request *request = http_request(ex);

    (void)arg;
    if (!str_is(http_header(ex, "X-API-KEY"), "e2b_00")) {
        json_reply(ex, 401, "{\"code\":401,\"message\":\"Invalid API key\"}");
    } else if (str_starts(request->path, STR("/api/v1/"))) {
        runtime(ex);
    } else if (str_is(request->method, "POST") && str_is(request->path, "/sandboxes")) {
        http_read_all(ex, 1024 * 1024, on_create, NULL);
    } else if (str_is(request->path, "/v2/sandboxes")) {
        json_reply(ex, 200, "[{\"sandboxID\":\"i1\",\"endAt\":\"2999-01-01T00:00:00.000Z\"}]");
    } else {
        json_reply(ex, 404, "{\"code\":404,\"message\":\"no such thing\"}");
    }
}

static void *serve(void *arg)
{
    loop_run(arg);
    return NULL;
}

static void start_server(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct loop *loop = loop_new();
    struct http_server *server = http_server_new(
        loop, &(struct http_server_config){.on_request = on_request, .max_connections = 50});
    char url[64];
    pthread_t thread;
    sigset_t all, old;

    buf_init(&seen.create_body, 1024 * 1024);
    buf_init(&seen.start_body, 1024 * 1024);
    buf_init(&seen.input, 8 * 1024 * 1024);
    buf_init(&seen.file, 64 * 1024 * 1024);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0 && listen(fd, 64) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&address, &size) == 0);
    CHECK_INT(http_server_listen(server, fd), 0);
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%d", ntohs(address.sin_port));
    CHECK_INT(setenv("QUICKSAND_URL", url, 1), 0);
    CHECK_INT(setenv("QUICKSAND_TOKEN", "e2b_00", 1), 0);
    (void)unsetenv("E2B_SANDBOX_URL");
    (void)unsetenv("QUICKSAND_SANDBOX_URL");
    /* Signals are for the command's thread. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    CHECK_INT(pthread_create(&thread, NULL, serve, loop), 0);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* stdin for the command: a file with this content. */
static void set_stdin(const char *text)
{
    FILE *file = tmpfile();

    CHECK(file && fputs(text, file) >= 0 && fflush(file) == 0);
    rewind(file);
    CHECK(lseek(fileno(file), 0, SEEK_SET) == 0 && dup2(fileno(file), STDIN_FILENO) == 0);
}

TEST(run_is_up_execute_remove)
{
    auto_buf struct buf out = {0};

    start_server();
    seen.end = "{\"type\":\"exit\",\"exit_code\":7,\"timed_out\":false,\"truncated\":false}\n";
    CHECK_INT(RUN(&out, ARG("run"), ARG("-n"), ARG("-e"), ARG("A=b=c"), ARG("--template"),
                  ARG("t1"), ARG("--"), ARG("echo"), ARG("-n"), ARG("a b")),
              7);
    CHECK_STR(buf_str(&out), "hello\n");
    CHECK_INT(seen.creates, 1);
    CHECK_INT(seen.kills, 1);
    CHECK(strstr(seen.create_body.p, "\"template\":\"t1\""));
    CHECK(strstr(seen.create_body.p, "\"idleTimeoutSeconds\":60"));
    CHECK(strstr(seen.start_body.p, "\"A\":\"b=c\""));
    CHECK(strstr(seen.start_body.p, "\"argv\":[\"echo\",\"-n\",\"a b\"]"));
    CHECK(strstr(seen.start_body.p, "\"stdin\":false"));
}

TEST(exec_in_the_runtime)
{
    auto_buf struct buf out = {0}, late = {0}, cut = {0}, bad = {0};

    start_server();
    seen.end = "{\"type\":\"exit\",\"exit_code\":0}\n";
    CHECK_INT(RUN(&out, ARG("exec"), ARG("-n"), ARG(ID), ARG("a line")), 0);
    CHECK(strstr(seen.start_body.p, "\"command\":\"a line\""));
    seen.end = "{\"type\":\"exit\",\"exit_code\":1,\"timed_out\":true}\n";
    CHECK_INT(RUN(&late, ARG("exec"), ARG("-n"), ARG(ID), ARG("x")), 124);
    /* Neither an end nor an error. */
    seen.end = "{\"type\":\"heartbeat\"}\n";
    CHECK_INT(RUN(&cut, ARG("exec"), ARG("-n"), ARG(ID), ARG("x")), 1);
    seen.end = "\n\n{\"type\":\"error\",\"error\":{\"code\":\"x\",\"message\":\"it broke\"}}\n";
    CHECK_INT(RUN(&bad, ARG("exec"), ARG("-n"), ARG(ID), ARG("x")), 1);
    CHECK_INT(RUN(&bad, ARG("exec"), ARG("-n"), ARG("sbx_other"), ARG("x")), 1);
}

TEST(stdin_is_forwarded)
{
    auto_buf struct buf out = {0}, there = {0};

    start_server();
    seen.wait_for_stdin = true;
    seen.end = "{\"type\":\"exit\",\"exit_code\":0}\n";
    set_stdin("line one\nline two");
    CHECK_INT(RUN(&out, ARG("run"), ARG("cat")), 0);
    CHECK_STR(buf_str(&seen.input), "line one\nline two");
    CHECK_INT(seen.closes, 1);
    CHECK_INT(seen.kills, 1);
    set_stdin(", three");
    CHECK_INT(RUN(&there, ARG("exec"), ARG(ID), ARG("cat")), 0);
    CHECK_STR(buf_str(&seen.input), "line one\nline two, three");
    CHECK_STR(buf_str(&there), "hello\n");
}

static void *interrupt(void *arg)
{
    (void)arg;
    WAIT_FOR(__atomic_load_n(&seen.stream, __ATOMIC_SEQ_CST));
    (void)kill(getpid(), SIGTERM);
    return NULL;
}

TEST(run_removes_its_sandbox_when_it_is_ended)
{
    auto_buf struct buf out = {0};
    pthread_t thread;
    sigset_t all, old;

    start_server();
    seen.hang = true;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    CHECK_INT(pthread_create(&thread, NULL, interrupt, NULL), 0);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    CHECK_INT(RUN(&out, ARG("run"), ARG("-n"), ARG("sleep"), ARG("100")), 128 + SIGTERM);
    CHECK_INT(seen.kills, 1);
    CHECK_INT(pthread_join(thread, NULL), 0);
}

TEST(ls_reads_all_pages)
{
    auto_buf struct buf out = {0}, list = {0};
    auto_json json_t *json = NULL;
    struct error err = {0};

    start_server();
    CHECK_INT(RUN(&out, ARG("ls")), 0);
    CHECK_INT(seen.lists, 2);
    CHECK(str_starts(buf_str(&out), STR("ID     NAME  KEY  TEMPLATE  STATE    ENDS")));
    CHECK(strstr(out.p, "\ni1     -     -    base      running  in "));
    CHECK(strstr(out.p, "\ni1000  -     -    base      running  -"));
    CHECK_INT(RUN(&list, ARG("ls"), ARG("--json")), 0);
    CHECK_INT(json_parse(buf_str(&list), &json, &err), 0);
    CHECK_INT(json_array_size(json), 1001);
}

TEST(show_rm_create)
{
    auto_buf struct buf out = {0}, gone = {0}, made = {0}, no = {0};

    start_server();
    CHECK_INT(RUN(&out, ARG("show"), ARG(ID)), 0);
    CHECK(strstr(out.p, ID) && !strstr(out.p, "tok"));
    CHECK_INT(RUN(&gone, ARG("rm"), ARG("../x"), ARG(ID)), 1);
    CHECK_STR(buf_str(&gone), ID "\n");
    CHECK_INT(seen.kills, 1);
    CHECK_INT(RUN(&made, ARG("create"), ARG("--metadata"), ARG("a=b"), ARG("--timeout"), ARG("9")),
              0);
    CHECK_STR(buf_str(&made), ID "\n");
    CHECK(strstr(seen.create_body.p, "\"timeout\":9"));
    CHECK_INT(setenv("QUICKSAND_TOKEN", "e2b_01", 1), 0);
    CHECK_INT(RUN(&no, ARG("create")), 1);
}

TEST_TIMEOUT(cp_both_ways, 60)
{
    enum { SIZE = 20 * 1024 * 1024 };
    char dir[] = "/tmp/cli-test-XXXXXX";
    auto_free char *from = NULL, *to = NULL, *bytes = xcalloc(1, SIZE);
    auto_buf struct buf out = {0}, copy = {0};
    auto_close int fd = -1;
    int pipe_fds[2];

    start_server();
    CHECK(mkdtemp(dir));
    from = xasprintf("%s/from", dir);
    to = xasprintf("%s/" ID ".copy", dir);
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (char)(i * 7 / 3);
    fd = open(from, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK_INT(fd_write_full(fd, bytes, SIZE), 0);
    CHECK_INT(RUN(&out, ARG("cp"), from, ARG(ID ":/tmp/x y")), 0);
    CHECK_INT(seen.file_size, SIZE);
    CHECK_INT(RUN(&out, ARG("cp"), ARG(ID ":data"), to), 0);
    buf_init(&copy, SIZE + 1);
    CHECK_INT(fd_read_file_at(AT_FDCWD, to, &copy), 0);
    CHECK(copy.len == SIZE && memcmp(copy.p, bytes, SIZE) == 0);
    CHECK_INT(RUN(&out, ARG("cp"), ARG(ID ":missing"), to), 1);
    CHECK_INT(RUN(&out, ARG("cp"), dir, ARG(ID ":x")), 1);
    /* What is left of a file, then a pipe (chunked). */
    buf_clear(&seen.file);
    set_stdin("a file");
    CHECK(lseek(STDIN_FILENO, 2, SEEK_SET) == 2);
    CHECK_INT(RUN(&out, ARG("cp"), ARG("-"), ARG(ID ":x")), 0);
    CHECK_STR(buf_str(&seen.file), "file");
    buf_clear(&seen.file);
    CHECK(pipe(pipe_fds) == 0 && dup2(pipe_fds[0], STDIN_FILENO) == 0);
    CHECK_INT(fd_write_full(pipe_fds[1], "piped", 5), 0);
    (void)close(pipe_fds[1]);
    CHECK_INT(RUN(&out, ARG("cp"), ARG("-"), ARG(ID ":x")), 0);
    CHECK_STR(buf_str(&seen.file), "piped");
    CHECK_INT(path_remove_tree(AT_FDCWD, dir), 0);
}

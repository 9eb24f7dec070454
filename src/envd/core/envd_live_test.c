/* The built envd, driven over its socket. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/test.h"
#include "envd/test/live_rig.h"
#include "protocol/rpc/connect.h"

#define AS_NOBODY "Authorization: Basic bm9ib2R5Og==\r\n"
#define AS_GHOST  "Authorization: Basic Z2hvc3Q6\r\n"
#define BASH(script) \
    "{\"process\":{\"cmd\":\"/bin/bash\",\"args\":[\"-c\",\"" script "\"],\"cwd\":\"/\"}}"
#define EXIT_0 "{\"exitCode\":0,\"exited\":true,\"status\":\"exit status 0\"}"
#define KILLED                                                                             \
    "{\"exitCode\":-1,\"exited\":false,\"status\":\"signal: killed\",\"error\":\"signal: " \
    "killed\"}"

static void check_run(const struct live *live, const char *json, const char *headers,
                      const char *out, const char *err, const char *end)
{
    struct live_stream stream;

    live_run(&stream, live, json, headers);
    CHECK_STR(buf_str(&stream.out), out);
    CHECK_STR(buf_str(&stream.err), err);
    CHECK_STR(str_of(stream.end), end);
    CHECK_STR(str_of(stream.last), "{}");
    live_stream_close(&stream);
}

static void check_failure(const struct live *live, const char *json, const char *headers,
                          const char *last)
{
    struct live_stream stream;

    live_run(&stream, live, json, headers);
    CHECK_STR(str_of(stream.last), last);
    CHECK_STR(str_of(stream.end), "");
    live_stream_close(&stream);
}

TEST(live_health_and_unknown)
{
    struct live live;
    struct buf body = {0};

    live_start(&live);
    CHECK_INT(live_call(&live, "GET", "/health", NULL, STR(""), &body), 204);
    CHECK_INT(live_call(&live, "GET", "/nothing", NULL, STR(""), &body), 404);
    CHECK_STR(buf_str(&body), "{\"code\":404,\"message\":\"not found\"}");
    CHECK_INT(live_call(&live, "DELETE", "/files", NULL, STR(""), &body), 405);
    CHECK_INT(live_call(&live, "OPTIONS", "/files", NULL, STR(""), &body), 204);
    CHECK_INT(live_call(&live, "GET", "/metrics", NULL, STR(""), &body), 200);
    CHECK(strstr(body.p, "\"cpu_count\":"));
    buf_done(&body);
    live_stop(&live);
}

TEST(live_commands)
{
    struct live live;

    live_start(&live);
    check_run(&live, "{\"process\":{\"cmd\":\"echo\",\"args\":[\"hi\"]}}", NULL, "hi\n", "",
              EXIT_0);
    check_run(&live, BASH("echo out; echo err >&2; exit 3"), NULL, "out\n", "err\n",
              "{\"exitCode\":3,\"exited\":true,\"status\":\"exit status 3\",\"error\":\"exit "
              "status 3\"}");
    check_run(&live, BASH("kill -9 $$"), NULL, "", "", KILLED);
    check_run(&live, BASH("id -un; echo $HOME $USER $PATH $E2B_SANDBOX; umask"), AS_NOBODY,
              "nobody\n/nonexistent nobody "
              "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin true\n0022\n",
              "", EXIT_0);
    /* The user may open its own output by name, and there are no descriptors but its own. */
    check_run(&live,
              BASH("echo a > /dev/stdout; echo $(ls /proc/self/fd | wc -l); cat "
                   "/proc/self/oom_score_adj"),
              AS_NOBODY, "a\n4\n100\n", "", EXIT_0);
    check_run(&live,
              "{\"process\":{\"cmd\":\"sh\",\"args\":[\"-c\",\"read x || echo none\"]},"
              "\"stdin\":false}",
              NULL, "none\n", "", EXIT_0);
    live_stop(&live);
}

TEST(live_signals_are_reset)
{
    struct live live;
    struct live_stream stream;

    live_start(&live);
    live_run(&stream, &live, BASH("grep -E '^Sig(Blk|Ign)' /proc/self/status | cut -f2"), NULL);
    CHECK_STR(buf_str(&stream.out), "0000000000000000\n0000000000000000\n");
    live_stream_close(&stream);
    live_stop(&live);
}

TEST(live_refusals)
{
    struct live live;
    struct buf body = {0};

    live_start(&live);
    check_failure(&live, BASH("true"), AS_GHOST,
                  "{\"error\":{\"code\":\"unauthenticated\",\"message\":\"invalid username: "
                  "'ghost'\"}}");
    check_failure(&live, "{\"process\":{\"cmd\":\"no-such-program\"}}", NULL,
                  "{\"error\":{\"code\":\"invalid_argument\",\"message\":\"error starting process "
                  "'no-such-program': No such file or directory\"}}");
    check_failure(&live, "{\"process\":{\"cmd\":\"true\",\"cwd\":\"/no/dir\"}}", NULL,
                  "{\"error\":{\"code\":\"invalid_argument\",\"message\":\"cwd '/no/dir' does not "
                  "exist\"}}");
    check_failure(&live, "{\"process\":{\"cmd\":\"true\",\"cwd\":\"/root\"}}", AS_NOBODY,
                  "{\"error\":{\"code\":\"invalid_argument\",\"message\":\"cannot use cwd '/root': "
                  "Permission denied\"}}");
    CHECK_INT(live_rpc(&live, "/process.Process/SendSignal",
                       "{\"process\":{\"pid\":999999},\"signal\":\"SIGNAL_SIGKILL\"}", &body),
              404);
    CHECK_STR(buf_str(&body),
              "{\"code\":\"not_found\",\"message\":\"process with pid 999999 not found\"}");
    CHECK_INT(live_rpc(&live, "/process.Process/SendSignal", "{\"process\":5}", &body), 400);
    CHECK_INT(live_rpc(&live, "/process.Process/List", "{\"a\":", &body), 400);
    CHECK_INT(live_call(&live, "POST", "/process.Process/Start",
                        "Content-Type: application/connect+json\r\n", STR("\0\0\0\0\x09{}"), &body),
              200);
    CHECK(strstr(body.p + 5, "truncated"));
    CHECK_INT(live_call(&live, "POST", "/process.Process/List", NULL, STR("{}"), &body), 415);
    buf_done(&body);
    live_stop(&live);
}

TEST(live_background_list_and_kill)
{
    struct live live;
    struct live_stream stream, second;
    struct buf body = {0};
    char json[200];

    live_start(&live);
    live_stream_open(
        &stream, &live, "/process.Process/Start",
        "{\"process\":{\"cmd\":\"/bin/bash\",\"args\":[\"-c\",\"setsid sleep 100 & sleep "
        "100\"]},\"tag\":\"t1\"}",
        NULL);
    live_stream_started(&stream);
    CHECK_INT(live_rpc(&live, "/process.Process/List", "{}", &body), 200);
    (void)snprintf(json, sizeof(json), "\"pid\":%d,\"tag\":\"t1\"", stream.started_pid);
    CHECK(strstr(body.p, json));
    live_stream_open(&second, &live, "/process.Process/Connect", "{\"process\":{\"tag\":\"t1\"}}",
                     NULL);
    live_stream_started(&second);
    CHECK_INT(second.started_pid, stream.started_pid);
    CHECK_INT(live_rpc(&live, "/process.Process/SendSignal",
                       "{\"process\":{\"tag\":\"t1\"},\"signal\":\"SIGNAL_SIGKILL\"}", &body),
              200);
    CHECK_STR(buf_str(&body), "{}");
    CHECK(kill(stream.started_pid, 0) != 0 && errno == ESRCH);
    live_stream_finish(&stream);
    live_stream_finish(&second);
    CHECK_STR(str_of(stream.end), KILLED);
    CHECK_STR(str_of(second.end), KILLED);
    CHECK_INT(live_rpc(&live, "/process.Process/List", "{}", &body), 200);
    CHECK_STR(buf_str(&body), "{\"processes\":[]}");
    live_stream_close(&second);
    /* Too late, but not too late to hear how it ended. */
    live_stream_open(&second, &live, "/process.Process/Connect", "{\"process\":{\"tag\":\"t1\"}}",
                     NULL);
    live_stream_finish(&second);
    CHECK_INT(second.started_pid, stream.started_pid);
    CHECK_STR(str_of(second.end), KILLED);
    live_stream_close(&second);
    live_stream_close(&stream);
    buf_done(&body);
    live_stop(&live);
}

/* Sends them the signal, if there is one. */
static int signal_children(const struct live *live, int signal)
{
    auto_buf struct buf text = {0};
    char path[64];
    struct str rest;
    int64_t pid;
    int count = 0;

    buf_init(&text, 4096);
    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", live->pid, live->pid);
    CHECK_INT(fd_read_file_at(AT_FDCWD, path, &text), 0);
    rest = buf_str(&text);
    while (rest.len > 0 && str_to_i64(str_split(&rest, ' '), &pid)) {
        count++;
        (void)kill((pid_t)pid, signal);
    }
    return count;
}

static int count_children(const struct live *live)
{
    return signal_children(live, 0);
}

TEST(live_timeout_kills_the_tree)
{
    struct live live;
    struct live_stream stream;
    int64_t begin = clock_mono_ms();

    live_start(&live);
    live_run(&stream, &live, BASH("echo begun; setsid sleep 100 & (sleep 100; true) & sleep 100"),
             "Connect-Timeout-Ms: 300\r\n");
    CHECK_STR(buf_str(&stream.out), "begun\n");
    CHECK_STR(str_of(stream.last), "{\"error\":{\"code\":\"deadline_exceeded\",\"message\":\"the "
                                   "process did not end within 300 ms\"}}");
    CHECK(clock_mono_ms() - begin < 5000);
    WAIT_FOR(count_children(&live) == 0);
    live_stream_close(&stream);
    live_stop(&live);
}

/* Those whose parents are gone are children of envd. */
static void wait_for_children(const struct live *live, int count)
{
    WAIT_FOR(count_children(live) == count);
}

/* In Unix sessions of their own and without a parent, also with an empty environment. */
#define DETACHED                                                     \
    "setsid -f sleep 100 >/dev/null 2>&1; "                          \
    "(setsid bash -c 'sleep 100 & sleep 100 &' >/dev/null 2>&1 &); " \
    "env -i setsid -f sleep 100 >/dev/null 2>&1; "

TEST(live_detached_children_end_with_the_command)
{
    struct live live;
    struct live_stream stream;
    struct buf body = {0};

    live_start(&live);
    live_stream_open(&stream, &live, "/process.Process/Start",
                     "{\"process\":{\"cmd\":\"/bin/bash\",\"args\":[\"-c\",\"" DETACHED
                     "sleep 100\"]},\"tag\":\"t1\"}",
                     NULL);
    live_stream_started(&stream);
    wait_for_children(&live, 5);
    CHECK_INT(live_rpc(&live, "/process.Process/SendSignal",
                       "{\"process\":{\"tag\":\"t1\"},\"signal\":\"SIGNAL_SIGKILL\"}", &body),
              200);
    wait_for_children(&live, 0);
    live_stream_close(&stream);
    live_run(&stream, &live, BASH(DETACHED "sleep 100"), "Connect-Timeout-Ms: 1000\r\n");
    wait_for_children(&live, 0);
    live_stream_close(&stream);
    /* One that ended by itself leaves them, whatever happens to the next. */
    live_run(&stream, &live, BASH(DETACHED), NULL);
    CHECK_STR(str_of(stream.end), EXIT_0);
    live_stream_close(&stream);
    wait_for_children(&live, 4);
    live_run(&stream, &live, BASH(DETACHED "sleep 100"), "Connect-Timeout-Ms: 1000\r\n");
    wait_for_children(&live, 4);
    live_stream_close(&stream);
    (void)signal_children(&live, SIGKILL);
    wait_for_children(&live, 0);
    buf_done(&body);
    live_stop(&live);
}

TEST(live_background_child_does_not_hold_the_end)
{
    struct live live;
    struct live_stream stream;
    int64_t begin = clock_mono_ms();

    live_start(&live);
    live_run(&stream, &live, BASH("(sleep 60; echo late) & echo now; exit 0"), NULL);
    CHECK_STR(buf_str(&stream.out), "now\n");
    CHECK_STR(str_of(stream.end), EXIT_0);
    CHECK(clock_mono_ms() - begin < 3000);
    live_stream_close(&stream);
    /* What a child prints shortly after is not lost; on a busy machine that may need a few tries. */
    for (int tries = 1;; tries++) {
        bool all;

        live_run(&stream, &live, BASH("(sleep 0.05; echo soon) & echo now"), NULL);
        all = str_eq(buf_str(&stream.out), STR("now\nsoon\n"));
        if (!all && tries == 5)
            CHECK_STR(buf_str(&stream.out), "now\nsoon\n");
        live_stream_close(&stream);
        if (all)
            break;
    }
    live_stop(&live);
}

TEST(live_orphans_are_reaped)
{
    struct live live;
    struct live_stream stream;

    live_start(&live);
    live_run(&stream, &live, BASH("for i in 1 2 3; do (sleep 0.1 > /dev/null 2>&1 &); done"), NULL);
    live_stream_close(&stream);
    WAIT_FOR(count_children(&live) == 0);
    live_stop(&live);
}

TEST(live_stdin)
{
    struct live live;
    struct live_stream stream;
    struct buf body = {0};

    live_start(&live);
    live_stream_open(&stream, &live, "/process.Process/Start",
                     "{\"process\":{\"cmd\":\"cat\"},\"stdin\":true,\"tag\":\"c\"}", NULL);
    live_stream_started(&stream);
    CHECK_INT(live_rpc(&live, "/process.Process/SendInput",
                       "{\"process\":{\"tag\":\"c\"},\"input\":{\"stdin\":\"aGVsbG8=\"}}", &body),
              200);
    CHECK_INT(live_rpc(&live, "/process.Process/SendInput",
                       "{\"process\":{\"tag\":\"c\"},\"input\":{\"pty\":\"aGVsbG8=\"}}", &body),
              500);
    CHECK_INT(
        live_rpc(&live, "/process.Process/CloseStdin", "{\"process\":{\"tag\":\"c\"}}", &body),
        200);
    live_stream_finish(&stream);
    CHECK_STR(buf_str(&stream.out), "hello");
    CHECK_STR(str_of(stream.end), EXIT_0);
    live_stream_close(&stream);
    buf_done(&body);
    live_stop(&live);
}

TEST(live_stream_input)
{
    struct live live;
    struct live_stream stream;
    struct buf body = {0};
    auto_buf struct buf messages = {0};

    live_start(&live);
    live_stream_open(&stream, &live, "/process.Process/Start",
                     "{\"process\":{\"cmd\":\"head\",\"args\":[\"-c\",\"4\"]},\"tag\":\"h\"}",
                     NULL);
    live_stream_started(&stream);
    buf_init(&messages, 4096);
    connect_add(&messages, 0, STR("{\"start\":{\"process\":{\"tag\":\"h\"}}}"));
    connect_add(&messages, 0, STR("{\"data\":{\"input\":{\"stdin\":\"YWI=\"}}}"));
    connect_add(&messages, 0, STR("{\"keepalive\":{}}"));
    connect_add(&messages, 0, STR("{\"data\":{\"input\":{\"stdin\":\"Y2Q=\"}}}"));
    CHECK_INT(live_call(&live, "POST", "/process.Process/StreamInput",
                        "Content-Type: application/connect+json\r\n", buf_str(&messages), &body),
              200);
    CHECK(body.len == 14 && memcmp(body.p, "\0\0\0\0\2{}\2\0\0\0\2{}", 14) == 0);
    live_stream_finish(&stream);
    CHECK_STR(buf_str(&stream.out), "abcd");
    live_stream_close(&stream);
    buf_done(&body);
    live_stop(&live);
}

TEST(live_pty)
{
    struct live live;
    struct live_stream stream;
    struct buf body = {0};

    live_start(&live);
    live_stream_open(
        &stream, &live, "/process.Process/Start",
        "{\"process\":{\"cmd\":\"sh\",\"args\":[\"-c\",\"stty size; read x; stty size; "
        "echo $x\"]},\"pty\":{\"size\":{\"cols\":100,\"rows\":30}},\"tag\":\"p\"}",
        NULL);
    live_stream_started(&stream);
    CHECK_INT(live_rpc(&live, "/process.Process/Update",
                       "{\"process\":{\"tag\":\"p\"},\"pty\":{\"size\":{\"cols\":80,\"rows\":20}}}",
                       &body),
              200);
    CHECK_INT(live_rpc(&live, "/process.Process/SendInput",
                       "{\"process\":{\"tag\":\"p\"},\"input\":{\"pty\":\"eWVzCg==\"}}", &body),
              200);
    live_stream_finish(&stream);
    CHECK(strstr(stream.out.p, "20 80\r\nyes\r\n"));
    CHECK_STR(str_of(stream.end), EXIT_0);
    live_stream_close(&stream);
    buf_done(&body);
    live_stop(&live);
}

/* More than any buffer on the way holds, read late. */
TEST_TIMEOUT(live_slow_reader, 60)
{
    struct live live;
    struct live_stream stream;

    live_start(&live);
    live_stream_open(&stream, &live, "/process.Process/Start",
                     BASH("head -c 20000000 /dev/zero; echo done >&2"), NULL);
    (void)poll(NULL, 0, 300);
    live_stream_finish(&stream);
    CHECK_INT(stream.out.len, 20000000);
    CHECK_STR(buf_str(&stream.err), "done\n");
    CHECK_STR(str_of(stream.end), EXIT_0);
    live_stream_close(&stream);
    live_stop(&live);
}

static void check_file(const struct live *live, const char *name, const char *want)
{
    struct buf body = {0};
    char target[200];

    (void)snprintf(target, sizeof(target), "/files?path=%s/%s", live->dir, name);
    CHECK_INT(live_call(live, "GET", target, NULL, STR(""), &body), 200);
    CHECK_STR(buf_str(&body), want);
    buf_done(&body);
}

TEST(live_files_raw)
{
    struct live live;
    struct buf body = {0};
    char target[200], want[300];
    struct stat st;

    live_start(&live);
    (void)snprintf(target, sizeof(target), "/files?path=%s/new/a.txt&username=nobody", live.dir);
    CHECK_INT(live_call(&live, "POST", target, "Content-Type: application/octet-stream\r\n",
                        STR("hello"), &body),
              200);
    (void)snprintf(want, sizeof(want),
                   "[{\"name\":\"a.txt\",\"path\":\"%s/new/a.txt\",\"type\":\"file\"}]", live.dir);
    CHECK_STR(buf_str(&body), want);
    check_file(&live, "new/a.txt", "hello");
    (void)snprintf(target, sizeof(target), "%s/new/a.txt", live.dir);
    CHECK_INT(stat(target, &st), 0);
    CHECK_INT(st.st_uid, 65534);
    CHECK_INT(live_call(&live, "GET", "/files?path=/no/such", NULL, STR(""), &body), 404);
    CHECK_STR(buf_str(&body), "{\"code\":404,\"message\":\"path '/no/such' does not exist\"}");
    CHECK_INT(live_call(&live, "GET", "/files?path=/etc", NULL, STR(""), &body), 400);
    CHECK_INT(live_call(&live, "GET", "/files?path=/dev/zero", NULL, STR(""), &body), 400);
    CHECK_INT(live_call(&live, "GET", "/files?path=a&username=ghost", NULL, STR(""), &body), 401);
    CHECK_INT(live_call(&live, "POST", "/files", "Content-Type: application/octet-stream\r\n",
                        STR("x"), &body),
              400);
    CHECK_INT(
        live_call(&live, "POST", "/files?path=a", "Content-Type: text/plain\r\n", STR("x"), &body),
        400);
    buf_done(&body);
    live_stop(&live);
}

TEST(live_files_multipart)
{
    struct live live;
    struct buf body = {0};
    char form[1000];

    live_start(&live);
    (void)snprintf(
        form, sizeof(form),
        "--B\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\nignored\r\n"
        "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"%s/m/1\"\r\n\r\n"
        "one\r\n"
        "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"%s/m/2\"\r\n\r\n"
        "two\r\n--B--\r\n",
        live.dir, live.dir);
    CHECK_INT(live_call(&live, "POST", "/files",
                        "Content-Type: multipart/form-data; boundary=B\r\n", str_of(form), &body),
              200);
    CHECK(strstr(body.p, "/m/1\",\"type\":\"file\"},{\"name\":\"2\""));
    check_file(&live, "m/1", "one");
    check_file(&live, "m/2", "two");
    /* Cut off: an error, and nothing of the unfinished file is left. */
    (void)snprintf(
        form, sizeof(form),
        "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"%s/cut\"\r\n\r\n"
        "abc",
        live.dir);
    CHECK_INT(live_call(&live, "POST", "/files",
                        "Content-Type: multipart/form-data; boundary=B\r\n", str_of(form), &body),
              400);
    (void)snprintf(form, sizeof(form), "%s/cut", live.dir);
    CHECK(access(form, F_OK) != 0);
    buf_done(&body);
    live_stop(&live);
}

TEST(live_filesystem)
{
    struct live live;
    struct buf body = {0};
    char json[300];

    live_start(&live);
    (void)snprintf(json, sizeof(json), "{\"path\":\"%s/x/y\"}", live.dir);
    CHECK_INT(live_rpc(&live, "/filesystem.Filesystem/MakeDir", json, &body), 200);
    CHECK(strstr(body.p, "{\"entry\":{\"name\":\"y\""));
    CHECK_INT(live_rpc(&live, "/filesystem.Filesystem/MakeDir", json, &body), 409);
    CHECK(strstr(body.p, "already_exists"));
    (void)snprintf(json, sizeof(json), "{\"source\":\"%s/x/y\",\"destination\":\"%s/z/w\"}",
                   live.dir, live.dir);
    CHECK_INT(live_rpc(&live, "/filesystem.Filesystem/Move", json, &body), 200);
    CHECK_INT(live_rpc(&live, "/filesystem.Filesystem/Move", json, &body), 404);
    (void)snprintf(json, sizeof(json), "{\"path\":\"%s\",\"depth\":2}", live.dir);
    CHECK_INT(live_rpc(&live, "/filesystem.Filesystem/ListDir", json, &body), 200);
    CHECK(strstr(body.p, "\"name\":\"x\"") && strstr(body.p, "\"name\":\"w\""));
    (void)snprintf(json, sizeof(json), "{\"path\":\"%s/z\"}", live.dir);
    CHECK_INT(live_rpc(&live, "/filesystem.Filesystem/Remove", json, &body), 200);
    CHECK_INT(live_rpc(&live, "/filesystem.Filesystem/Remove", json, &body), 200);
    CHECK_INT(live_rpc(&live, "/filesystem.Filesystem/Stat", json, &body), 404);
    CHECK_INT(live_rpc(&live, "/filesystem.Filesystem/ListDir", json, &body), 404);
    CHECK_INT(
        live_rpc(&live, "/filesystem.Filesystem/ListDir", "{\"path\":\"/etc/passwd\"}", &body),
        400);
    buf_done(&body);
    live_stop(&live);
}

static int init(const struct live *live, const char *json, struct buf *body)
{
    return live_call(live, "POST", "/init", NULL, str_of(json), body);
}

TEST(live_init_and_token)
{
    struct live live;
    struct buf body = {0};

    live_start(&live);
    CHECK_INT(init(&live,
                   "{\"envVars\":{\"A\":\"1\"},\"accessToken\":\"tok\",\"defaultUser\":\"nobody\","
                   "\"defaultWorkdir\":\"/tmp\",\"timestamp\":\"2026-01-02T00:00:00Z\"}",
                   &body),
              204);
    CHECK_INT(live_call(&live, "GET", "/envs", NULL, STR(""), &body), 401);
    CHECK_STR(buf_str(&body), "{\"code\":401,\"message\":\"unauthorized access, please provide a "
                              "valid access token or method signing if supported\"}");
    CHECK_INT(live_call(&live, "GET", "/health", NULL, STR(""), &body), 204);
    CHECK_INT(live_call(&live, "GET", "/envs", "X-Access-Token: tok\r\n", STR(""), &body), 200);
    CHECK_STR(buf_str(&body), "{\"E2B_SANDBOX\":\"true\",\"A\":\"1\"}");
    check_run(&live, "{\"process\":{\"cmd\":\"sh\",\"args\":[\"-c\",\"id -un; pwd; echo $A\"]}}",
              "X-Access-Token: tok\r\n", "nobody\n/tmp\n1\n", "", EXIT_0);
    CHECK_INT(live_call(&live, "GET", "/files?path=/etc/passwd", NULL, STR(""), &body), 401);
    CHECK_STR(buf_str(&body), "{\"code\":401,\"message\":\"missing signature query parameter\"}");
    CHECK_INT(init(&live, "{\"accessToken\":\"other\"}", &body), 401);
    CHECK_INT(init(&live, "{}", &body), 401);
    /* Older than the first: accepted and ignored. */
    CHECK_INT(
        init(&live,
             "{\"envVars\":{},\"accessToken\":\"tok\",\"timestamp\":\"2026-01-01T00:00:00Z\"}",
             &body),
        204);
    CHECK_INT(live_call(&live, "GET", "/envs", "X-Access-Token: tok\r\n", STR(""), &body), 200);
    CHECK_STR(buf_str(&body), "{\"E2B_SANDBOX\":\"true\",\"A\":\"1\"}");
    /* All of the user's are replaced; envd's own cannot be. */
    CHECK_INT(init(&live,
                   "{\"envVars\":{\"B\":\"2\",\"E2B_SANDBOX\":\"no\"},\"accessToken\":\"tok\"}",
                   &body),
              204);
    CHECK_STR(str_of(live_header("x-envd-version")), "0.6.13");
    check_run(&live, "{\"process\":{\"cmd\":\"sh\",\"args\":[\"-c\",\"echo $A$B$E2B_SANDBOX\"]}}",
              "X-Access-Token: tok\r\n", "2true\n", "", EXIT_0);
    CHECK_INT(init(&live, "{\"accessToken\":\"tok\",\"caBundle\":\"junk\"}", &body), 400);
    CHECK_INT(init(&live, "{\"accessToken\":\"tok\",\"timestamp\":\"junk\"}", &body), 400);
    CHECK_INT(live_call(&live, "GET", "/envs", "X-Access-Token: tok\r\n", STR(""), &body), 200);
    CHECK_STR(buf_str(&body), "{\"E2B_SANDBOX\":\"true\",\"B\":\"2\"}");
    buf_done(&body);
    live_stop(&live);
}

/* Clients that go away in the middle of everything; then all is as before. */
TEST(live_clients_that_vanish)
{
    struct live live;

    live_start(&live);
    for (int i = 0; i < 20; i++) {
        struct live_stream stream;

        live_stream_open(&stream, &live, "/process.Process/Start",
                         BASH("head -c 3000000 /dev/zero; sleep 0.2"), NULL);
        live_stream_started(&stream);
        live_stream_close(&stream);
    }
    WAIT_FOR(count_children(&live) == 0);
    check_run(&live, BASH("echo fine"), NULL, "fine\n", "", EXIT_0);
    live_stop(&live);
}

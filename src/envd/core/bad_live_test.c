/* What nobody should send or keep in their file system, through the built envd; and a soak. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/test.h"
#include "envd/test/live_rig.h"
#include "protocol/json/json_shape.h"
#include "protocol/rpc/connect.h"

#define FS     "/filesystem.Filesystem/"
#define STREAM "Content-Type: application/connect+json\r\n"

static int on_path(const struct live *live, const char *method, const char *name, struct buf *body)
{
    char json[400];

    (void)snprintf(json, sizeof(json), "{\"path\":\"%s\"}", live_in(live, name));
    return live_rpc(live, method, json, body);
}

/* The end frame of a stream that had nothing else. */
static const char *stream_error(const struct live *live, struct str body)
{
    static struct buf answer;

    CHECK_INT(live_call(live, "POST", "/process.Process/Start", STREAM, body, &answer), 200);
    CHECK(answer.len > 5 && answer.p[0] == CONNECT_END);
    return answer.p + 5;
}

TEST(bad_envelopes)
{
    struct live live;
    struct buf body = {0};
    auto_free char *huge = xcalloc(1, 9 * 1024 * 1024);

    live_start(&live);
    CHECK(strstr(stream_error(&live, STR("")), "invalid_argument"));
    CHECK(strstr(stream_error(&live, STR("\0\0\0")), "invalid_argument"));
    CHECK(strstr(stream_error(&live, STR("\0\0\0\0\x09{}")), "truncated"));
    CHECK(strstr(stream_error(&live, STR("\1\0\0\0\2{}")), "unimplemented"));
    CHECK(strstr(stream_error(&live, STR("\4\0\0\0\2{}")), "invalid envelope flags"));
    CHECK(strstr(stream_error(&live, STR("\0\x7f\xff\xff\xff{}")), "resource_exhausted"));
    CHECK(strstr(stream_error(&live, STR("\0\0\0\0\2{}\0\0\0\0\2{}")), "more than one"));
    CHECK(strstr(stream_error(&live, STR("\0\0\0\0\2[]")), "invalid_argument"));
    CHECK(strstr(stream_error(&live, STR("\0\0\0\0\2{\"")), "invalid_argument"));
    CHECK(strstr(stream_error(&live, str_n(huge, 9 * 1024 * 1024)), "resource_exhausted"));
    CHECK_INT(live_call(&live, "POST", FS "Stat", "Content-Type: application/json\r\n",
                        str_n(huge, 9 * 1024 * 1024), &body),
              413);
    CHECK(strstr(body.p, "resource_exhausted"));
    CHECK_INT(live_rpc(&live, FS "Stat", "{\"path\":7}", &body), 400);
    CHECK_INT(live_rpc(&live, FS "Stat", "{\"path\":\"/\",\"path\":\"/\"}", &body), 400);
    CHECK_INT(live_rpc(&live, FS "Stat", "{\"path\":\"a\\u0000b\"}", &body), 400);
    CHECK_INT(live_rpc(&live, FS "Nothing", "{}", &body), 404);
    buf_done(&body);
    live_stop(&live);
}

TEST(bad_text)
{
    struct live live;
    struct buf body = {0};
    auto_json json_t *tree = NULL;
    struct error err = {0};
    char target[300];

    live_start(&live);
    CHECK_INT(live_rpc(&live, FS "Stat", "{\"path\":\"/tmp/\xff\"}", &body), 400);
    close_fd(&(int){open(live_in(&live, "bad\xff\n\"name"), O_CREAT | O_WRONLY | O_CLOEXEC, 0644)});
    CHECK_INT(on_path(&live, FS "ListDir", "", &body), 200);
    CHECK_INT(json_parse(buf_str(&body), &tree, &err), 0);
    CHECK(strstr(body.p, "\"bad\xef\xbf\xbd\\n\\\"name\""));
    /* Its real name can be given in a URL. */
    (void)snprintf(target, sizeof(target), "/files?path=%s/bad%%FF%%0A%%22name", live.dir);
    CHECK_INT(live_call(&live, "GET", target, NULL, STR(""), &body), 200);
    CHECK_STR(str_of(live_header("content-disposition")),
              "inline; filename*=utf-8''bad%FF%0A%22name");
    CHECK_INT(live_call(&live, "GET", "/files?path=%zz", NULL, STR(""), &body), 400);
    buf_done(&body);
    live_stop(&live);
}

TEST(bad_links_and_kinds)
{
    struct live live;
    struct buf body = {0};

    live_start(&live);
    CHECK_INT(symlink("b", live_in(&live, "a")), 0);
    CHECK_INT(symlink("a", live_in(&live, "b")), 0);
    CHECK_INT(symlink("nowhere", live_in(&live, "dangling")), 0);
    CHECK_INT(on_path(&live, FS "Stat", "a", &body), 200);
    CHECK(strstr(body.p, "FILE_TYPE_UNSPECIFIED") && strstr(body.p, "Lrwxrwxrwx"));
    CHECK_INT(on_path(&live, FS "Stat", "dangling", &body), 200);
    CHECK_INT(on_path(&live, FS "Stat", "a/below", &body), 500);
    CHECK_INT(on_path(&live, FS "ListDir", "a", &body), 409);
    CHECK(strstr(body.p, "failed_precondition"));
    CHECK_INT(on_path(&live, FS "ListDir", "dangling", &body), 404);
    CHECK_INT(on_path(&live, FS "MakeDir", "a/below", &body), 500);
    CHECK_INT(on_path(&live, FS "ListDir", "", &body), 200);
    CHECK_INT(on_path(&live, FS "Remove", "a", &body), 200);
    CHECK(access(live_in(&live, "b"), F_OK) != 0);
    CHECK_INT(mkfifo(live_in(&live, "fifo"), 0600), 0);
    CHECK_INT(on_path(&live, FS "Stat", "fifo", &body), 200);
    CHECK(strstr(body.p, "\"permissions\":\"prw-------\""));
    CHECK_INT(on_path(&live, FS "ListDir", "fifo", &body), 400);
    CHECK_INT(on_path(&live, FS "MakeDir", "fifo", &body), 400);
    CHECK_INT(on_path(&live, FS "MakeDir", "fifo/below", &body), 400);
    CHECK_INT(live_rpc(&live, FS "ListDir", "{\"path\":\"/proc/self\"}", &body), 200);
    CHECK_INT(live_rpc(&live, FS "Remove", "{\"path\":\"/proc/self/status\"}", &body), 500);
    buf_done(&body);
    live_stop(&live);
}

TEST(bad_times_for_signals)
{
    struct live live;
    struct live_stream stream;
    struct buf body = {0};
    char json[200], dir[100];

    live_start(&live);
    live_run(&stream, &live, "{\"process\":{\"cmd\":\"true\"},\"tag\":\"gone\"}", NULL);
    for (int signal = 9; signal <= 15; signal += 6) {
        (void)snprintf(json, sizeof(json), "{\"process\":{\"pid\":%d},\"signal\":%d}",
                       stream.started_pid, signal);
        CHECK_INT(live_rpc(&live, "/process.Process/SendSignal", json, &body), 404);
    }
    CHECK_INT(
        live_rpc(&live, "/process.Process/CloseStdin", "{\"process\":{\"tag\":\"gone\"}}", &body),
        404);
    live_stream_close(&stream);
    live_stream_open(&stream, &live, "/process.Process/Start",
                     "{\"process\":{\"cmd\":\"sleep\",\"args\":[\"100\"]},\"tag\":\"s\"}", NULL);
    live_stream_started(&stream);
    CHECK_INT(live_rpc(&live, "/process.Process/SendSignal",
                       "{\"process\":{\"tag\":\"s\"},\"signal\":2}", &body),
              501);
    CHECK_INT(live_rpc(&live, "/process.Process/Update",
                       "{\"process\":{\"tag\":\"s\"},\"pty\":{\"size\":{\"cols\":1,\"rows\":1}}}",
                       &body),
              500);
    CHECK_INT(live_rpc(&live, "/process.Process/SendSignal",
                       "{\"process\":{\"tag\":\"s\"},\"signal\":\"SIGNAL_SIGTERM\"}", &body),
              200);
    live_stream_finish(&stream);
    CHECK(strstr(stream.end, "signal: terminated"));
    live_stream_close(&stream);
    /* A directory that goes away, and one that was gone before. */
    (void)snprintf(dir, sizeof(dir), "%s", live_in(&live, "gone"));
    CHECK_INT(mkdir(dir, 0755), 0);
    (void)snprintf(json, sizeof(json),
                   "{\"process\":{\"cmd\":\"sh\",\"args\":[\"-c\",\"rmdir %s; pwd -P; exit "
                   "3\"],\"cwd\":\"%s\"}}",
                   dir, dir);
    live_run(&stream, &live, json, NULL);
    CHECK(strstr(stream.end, "\"exitCode\":3"));
    live_stream_close(&stream);
    live_run(&stream, &live, json, NULL);
    CHECK(strstr(stream.last, "invalid_argument") && strstr(stream.last, "does not exist"));
    live_stream_close(&stream);
    buf_done(&body);
    live_stop(&live);
}

/* By hand: under a sanitizer each strstr() looks at all of the rest. */
static size_t count_entries(const struct buf *body)
{
    static const char begin[] = "{\"name\":\"";
    size_t count = 0;

    for (size_t i = 0; i + sizeof(begin) <= body->len; i++)
        count += body->p[i] == '{' && memcmp(body->p + i, begin, sizeof(begin) - 1) == 0;
    return count;
}

/* Nobody waits for a large tree to go. */
static void check_answers_during_removal(const struct live *live)
{
    struct buf body = {0};
    int64_t begin = clock_mono_ms(), worst = 0, took;
    pid_t remover = fork();
    int status = 0;

    if (remover == 0)
        _exit(on_path(live, FS "Remove", "huge/d", &body) == 200 ? 0 : 1);
    while (waitpid(remover, &status, WNOHANG) == 0) {
        int64_t asked = clock_mono_ms();

        CHECK_INT(live_call(live, "GET", "/health", NULL, STR(""), &body), 204);
        if (clock_mono_ms() - asked > worst)
            worst = clock_mono_ms() - asked;
    }
    CHECK_INT(status, 0);
    took = clock_mono_ms() - begin;
    (void)printf("     200,001 entries removed in %lld ms, others waited %lld ms at most\n",
                 (long long)took, (long long)worst);
    CHECK(worst < 500 || worst < took / 4); /* a busy machine takes longer for both */
    buf_done(&body);
}

/* As many entries as one answer may have, and one more. */
TEST_TIMEOUT(bad_huge_directory, 120)
{
    struct live live;
    struct buf body = {0};
    char name[64];
    int64_t begin;
    int i = 0;

    live_own_mounts();
    live_start(&live);
    CHECK_INT(mkdir(live_in(&live, "huge"), 0755), 0);
    if (mount("none", live_in(&live, "huge"), "tmpfs", 0, "size=1g,nr_inodes=1000000") != 0)
        test_lacks("cannot mount");
    CHECK_INT(mkdir(live_in(&live, "huge/d"), 0755), 0);
    close_fd(&(int){open(live_in(&live, "huge/one"), O_CREAT | O_WRONLY | O_CLOEXEC, 0644)});
    for (; i < 100000; i++) {
        (void)snprintf(name, sizeof(name), "huge/d/%06d", i);
        CHECK_INT(link(live_in(&live, "huge/one"), live_in(&live, name)), 0);
    }
    begin = clock_mono_ms();
    CHECK_INT(on_path(&live, FS "ListDir", "huge/d", &body), 200);
    (void)printf("     100,000 entries in %lld ms\n", (long long)(clock_mono_ms() - begin));
    CHECK_INT(count_entries(&body), 100000);
    CHECK(strstr(body.p, "{\"name\":\"000000\"") < strstr(body.p, "{\"name\":\"099999\""));
    for (; i <= 200000; i++) {
        (void)snprintf(name, sizeof(name), "huge/d/%06d", i);
        CHECK_INT(link(live_in(&live, "huge/one"), live_in(&live, name)), 0);
    }
    CHECK_INT(on_path(&live, FS "ListDir", "huge/d", &body), 413);
    CHECK_STR(buf_str(&body),
              "{\"code\":\"resource_exhausted\",\"message\":\"more than 200000 entries to list\"}");
    check_answers_during_removal(&live);
    CHECK(access(live_in(&live, "huge/d"), F_OK) != 0);
    CHECK_INT(umount2(live_in(&live, "huge"), MNT_DETACH), 0);
    buf_done(&body);
    live_stop(&live);
}

/* ---- soak ---- */

struct state {
    long rss_kb;
    int fds, children;
};

static long status_kb(const struct live *live, const char *field)
{
    auto_buf struct buf text = {0};
    char path[64], *found;

    buf_init(&text, 16384);
    (void)snprintf(path, sizeof(path), "/proc/%d/status", live->pid);
    CHECK_INT(fd_read_file_at(AT_FDCWD, path, &text), 0);
    found = strstr(text.p, field);
    CHECK(found);
    return strtol(found + strlen(field), NULL, 10);
}

static struct state look(const struct live *live)
{
    auto_buf struct buf text = {0};
    struct state state = {.rss_kb = status_kb(live, "VmRSS:")};
    char path[64];

    buf_init(&text, 65536);
    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", live->pid, live->pid);
    CHECK_INT(fd_read_file_at(AT_FDCWD, path, &text), 0);
    for (size_t i = 0; i < text.len; i++)
        state.children += text.p[i] == ' ';
    for (int fd = 0; fd < 1000; fd++) {
        struct stat st;

        (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", live->pid, fd);
        state.fds += lstat(path, &st) == 0;
    }
    return state;
}

static void run_some(const struct live *live, int count)
{
    for (int i = 0; i < count; i++) {
        struct live_stream stream;

        live_run(&stream, live,
                 i % 7 == 0 ? "{\"process\":{\"cmd\":\"sh\",\"args\":[\"-c\",\"echo hello; exit "
                              "3\"]},\"tag\":\"x\"}"
                            : "{\"process\":{\"cmd\":\"/bin/true\"}}",
                 NULL);
        CHECK(stream.ended);
        live_stream_close(&stream);
    }
}

/* After many short programs everything is as before. SOAK_COMMANDS says how many. */
TEST_TIMEOUT(soak_short_commands, 1000)
{
    const char *wanted = getenv("SOAK_COMMANDS");
    int count = wanted ? (int)strtol(wanted, NULL, 10) : 1500;
    struct state before, after;
    struct live live;
    int64_t begin;

    live_start(&live);
    run_some(&live, 1000); /* tables and caches have their size then */
    before = look(&live);
    begin = clock_mono_ms();
    run_some(&live, count);
    begin = clock_mono_ms() - begin;
    WAIT_FOR(look(&live).children == 0);
    after = look(&live);
    (void)printf("     %d commands, %.0f per second; rss %ld -> %ld kB, fds %d -> %d\n", count,
                 count * 1000.0 / (double)(begin ? begin : 1), before.rss_kb, after.rss_kb,
                 before.fds, after.fds);
    CHECK_INT(after.fds, before.fds);
    CHECK_INT(after.children, 0);
#ifndef WITH_ADDRESS_SANITIZER /* it keeps what was freed */
    CHECK(after.rss_kb <= before.rss_kb + 256);
#endif
    live_stop(&live);
}

/* Watching directories through the built envd. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/map.h"
#include "base/test.h"
#include "envd/test/live_rig.h"
#include "protocol/json/json_shape.h"

#define FS "/filesystem.Filesystem/"

static void watch(struct live_stream *stream, const struct live *live, const char *name,
                  const char *more)
{
    char json[400];

    (void)snprintf(json, sizeof(json), "{\"path\":\"%s\"%s}", live_in(live, name), more);
    live_stream_open(stream, live, FS "WatchDir", json, NULL);
    CHECK(live_stream_next(stream));
    CHECK_STR(buf_str(&stream->message), "{\"start\":{}}");
}

static void put(const char *path, const char *text)
{
    auto_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    CHECK(fd >= 0);
    CHECK_INT(fd_write_full(fd, text, strlen(text)), 0);
}

static void expect(struct live_stream *stream, const char *type, const char *name)
{
    char want[300];

    CHECK(live_stream_next(stream));
    (void)snprintf(want, sizeof(want),
                   "{\"filesystem\":{\"name\":\"%s\",\"type\":\"EVENT_TYPE_%s\"}}", name, type);
    CHECK_STR(buf_str(&stream->message), want);
}

static void expect_but_chmod(struct live_stream *stream, const char *type, const char *name)
{
    char want[300];

    (void)snprintf(want, sizeof(want),
                   "{\"filesystem\":{\"name\":\"%s\",\"type\":\"EVENT_TYPE_%s\"}}", name, type);
    do
        CHECK(live_stream_next(stream));
    while (strstr(stream->message.p, "CHMOD"));
    CHECK_STR(buf_str(&stream->message), want);
}

TEST(watch_plain)
{
    struct live live;
    struct live_stream stream;

    live_start(&live);
    CHECK_INT(mkdir(live_in(&live, "w"), 0755), 0);
    CHECK_INT(mkdir(live_in(&live, "w/sub"), 0755), 0);
    watch(&stream, &live, "w", "");
    put(live_in(&live, "w/a"), "x");
    expect(&stream, "CREATE", "a");
    expect(&stream, "WRITE", "a");
    put(live_in(&live, "w/a"), "y"); /* truncated, then written: the kernel joins the two */
    expect(&stream, "WRITE", "a");
    put(live_in(&live, "w/sub/hidden"), "not watched");
    CHECK_INT(chmod(live_in(&live, "w/a"), 0600), 0);
    CHECK(live_stream_next(&stream));
    if (strstr(stream.message.p, "WRITE"))
        CHECK(live_stream_next(&stream));
    CHECK_STR(buf_str(&stream.message),
              "{\"filesystem\":{\"name\":\"a\",\"type\":\"EVENT_TYPE_CHMOD\"}}");
    CHECK_INT(rename(live_in(&live, "w/a"), live_in(&live, "w/b")), 0);
    expect(&stream, "RENAME", "a");
    expect(&stream, "CREATE", "b");
    CHECK_INT(unlink(live_in(&live, "w/b")), 0);
    expect(&stream, "REMOVE", "b");
    CHECK_INT(unlink(live_in(&live, "w/sub/hidden")), 0);
    CHECK_INT(rmdir(live_in(&live, "w/sub")), 0);
    expect(&stream, "REMOVE", "sub");
    CHECK_INT(rmdir(live_in(&live, "w")), 0);
    expect(&stream, "REMOVE", ".");
    live_stream_close(&stream);
    live_stop(&live);
}

TEST(watch_refusals)
{
    struct live live;
    struct live_stream stream;
    struct buf body = {0};
    char json[300];

    live_start(&live);
    live_stream_open(&stream, &live, FS "WatchDir", "{\"path\":\"/no/such\"}", NULL);
    live_stream_finish(&stream);
    CHECK_STR(str_of(stream.last),
              "{\"error\":{\"code\":\"not_found\",\"message\":\"path /no/such not found\"}}");
    live_stream_close(&stream);
    live_stream_open(&stream, &live, FS "WatchDir", "{\"path\":\"/etc/passwd\"}", NULL);
    live_stream_finish(&stream);
    CHECK(strstr(stream.last, "invalid_argument") && strstr(stream.last, "not a directory"));
    live_stream_close(&stream);
    CHECK_INT(symlink("loop", live_in(&live, "loop")), 0);
    (void)snprintf(json, sizeof(json), "{\"path\":\"%s\"}", live_in(&live, "loop"));
    CHECK_INT(live_rpc(&live, FS "CreateWatcher", json, &body), 400);
    CHECK_INT(live_rpc(&live, FS "CreateWatcher", "{\"path\":\"/no/such\"}", &body), 404);
    CHECK_INT(live_rpc(&live, FS "CreateWatcher", "{\"path\":\"/tmp\",\"recursive\":7}", &body),
              400);
    CHECK_INT(live_rpc(&live, FS "GetWatcherEvents", "{\"watcherId\":\"w1\"}", &body), 404);
    CHECK_STR(buf_str(&body),
              "{\"code\":\"not_found\",\"message\":\"watcher with id w1 not found\"}");
    CHECK_INT(live_rpc(&live, FS "RemoveWatcher", "{}", &body), 404);
    buf_done(&body);
    live_stop(&live);
}

/* A symlinked directory is watched under the name it was asked for, entries included. */
TEST(watch_link_and_entry)
{
    struct live live;
    struct live_stream stream;
    char want[300];

    live_start(&live);
    CHECK_INT(mkdir(live_in(&live, "real"), 0755), 0);
    CHECK_INT(symlink("real", live_in(&live, "link")), 0);
    watch(&stream, &live, "link", ",\"includeEntry\":true");
    put(live_in(&live, "real/f"), "abc");
    (void)snprintf(want, sizeof(want),
                   "{\"filesystem\":{\"name\":\"f\",\"type\":\"EVENT_TYPE_CREATE\",\"entry\":{"
                   "\"name\":\"f\",\"path\":\"%s\",\"type\":\"FILE_TYPE_FILE\"",
                   live_in(&live, "link/f"));
    CHECK(live_stream_next(&stream));
    CHECK(str_starts(buf_str(&stream.message), str_of(want)));
    CHECK(live_stream_next(&stream));
    CHECK(strstr(stream.message.p, "EVENT_TYPE_WRITE\",\"entry\""));
    CHECK(strstr(stream.message.p, "\"size\":\"3\""));
    CHECK_INT(unlink(live_in(&live, "real/f")), 0);
    expect(&stream, "REMOVE", "f");
    live_stream_close(&stream);
    live_stop(&live);
}

/* Of all of envd's inotify descriptors. */
static int count_watches(const struct live *live)
{
    int count = 0;

    for (int fd = 0; fd < 100; fd++) {
        char path[64], line[512];
        FILE *file;

        (void)snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", live->pid, fd);
        file = fopen(path, "re");
        while (file && fgets(line, sizeof(line), file))
            count += strncmp(line, "inotify wd:", 11) == 0;
        if (file)
            (void)fclose(file);
    }
    return count;
}

TEST(watch_tree_moves)
{
    struct live live;
    struct live_stream stream;

    live_start(&live);
    CHECK_INT(mkdir(live_in(&live, "w"), 0755), 0);
    CHECK_INT(mkdir(live_in(&live, "w/old"), 0755), 0);
    CHECK_INT(mkdir(live_in(&live, "w/old/deep"), 0755), 0);
    CHECK_INT(mkdir(live_in(&live, "out"), 0755), 0);
    put(live_in(&live, "out/inside"), "x");
    watch(&stream, &live, "w", ",\"recursive\":true");
    put(live_in(&live, "w/old/deep/f"), "");
    expect(&stream, "CREATE", "old/deep/f");
    /* Within the tree: nothing in it is new, and it goes on under the new name. */
    CHECK_INT(rename(live_in(&live, "w/old"), live_in(&live, "w/new")), 0);
    expect(&stream, "RENAME", "old");
    expect(&stream, "CREATE", "new");
    put(live_in(&live, "w/new/deep/g"), "");
    expect(&stream, "CREATE", "new/deep/g");
    /* Out of it: silence. Into it: all of it is new. */
    CHECK_INT(rename(live_in(&live, "w/new"), live_in(&live, "gone")), 0);
    expect(&stream, "RENAME", "new");
    WAIT_FOR(count_watches(&live) == 1); /* it may have come back until then */
    put(live_in(&live, "gone/deep/h"), "");
    CHECK_INT(rename(live_in(&live, "out"), live_in(&live, "w/came")), 0);
    expect(&stream, "CREATE", "came");
    expect(&stream, "CREATE", "came/inside");
    put(live_in(&live, "w/came/inside"), "y");
    expect(&stream, "WRITE", "came/inside");
    live_stream_close(&stream);
    live_stop(&live);
}

enum { BURST_DIRS = 100, BURST_FILES = 100 };

/* 10,000 files in 100 new directories, nested ten deep, as fast as one process can. */
static void burst(const char *root, const char *suffix)
{
    char path[600];

    for (int d = 0; d < BURST_DIRS; d++) {
        int len = snprintf(path, sizeof(path), "%s/%d", root, d / 10);

        (void)mkdir(path, 0755);
        for (int level = 0; level <= d % 10; level++) {
            len += snprintf(path + len, sizeof(path) - (size_t)len, "/d%d", level);
            (void)mkdir(path, 0755);
        }
        for (int f = 0; f < BURST_FILES; f++) {
            int fd;

            (void)snprintf(path + len, sizeof(path) - (size_t)len, "/f%d%s", f, suffix);
            fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
            CHECK(fd >= 0 && write(fd, "x", 1) == 1 && close(fd) == 0);
        }
    }
}

static void check_all_created(const struct map *created)
{
    struct map_entry *entry;
    int files = 0;

    map_for_each (created, entry) {
        struct str name = str_n(entry->key, entry->key_len);

        if ((uintptr_t)entry->value != 1)
            test_fail(__FILE__, __LINE__, "%.*s created %d times", STR_ARG(name),
                      (int)(uintptr_t)entry->value);
        files += str_find_str(name, STR("/f")) >= 0;
    }
    CHECK_INT(files, BURST_DIRS * BURST_FILES);
    CHECK_INT(created->count, BURST_DIRS * BURST_FILES + 10 + 100);
}

static void count_event(struct map *counts, const json_t *event)
{
    struct str name = json_get_str(event, "name");

    (void)map_put(counts, name, (void *)((uintptr_t)map_get(counts, name) + 1));
}

TEST_TIMEOUT(watch_burst, 60)
{
    struct live live;
    struct live_stream stream;
    struct map created, written;
    bool last = false;

    live_start(&live);
    map_init(&created);
    map_init(&written);
    CHECK_INT(mkdir(live_in(&live, "w"), 0755), 0);
    watch(&stream, &live, "w", ",\"recursive\":true");
    burst(live_in(&live, "w"), "");
    put(live_in(&live, "w/last"), "");
    while (!last) {
        auto_json json_t *json = NULL;
        struct error err = {0};
        const json_t *event;

        CHECK(live_stream_next(&stream));
        CHECK_INT(json_parse(buf_str(&stream.message), &json, &err), 0);
        event = json_object_get(json, "filesystem");
        last = str_is(json_get_str(event, "name"), "last");
        if (!last && str_is(json_get_str(event, "type"), "EVENT_TYPE_CREATE"))
            count_event(&created, event);
        if (!last && str_is(json_get_str(event, "type"), "EVENT_TYPE_WRITE"))
            count_event(&written, event);
    }
    check_all_created(&created);
    CHECK_INT(written.count, BURST_DIRS * BURST_FILES);
    map_done(&created);
    map_done(&written);
    live_stream_close(&stream);
    live_stop(&live);
}

static void create_watcher(const struct live *live, const char *name, const char *more, char id[64])
{
    struct buf body = {0};
    char json[400];
    auto_json json_t *answer = NULL;
    struct error err = {0};

    (void)snprintf(json, sizeof(json), "{\"path\":\"%s\"%s}", live_in(live, name), more);
    CHECK_INT(live_rpc(live, FS "CreateWatcher", json, &body), 200);
    CHECK_INT(json_parse(buf_str(&body), &answer, &err), 0);
    CHECK(str_copy(json_get_str(answer, "watcherId"), id, 64));
    buf_done(&body);
}

static int get_events(const struct live *live, const char *id, struct buf *body)
{
    char json[100];

    (void)snprintf(json, sizeof(json), "{\"watcherId\":\"%s\"}", id);
    return live_rpc(live, FS "GetWatcherEvents", json, body);
}

TEST_TIMEOUT(watch_polled, 60)
{
    struct live live;
    struct buf body = {0};
    struct map created;
    char id[64], json[100];
    bool last = false;

    live_start(&live);
    map_init(&created);
    CHECK_INT(mkdir(live_in(&live, "w"), 0755), 0);
    create_watcher(&live, "w", ",\"recursive\":true", id);
    CHECK_INT(get_events(&live, id, &body), 200);
    CHECK_STR(buf_str(&body), "{\"events\":[]}");
    burst(live_in(&live, "w"), "");
    put(live_in(&live, "w/last"), "");
    while (!last) {
        auto_json json_t *answer = NULL;
        struct error err = {0};
        const json_t *events;

        CHECK_INT(get_events(&live, id, &body), 200);
        CHECK_INT(json_parse(buf_str(&body), &answer, &err), 0);
        events = json_object_get(answer, "events");
        for (size_t i = 0; i < json_array_size(events); i++) {
            const json_t *event = json_array_get(events, i);

            last |= str_is(json_get_str(event, "name"), "last");
            if (!str_is(json_get_str(event, "name"), "last"))
                if (str_is(json_get_str(event, "type"), "EVENT_TYPE_CREATE"))
                    count_event(&created, event);
        }
    }
    check_all_created(&created);
    (void)snprintf(json, sizeof(json), "{\"watcherId\":\"%s\"}", id);
    CHECK_INT(live_rpc(&live, FS "RemoveWatcher", json, &body), 200);
    CHECK_INT(live_rpc(&live, FS "RemoveWatcher", json, &body), 404);
    CHECK_INT(get_events(&live, id, &body), 404);
    map_done(&created);
    buf_done(&body);
    live_stop(&live);
}

/* What happened before the question is in the answer, each time. */
TEST_TIMEOUT(watch_polled_has_all, 60)
{
    static const char type[] = "Content-Type: application/octet-stream\r\n";
    struct live live;
    struct buf body = {0};
    char id[64], target[300], want[300];

    live_start(&live);
    CHECK_INT(mkdir(live_in(&live, "w"), 0755), 0);
    create_watcher(&live, "w", "", id);
    for (int i = 0; i < 300; i++) {
        char name[16];
        int len;

        (void)snprintf(name, sizeof(name), "w/f%d", i);
        (void)snprintf(target, sizeof(target), "/files?path=%s", live_in(&live, name));
        CHECK_INT(live_call(&live, "POST", target, type, STR("x"), &body), 200);
        CHECK_INT(get_events(&live, id, &body), 200);
        len = snprintf(want, sizeof(want), "{\"events\":[");
        for (int k = 0; k < 3; k++)
            len += snprintf(want + len, sizeof(want) - (size_t)len,
                            "%s{\"name\":\"f%d\",\"type\":\"EVENT_TYPE_%s\"}", k ? "," : "", i,
                            ((const char *[]){"CREATE", "CHMOD", "WRITE"})[k]);
        (void)snprintf(want + len, sizeof(want) - (size_t)len, "]}");
        CHECK_STR(buf_str(&body), want);
        /* By somebody else, without envd's loop. */
        put(live_in(&live, "w/other"), "y");
        CHECK_INT(get_events(&live, id, &body), 200);
        CHECK(strstr(body.p, "\"other\""));
    }
    buf_done(&body);
    live_stop(&live);
}

/* Nobody asks for the events: the first ones are kept, and that others were lost is said. */
TEST_TIMEOUT(watch_polled_overflow, 60)
{
    struct live live;
    struct buf body = {0};
    char id[64], long_name[200];

    live_start(&live);
    CHECK_INT(mkdir(live_in(&live, "w"), 0755), 0);
    create_watcher(&live, "w", "", id);
    memset(long_name, 'n', sizeof(long_name));
    memcpy(long_name, "w/", 2);
    long_name[sizeof(long_name) - 1] = '\0';
    /* Each round is two events of about 240 bytes. */
    for (int i = 0; i < 20000; i++) {
        CHECK_INT(mkdir(live_in(&live, long_name), 0755), 0);
        CHECK_INT(rmdir(live_in(&live, long_name)), 0);
    }
    WAIT_FOR(get_events(&live, id, &body) != 200);
    CHECK_INT(get_events(&live, id, &body), 429);
    CHECK(strstr(body.p, "resource_exhausted"));
    buf_done(&body);
    live_stop(&live);
}

/* What envd itself writes for clients appears under its real name only. */
TEST(watch_uploads)
{
    struct live live;
    struct live_stream stream;
    struct buf body = {0};
    char target[300];
    static const char type[] = "Content-Type: application/octet-stream\r\n";

    live_start(&live);
    CHECK_INT(mkdir(live_in(&live, "w"), 0755), 0);
    watch(&stream, &live, "w", ",\"recursive\":true");
    (void)snprintf(target, sizeof(target), "/files?path=%s", live_in(&live, "w/d/new"));
    CHECK_INT(live_call(&live, "POST", target, type, STR("hello"), &body), 200);
    /* Between them: the directory's own mode and owner. */
    expect_but_chmod(&stream, "CREATE", "d");
    expect_but_chmod(&stream, "CREATE", "d/new");
    (void)snprintf(target, sizeof(target), "/files?path=%s", live_in(&live, "w/d/two"));
    CHECK_INT(live_call(&live, "POST", target, type, STR("hello"), &body), 200);
    /* Not if it was all there before the directory was watched. */
    do
        CHECK(live_stream_next(&stream));
    while (!strstr(stream.message.p, "d/two"));
    CHECK_STR(buf_str(&stream.message),
              "{\"filesystem\":{\"name\":\"d/two\",\"type\":\"EVENT_TYPE_CREATE\"}}");
    expect(&stream, "CHMOD", "d/two");
    expect(&stream, "WRITE", "d/two");
    CHECK_INT(live_call(&live, "POST", target, type, STR("again"), &body), 200);
    expect(&stream, "CHMOD", "d/two");
    expect(&stream, "WRITE", "d/two");
    (void)snprintf(target, sizeof(target), "/files?path=%s", live_in(&live, "w/d/empty"));
    CHECK_INT(live_call(&live, "POST", target, type, STR(""), &body), 200);
    expect(&stream, "CREATE", "d/empty");
    expect(&stream, "CHMOD", "d/empty");
    CHECK_INT(unlink(live_in(&live, "w/d/empty")), 0);
    expect(&stream, "REMOVE", "d/empty");
    buf_done(&body);
    live_stream_close(&stream);
    live_stop(&live);
}

TEST(watch_keepalive_and_deadline)
{
    struct live live;
    struct live_stream stream;

    live_start(&live);
    live_stream_open(&stream, &live, FS "WatchDir", "{\"path\":\"/proc/self\"}",
                     "Keepalive-Ping-Interval: 1\r\nConnect-Timeout-Ms: 1800\r\n");
    CHECK(live_stream_next(&stream));
    CHECK(live_stream_next(&stream));
    CHECK_STR(buf_str(&stream.message), "{\"keepalive\":{}}");
    live_stream_finish(&stream);
    CHECK(strstr(stream.last, "deadline_exceeded"));
    live_stream_close(&stream);
    live_stop(&live);
}

static int count_fds(const struct live *live)
{
    char path[64];
    int count = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/fd", live->pid);
    for (int fd = 0; fd < 1000; fd++) {
        char one[96];

        (void)snprintf(one, sizeof(one), "%s/%d", path, fd);
        count += access(one, F_OK) == 0 || errno != ENOENT;
    }
    return count;
}

TEST_TIMEOUT(watch_many_and_leaks, 60)
{
    struct live live;
    struct live_stream streams[50];
    struct buf body = {0};
    char id[64], json[300];
    int before;

    live_start(&live);
    /* It has everything open once it answers. */
    CHECK_INT(live_call(&live, "GET", "/health", NULL, STR(""), &body), 204);
    before = count_fds(&live);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 50; i++)
            watch(&streams[i], &live, "", ",\"recursive\":true");
        put(live_in(&live, "x"), "1");
        for (int i = 0; i < 50; i++) {
            expect(&streams[i], "CREATE", "x");
            live_stream_close(&streams[i]);
        }
        CHECK_INT(unlink(live_in(&live, "x")), 0);
    }
    WAIT_FOR(count_fds(&live) <= before);
    CHECK_INT(count_fds(&live), before);
    for (int i = 0; i < 64; i++)
        create_watcher(&live, "", "", id);
    (void)snprintf(json, sizeof(json), "{\"path\":\"%s\"}", live.dir);
    CHECK_INT(live_rpc(&live, FS "CreateWatcher", json, &body), 429);
    (void)snprintf(json, sizeof(json), "{\"watcherId\":\"%s\"}", id);
    CHECK_INT(live_rpc(&live, FS "RemoveWatcher", json, &body), 200);
    create_watcher(&live, "", "", id);
    buf_done(&body);
    live_stop(&live);
}

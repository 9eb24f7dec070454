/* Bodies that go to a file: whole, too long, without room on the disk, with a client that leaves. */
#include <errno.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "protocol/http/http_errors.h"
#include "protocol/http/http_file.h"
#include "protocol/http/test/http_test_rig.h"

enum { LEN = 3 * 1000 * 1000 };

static struct rig rig;
static int fd, errnum, told;
static struct buf out;
static struct http_file *file;
static struct http_file_config config;
static char *content;
static size_t content_len;

static void on_file(int body_fd, int64_t length, const struct error *err, void *arg)
{
    CHECK(arg == &config);
    told++;
    if (body_fd < 0) {
        http_reply(seen.kept, http_error_status(err->code), NULL, 0, str_of(err->message));
        return;
    }
    content_len = (size_t)length;
    content = xmalloc(content_len + 1);
    CHECK_INT(read(body_fd, content, content_len + 1), length);
    rig_reply(seen.kept, STR("taken"));
}

static int64_t disk_limit;

static int disk_of(void *arg, struct str team_id, struct spool_disk *disk, struct error *err)
{
    (void)arg, (void)err;
    CHECK_STR(team_id, "team");
    *disk = (struct spool_disk){.limit_bytes = disk_limit};
    return 0;
}

/* Sends the head; the body is asked for, or refused. */
static void begin(const char *directory, int64_t max, const char *head)
{
    struct error err = {0};

    config = (struct http_file_config){
        .directory = directory,
        .max = max,
        .workers = workers_new(1, 10),
        .spool = spool_new(&(struct spool_config){
            .directory = directory, .max_bytes = 64 << 20, .disk_of = disk_of}),
        .team_id = STR("team")};
    rig_start(&rig, &rig_config);
    fd = rig_connect(&rig);
    buf_init(&out, 10000);
    rig_send(&rig, fd, str_of(head));
    while (!seen.kept)
        rig_turn(&rig);
    file = http_file_read(seen.kept, &config, on_file, &config, &err);
    if (!file)
        http_reply(seen.kept, http_error_status(err.code), NULL, 0, str_of(err.message));
}

static bool settled;

static void nothing(struct work *work)
{
    (void)work;
}

static void on_nothing(struct work *work)
{
    (void)work;
    settled = true;
}

/* All that was put to work before is done, and known on the loop. */
static void settle(void)
{
    struct work work = {.run = nothing, .done = on_nothing, .loop = rig.loop};

    settled = false;
    CHECK_INT(workers_run(config.workers, &work), 0);
    while (!settled)
        rig_turn(&rig);
}

static void end(void)
{
    (void)close(fd);
    buf_done(&out);
    http_file_free(file);
    settle(); /* what is being written ... */
    settle(); /* ... and the closing behind it */
    workers_free(config.workers);
    CHECK_INT(spool_held(config.spool), 0);
    spool_free(config.spool);
    rig_stop(&rig);
    free(content);
}

static char *pattern(void)
{
    char *body = xmalloc(LEN);

    for (size_t i = 0; i < LEN; i++)
        body[i] = (char)(i % 251);
    return body;
}

TEST(file_takes_a_body_of_known_length)
{
    auto_free char *body = pattern();

    begin("/tmp", LEN, "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3000000\r\n\r\n");
    rig_send(&rig, fd, str_n(body, LEN));
    rig_read(&rig, fd, "taken", &out, &errnum);
    CHECK_INT(content_len, LEN);
    CHECK(memcmp(content, body, LEN) == 0);
    end();
}

TEST(file_takes_chunks_and_nothing)
{
    begin("/tmp", 10, "PUT /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    rig_send(&rig, fd, STR("3\r\nabc\r\n7\r\ndefghij\r\n0\r\n\r\n"));
    rig_read(&rig, fd, "taken", &out, &errnum);
    CHECK_STR(str_n(content, content_len), "abcdefghij"); /* exactly as long as it may be */
    end();
    content = NULL;
    begin("/tmp", 10, "PUT /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    rig_send(&rig, fd, STR("0\r\n\r\n"));
    rig_read(&rig, fd, "taken", &out, &errnum);
    CHECK_INT(content_len, 0);
    end();
}

TEST(file_is_too_long_by_a_byte)
{
    begin("/tmp", 9, "PUT /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    rig_send(&rig, fd, STR("3\r\nabc\r\n7\r\ndefghij\r\n"));
    rig_read(&rig, fd, "longer than 9 bytes", &out, &errnum);
    CHECK(str_starts(buf_str(&out), STR("HTTP/1.1 413 ")));
    CHECK_INT(told, 1);
    end();
    begin("/tmp", 9, "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n");
    rig_read(&rig, fd, "longer than 9 bytes", &out, &errnum);
    CHECK_INT(told, 1);
    end();
}

TEST(file_share_of_a_team)
{
    begin("/tmp", 1 << 30, "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 40000000\r\n\r\n");
    rig_read(&rig, fd, "limit of 32 MiB", &out, &errnum);
    CHECK(str_starts(buf_str(&out), STR("HTTP/1.1 429 ")));
    end();
}

/* A directory with room for 1 MiB, in a mount namespace of this test. */
static const char *small_disk(void)
{
    static char path[64];

    (void)snprintf(path, sizeof(path), "/tmp/http_file_test.%d", getpid());
    if (unshare(CLONE_NEWNS) < 0)
        test_skip("needs a mount namespace");
    CHECK_INT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    CHECK_INT(mkdir(path, 0700), 0);
    CHECK_INT(mount("tmpfs", path, "tmpfs", 0, "size=1m"), 0);
    return path;
}

static void full_disk(const char *framing, bool sends)
{
    auto_free char *body = pattern();
    const char *path = small_disk();

    begin(path, LEN, framing);
    if (sends)
        rig_send(&rig, fd, str_n(body, LEN));
    rig_read(&rig, fd, "disk is nearly full", &out, &errnum);
    CHECK(str_starts(buf_str(&out), STR("HTTP/1.1 507 ")));
    CHECK_INT(told, 1);
    end();
    CHECK_INT(umount2(path, 0), 0); /* nothing of it is open */
    CHECK_INT(rmdir(path), 0);
}

TEST(file_disk_is_full)
{
    full_disk("PUT /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2dc6c0\r\n", true);
}

/* The answer begins with 507, not with 100. */
TEST(file_disk_is_known_to_be_full_before_the_body)
{
    full_disk(
        "PUT /x HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3000000\r\n\r\n",
        false);
}

TEST(file_takes_no_space_for_bytes_that_have_not_come)
{
    const char *path = small_disk();
    struct statvfs before, after;

    CHECK_INT(statvfs(path, &before), 0);
    begin(path, LEN, "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 400000\r\n\r\nx");
    settle();
    CHECK_INT(statvfs(path, &after), 0);
    CHECK_INT(after.f_bfree, before.f_bfree);
    CHECK_INT(spool_held(config.spool), 0);
    end();
    CHECK_INT(umount2(path, 0), 0);
    CHECK_INT(rmdir(path), 0);
}

TEST(file_in_chunks_is_cut_at_the_teams_limit_of_disk)
{
    auto_free char *body = pattern();

    disk_limit = 1 << 20;
    begin("/tmp", LEN,
          "PUT /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2dc6c0\r\n");
    rig_send(&rig, fd, str_n(body, LEN));
    rig_read(&rig, fd, "over its limit of 1 MiB", &out, &errnum);
    CHECK(str_starts(buf_str(&out), STR("HTTP/1.1 429 ")));
    CHECK_INT(told, 1);
    end();
}

TEST(file_client_leaves)
{
    const char *path = small_disk();
    auto_free char *body = pattern();

    begin(path, LEN, "PUT /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n61a80\r\n");
    rig_send(&rig, fd, str_n(body, 300000));
    while (!spool_held(config.spool))
        rig_turn(&rig);
    (void)shutdown(fd, SHUT_WR);
    while (seen.kept)
        rig_turn(&rig);
    CHECK_INT(told, 0);
    end();
    CHECK_INT(umount2(path, 0), 0);
    CHECK_INT(rmdir(path), 0);
}

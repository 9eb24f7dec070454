/* Files over HTTP through the built envd. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/test.h"
#include "envd/files/gzip.h"
#include "envd/test/live_rig.h"

#define RAW "Content-Type: application/octet-stream\r\n"

static char *target(const struct live *live, const char *name)
{
    static char text[300];

    (void)snprintf(text, sizeof(text), "/files?path=%s", live_in(live, name));
    return text;
}

static void put(const char *path, struct str text)
{
    auto_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    CHECK(fd >= 0);
    CHECK_INT(fd_write_full(fd, text.p, text.len), 0);
}

static int collect(void *arg, struct str data)
{
    return buf_add_str(arg, data) ? 0 : -1;
}

static void pack(struct str text, struct buf *out)
{
    struct gzip *gzip = gzip_new();

    buf_init(out, 64 * 1024 * 1024);
    CHECK_INT(gzip_feed(gzip, text, true, collect, out), 0);
    gzip_free(gzip);
}

static void unpack(struct buf *bytes)
{
    struct gunzip *gunzip = gunzip_new();
    struct error err = {0};
    struct buf out;

    buf_init(&out, 64 * 1024 * 1024);
    CHECK_INT(gunzip_feed(gunzip, buf_str(bytes), collect, &out, &err), 0);
    CHECK(gunzip_complete(gunzip));
    gunzip_free(gunzip);
    buf_done(bytes);
    *bytes = out;
}

TEST(files_ranges)
{
    struct live live;
    struct buf body = {0};
    char etag[100], header[200];

    live_start(&live);
    put(live_in(&live, "digits.txt"), STR("0123456789"));
    CHECK_INT(live_call(&live, "GET", target(&live, "digits.txt"), NULL, STR(""), &body), 200);
    CHECK_STR(str_of(live_header("content-type")), "text/plain; charset=utf-8");
    CHECK_STR(str_of(live_header("content-disposition")), "inline; filename=digits.txt");
    CHECK_STR(str_of(live_header("vary")), "Accept-Encoding");
    CHECK_STR(str_of(live_header("accept-ranges")), "bytes");
    CHECK(str_copy(str_of(live_header("etag")), etag, sizeof(etag)));
    CHECK_INT(live_call(&live, "GET", target(&live, "digits.txt"), "Range: bytes=2-4\r\n", STR(""),
                        &body),
              206);
    CHECK_STR(buf_str(&body), "234");
    CHECK_STR(str_of(live_header("content-range")), "bytes 2-4/10");
    CHECK_INT(live_call(&live, "GET", target(&live, "digits.txt"),
                        "Range: bytes=-3\r\nAccept-Encoding: gzip\r\n", STR(""), &body),
              206);
    CHECK_STR(buf_str(&body), "789");
    CHECK_INT(live_call(&live, "GET", target(&live, "digits.txt"), "Range: bytes=10-\r\n", STR(""),
                        &body),
              416);
    CHECK_STR(str_of(live_header("content-range")), "bytes */10");
    CHECK_INT(live_call(&live, "GET", target(&live, "digits.txt"),
                        "Range: bytes=0-1\r\nAccept-Encoding: gzip; q=1,*; q=0\r\n", STR(""),
                        &body),
              406);
    (void)snprintf(header, sizeof(header), "If-None-Match: %s\r\n", etag);
    CHECK_INT(live_call(&live, "GET", target(&live, "digits.txt"), header, STR(""), &body), 304);
    CHECK_INT(body.len, 0);
    put(live_in(&live, "digits.txt"), STR("other"));
    CHECK_INT(live_call(&live, "GET", target(&live, "digits.txt"), header, STR(""), &body), 200);
    CHECK_STR(buf_str(&body), "other");
    (void)snprintf(header, sizeof(header), "If-Modified-Since: %s\r\n",
                   live_header("last-modified"));
    CHECK_INT(live_call(&live, "GET", target(&live, "digits.txt"), header, STR(""), &body), 304);
    put(live_in(&live, "empty"), STR(""));
    CHECK_INT(
        live_call(&live, "GET", target(&live, "empty"), "Range: bytes=0-9\r\n", STR(""), &body),
        200);
    CHECK_INT(body.len, 0);
    buf_done(&body);
    live_stop(&live);
}

TEST(files_gzip_download)
{
    struct live live;
    struct buf body = {0};
    auto_buf struct buf big = {0};

    live_start(&live);
    buf_init(&big, 1 << 25);
    for (unsigned i = 0; big.len < 9000000; i++)
        buf_printf(&big, "%u:%u ", i, i * 2654435761u);
    put(live_in(&live, "big.csv"), buf_str(&big));
    CHECK_INT(live_call(&live, "GET", target(&live, "big.csv"),
                        "Accept-Encoding: gzip, deflate\r\n", STR(""), &body),
              200);
    CHECK_STR(str_of(live_header("content-encoding")), "gzip");
    CHECK_STR(str_of(live_header("content-type")), "text/csv; charset=utf-8");
    CHECK(!live_header("content-length"));
    CHECK(body.len < big.len);
    unpack(&body);
    CHECK_INT(body.len, big.len);
    CHECK(memcmp(body.p, big.p, big.len) == 0);
    CHECK_INT(live_call(&live, "GET", "/files?path=/proc/version", "Accept-Encoding: gzip\r\n",
                        STR(""), &body),
              200);
    unpack(&body);
    CHECK(strstr(body.p, "Linux version"));
    CHECK_INT(live_call(&live, "GET", target(&live, "big.csv"),
                        "Accept-Encoding: br, identity;q=0\r\n", STR(""), &body),
              406);
    CHECK(strstr(body.p, "no acceptable encoding found, supported: [gzip]"));
    buf_done(&body);
    live_stop(&live);
}

TEST(files_gzip_upload)
{
    struct live live;
    struct buf body = {0}, packed = {0};
    char form[500], *content;

    live_start(&live);
    pack(STR("hello gzip"), &packed);
    CHECK_INT(live_call(&live, "POST", target(&live, "z"), RAW "Content-Encoding: gzip\r\n",
                        buf_str(&packed), &body),
              200);
    CHECK_INT(live_call(&live, "GET", target(&live, "z"), NULL, STR(""), &body), 200);
    CHECK_STR(buf_str(&body), "hello gzip");
    /* Cut off, or not gzip at all: refused, and what was there stays. */
    CHECK_INT(live_call(&live, "POST", target(&live, "z"), RAW "Content-Encoding: gzip\r\n",
                        str_n(packed.p, packed.len - 4), &body),
              400);
    CHECK_INT(live_call(&live, "POST", target(&live, "z"), RAW "Content-Encoding: gzip\r\n",
                        STR("this is not gzip data"), &body),
              400);
    CHECK(strstr(body.p, "failed to create gzip reader"));
    CHECK_INT(live_call(&live, "POST", target(&live, "z"), RAW "Content-Encoding: br\r\n", STR("x"),
                        &body),
              400);
    CHECK(strstr(body.p, "unsupported Content-Encoding: br, supported: [gzip]"));
    CHECK_INT(live_call(&live, "GET", target(&live, "z"), NULL, STR(""), &body), 200);
    CHECK_STR(buf_str(&body), "hello gzip");
    buf_done(&packed);
    content = live_in(&live, "m");
    (void)snprintf(form, sizeof(form),
                   "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"%s\"\r\n\r\n"
                   "in a form\r\n--B--\r\n",
                   content);
    pack(str_of(form), &packed);
    CHECK_INT(live_call(&live, "POST", "/files",
                        "Content-Type: multipart/form-data; boundary=B\r\n"
                        "Content-Encoding: gzip\r\n",
                        buf_str(&packed), &body),
              200);
    CHECK_INT(live_call(&live, "GET", target(&live, "m"), NULL, STR(""), &body), 200);
    CHECK_STR(buf_str(&body), "in a form");
    buf_done(&packed);
    buf_done(&body);
    live_stop(&live);
}

static void check_metadata(const struct live *live, const char *name, const char *want)
{
    struct buf body = {0};
    char json[300], *found;

    (void)snprintf(json, sizeof(json), "{\"path\":\"%s\"}", live_in(live, name));
    CHECK_INT(live_rpc(live, "/filesystem.Filesystem/Stat", json, &body), 200);
    found = strstr(body.p, ",\"metadata\":");
    if (want)
        CHECK(found && str_starts(str_of(found), str_of(want)));
    else
        CHECK(!found);
    buf_done(&body);
}

TEST(files_metadata)
{
    struct live live;
    struct buf body = {0};
    char want[300];

    live_start(&live);
    put(live_in(&live, "probe"), STR(""));
    if (setxattr(live_in(&live, "probe"), "user.e2b.x", "1", 1, 0) != 0)
        test_lacks("the file system has no user attributes");
    CHECK_INT(live_call(&live, "POST", target(&live, "f"),
                        RAW "X-Metadata-Author: first\r\nx-metadata-AUTHOR: second\r\n"
                            "X-Metadata-: dropped\r\nX-Metadata-Empty:\r\n",
                        STR("x"), &body),
              200);
    (void)snprintf(want, sizeof(want),
                   "[{\"name\":\"f\",\"path\":\"%s\",\"type\":\"file\",\"metadata\":{",
                   live_in(&live, "f"));
    CHECK(str_starts(buf_str(&body), str_of(want)));
    CHECK(strstr(body.p, "\"author\":\"first\"") && strstr(body.p, "\"empty\":\"\""));
    CHECK(!strstr(body.p, "second") && !strstr(body.p, "dropped"));
    check_metadata(&live, "f", ",\"metadata\":{\"");
    /* Set by hand, it is seen as well; other attributes are not. */
    CHECK_INT(setxattr(live_in(&live, "probe"), "user.other", "1", 1, 0), 0);
    check_metadata(&live, "probe", ",\"metadata\":{\"x\":\"1\"}}");
    /* Uploading again clears; also where the file cannot be replaced by another. */
    CHECK_INT(live_call(&live, "POST", target(&live, "f"), RAW, STR("y"), &body), 200);
    CHECK(!strstr(body.p, "metadata"));
    check_metadata(&live, "f", NULL);
    CHECK_INT(link(live_in(&live, "probe"), live_in(&live, "probe2")), 0);
    CHECK_INT(live_call(&live, "POST", target(&live, "probe"), RAW "X-Metadata-New: 2\r\n",
                        STR("y"), &body),
              200);
    check_metadata(&live, "probe2", ",\"metadata\":{\"new\":\"2\"}}");
    buf_done(&body);
    live_stop(&live);
}

static int compose(const struct live *live, const char *json, struct buf *body)
{
    return live_call(live, "POST", "/files/compose", "Content-Type: application/json\r\n",
                     str_of(json), body);
}

static void check_content(const struct live *live, const char *name, const char *want)
{
    struct buf body = {0};

    CHECK_INT(live_call(live, "GET", target(live, name), NULL, STR(""), &body), 200);
    CHECK_STR(buf_str(&body), want);
    buf_done(&body);
}

TEST(files_compose)
{
    struct live live;
    struct buf body = {0};
    char json[900], want[300];
    struct stat st;
    const char *d = live.dir;

    live_start(&live);
    put(live_in(&live, "p0"), STR("Hello, "));
    put(live_in(&live, "p1"), STR("World"));
    put(live_in(&live, "p2"), STR("!"));
    (void)snprintf(json, sizeof(json),
                   "{\"source_paths\":[\"%s/p0\",\"%s/p1\",\"%s/p2\"],\"destination\":\"%s/new/"
                   "dir/all.txt\",\"username\":\"nobody\"}",
                   d, d, d, d);
    CHECK_INT(compose(&live, json, &body), 200);
    (void)snprintf(want, sizeof(want),
                   "{\"name\":\"all.txt\",\"path\":\"%s/new/dir/all.txt\",\"type\":\"file\"}", d);
    CHECK_STR(buf_str(&body), want);
    check_content(&live, "new/dir/all.txt", "Hello, World!");
    CHECK_INT(stat(live_in(&live, "new/dir/all.txt"), &st), 0);
    CHECK_INT(st.st_uid, 65534);
    CHECK(access(live_in(&live, "p0"), F_OK) != 0 && access(live_in(&live, "p2"), F_OK) != 0);
    /* Onto an existing file, from one source, twice. */
    put(live_in(&live, "p0"), STR("ab"));
    (void)snprintf(json, sizeof(json),
                   "{\"source_paths\":[\"%s/p0\",\"%s/p0\"],\"destination\":\"%s/new/dir/"
                   "all.txt\"}",
                   d, d, d);
    CHECK_INT(compose(&live, json, &body), 200);
    check_content(&live, "new/dir/all.txt", "abab");
    CHECK_INT(compose(&live, json, &body), 404);
    check_content(&live, "new/dir/all.txt", "abab");
    buf_done(&body);
    live_stop(&live);
}

TEST(files_compose_refusals)
{
    struct live live;
    struct buf body = {0};
    char json[600];
    const char *d = live.dir;

    live_start(&live);
    put(live_in(&live, "keep"), STR("original"));
    put(live_in(&live, "part"), STR("part"));
    CHECK_INT(symlink("part", live_in(&live, "link")), 0);
    CHECK_INT(compose(&live, "{\"source_paths\":[],\"destination\":\"/tmp/x\"}", &body), 400);
    CHECK_STR(buf_str(&body), "{\"code\":400,\"message\":\"source_paths must not be empty\"}");
    CHECK_INT(compose(&live, "{\"destination\":\"/tmp/x\"}", &body), 400);
    CHECK_INT(compose(&live, "{\"source_paths\":[\"/tmp/a\"],\"destination\":\"\"}", &body), 400);
    CHECK_STR(buf_str(&body), "{\"code\":400,\"message\":\"destination is required\"}");
    CHECK_INT(compose(&live, "{\"source_paths\":[7],\"destination\":\"/tmp/x\"}", &body), 400);
    CHECK_INT(compose(&live, "{\"source_paths\":\"a\",\"destination\":\"/tmp/x\"}", &body), 400);
    CHECK_INT(compose(&live, "{", &body), 400);
    CHECK_INT(compose(&live, "", &body), 400);
    (void)snprintf(json, sizeof(json),
                   "{\"source_paths\":[\"%s/part\",\"%s/none\"],\"destination\":\"%s/keep\"}", d, d,
                   d);
    CHECK_INT(compose(&live, json, &body), 404);
    CHECK(strstr(body.p, "source file not found: "));
    (void)snprintf(json, sizeof(json), "{\"source_paths\":[\"%s\"],\"destination\":\"%s/keep\"}", d,
                   d);
    CHECK_INT(compose(&live, json, &body), 400);
    CHECK(strstr(body.p, "source path is not a regular file: "));
    (void)snprintf(json, sizeof(json),
                   "{\"source_paths\":[\"%s/keep\"],\"destination\":\"%s/keep\"}", d, d);
    CHECK_INT(compose(&live, json, &body), 400);
    CHECK(strstr(body.p, "cannot be the same as destination"));
    (void)snprintf(json, sizeof(json),
                   "{\"source_paths\":[\"%s/part\"],\"destination\":\"%s/link\"}", d, d);
    CHECK_INT(compose(&live, json, &body), 400);
    (void)snprintf(json, sizeof(json), "{\"source_paths\":[\"%s/part\"],\"destination\":\"%s\"}", d,
                   d);
    CHECK_INT(compose(&live, json, &body), 400);
    (void)snprintf(json, sizeof(json),
                   "{\"source_paths\":[\"%s/part\"],\"destination\":\"%s/x\",\"username\":"
                   "\"ghost\"}",
                   d, d);
    CHECK_INT(compose(&live, json, &body), 401);
    check_content(&live, "keep", "original");
    check_content(&live, "part", "part");
    buf_done(&body);
    live_stop(&live);
}

/* A tiny file system: full of bytes, then full of inodes. */
TEST(files_full_disk)
{
    struct live live;
    struct buf body = {0}, big;
    char json[600];
    const char *d = live.dir;

    live_own_mounts();
    live_start(&live);
    CHECK_INT(mkdir(live_in(&live, "small"), 0777), 0);
    if (mount("none", live_in(&live, "small"), "tmpfs", 0, "size=256k,nr_inodes=10") != 0)
        test_lacks("cannot mount");
    buf_init(&big, 1 << 20);
    memset(buf_reserve(&big, 400000), 'x', 400000);
    buf_grew(&big, 400000);
    put(live_in(&live, "small/old"), STR("old"));
    CHECK_INT(live_call(&live, "POST", target(&live, "small/old"), RAW, buf_str(&big), &body), 507);
    CHECK_STR(buf_str(&body), "{\"code\":507,\"message\":\"not enough disk space available\"}");
    check_content(&live, "small/old", "old");
    put(live_in(&live, "part"), buf_str(&big));
    (void)snprintf(json, sizeof(json),
                   "{\"source_paths\":[\"%s/part\"],\"destination\":\"%s/small/c\"}", d, d);
    CHECK_INT(compose(&live, json, &body), 507);
    CHECK_INT(access(live_in(&live, "part"), F_OK), 0);
    for (int i = 0; i < 10; i++) {
        char name[32];

        (void)snprintf(name, sizeof(name), "small/%d", i);
        close_fd(&(int){open(live_in(&live, name), O_CREAT | O_WRONLY | O_CLOEXEC, 0644)});
    }
    CHECK_INT(live_call(&live, "POST", target(&live, "small/new"), RAW, STR("x"), &body), 507);
    CHECK_INT(live_call(&live, "POST", target(&live, "small/d/new"), RAW, STR("x"), &body), 507);
    CHECK_INT(umount2(live_in(&live, "small"), MNT_DETACH), 0);
    buf_done(&big);
    buf_done(&body);
    live_stop(&live);
}

/* Names are taken as they are meant: relative to home, ".." resolved as text, never as a link. */
TEST(files_odd_targets)
{
    struct live live;
    struct buf body = {0};
    char form[600];

    live_start(&live);
    (void)snprintf(
        form, sizeof(form),
        "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"../..%s/a/../up\"\r\n\r\n"
        "x\r\n--B--\r\n",
        live.dir);
    CHECK_INT(live_call(&live, "POST", "/files",
                        "Content-Type: multipart/form-data; boundary=B\r\n", str_of(form), &body),
              200);
    check_content(&live, "up", "x");
    CHECK_INT(mkfifo(live_in(&live, "fifo"), 0644), 0);
    CHECK_INT(live_call(&live, "GET", target(&live, "fifo"), NULL, STR(""), &body), 400);
    /* Nobody reads it: refused, not waited for. */
    CHECK_INT(live_call(&live, "POST", target(&live, "fifo"), RAW, STR("x"), &body), 400);
    CHECK_INT(live_call(&live, "POST", target(&live, "."), RAW, STR("x"), &body), 400);
    CHECK_INT(symlink("loop", live_in(&live, "loop")), 0);
    CHECK_INT(live_call(&live, "GET", target(&live, "loop"), NULL, STR(""), &body), 500);
    CHECK_INT(live_call(&live, "POST", target(&live, "loop"), RAW, STR("x"), &body), 500);
    CHECK_INT(live_call(&live, "POST", "/files?path=/dev/null", RAW, STR("x"), &body), 200);
    CHECK_INT(live_call(&live, "POST", "/files?path=/proc/nothing/x", RAW, STR("x"), &body), 404);
    CHECK_INT(live_call(&live, "GET", "/files?path=%00", NULL, STR(""), &body), 400);
    CHECK_INT(live_call(&live, "GET", "/files?path=~ghost/x", NULL, STR(""), &body), 400);
    buf_done(&body);
    live_stop(&live);
}

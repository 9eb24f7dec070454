/* Watching a real FUSE mount, which counts as one from the network: an empty directory, served by a
 * thread of the test. Sandboxes cannot mount one (tests/security), so this is outside of one. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/test.h"
#include "envd/test/live_rig.h"

#define WATCH "/filesystem.Filesystem/WatchDir"

static void answer(int fd, uint64_t unique, int error, const void *body, size_t len)
{
    char reply[sizeof(struct fuse_out_header) + 256];
    struct fuse_out_header head = {
        .len = (uint32_t)(sizeof(head) + len), .error = error, .unique = unique};

    memcpy(reply, &head, sizeof(head));
    if (len)
        memcpy(reply + sizeof(head), body, len);
    (void)!write(fd, reply, sizeof(head) + len);
}

static void *serve(void *arg)
{
    static char request[1 << 18];
    const struct fuse_init_out init = {
        .major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096, .time_gran = 1};
    const struct fuse_attr_out attr = {.attr = {.ino = 1, .mode = S_IFDIR | 0755, .nlink = 2}};
    const struct fuse_open_out opened = {0};
    int fd = *(int *)arg;

    while (read(fd, request, sizeof(request)) > 0) {
        struct fuse_in_header head;

        memcpy(&head, request, sizeof(head));
        if (head.opcode == FUSE_INIT)
            answer(fd, head.unique, 0, &init, sizeof(init));
        else if (head.opcode == FUSE_GETATTR)
            answer(fd, head.unique, 0, &attr, sizeof(attr));
        else if (head.opcode == FUSE_OPENDIR)
            answer(fd, head.unique, 0, &opened, sizeof(opened));
        else if (head.opcode == FUSE_READDIR || head.opcode == FUSE_RELEASEDIR)
            answer(fd, head.unique, 0, NULL, 0);
        else if (head.opcode == FUSE_LOOKUP)
            answer(fd, head.unique, -ENOENT, NULL, 0);
        else if (head.opcode != FUSE_FORGET && head.opcode != FUSE_BATCH_FORGET)
            answer(fd, head.unique, -ENOSYS, NULL, 0);
    }
    return NULL;
}

static void mount_fuse(int *fd, const char *type, const char *path)
{
    char options[128];
    pthread_t thread;

    *fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (*fd < 0)
        test_lacks("no /dev/fuse");
    CHECK_INT(mkdir(path, 0755), 0);
    (void)snprintf(options, sizeof(options),
                   "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", *fd);
    CHECK_INT(mount("test", path, type, 0, options), 0);
    CHECK_INT(pthread_create(&thread, NULL, serve, fd), 0);
    CHECK_INT(pthread_detach(thread), 0);
}

static void watch(struct live_stream *stream, const struct live *live, const char *name,
                  const char *more)
{
    char json[400];

    (void)snprintf(json, sizeof(json), "{\"path\":\"%s/%s\"%s}", live->dir, name, more);
    live_stream_open(stream, live, WATCH, json, NULL);
}

static void check_type(const char *type)
{
    struct live live;
    struct live_stream stream;
    char path[128];
    int fd;

    live_own_mounts();
    live_start(&live);
    (void)snprintf(path, sizeof(path), "%s/net", live.dir);
    mount_fuse(&fd, type, path);
    watch(&stream, &live, "net", "");
    live_stream_finish(&stream);
    CHECK(strstr(stream.last, "invalid_argument"));
    live_stream_close(&stream);
    watch(&stream, &live, "net", ",\"allowNetworkMounts\":true");
    CHECK(live_stream_next(&stream));
    CHECK_STR(buf_str(&stream.message), "{\"start\":{}}");
    live_stream_close(&stream);
    /* Beneath a watched directory it is left out, and the watch goes on. */
    watch(&stream, &live, "", ",\"recursive\":true");
    CHECK(live_stream_next(&stream));
    CHECK_STR(buf_str(&stream.message), "{\"start\":{}}");
    (void)snprintf(path, sizeof(path), "%s/new", live.dir);
    CHECK_INT(mkdir(path, 0755), 0);
    CHECK(live_stream_next(&stream));
    CHECK(strstr(stream.message.p, "\"new\""));
    live_stream_close(&stream);
    (void)snprintf(path, sizeof(path), "%s/net", live.dir);
    CHECK_INT(umount2(path, MNT_DETACH), 0);
    (void)close(fd);
    live_stop(&live);
}

TEST(fuse_mount)
{
    check_type("fuse");
}

TEST(fuse_mount_with_subtype)
{
    check_type("fuse.test");
}

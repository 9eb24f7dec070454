#include "host/disk/test/disk_world.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/test.h"

char world_dir[64];
struct disk_config world_config;
static struct error err;

static void remove_dir(void)
{
    struct error ignored;

    (void)disk_unmount(&world_config, &ignored);
    (void)path_remove_tree(AT_FDCWD, world_dir);
}

void world_setup(void)
{
    test_needs_root();
    CHECK(unshare(CLONE_NEWNS) == 0);
    CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    (void)snprintf(world_dir, sizeof(world_dir), "/var/tmp/quicksand-disk-XXXXXX");
    CHECK(mkdtemp(world_dir));
    world_config = (struct disk_config){.data_dir = world_dir, .initial_bytes = 256 * MIB};
    CHECK(atexit(remove_dir) == 0);
}

struct disk *world_open(void)
{
    struct disk *disk = NULL;

    if (disk_open(&world_config, &disk, &err) < 0)
        test_fail(__FILE__, __LINE__, "disk_open: %s", err.message);
    return disk;
}

void world_box(struct disk *disk, const char *id, uint64_t limit)
{
    int fd;

    if (disk_box_create(disk, id, limit, &fd, &err) < 0)
        test_fail(__FILE__, __LINE__, "disk_box_create: %s", err.message);
    CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    CHECK((fcntl(fd, F_GETFL) & O_PATH) != 0);
    (void)close(fd);
}

void world_layer(struct disk *disk, const char *id, const char *layer, uint64_t *out_bytes)
{
    if (disk_layer_prepare(disk, id, out_bytes, &err) < 0 ||
        disk_layer_create(disk, id, layer, &err) < 0 || disk_layer_settle(disk, id, &err) < 0)
        test_fail(__FILE__, __LINE__, "layer: %s", err.message);
}

int world_fill(const char *file, uint64_t bytes)
{
    static char block[65536];
    char path[256];
    auto_close int fd = -1;

    memset(block, 'x', sizeof(block));
    (void)snprintf(path, sizeof(path), "%s/pool/boxes/%s", world_dir, file);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    CHECK(fd >= 0);
    for (uint64_t done = 0; done < bytes; done += sizeof(block)) {
        if (write(fd, block, sizeof(block)) < 0)
            return errno;
    }
    return fsync(fd) < 0 ? errno : 0;
}

/* What the limit of a box does: to its own files, to a box that is full, and to the layers below it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/test.h"
#include "host/disk/test/disk_world.h"

static struct error err;

TEST_TIMEOUT(limit_is_enforced_and_can_be_changed, 60)
{
    struct disk *disk;
    uint64_t used;

    world_setup();
    disk = world_open();
    world_box(disk, "small", 8 * MIB);
    world_box(disk, "free", 0);
    CHECK_INT(world_fill("small/upper/f", 16 * MIB), EDQUOT);
    CHECK_INT(world_fill("free/upper/f", 16 * MIB), 0);
    CHECK(disk_box_used(disk, "small", &used, &err) == 0);
    CHECK(used > 6 * MIB && used <= 8 * MIB);
    CHECK(disk_box_used(disk, "free", &used, &err) == 0);
    CHECK(used >= 16 * MIB && used < 17 * MIB);
    /* A full box can still delete. */
    CHECK(unlinkat(disk->boxes_fd, "small/upper/f", 0) == 0);
    CHECK(disk_box_limit(disk, "small", 64 * MIB, &err) == 0);
    CHECK_INT(world_fill("small/upper/f", 16 * MIB), 0);
    CHECK(disk_box_limit(disk, "free", 20 * MIB, &err) == 0);
    CHECK_INT(world_fill("free/upper/g", 16 * MIB), EDQUOT);
    CHECK(disk_box_limit(disk, "free", 0, &err) == 0);
    CHECK_INT(world_fill("free/upper/g", 16 * MIB), 0);
    disk_close(disk);
}

/* Uses up what the limit leaves, the last blocks for metadata included. */
static void fill_all(const struct disk *disk)
{
    static const size_t sizes[] = {65536, 4096};
    static char block[65536];
    static int made;
    auto_close int fd =
        openat(disk->boxes_fd, "box/upper/full", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    char name[64];

    CHECK(fd >= 0);
    for (size_t i = 0; i < 2; i++)
        while (write(fd, block, sizes[i]) > 0)
            ;
    for (int most = made + 10000; made < most; made++) {
        (void)snprintf(name, sizeof(name), "box/upper/small%d", made);
        if (mkdirat(disk->boxes_fd, name, 0755) < 0)
            return;
    }
}

TEST_TIMEOUT(a_full_box_starts_again_and_gains_nothing_by_it, 60)
{
    uint64_t first = 0, used = 0;
    struct disk *disk;
    bool raised;
    int fd;

    world_setup();
    disk = world_open();
    world_box(disk, "box", 16 * MIB);
    for (int i = 0; i < 5; i++) {
        fill_all(disk);
        CHECK(syncfs(disk->pool_fd) == 0 && disk_box_used(disk, "box", &used, &err) == 0);
        first = first ? first : used;
        CHECK(used > 14 * MIB && used < first + MIB);
        CHECK(disk_box_reopen(disk, "box", 16 * MIB, &fd, &raised, &err) == 0);
        CHECK(raised);
        CHECK(mkdirat(fd, "work/work", 0755) == 0);
        close_fd(&fd);
        CHECK(disk_box_limit(disk, "box", 16 * MIB, &err) == 0);
    }
    CHECK(unlinkat(disk->boxes_fd, "box/upper/full", 0) == 0);
    CHECK(syncfs(disk->pool_fd) == 0);
    CHECK(disk_box_reopen(disk, "box", 64 * MIB, &fd, &raised, &err) == 0);
    CHECK(!raised);
    close_fd(&fd);
    disk_close(disk);
}

TEST_TIMEOUT(layers_do_not_eat_the_limit, 60)
{
    struct disk *disk;
    uint64_t bytes;
    int fd;

    world_setup();
    disk = world_open();
    world_box(disk, "box", 16 * MIB);
    CHECK_INT(world_fill("box/upper/f", 12 * MIB), 0);
    world_layer(disk, "box", "one", &bytes);
    CHECK_INT(world_fill("box/upper/f", 12 * MIB), 0);
    world_layer(disk, "box", "two", &bytes);
    CHECK_INT(world_fill("box/upper/f", 12 * MIB), 0);
    CHECK_INT(world_fill("box/upper/g", 12 * MIB), EDQUOT);
    /* The limit means the same after it is set again. */
    CHECK(unlinkat(disk->boxes_fd, "box/upper/g", 0) == 0);
    CHECK(disk_box_limit(disk, "box", 20 * MIB, &err) == 0);
    CHECK_INT(world_fill("box/upper/g", 4 * MIB), 0);
    CHECK_INT(world_fill("box/upper/h", 12 * MIB), EDQUOT);
    CHECK(disk_box_clone(disk, "child", "two", 16 * MIB, &fd, &err) == 0);
    close_fd(&fd);
    CHECK_INT(world_fill("child/upper/g", 12 * MIB), 0);
    CHECK_INT(world_fill("child/upper/h", 12 * MIB), EDQUOT);
    disk_close(disk);
}

#include "envd/view/disk_use.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/test.h"
#include "envd/view/statfs_answer.h"

#define GIB (1024ull * 1024 * 1024)

static void put(int dir, const char *name, unsigned long long value)
{
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    char text[32];

    CHECK(fd >= 0);
    (void)snprintf(text, sizeof(text), "%llu\n", value);
    CHECK_INT(fd_write_full(fd, text, strlen(text)), 0);
    (void)close(fd);
}

static void check_use(uint64_t pool_free, uint64_t size, uint64_t used, uint64_t available)
{
    struct disk_use use;

    CHECK(disk_use_read(pool_free, &use));
    CHECK_INT(use.size, size);
    CHECK_INT(use.used, used);
    CHECK_INT(use.available, available);
}

TEST(disk_use_of_a_quota)
{
    char dir[] = "/tmp/disk-use-XXXXXX";
    struct disk_use use;
    int fd;

    CHECK(!disk_use_read(GIB, &use));
    CHECK(mkdtemp(dir) != NULL);
    fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    CHECK(fd >= 0);
    disk_use_init(fd);
    CHECK(!disk_use_read(GIB, &use));
    put(fd, "max_referenced", 10 * GIB);
    put(fd, "max_exclusive", 0);
    put(fd, "referenced", 2 * GIB);
    put(fd, "exclusive", 2 * GIB);
    put(fd, "rsv_data", GIB);
    check_use(100 * GIB, 10 * GIB, 3 * GIB, 7 * GIB);
    /* What the pool has, or what of it is this one's share, may be less. */
    check_use(5 * GIB, 10 * GIB, 3 * GIB, 5 * GIB);
    put(fd, "max_exclusive", 4 * GIB);
    check_use(5 * GIB, 10 * GIB, 3 * GIB, GIB);
    put(fd, "max_exclusive", GIB);
    check_use(5 * GIB, 10 * GIB, 3 * GIB, 0);
    put(fd, "max_exclusive", UINT64_MAX);
    /* Snapshots hold two thirds of what is charged: the limit was raised by that. */
    disk_use_set_size(10 * GIB);
    put(fd, "max_referenced", 12 * GIB);
    check_use(100 * GIB, 10 * GIB, GIB, 9 * GIB);
    put(fd, "referenced", 0);
    check_use(100 * GIB, 10 * GIB, 0, 10 * GIB);
    put(fd, "referenced", 30 * GIB);
    check_use(100 * GIB, 10 * GIB, 10 * GIB, 0);
    /* No limit. */
    put(fd, "max_referenced", 0);
    CHECK(!disk_use_read(GIB, &use));
    put(fd, "max_referenced", UINT64_MAX);
    CHECK(!disk_use_read(GIB, &use));
    disk_use_set_size(0);
    disk_use_init(-1);
    (void)close(fd);
    CHECK_INT(path_remove_tree(AT_FDCWD, dir), 0);
}

TEST(statfs_rights_of_a_status)
{
    struct statfs_rights rights;

    CHECK(statfs_rights_parse(STR("Name:\tx\nUid:\t1\t2\t3\t1000\nGid:\t1\t2\t3\t1001\n"
                                  "Groups:\t27 100 \nCapEff:\t0000000000000000\nSeccomp:\t2\n"),
                              &rights));
    CHECK_INT(rights.uid, 1000);
    CHECK_INT(rights.gid, 1001);
    CHECK_INT(rights.group_count, 2);
    CHECK_INT(rights.groups[1], 100);
    CHECK(!rights.searches_all);
    CHECK(statfs_rights_parse(STR("Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t \n"
                                  "CapEff:\t00000000a80425fb\n"),
                              &rights));
    CHECK_INT(rights.group_count, 0);
    CHECK(rights.searches_all);
    CHECK(!statfs_rights_parse(STR("Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t\n"), &rights));
    CHECK(!statfs_rights_parse(STR("Uid:\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t\nCapEff:\tff\n"),
                               &rights));
    CHECK(!statfs_rights_parse(STR(""), &rights));
}

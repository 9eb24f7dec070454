/* Real images, loop devices and mounts, in a mount namespace of the test's own: whatever a failing
 * test leaves mounted ends with its process, and the loop device with the mount. */
#include "host/disk/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/test.h"
#include "host/disk/disk_internal.h"

#define MIB (1024ull * 1024)

static char dir[64];
static struct disk_config config;
static struct error err;

static void remove_dir(void)
{
    struct error ignored;

    (void)disk_unmount(&config, &ignored);
    (void)path_remove_tree(AT_FDCWD, dir);
}

static void setup(void)
{
    test_needs_root();
    CHECK(unshare(CLONE_NEWNS) == 0);
    CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    (void)snprintf(dir, sizeof(dir), "/var/tmp/quicksand-disk-XXXXXX");
    CHECK(mkdtemp(dir));
    config = (struct disk_config){.data_dir = dir, .initial_bytes = 256 * MIB};
    CHECK(atexit(remove_dir) == 0);
}

static struct disk *open_disk(void)
{
    struct disk *disk = NULL;

    if (disk_open(&config, &disk, &err) < 0)
        test_fail(__FILE__, __LINE__, "disk_open: %s", err.message);
    return disk;
}

static void make_box(struct disk *disk, const char *id, uint64_t limit)
{
    int fd;

    if (disk_box_create(disk, id, limit, &fd, &err) < 0)
        test_fail(__FILE__, __LINE__, "disk_box_create: %s", err.message);
    CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    CHECK((fcntl(fd, F_GETFL) & O_PATH) != 0);
    (void)close(fd);
}

/* 0, or the errno of the first write that failed. */
static int fill(const char *file, uint64_t bytes)
{
    static char block[65536];
    char path[256];
    auto_close int fd = -1;

    memset(block, 'x', sizeof(block));
    (void)snprintf(path, sizeof(path), "%s/pool/boxes/%s", dir, file);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    CHECK(fd >= 0);
    for (uint64_t done = 0; done < bytes; done += sizeof(block)) {
        if (write(fd, block, sizeof(block)) < 0)
            return errno;
    }
    return fsync(fd) < 0 ? errno : 0;
}

static const char *pool_path(void)
{
    static char path[128];

    (void)snprintf(path, sizeof(path), "%s/pool", dir);
    return path;
}

static bool mounted(void)
{
    struct statx stx;

    CHECK(statx(AT_FDCWD, pool_path(), 0, STATX_TYPE, &stx) == 0);
    return (stx.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

static int loops_of_image(void)
{
    struct disk_loop loop = {.fd = -1};
    char path[128];
    struct stat image;
    int found;

    (void)snprintf(path, sizeof(path), "%s/pool.img", dir);
    CHECK(stat(path, &image) == 0);
    found = disk_loop_find(&image, &loop, &err);
    close_fd(&loop.fd);
    return found;
}

TEST(pool_is_private_and_a_box_has_its_directories)
{
    struct disk *disk;
    struct stat st;

    setup();
    (void)umask(077);
    disk = open_disk();
    make_box(disk, "i0", 0);
    CHECK(fstat(disk->pool_fd, &st) == 0);
    CHECK_INT(st.st_mode & 07777, 0700);
    CHECK(fstatat(disk->boxes_fd, "i0/upper", &st, 0) == 0);
    CHECK_INT(st.st_mode & 07777, 0755);
    CHECK(fstatat(disk->boxes_fd, "i0/work", &st, 0) == 0);
    CHECK_INT(st.st_mode & 07777, 0755);
    disk_close(disk);
}

TEST(names_are_checked)
{
    static const char *const bad[] = {"", ".", "..", "../x", "a/b", "A", "x.y"};
    struct disk *disk;
    int fd;

    setup();
    disk = open_disk();
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        CHECK_INT(disk_box_create(disk, bad[i], 0, &fd, &err), -1);
        CHECK_INT(err.code, ERROR_INVALID);
        CHECK_INT(disk_box_delete(disk, bad[i], &err), -1);
    }
    make_box(disk, "twice", 0);
    CHECK_INT(disk_box_create(disk, "twice", 0, &fd, &err), -1);
    CHECK_INT(err.code, ERROR_EXISTS);
    CHECK_INT(disk_box_limit(disk, "absent", 1, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    disk_close(disk);
}

TEST_TIMEOUT(limit_is_enforced_and_can_be_changed, 60)
{
    struct disk *disk;
    uint64_t used;

    setup();
    disk = open_disk();
    make_box(disk, "small", 8 * MIB);
    make_box(disk, "free", 0);
    CHECK_INT(fill("small/upper/f", 16 * MIB), EDQUOT);
    CHECK_INT(fill("free/upper/f", 16 * MIB), 0);
    CHECK(disk_box_used(disk, "small", &used, &err) == 0);
    CHECK(used > 6 * MIB && used <= 8 * MIB);
    CHECK(disk_box_used(disk, "free", &used, &err) == 0);
    CHECK(used >= 16 * MIB && used < 17 * MIB);
    /* A full box can still delete. */
    CHECK(unlinkat(disk->boxes_fd, "small/upper/f", 0) == 0);
    CHECK(disk_box_limit(disk, "small", 64 * MIB, &err) == 0);
    CHECK_INT(fill("small/upper/f", 16 * MIB), 0);
    CHECK(disk_box_limit(disk, "free", 20 * MIB, &err) == 0);
    CHECK_INT(fill("free/upper/g", 16 * MIB), EDQUOT);
    CHECK(disk_box_limit(disk, "free", 0, &err) == 0);
    CHECK_INT(fill("free/upper/g", 16 * MIB), 0);
    disk_close(disk);
}

static bool has(char **names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0)
            return true;
    }
    return false;
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

    setup();
    disk = open_disk();
    make_box(disk, "box", 16 * MIB);
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

TEST(delete_and_list)
{
    struct btrfs_ioctl_vol_args nested = {.name = "nested"};
    auto_close int upper = -1;
    struct disk *disk;
    char **names;
    size_t count;

    setup();
    disk = open_disk();
    CHECK(disk_box_list(disk, &names, &count, &err) == 0);
    CHECK_INT(count, 0);
    free(names);
    make_box(disk, "a", 0);
    make_box(disk, "b", 10 * MIB);
    make_box(disk, "c", 0);
    upper = openat(disk->boxes_fd, "b/upper", O_RDONLY | O_CLOEXEC);
    CHECK(ioctl(upper, BTRFS_IOC_SUBVOL_CREATE, &nested) == 0);
    close_fd(&upper);
    CHECK_INT(fill("b/upper/nested/f", MIB), 0);
    CHECK(disk_box_list(disk, &names, &count, &err) == 0);
    CHECK_INT(count, 3);
    CHECK(has(names, count, "a") && has(names, count, "b") && has(names, count, "c"));
    for (size_t i = 0; i < count; i++) {
        CHECK(disk_box_delete(disk, names[i], &err) == 0);
        CHECK(disk_box_delete(disk, names[i], &err) == 0);
        free(names[i]);
    }
    free(names);
    CHECK(disk_box_list(disk, &names, &count, &err) == 0);
    CHECK_INT(count, 0);
    free(names);
    disk_close(disk);
}

TEST(reopen_adopts_the_mount_and_remounts_the_image)
{
    struct disk *disk, *second;

    setup();
    disk = open_disk();
    make_box(disk, "kept", 8 * MIB);
    CHECK_INT(fill("kept/upper/f", MIB), 0);
    second = open_disk();
    CHECK(faccessat(second->boxes_fd, "kept/upper/f", F_OK, 0) == 0);
    disk_close(disk);
    disk_close(second);
    CHECK(mounted());
    CHECK(disk_unmount(&config, &err) == 0);
    CHECK(!mounted());
    CHECK_INT(loops_of_image(), 0);
    disk = open_disk();
    CHECK(faccessat(disk->boxes_fd, "kept/upper/f", F_OK, 0) == 0);
    CHECK_INT(fill("kept/upper/f", 16 * MIB), EDQUOT);
    disk_close(disk);
}

TEST(unmount_is_idempotent_and_refuses_a_pool_in_use)
{
    struct disk *disk;

    setup();
    CHECK(disk_unmount(&config, &err) == 0);
    disk = open_disk();
    CHECK_INT(disk_unmount(&config, &err), -1);
    CHECK_INT(err.code, ERROR_CONFLICT);
    CHECK(mounted());
    disk_close(disk);
    CHECK(disk_unmount(&config, &err) == 0);
    CHECK(disk_unmount(&config, &err) == 0);
    CHECK_INT(loops_of_image(), 0);
    config.data_dir = "/var/tmp/quicksand-absent/data";
    CHECK(disk_unmount(&config, &err) == 0);
    config.data_dir = dir;
}

/* An overlay holds the file system, but not the mount: the kernel lets the mount go. */
TEST(unmount_refuses_while_an_overlay_uses_the_pool)
{
    char options[512], root[128], lower[128];
    struct disk *disk;

    setup();
    disk = open_disk();
    make_box(disk, "box", 0);
    disk_close(disk);
    (void)snprintf(root, sizeof(root), "%s/root", dir);
    (void)snprintf(lower, sizeof(lower), "%s/lower", dir);
    CHECK(mkdir(root, 0700) == 0 && mkdir(lower, 0700) == 0);
    (void)snprintf(options, sizeof(options),
                   "lowerdir=%s,upperdir=%s/pool/boxes/box/upper,workdir=%s/pool/boxes/box/work",
                   lower, dir, dir);
    CHECK(mount("overlay", root, "overlay", 0, options) == 0);
    CHECK_INT(disk_unmount(&config, &err), -1);
    CHECK_INT(err.code, ERROR_CONFLICT);
    CHECK(mounted());
    /* Adopted again while the overlay lives, not attached a second time. */
    CHECK(umount2(pool_path(), 0) == 0);
    disk_close(open_disk());
    CHECK(mounted());
    CHECK(umount2(root, 0) == 0);
    CHECK(disk_unmount(&config, &err) == 0);
    CHECK_INT(loops_of_image(), 0);
}

/* Allocates in small steps until the pool wants to grow: how much of a small pool btrfs keeps for
 * its metadata depends on the moment. */
static off_t fill_until_little_is_free(struct disk *disk, int fd)
{
    const off_t step = (off_t)(8 * MIB);
    struct statvfs pool;
    off_t filled = 0;

    CHECK(fstatvfs(disk->pool_fd, &pool) == 0);
    while (pool.f_bavail * 4 >= pool.f_blocks) {
        if (fallocate(fd, 0, filled, step) < 0)
            test_fail(__FILE__, __LINE__, "fallocate at %lld MiB: %s",
                      (long long)filled / (long long)MIB, strerror(errno));
        filled += step;
        CHECK(fsync(fd) == 0);
        CHECK(fstatvfs(disk->pool_fd, &pool) == 0);
    }
    return filled;
}

TEST_TIMEOUT(grow_doubles_when_little_is_free, 60)
{
    struct disk *disk;
    struct statvfs before, after;
    auto_close int fd = -1;
    off_t filled;

    setup();
    disk = open_disk();
    CHECK(fstatvfs(disk->pool_fd, &before) == 0);
    CHECK(disk_tend(disk, &err) == 0);
    CHECK(fstatvfs(disk->pool_fd, &after) == 0);
    CHECK_INT(after.f_blocks, before.f_blocks);
    make_box(disk, "big", 0);
    fd = openat(disk->boxes_fd, "big/upper/f", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    filled = fill_until_little_is_free(disk, fd);
    if (disk_tend(disk, &err) < 0)
        test_fail(__FILE__, __LINE__, "disk_tend: %s", err.message);
    CHECK(fstatvfs(disk->pool_fd, &after) == 0);
    CHECK_INT(after.f_blocks, before.f_blocks * 2);
    CHECK(fallocate(fd, 0, filled, (off_t)(100 * MIB)) == 0);
    close_fd(&fd);
    disk_close(disk);
    /* The new size is there after a remount too. */
    CHECK(disk_unmount(&config, &err) == 0);
    disk = open_disk();
    CHECK(fstatvfs(disk->pool_fd, &after) == 0);
    CHECK_INT(after.f_blocks, before.f_blocks * 2);
    disk_close(disk);
}

TEST(data_directory_on_btrfs_needs_no_image)
{
    struct disk_config inner_config;
    struct disk *disk, *inner;
    char inner_dir[128];
    struct stat st;

    setup();
    disk = open_disk();
    (void)snprintf(inner_dir, sizeof(inner_dir), "%s/pool/inner", dir);
    CHECK(mkdir(inner_dir, 0700) == 0);
    inner_config = (struct disk_config){.data_dir = inner_dir};
    CHECK(disk_open(&inner_config, &inner, &err) == 0);
    CHECK(inner->image_fd < 0);
    make_box(inner, "i", 8 * MIB);
    CHECK(fstatat(AT_FDCWD, inner_dir, &st, 0) == 0);
    CHECK(fstatat(inner->boxes_fd, "i/upper", &st, 0) == 0);
    CHECK(disk_tend(inner, &err) == 0);
    CHECK(disk_box_delete(inner, "i", &err) == 0);
    disk_close(inner);
    CHECK(disk_unmount(&inner_config, &err) == 0);
    CHECK(mounted());
    disk_close(disk);
}

TEST(a_foreign_mount_is_refused)
{
    struct disk *disk;

    setup();
    disk_close(open_disk());
    CHECK(disk_unmount(&config, &err) == 0);
    CHECK(mount("tmpfs", pool_path(), "tmpfs", 0, NULL) == 0);
    CHECK_INT(disk_open(&config, &disk, &err), -1);
    CHECK_INT(err.code, ERROR_CONFLICT);
    CHECK_INT(disk_unmount(&config, &err), -1);
    CHECK_INT(err.code, ERROR_CONFLICT);
    CHECK(umount2(pool_path(), 0) == 0);
}

/* Inode of a file beneath the pool; 0 when it is not there. */
static ino_t inode_of(const struct disk *disk, const char *path)
{
    struct stat st;

    return fstatat(disk->pool_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 ? st.st_ino : 0;
}

static void make_layer(struct disk *disk, const char *id, const char *layer, uint64_t *out_bytes)
{
    if (disk_layer_prepare(disk, id, out_bytes, &err) < 0 ||
        disk_layer_create(disk, id, layer, &err) < 0 || disk_layer_settle(disk, id, &err) < 0)
        test_fail(__FILE__, __LINE__, "layer: %s", err.message);
}

TEST_TIMEOUT(a_layer_keeps_what_its_box_held, 60)
{
    uint64_t bytes, noted;
    struct disk *disk;
    char **names;
    size_t count;
    int fd;

    setup();
    disk = open_disk();
    make_box(disk, "box", 0);
    CHECK_INT(fill("box/upper/kept", 4 * MIB), 0);
    make_layer(disk, "box", "one", &bytes);
    CHECK(bytes >= 4 * MIB && bytes < 5 * MIB);
    CHECK(disk_layer_bytes(disk, "one", &noted, &err) == 0);
    CHECK_INT(noted, bytes);
    CHECK(disk_layer_exists(disk, "one") && !disk_layer_exists(disk, "two"));
    CHECK_INT(disk_layer_create(disk, "box", "one", &err), -1);
    CHECK_INT(err.code, ERROR_EXISTS);
    CHECK_INT(disk_layer_create(disk, "absent", "two", &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    CHECK_INT(disk_layer_create(disk, "box", "../x", &err), -1);
    /* Nothing that happens to the box later reaches the layer, and nobody writes to it. */
    CHECK(unlinkat(disk->pool_fd, "boxes/box/upper/kept", 0) == 0);
    CHECK(inode_of(disk, "layers/one/upper/kept"));
    CHECK(unlinkat(disk->pool_fd, "layers/one/upper/kept", 0) < 0 && errno == EROFS);
    CHECK(disk_box_delete(disk, "box", &err) == 0);
    CHECK(disk_box_clone(disk, "child", "one", 0, &fd, &err) == 0);
    CHECK((fcntl(fd, F_GETFL) & O_PATH) != 0);
    close_fd(&fd);
    CHECK(inode_of(disk, "boxes/child/upper/kept"));
    CHECK_INT(fill("child/upper/new", MIB), 0);
    CHECK(!inode_of(disk, "layers/one/upper/new"));
    CHECK(disk_layer_list(disk, &names, &count, &err) == 0);
    CHECK(count == 1 && has(names, count, "one"));
    free(names[0]);
    free(names);
    /* The child has all it needs. */
    CHECK(disk_layer_delete(disk, "one", &err) == 0);
    CHECK(disk_layer_delete(disk, "one", &err) == 0);
    CHECK(inode_of(disk, "boxes/child/upper/kept"));
    CHECK_INT(disk_box_clone(disk, "other", "one", 0, &fd, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    CHECK(!inode_of(disk, "boxes/other"));
    CHECK(disk_box_delete(disk, "child", &err) == 0);
    disk_close(disk);
}

/* A layer's files are not held against the box they came from, nor against one made from it. */
TEST_TIMEOUT(layers_do_not_eat_the_limit, 60)
{
    struct disk *disk;
    uint64_t bytes;
    int fd;

    setup();
    disk = open_disk();
    make_box(disk, "box", 16 * MIB);
    CHECK_INT(fill("box/upper/f", 12 * MIB), 0);
    make_layer(disk, "box", "one", &bytes);
    CHECK_INT(fill("box/upper/f", 12 * MIB), 0);
    make_layer(disk, "box", "two", &bytes);
    CHECK_INT(fill("box/upper/f", 12 * MIB), 0);
    CHECK_INT(fill("box/upper/g", 12 * MIB), EDQUOT);
    /* The limit means the same after it is set again. */
    CHECK(unlinkat(disk->boxes_fd, "box/upper/g", 0) == 0);
    CHECK(disk_box_limit(disk, "box", 20 * MIB, &err) == 0);
    CHECK_INT(fill("box/upper/g", 4 * MIB), 0);
    CHECK_INT(fill("box/upper/h", 12 * MIB), EDQUOT);
    CHECK(disk_box_clone(disk, "child", "two", 16 * MIB, &fd, &err) == 0);
    close_fd(&fd);
    CHECK_INT(fill("child/upper/g", 12 * MIB), 0);
    CHECK_INT(fill("child/upper/h", 12 * MIB), EDQUOT);
    disk_close(disk);
}

static size_t group_count(const struct disk *disk)
{
    int fd = openat(disk->qgroups_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *groups = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    size_t count = 0;

    CHECK(groups);
    while ((entry = readdir(groups)))
        count += strncmp(entry->d_name, "0_", 2) == 0;
    (void)closedir(groups);
    return count;
}

/* Newer kernels remove them by themselves, some time after the subvolume; older ones never do. */
static void wait_for_groups(struct disk *disk, size_t wanted)
{
    for (unsigned i = 0; i < 400 * test_patience() && group_count(disk) > wanted; i++) {
        CHECK(ioctl(disk->pool_fd, BTRFS_IOC_SYNC) == 0);
        disk_sweep(disk);
        (void)usleep(50000);
    }
    CHECK_INT(group_count(disk), wanted);
}

TEST_TIMEOUT(quota_groups_go_with_their_subvolumes, 60)
{
    struct disk *disk;
    size_t before;

    setup();
    disk = open_disk();
    make_box(disk, "stays", MIB);
    before = group_count(disk);
    for (int i = 0; i < 8; i++) {
        char name[16], file[32];
        uint64_t bytes;

        (void)snprintf(name, sizeof(name), "box-%d", i);
        (void)snprintf(file, sizeof(file), "%s/upper/file", name);
        make_box(disk, name, 8 * MIB);
        CHECK_INT(fill(file, MIB), 0);
        CHECK(disk_layer_prepare(disk, name, &bytes, &err) == 0);
        CHECK(disk_layer_create(disk, name, name, &err) == 0);
        CHECK(disk_box_delete(disk, name, &err) == 0);
        CHECK(disk_layer_delete(disk, name, &err) == 0);
    }
    wait_for_groups(disk, before);
    /* What a predecessor left that did not live to see them go. */
    make_box(disk, "last", MIB);
    CHECK(disk_box_delete(disk, "last", &err) == 0);
    disk_close(disk);
    disk = open_disk();
    wait_for_groups(disk, before);
    disk_close(disk);
}

TEST(a_box_is_reopened_with_a_clean_work_directory)
{
    struct disk *disk;
    bool raised;
    int fd;

    setup();
    disk = open_disk();
    CHECK_INT(disk_box_reopen(disk, "box", 0, &fd, &raised, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    make_box(disk, "box", 0);
    CHECK_INT(fill("box/upper/f", MIB), 0);
    CHECK(mkdirat(disk->boxes_fd, "box/work/work", 0) == 0);
    CHECK(mkdirat(disk->boxes_fd, "box/work/work/#1", 0) == 0);
    CHECK(disk_box_reopen(disk, "box", 8 * MIB, &fd, &raised, &err) == 0);
    close_fd(&fd);
    CHECK(!inode_of(disk, "boxes/box/work/work"));
    CHECK(inode_of(disk, "boxes/box/work") && inode_of(disk, "boxes/box/upper/f"));
    CHECK_INT(fill("box/upper/g", 16 * MIB), EDQUOT);
    disk_close(disk);
}

TEST(a_sync_leaves_nothing)
{
    const struct btrfs_qgroup_limit none = {0};
    struct disk *disk;

    setup();
    disk = open_disk();
    make_box(disk, "box", 0);
    CHECK_INT(disk_box_sync(disk, "absent", &err), -1);
    CHECK(disk_box_sync(disk, "box", &err) == 0);
    CHECK(!inode_of(disk, "temporary/box"));
    /* As a warden that was killed in the middle would leave it. */
    CHECK(disk_subvol_create(disk->temporary_fd, "box", &none, &err) == 0);
    CHECK(disk_box_sync(disk, "box", &err) == 0);
    CHECK(!inode_of(disk, "temporary/box"));
    CHECK(disk_subvol_create(disk->temporary_fd, "box", &none, &err) == 0);
    disk_close(disk);
    disk = open_disk();
    CHECK(!inode_of(disk, "temporary/box"));
    disk_close(disk);
}

TEST(volumes)
{
    struct disk *disk;
    struct stat st;
    int fd;

    setup();
    (void)umask(077);
    disk = open_disk();
    CHECK_INT(disk_volume_open(disk, "v1", &fd, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    CHECK(disk_volume_create(disk, "v1", 0, &err) == 0);
    CHECK(disk_volume_create(disk, "v1", 0, &err) == 0);
    CHECK(disk_volume_open(disk, "v1", &fd, &err) == 0);
    CHECK(fstat(fd, &st) == 0);
    CHECK_INT(st.st_mode, S_IFDIR | 0777);
    close_fd(&fd);
    CHECK(disk_volume_delete(disk, "v1", &err) == 0);
    CHECK(disk_volume_delete(disk, "v1", &err) == 0);
    CHECK_INT(disk_volume_create(disk, "a/b", 0, &err), -1);
    disk_close(disk);
}

/* A process with a mount namespace of its own, in which the pool stays mounted; with its directory there. */
static pid_t make_holder(bool inside)
{
    int ready[2];
    char byte;
    pid_t pid;

    CHECK(pipe2(ready, O_CLOEXEC) == 0);
    pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)prctl(PR_SET_NAME, "holder");
        if (unshare(CLONE_NEWNS) < 0 || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            (inside && chdir(pool_path()) < 0) || write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            (void)pause();
    }
    CHECK(pid > 0);
    (void)close(ready[1]);
    CHECK(read(ready[0], &byte, 1) == 1);
    (void)close(ready[0]);
    return pid;
}

static void end_holder(pid_t pid)
{
    CHECK(kill(pid, SIGKILL) == 0);
    CHECK(waitpid(pid, NULL, 0) == pid);
}

TEST(unmount_reaches_copies_in_other_namespaces)
{
    pid_t holder;
    char name[32];

    setup();
    disk_close(open_disk());
    holder = make_holder(false);
    if (disk_unmount(&config, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    CHECK(!mounted());
    CHECK_INT(loops_of_image(), 0);
    CHECK(kill(holder, 0) == 0);
    end_holder(holder);
    /* Who really uses it is named. */
    disk_close(open_disk());
    holder = make_holder(true);
    CHECK_INT(disk_unmount(&config, &err), -1);
    CHECK_INT(err.code, ERROR_CONFLICT);
    (void)snprintf(name, sizeof(name), "%d (holder)", (int)holder);
    CHECK(strstr(err.message, name) != NULL);
    CHECK(mounted());
    end_holder(holder);
    CHECK(disk_unmount(&config, &err) == 0);
    CHECK_INT(loops_of_image(), 0);
}

TEST(a_pool_that_stopped_is_refused_but_can_be_unmounted)
{
    struct disk *disk = NULL;

    setup();
    disk_close(open_disk());
    CHECK(mount(NULL, pool_path(), NULL, MS_REMOUNT | MS_RDONLY, NULL) == 0);
    CHECK_INT(disk_open(&config, &disk, &err), -1);
    CHECK(strstr(err.message, "quicksand down") != NULL);
    config.only_to_unmount = true;
    disk_close(open_disk());
    CHECK(disk_unmount(&config, &err) == 0);
    config.only_to_unmount = false;
    disk_close(open_disk());
}

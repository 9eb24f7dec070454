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
#include "host/disk/test/disk_world.h"

static struct error err;

static const char *pool_path(void)
{
    static char path[128];

    (void)snprintf(path, sizeof(path), "%s/pool", world_dir);
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

    (void)snprintf(path, sizeof(path), "%s/pool.img", world_dir);
    CHECK(stat(path, &image) == 0);
    found = disk_loop_find(&image, &loop, &err);
    close_fd(&loop.fd);
    return found;
}

TEST(pool_is_private_and_a_box_has_its_directories)
{
    struct disk *disk;
    struct stat st;

    world_setup();
    (void)umask(077);
    disk = world_open();
    world_box(disk, "i0", 0);
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

    world_setup();
    disk = world_open();
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        CHECK_INT(disk_box_create(disk, bad[i], 0, &fd, &err), -1);
        CHECK_INT(err.code, ERROR_INVALID);
        CHECK_INT(disk_box_delete(disk, bad[i], &err), -1);
    }
    world_box(disk, "twice", 0);
    CHECK_INT(disk_box_create(disk, "twice", 0, &fd, &err), -1);
    CHECK_INT(err.code, ERROR_EXISTS);
    CHECK_INT(disk_box_limit(disk, "absent", 1, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
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

TEST(delete_and_list)
{
    struct btrfs_ioctl_vol_args nested = {.name = "nested"};
    auto_close int upper = -1;
    struct disk *disk;
    char **names;
    size_t count;

    world_setup();
    disk = world_open();
    CHECK(disk_box_list(disk, &names, &count, &err) == 0);
    CHECK_INT(count, 0);
    free(names);
    world_box(disk, "a", 0);
    world_box(disk, "b", 10 * MIB);
    world_box(disk, "c", 0);
    upper = openat(disk->boxes_fd, "b/upper", O_RDONLY | O_CLOEXEC);
    CHECK(ioctl(upper, BTRFS_IOC_SUBVOL_CREATE, &nested) == 0);
    close_fd(&upper);
    CHECK_INT(world_fill("b/upper/nested/f", MIB), 0);
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

    world_setup();
    disk = world_open();
    world_box(disk, "kept", 8 * MIB);
    CHECK_INT(world_fill("kept/upper/f", MIB), 0);
    second = world_open();
    CHECK(faccessat(second->boxes_fd, "kept/upper/f", F_OK, 0) == 0);
    disk_close(disk);
    disk_close(second);
    CHECK(mounted());
    CHECK(disk_unmount(&world_config, &err) == 0);
    CHECK(!mounted());
    CHECK_INT(loops_of_image(), 0);
    disk = world_open();
    CHECK(faccessat(disk->boxes_fd, "kept/upper/f", F_OK, 0) == 0);
    CHECK_INT(world_fill("kept/upper/f", 16 * MIB), EDQUOT);
    disk_close(disk);
}

TEST(unmount_is_idempotent_and_refuses_a_pool_in_use)
{
    struct disk *disk;

    world_setup();
    CHECK(disk_unmount(&world_config, &err) == 0);
    disk = world_open();
    CHECK_INT(disk_unmount(&world_config, &err), -1);
    CHECK_INT(err.code, ERROR_CONFLICT);
    CHECK(mounted());
    disk_close(disk);
    CHECK(disk_unmount(&world_config, &err) == 0);
    CHECK(disk_unmount(&world_config, &err) == 0);
    CHECK_INT(loops_of_image(), 0);
    world_config.data_dir = "/var/tmp/quicksand-absent/data";
    CHECK(disk_unmount(&world_config, &err) == 0);
    world_config.data_dir = world_dir;
}

/* An overlay holds the file system, but not the mount: the kernel lets the mount go. */
TEST(unmount_refuses_while_an_overlay_uses_the_pool)
{
    char options[512], root[128], lower[128];
    struct disk *disk;

    world_setup();
    disk = world_open();
    world_box(disk, "box", 0);
    disk_close(disk);
    (void)snprintf(root, sizeof(root), "%s/root", world_dir);
    (void)snprintf(lower, sizeof(lower), "%s/lower", world_dir);
    CHECK(mkdir(root, 0700) == 0 && mkdir(lower, 0700) == 0);
    (void)snprintf(options, sizeof(options),
                   "lowerdir=%s,upperdir=%s/pool/boxes/box/upper,workdir=%s/pool/boxes/box/work",
                   lower, world_dir, world_dir);
    CHECK(mount("overlay", root, "overlay", 0, options) == 0);
    CHECK_INT(disk_unmount(&world_config, &err), -1);
    CHECK_INT(err.code, ERROR_CONFLICT);
    CHECK(mounted());
    /* Adopted again while the overlay lives, not attached a second time. */
    CHECK(umount2(pool_path(), 0) == 0);
    disk_close(world_open());
    CHECK(mounted());
    CHECK(umount2(root, 0) == 0);
    CHECK(disk_unmount(&world_config, &err) == 0);
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

    world_setup();
    disk = world_open();
    CHECK(fstatvfs(disk->pool_fd, &before) == 0);
    CHECK(disk_tend(disk, &err) == 0);
    CHECK(fstatvfs(disk->pool_fd, &after) == 0);
    CHECK_INT(after.f_blocks, before.f_blocks);
    world_box(disk, "big", 0);
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
    CHECK(disk_unmount(&world_config, &err) == 0);
    disk = world_open();
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

    world_setup();
    disk = world_open();
    (void)snprintf(inner_dir, sizeof(inner_dir), "%s/pool/inner", world_dir);
    CHECK(mkdir(inner_dir, 0700) == 0);
    inner_config = (struct disk_config){.data_dir = inner_dir};
    CHECK(disk_open(&inner_config, &inner, &err) == 0);
    CHECK(inner->image_fd < 0);
    world_box(inner, "i", 8 * MIB);
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

    world_setup();
    disk_close(world_open());
    CHECK(disk_unmount(&world_config, &err) == 0);
    CHECK(mount("tmpfs", pool_path(), "tmpfs", 0, NULL) == 0);
    CHECK_INT(disk_open(&world_config, &disk, &err), -1);
    CHECK_INT(err.code, ERROR_CONFLICT);
    CHECK_INT(disk_unmount(&world_config, &err), -1);
    CHECK_INT(err.code, ERROR_CONFLICT);
    CHECK(umount2(pool_path(), 0) == 0);
}

/* Inode of a file beneath the pool; 0 when it is not there. */
static ino_t inode_of(const struct disk *disk, const char *path)
{
    struct stat st;

    return fstatat(disk->pool_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 ? st.st_ino : 0;
}

TEST_TIMEOUT(a_layer_keeps_what_its_box_held, 60)
{
    uint64_t bytes, noted;
    struct disk *disk;
    char **names;
    size_t count;
    int fd;

    world_setup();
    disk = world_open();
    world_box(disk, "box", 0);
    CHECK_INT(world_fill("box/upper/kept", 4 * MIB), 0);
    world_layer(disk, "box", "one", &bytes);
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
    CHECK_INT(world_fill("child/upper/new", MIB), 0);
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

    world_setup();
    disk = world_open();
    world_box(disk, "stays", MIB);
    before = group_count(disk);
    for (int i = 0; i < 8; i++) {
        char name[16], file[32];
        uint64_t bytes;

        (void)snprintf(name, sizeof(name), "box-%d", i);
        (void)snprintf(file, sizeof(file), "%s/upper/file", name);
        world_box(disk, name, 8 * MIB);
        CHECK_INT(world_fill(file, MIB), 0);
        CHECK(disk_layer_prepare(disk, name, &bytes, &err) == 0);
        CHECK(disk_layer_create(disk, name, name, &err) == 0);
        CHECK(disk_box_delete(disk, name, &err) == 0);
        CHECK(disk_layer_delete(disk, name, &err) == 0);
    }
    wait_for_groups(disk, before);
    /* What a predecessor left that did not live to see them go. */
    world_box(disk, "last", MIB);
    CHECK(disk_box_delete(disk, "last", &err) == 0);
    disk_close(disk);
    disk = world_open();
    wait_for_groups(disk, before);
    disk_close(disk);
}

TEST(a_box_is_reopened_with_a_clean_work_directory)
{
    struct disk *disk;
    bool raised;
    int fd;

    world_setup();
    disk = world_open();
    CHECK_INT(disk_box_reopen(disk, "box", 0, &fd, &raised, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    world_box(disk, "box", 0);
    CHECK_INT(world_fill("box/upper/f", MIB), 0);
    CHECK(mkdirat(disk->boxes_fd, "box/work/work", 0) == 0);
    CHECK(mkdirat(disk->boxes_fd, "box/work/work/#1", 0) == 0);
    CHECK(disk_box_reopen(disk, "box", 8 * MIB, &fd, &raised, &err) == 0);
    close_fd(&fd);
    CHECK(!inode_of(disk, "boxes/box/work/work"));
    CHECK(inode_of(disk, "boxes/box/work") && inode_of(disk, "boxes/box/upper/f"));
    CHECK_INT(world_fill("box/upper/g", 16 * MIB), EDQUOT);
    disk_close(disk);
}

TEST(a_sync_leaves_nothing)
{
    const struct btrfs_qgroup_limit none = {0};
    struct disk *disk;

    world_setup();
    disk = world_open();
    world_box(disk, "box", 0);
    CHECK_INT(disk_box_sync(disk, "absent", &err), -1);
    CHECK(disk_box_sync(disk, "box", &err) == 0);
    CHECK(!inode_of(disk, "temporary/box"));
    /* As a warden that was killed in the middle would leave it. */
    CHECK(disk_subvol_create(disk->temporary_fd, "box", &none, &err) == 0);
    CHECK(disk_box_sync(disk, "box", &err) == 0);
    CHECK(!inode_of(disk, "temporary/box"));
    CHECK(disk_subvol_create(disk->temporary_fd, "box", &none, &err) == 0);
    disk_close(disk);
    disk = world_open();
    CHECK(!inode_of(disk, "temporary/box"));
    disk_close(disk);
}

TEST(volumes)
{
    struct disk *disk;
    struct stat st;
    int fd;

    world_setup();
    (void)umask(077);
    disk = world_open();
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

    world_setup();
    disk_close(world_open());
    holder = make_holder(false);
    if (disk_unmount(&world_config, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    CHECK(!mounted());
    CHECK_INT(loops_of_image(), 0);
    CHECK(kill(holder, 0) == 0);
    end_holder(holder);
    /* Who really uses it is named. */
    disk_close(world_open());
    holder = make_holder(true);
    CHECK_INT(disk_unmount(&world_config, &err), -1);
    CHECK_INT(err.code, ERROR_CONFLICT);
    (void)snprintf(name, sizeof(name), "%d (holder)", (int)holder);
    CHECK(strstr(err.message, name) != NULL);
    CHECK(mounted());
    end_holder(holder);
    CHECK(disk_unmount(&world_config, &err) == 0);
    CHECK_INT(loops_of_image(), 0);
}

TEST(a_pool_that_stopped_is_refused_but_can_be_unmounted)
{
    struct disk *disk = NULL;

    world_setup();
    disk_close(world_open());
    CHECK(mount(NULL, pool_path(), NULL, MS_REMOUNT | MS_RDONLY, NULL) == 0);
    CHECK_INT(disk_open(&world_config, &disk, &err), -1);
    CHECK(strstr(err.message, "quicksand down") != NULL);
    world_config.only_to_unmount = true;
    disk_close(world_open());
    CHECK(disk_unmount(&world_config, &err) == 0);
    world_config.only_to_unmount = false;
    disk_close(world_open());
}

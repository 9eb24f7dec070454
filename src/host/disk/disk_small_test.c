/* Copies of small disks, and what is shared instead. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/test.h"
#include "host/disk/disk_internal.h"
#include "host/disk/tree_internal.h"

#define MIB (1024ull * 1024)

static char dir[64];
static struct disk_config config;
static struct error err;
static struct disk *disk;

static void remove_dir(void)
{
    struct error ignored;

    (void)disk_unmount(&config, &ignored);
    (void)path_remove_tree(AT_FDCWD, dir);
}

static void open_disk(void)
{
    if (disk_open(&config, &disk, &err) < 0)
        test_fail(__FILE__, __LINE__, "disk_open: %s", err.message);
}

/* As kernels before 6.7 do it. */
static void use_full_quotas(void)
{
    struct btrfs_ioctl_quota_ctl_args args = {.cmd = BTRFS_QUOTA_CTL_DISABLE};

    CHECK(ioctl(disk->pool_fd, BTRFS_IOC_QUOTA_CTL, &args) == 0);
    args = (struct btrfs_ioctl_quota_ctl_args){.cmd = BTRFS_QUOTA_CTL_ENABLE};
    CHECK(ioctl(disk->pool_fd, BTRFS_IOC_QUOTA_CTL, &args) == 0);
    disk_close(disk);
    open_disk();
    CHECK(!disk->simple_quota);
}

static void setup(void)
{
    test_needs_root();
    CHECK(unshare(CLONE_NEWNS) == 0);
    CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    (void)snprintf(dir, sizeof(dir), "/var/tmp/quicksand-small-XXXXXX");
    CHECK(mkdtemp(dir));
    config = (struct disk_config){.data_dir = dir, .initial_bytes = 256 * MIB};
    CHECK(atexit(remove_dir) == 0);
    open_disk();
}

/* Its upper directory. */
static int open_upper(const char *id)
{
    char path[64];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/upper", id);
    fd = openat(disk->boxes_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(fd >= 0);
    return fd;
}

static int make_box(const char *id, uint64_t limit)
{
    int fd;

    if (disk_box_create(disk, id, limit, &fd, &err) < 0)
        test_fail(__FILE__, __LINE__, "disk_box_create: %s", err.message);
    (void)close(fd);
    return open_upper(id);
}

static void write_at(int dir_fd, const char *name, const char *text)
{
    auto_close int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    CHECK(fd >= 0 && fd_write_full(fd, text, strlen(text)) == 0);
}

/* 0, or the errno of the first write that failed. */
static int fill(int dir_fd, const char *name, uint64_t bytes)
{
    static char block[65536];
    auto_close int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    CHECK(fd >= 0);
    for (uint64_t done = 0; done < bytes; done += sizeof(block))
        if (write(fd, block, sizeof(block)) < 0)
            return errno;
    return fsync(fd) < 0 ? errno : 0;
}

static void check_text(int dir_fd, const char *name, const char *want)
{
    auto_buf struct buf text = {0};

    buf_init(&text, 1 << 20);
    CHECK_INT(fd_read_file_at(dir_fd, name, &text), 0);
    CHECK_STR(buf_str(&text), want);
}

/* Whether they share blocks; the upper directory of the new one. */
static bool copy(const char *source, const char *id, uint64_t limit, int *out_upper)
{
    bool shared;
    int fd;

    if (disk_box_copy(disk, source, id, &shared, &err) < 0 ||
        (shared && disk_layer_settle(disk, source, &err) < 0) ||
        disk_box_adopt(disk, id, shared, limit, &fd, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    (void)close(fd);
    *out_upper = open_upper(id);
    return shared;
}

static void set_attribute(int dir_fd, const char *name, const char *attribute, const char *value)
{
    auto_close int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);

    CHECK(fd >= 0 && fsetxattr(fd, attribute, value, strlen(value), 0) == 0);
}

static void check_attribute(int dir_fd, const char *name, const char *attribute, const char *want)
{
    auto_close int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
    char value[64];
    ssize_t len = fgetxattr(fd, attribute, value, sizeof(value));

    CHECK(len >= 0);
    CHECK_STR(str_n(value, (size_t)len), want);
}

/* All kinds of what a box and its overlay write. */
static void write_everything(int upper)
{
    auto_close int sparse = -1;

    write_at(upper, "-rf %s\n\xff", "odd");
    CHECK(mkdirat(upper, "dir", 0710) == 0 && mkdirat(upper, "dir/empty", 01777) == 0);
    write_at(upper, "dir/program", "#!");
    CHECK(fchownat(upper, "dir/program", 7, 42, 0) == 0);
    CHECK(fchmodat(upper, "dir/program", 06755, 0) == 0);
    CHECK(symlinkat("/etc/shadow", upper, "dir/outside") == 0);
    CHECK(fchownat(upper, "dir/outside", 7, 8, AT_SYMLINK_NOFOLLOW) == 0);
    CHECK(mknodat(upper, "hidden", S_IFCHR, 0) == 0);
    CHECK(linkat(upper, "hidden", upper, "dir/hidden", 0) == 0); /* as the overlay does it */
    CHECK(mknodat(upper, "pipe", S_IFIFO | 0640, 0) == 0);
    CHECK(mknodat(upper, "socket", S_IFSOCK | 0600, 0) == 0);
    sparse = openat(upper, "sparse", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    CHECK(pwrite(sparse, "middle", 6, 1 << 29) == 6 && ftruncate(sparse, 1 << 30) == 0);
    set_attribute(upper, "dir", "trusted.overlay.opaque", "y");
    set_attribute(upper, "dir", "trusted.overlay.redirect", "/old");
    set_attribute(upper, "dir", "trusted.overlay.origin", "handle");
    set_attribute(upper, ".", "trusted.overlay.impure", "y");
    set_attribute(upper, "dir/program", "user.note", "mine");
    CHECK(utimensat(upper, "dir/program", (struct timespec[]){{1, 2}, {3, 4}}, 0) == 0);
    CHECK(utimensat(upper, "dir", (struct timespec[]){{5, 6}, {7, 8}}, 0) == 0);
    CHECK(fchown(upper, 9, 10) == 0 && fchmod(upper, 0751) == 0);
}

static void check_everything(int upper)
{
    struct stat st;
    char text[8] = {0};
    auto_close int sparse = openat(upper, "sparse", O_RDONLY | O_CLOEXEC);

    check_text(upper, "-rf %s\n\xff", "odd");
    check_text(upper, "dir/program", "#!");
    check_attribute(upper, "dir", "trusted.overlay.opaque", "y");
    check_attribute(upper, "dir", "trusted.overlay.redirect", "/old");
    check_attribute(upper, "dir", "trusted.overlay.origin", "handle");
    check_attribute(upper, ".", "trusted.overlay.impure", "y");
    check_attribute(upper, "dir/program", "user.note", "mine");
    CHECK(fstat(sparse, &st) == 0 && st.st_size == 1 << 30 && st.st_blocks <= 8);
    CHECK(pread(sparse, text, 6, 1 << 29) == 6 && strcmp(text, "middle") == 0);
    CHECK(fstatat(upper, "hidden", &st, 0) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == 0);
}

TEST(a_small_disk_is_copied_as_it_is)
{
    auto_close int upper = -1, child = -1, grandchild = -1;
    struct tree_stamp stamps[3];
    struct trees *trees;

    setup();
    (void)umask(077);
    upper = make_box("box", 0);
    write_everything(upper);
    CHECK(!copy("box", "child", 0, &child));
    CHECK(!copy("child", "grandchild", 0, &grandchild));
    check_everything(child);
    check_everything(grandchild);
    /* Names, kinds, sizes, owners, modes and times. */
    CHECK_INT(trees_open(disk->temporary_fd, &trees, &err), 0);
    CHECK_INT(tree_stamp_make(trees, upper, &stamps[0], &err), 0);
    CHECK_INT(tree_stamp_make(trees, child, &stamps[1], &err), 0);
    CHECK_INT(tree_stamp_make(trees, grandchild, &stamps[2], &err), 0);
    trees_close(trees);
    for (int i = 1; i < 3; i++)
        CHECK(memcmp(stamps[0].digest, stamps[i].digest, sizeof(stamps[0].digest)) == 0);
    /* Each has a future of its own. */
    write_at(upper, "dir/program", "later");
    write_at(child, "new", "x");
    check_text(child, "dir/program", "#!");
    CHECK(faccessat(upper, "new", F_OK, 0) < 0);
    CHECK(faccessat(disk->boxes_fd, "child/work", F_OK, 0) == 0);
    disk_close(disk);
}

TEST(an_empty_disk_is_copied)
{
    auto_close int upper = -1, child = -1;

    setup();
    upper = make_box("box", 0);
    CHECK(!copy("box", "child", 0, &child));
    write_at(child, "new", "x");
    CHECK(disk_box_delete(disk, "child", &err) == 0);
    disk_close(disk);
}

static void many_files(int upper)
{
    for (int i = 0; i < 300; i++) {
        char name[16];

        (void)snprintf(name, sizeof(name), "f%d", i);
        write_at(upper, name, "x");
    }
}

static void much(int upper)
{
    CHECK_INT(fill(upper, "much", 4 * MIB), 0);
}

static void much_unwritten(int upper)
{
    static char text[3 << 20];

    memset(text, 'x', sizeof(text) - 1);
    write_at(upper, "much", text);
}

static void several_names(int upper)
{
    CHECK(linkat(upper, "file", upper, "other", 0) == 0);
}

static void device(int upper)
{
    CHECK(mknodat(upper, "null", S_IFCHR | 0666, makedev(1, 3)) == 0);
}

static void unknown_attribute(int upper)
{
    set_attribute(upper, "file", "trusted.other", "x");
}

static void flags(int upper)
{
    auto_close int fd = openat(upper, "plain", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    int value = FS_NOCOW_FL;

    CHECK(ioctl(fd, FS_IOC_SETFLAGS, &value) == 0);
}

static void deep(int upper)
{
    int at = dup(upper), next;

    for (int i = 0; i < 200; i++) {
        CHECK(mkdirat(at, "d", 0755) == 0);
        next = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        (void)close(at);
        at = next;
    }
    (void)close(at);
}

/* What would get lost, or takes too long. */
TEST_TIMEOUT(all_else_is_shared, 60)
{
    static void (*const writes[])(int upper) = {
        many_files, much, much_unwritten, several_names, device, unknown_attribute, flags, deep};

    setup();
    for (size_t i = 0; i < sizeof(writes) / sizeof(*writes); i++) {
        auto_close int upper = make_box("box", 0), child = -1;

        write_at(upper, "file", "text");
        writes[i](upper);
        if (!copy("box", "child", 0, &child))
            test_fail(__FILE__, __LINE__, "%zu was copied", i);
        check_text(child, "file", "text");
        CHECK(disk_box_delete(disk, "box", &err) == 0);
        CHECK(disk_box_delete(disk, "child", &err) == 0);
    }
    disk_close(disk);
}

/* No room for a copy: neither is it half of one, nor does it fail. */
TEST(what_finds_no_room_for_a_copy_is_shared)
{
    auto_close int upper = -1, child = -1;

    setup();
    upper = make_box("box", 0);
    CHECK_INT(fill(upper, "file", 256 << 10), 0);
    write_at(upper, "other", "text");
    disk->share.room = 100 << 10;
    CHECK(copy("box", "child", 0, &child));
    check_text(child, "other", "text");
    disk->share.room = 1;
    CHECK(disk_box_delete(disk, "child", &err) == 0);
    close_fd(&child);
    CHECK(copy("box", "child", 0, &child));
    check_text(child, "other", "text");
    disk_close(disk);
}

/* Whether it is filled or replaced, and with whatever limit it was made. */
TEST(one_that_was_made_ahead_is_used)
{
    setup();
    for (int i = 0; i < 2; i++) {
        auto_close int upper = make_box("box", 0), child = make_box("child", 1 * MIB);

        write_at(upper, "file", "text");
        if (i)
            much(upper);
        close_fd(&child);
        CHECK(copy("box", "child", 8 * MIB, &child) == (i == 1));
        check_text(child, "file", "text");
        CHECK_INT(fill(child, "g", 7 * MIB), 0);
        CHECK_INT(fill(child, "h", 2 * MIB), EDQUOT);
        CHECK(disk_box_delete(disk, "box", &err) == 0);
        CHECK(disk_box_delete(disk, "child", &err) == 0);
    }
    disk_close(disk);
}

TEST(one_that_has_files_is_left_alone)
{
    auto_close int upper = -1, other = -1;
    bool shared;

    setup();
    upper = make_box("box", 0);
    other = make_box("other", 0);
    write_at(other, "kept", "text");
    CHECK_INT(disk_box_copy(disk, "box", "other", &shared, &err), -1);
    CHECK_INT(err.code, ERROR_EXISTS);
    check_text(other, "kept", "text");
    much(upper);
    CHECK_INT(disk_box_copy(disk, "box", "other", &shared, &err), -1);
    CHECK_INT(err.code, ERROR_EXISTS);
    check_text(other, "kept", "text");
    CHECK_INT(disk_box_copy(disk, "absent", "new", &shared, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    disk_close(disk);
}

static void check_limits(void)
{
    auto_close int upper = make_box("box", 16 * MIB), child = -1, grandchild = -1;

    CHECK_INT(fill(upper, "f", 256 << 10), 0);
    CHECK(!copy("box", "child", 4 * MIB, &child));
    CHECK(!copy("child", "grandchild", 4 * MIB, &grandchild));
    /* The box that was copied has what it had. */
    CHECK_INT(fill(upper, "g", 14 * MIB), 0);
    CHECK_INT(fill(upper, "h", 2 * MIB), EDQUOT);
    /* A copy has its whole limit for itself, and no more. */
    CHECK_INT(fill(child, "g", 3 * MIB + MIB / 2), 0);
    CHECK_INT(fill(child, "h", 2 * MIB), EDQUOT);
    CHECK_INT(fill(grandchild, "g", 3 * MIB + MIB / 2), 0);
    CHECK_INT(fill(grandchild, "h", 2 * MIB), EDQUOT);
    CHECK(unlinkat(grandchild, "h", 0) == 0 && unlinkat(grandchild, "g", 0) == 0);
    CHECK(disk_box_limit(disk, "grandchild", 8 * MIB, &err) == 0);
    CHECK_INT(fill(grandchild, "g", 7 * MIB), 0);
    CHECK_INT(fill(grandchild, "h", 2 * MIB), EDQUOT);
}

TEST_TIMEOUT(limits_of_copies_with_simple_quotas, 60)
{
    setup();
    if (!disk->simple_quota)
        test_skip("this kernel has no simple quotas");
    check_limits();
    disk_close(disk);
}

TEST_TIMEOUT(limits_of_copies_with_full_quotas, 60)
{
    setup();
    use_full_quotas();
    check_limits();
    disk_close(disk);
}

static void make_layer(const char *id, const char *layer)
{
    uint64_t bytes;

    if (disk_layer_prepare(disk, id, &bytes, &err) < 0 ||
        disk_layer_create(disk, id, layer, &err) < 0 || disk_layer_settle(disk, id, &err) < 0)
        test_fail(__FILE__, __LINE__, "layer: %s", err.message);
}

static void check_clone(const char *id, const char *layer, bool spare)
{
    auto_close int upper = make_box(id, 0);
    int fd;

    close_fd(&upper);
    if (disk_box_clone(disk, id, layer, 16 * MIB, &fd, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    (void)close(fd);
    upper = open_upper(id);
    check_text(upper, "file", "text");
    write_at(upper, "new", "x");
    CHECK(disk_spare_known(disk, layer) == spare);
}

static bool spare_is_ready(void)
{
    bool ready;

    (void)pthread_mutex_lock(&disk->spares.lock);
    ready = disk->spares.list[0].ready;
    (void)pthread_mutex_unlock(&disk->spares.lock);
    return ready;
}

TEST_TIMEOUT(only_large_layers_have_spares, 60)
{
    auto_close int upper = -1, large = -1;

    setup();
    upper = make_box("box", 0);
    write_at(upper, "file", "text");
    make_layer("box", "small");
    check_clone("a", "small", false);
    check_clone("b", "small", false);
    CHECK_INT(fill(upper, "much", 4 * MIB), 0);
    make_layer("box", "large");
    check_clone("c", "large", true);
    WAIT_FOR(spare_is_ready());
    check_clone("d", "large", true);
    check_clone("f", "large", true);
    /* A box of a large layer is charged for nothing of it, and is not small for that. */
    CHECK(copy("d", "e", 0, &large));
    check_text(large, "file", "text");
    disk_close(disk);
}

static int64_t now_us(clockid_t clock)
{
    struct timespec ts;

    CHECK(clock_gettime(clock, &ts) == 0);
    return ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* Against a snapshot of the same. */
TEST_TIMEOUT(copy_times, 60)
{
    static const int counts[] = {1, 10, 20, 40};
    enum { TIMES = 20 };

    setup();
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
        auto_close int upper = make_box("box", 0), fd = -1;
        int64_t best[2] = {1 << 30, 1 << 30}, cpu = 0;

        for (int j = 0; j < counts[i]; j++) {
            char name[16];

            (void)snprintf(name, sizeof(name), "f%d", j);
            write_at(upper, name, "some text");
        }
        CHECK(disk_subvol_open(disk->boxes_fd, "box", &fd, &err) == 0);
        for (int j = 0; j < TIMES; j++) {
            int64_t since = now_us(CLOCK_MONOTONIC), spent = now_us(CLOCK_THREAD_CPUTIME_ID), took;

            CHECK_INT(disk_small_copy(disk, fd, "copy", &err), 1);
            cpu += now_us(CLOCK_THREAD_CPUTIME_ID) - spent;
            took = now_us(CLOCK_MONOTONIC) - since;
            best[0] = took < best[0] ? took : best[0];
            since = now_us(CLOCK_MONOTONIC);
            CHECK_INT(disk_subvol_snapshot(fd, disk->boxes_fd, "snap", false, &err), 0);
            took = now_us(CLOCK_MONOTONIC) - since;
            best[1] = took < best[1] ? took : best[1];
            CHECK(disk_box_delete(disk, "copy", &err) == 0);
            CHECK(disk_box_delete(disk, "snap", &err) == 0);
        }
        (void)printf("     %3d files: copied in %.2f ms (%.2f of a processor), snapshot in %.2f\n",
                     counts[i], (double)best[0] / 1000, (double)cpu / 1000 / TIMES,
                     (double)best[1] / 1000);
        CHECK(disk_box_delete(disk, "box", &err) == 0);
    }
    disk_close(disk);
}

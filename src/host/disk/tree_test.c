/* Trees: copies of what guests made, stamps, removal, crashes, a disk that is full. */
#include "host/disk/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/test.h"
#include "host/disk/tree_internal.h"

static char base_dir[] = "/var/tmp/qs-tree-XXXXXX";
static int base_fd, source_fd, layers_fd;
static struct trees *trees;
static pid_t owner;

static void leave_nothing(void)
{
    if (getpid() != owner)
        return;
    (void)umount2(base_dir, MNT_DETACH);
    (void)rmdir(base_dir);
}

static int open_dir(const char *name)
{
    int fd;

    CHECK(mkdirat(base_fd, name, 0755) == 0 || errno == EEXIST);
    fd = openat(base_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(fd >= 0);
    return fd;
}

static void open_trees(void)
{
    struct error err;

    CHECK_INT(trees_open(layers_fd, &trees, &err), 0);
}

/* A world of its own: source/ and layers/ on a small file system in memory. */
static void setup(const char *options)
{
    test_needs_root();
    CHECK(unshare(CLONE_NEWNS) == 0);
    CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mkdtemp(base_dir));
    owner = getpid();
    (void)atexit(leave_nothing);
    CHECK(mount("tree", base_dir, "tmpfs", 0, options) == 0);
    base_fd = open(base_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    source_fd = open_dir("source");
    layers_fd = open_dir("layers");
    open_trees();
}

static void write_at(int dir_fd, const char *name, const char *text)
{
    auto_close int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    CHECK(fd >= 0 && fd_write_full(fd, text, strlen(text)) == 0);
}

static void write_bytes(int dir_fd, const char *name, size_t bytes)
{
    auto_free char *text = calloc(1, bytes + 1);

    memset(text, 'b', bytes);
    write_at(dir_fd, name, text);
}

static void check_text(int dir_fd, const char *name, const char *want)
{
    auto_buf struct buf text = {0};

    buf_init(&text, 1 << 20);
    CHECK_INT(fd_read_file_at(dir_fd, name, &text), 0);
    CHECK_STR(buf_str(&text), want);
}

static void make_deep(int dir_fd, int depth)
{
    int dir = dup(dir_fd);

    for (int i = 0; i < depth; i++) {
        int next;

        CHECK(mkdirat(dir, "d", 0755) == 0);
        next = openat(dir, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CHECK(next >= 0);
        (void)close(dir);
        dir = next;
    }
    (void)close(dir);
}

static size_t count_layers(bool hidden)
{
    int fd = openat(layers_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fdopendir(fd);
    struct dirent *entry;
    size_t count = 0;

    CHECK(dir);
    while ((entry = readdir(dir)))
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
                 (entry->d_name[0] == '.') == hidden;
    (void)closedir(dir);
    return count;
}

static bool in_use;
static char overfull[TREE_NAME_SIZE];

static bool is_used(const char *name, void *arg)
{
    (void)name;
    (void)arg;
    return in_use;
}

static void note_overfull(const char *name, void *arg)
{
    (void)arg;
    (void)snprintf(overfull, sizeof(overfull), "%s", name);
}

static void tend(void)
{
    trees_tend(trees, &(struct trees_tending){.used = is_used, .overfull = note_overfull});
}

static void check_clean(void)
{
    for (int i = 0; i < 2000 && count_layers(true); i++)
        tend();
    CHECK_INT(count_layers(true), 0);
}

static uint64_t copy_limit;

static int copy(const char *name, struct error *err)
{
    struct tree_info info;

    return tree_copy(trees, source_fd, name, copy_limit, &info, err);
}

static void must_copy(const char *name)
{
    struct error err;

    if (copy(name, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
}

static int open_copy(const char *name)
{
    int fd = openat(layers_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    CHECK(fd >= 0);
    return fd;
}

TEST(a_copy_has_everything_that_matters_of_what_it_copies)
{
    static const char *const odd[] = {"-rf",  " ",          "new\nline", "\xff\xfe",
                                      "a\\b", ".new-tree1", ".wh.file",  "trusted.overlay.opaque",
                                      "%s%n"};
    struct tree_stamp from, to;
    struct stat one, two, hole;
    struct error err;
    char longest[256], value[16];
    auto_close int tree = -1, dir = -1;

    setup("size=64m");
    memset(longest, 'n', 255);
    longest[255] = '\0';
    write_at(source_fd, longest, "long");
    for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++)
        write_at(source_fd, odd[i], odd[i]);
    CHECK(mkdirat(source_fd, "dir", 0710) == 0 && mkdirat(source_fd, "empty", 01777) == 0);
    dir = openat(source_fd, "dir", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    write_at(dir, "program", "#!");
    CHECK(fchownat(dir, "program", 0, 42, 0) == 0 && fchmodat(dir, "program", 06755, 0) == 0);
    CHECK(linkat(dir, "program", source_fd, "twin", 0) == 0);
    CHECK(linkat(dir, "program", dir, "third", 0) == 0);
    CHECK(symlinkat("/etc/shadow", dir, "outside") == 0);
    CHECK(symlinkat("../../../..", dir, "above") == 0);
    CHECK(symlinkat("loop", dir, "loop") == 0);
    CHECK(fchownat(dir, "loop", 7, 8, AT_SYMLINK_NOFOLLOW) == 0);
    CHECK(mknodat(dir, "hidden", S_IFCHR | 0000, 0) == 0);
    CHECK(mknodat(dir, "pipe", S_IFIFO | 0640, 0) == 0);
    CHECK(mknodat(dir, "socket", S_IFSOCK | 0600, 0) == 0);
    CHECK(fsetxattr(dir, "trusted.overlay.opaque", "y", 1, 0) == 0);
    CHECK(fsetxattr(dir, "trusted.overlay.redirect", "/old", 4, 0) == 0);
    CHECK(fsetxattr(dir, "trusted.overlay.origin", "x", 1, 0) == 0);
    CHECK(fsetxattr(dir, "trusted.overlay.impure", "y", 1, 0) == 0);
    CHECK(fsetxattr(dir, "trusted.other", "y", 1, 0) == 0);
    write_at(dir, "sparse", "");
    CHECK(ftruncate(openat(dir, "sparse", O_WRONLY | O_CLOEXEC), 1 << 30) == 0);
    CHECK(utimensat(dir, "program", (struct timespec[]){{1, 2}, {3, 4}}, 0) == 0);
    CHECK(fchownat(source_fd, "dir", 1000, 1000, 0) == 0);
    CHECK(utimensat(source_fd, "dir", (struct timespec[]){{5, 6}, {7, 8}}, 0) == 0);
    CHECK_INT(tree_stamp_make(trees, source_fd, &from, &err), 0);
    must_copy("tree1");
    tree = open_copy("tree1");
    CHECK_INT(tree_stamp_make(trees, tree, &to, &err), 0);
    CHECK_INT(from.info.entries, to.info.entries);
    CHECK(memcmp(from.digest, to.digest, sizeof(to.digest)) == 0);
    for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++)
        check_text(tree, odd[i], odd[i]);
    check_text(tree, "dir/third", "#!");
    CHECK(fstatat(tree, "twin", &one, 0) == 0 && fstatat(tree, "dir/third", &two, 0) == 0);
    CHECK(one.st_ino == two.st_ino && one.st_nlink == 3);
    CHECK(fstatat(tree, "dir/sparse", &hole, 0) == 0 && hole.st_blocks == 0);
    close_fd(&dir);
    dir = openat(tree, "dir", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK_INT(fgetxattr(dir, "trusted.overlay.opaque", value, sizeof(value)), 1);
    CHECK_INT(fgetxattr(dir, "trusted.overlay.redirect", value, sizeof(value)), 4);
    CHECK_INT(fgetxattr(dir, "trusted.overlay.origin", value, sizeof(value)), -1);
    CHECK_INT(fgetxattr(dir, "trusted.overlay.impure", value, sizeof(value)), -1);
    CHECK_INT(fgetxattr(dir, "trusted.other", value, sizeof(value)), -1);
    check_clean();
}

/* As libcap writes them; the last number is the id of the root they belong to. */
TEST(capabilities_stay_those_of_the_same_root)
{
    const unsigned plain[] = {0x02000001, 1u << 13, 0, 0, 0};
    const unsigned nested[] = {0x03000001, 1u << 13, 0, 0, 0, 1000};
    unsigned got[8];
    auto_close int tree = -1;
    char path[256];

    setup("size=16m");
    write_at(source_fd, "plain", "x");
    write_at(source_fd, "nested", "x");
    (void)snprintf(path, sizeof(path), "%s/source/plain", base_dir);
    CHECK(setxattr(path, "security.capability", plain, sizeof(plain), 0) == 0);
    (void)snprintf(path, sizeof(path), "%s/source/nested", base_dir);
    CHECK(setxattr(path, "security.capability", nested, sizeof(nested), 0) == 0);
    must_copy("tree1");
    (void)snprintf(path, sizeof(path), "%s/layers/tree1/plain", base_dir);
    CHECK_INT(getxattr(path, "security.capability", got, sizeof(got)), sizeof(plain));
    CHECK(memcmp(got, plain, sizeof(plain)) == 0);
    /* One of a user's own namespace must not become one of root's. */
    (void)snprintf(path, sizeof(path), "%s/layers/tree1/nested", base_dir);
    CHECK_INT(getxattr(path, "security.capability", got, sizeof(got)), sizeof(nested));
    CHECK(memcmp(got, nested, sizeof(nested)) == 0);
    check_clean();
}

static void check_refused(const char *part, enum error_code code)
{
    struct error err;

    CHECK_INT(copy("tree1", &err), -1);
    CHECK_INT(err.code, code);
    if (!strstr(err.message, part))
        test_fail(__FILE__, __LINE__, "'%s' does not say '%s'", err.message, part);
    CHECK_INT(count_layers(false), 0);
    check_clean();
}

TEST(devices_are_refused)
{
    setup("size=16m");
    write_at(source_fd, "file", "x");
    CHECK(mknodat(source_fd, "null", S_IFCHR | 0666, makedev(1, 3)) == 0);
    check_refused("device", ERROR_INVALID);
    CHECK(unlinkat(source_fd, "null", 0) == 0);
    CHECK(mknodat(source_fd, "disk", S_IFBLK | 0666, makedev(7, 0)) == 0);
    check_refused("device", ERROR_INVALID);
}

/* Files that share their blocks where they are do not where they are copied to. */
TEST(a_copy_has_a_limit)
{
    setup("size=16m");
    write_at(source_fd, "file", "x");
    CHECK(ftruncate(openat(source_fd, "file", O_WRONLY | O_CLOEXEC), 1 << 30) == 0);
    copy_limit = 1 << 20;
    must_copy("tree1"); /* holes are nothing */
    CHECK_INT(tree_delete(trees, "tree1", &(struct error){0}), 0);
    write_bytes(source_fd, "more", 1 << 20);
    check_refused("more than 1 MiB", ERROR_LIMIT);
    copy_limit = 4 << 20;
    must_copy("tree1");
}

TEST(another_file_system_inside_is_refused)
{
    char path[256];

    setup("size=16m");
    CHECK(mkdirat(source_fd, "mount", 0755) == 0);
    (void)snprintf(path, sizeof(path), "%s/source/mount", base_dir);
    CHECK(mount("inner", path, "tmpfs", 0, "size=1m") == 0);
    check_refused("another file system", ERROR_INVALID);
    CHECK(umount(path) == 0);
    must_copy("tree1");
}

TEST_TIMEOUT(depth_is_bounded_and_what_is_deeper_can_be_removed, 60)
{
    struct error err;
    struct tree_info info;
    int fd = -1;

    setup("size=64m");
    make_deep(source_fd, TREE_DEPTH_MAX - 1);
    must_copy("tree1");
    CHECK_INT(tree_check(trees, "tree1", &err), 0);
    CHECK_INT(tree_delete(trees, "tree1", &err), 0);
    check_clean();
    CHECK(mkdirat(base_fd, "source/other", 0755) == 0);
    {
        auto_close int other = openat(base_fd, "source/other", O_RDONLY | O_CLOEXEC);

        make_deep(other, TREE_DEPTH_MAX);
    }
    check_refused("deep", ERROR_INVALID);
    /* A box may fill one with more. */
    CHECK_INT(tree_begin(trees, "tree2", 0, &fd, &err), 0);
    make_deep(fd, 5000);
    (void)close(fd);
    CHECK_INT(tree_seal(trees, "tree2", &info, &err), -1);
    CHECK_INT(err.code, ERROR_INVALID);
    CHECK_INT(count_layers(false), 0);
    check_clean();
}

struct damage {
    const char *what;
    void (*run)(int tree);
};

static void truncate_file(int tree)
{
    auto_close int fd = openat(tree, "dir/file", O_WRONLY | O_CLOEXEC);
    struct stat st;

    CHECK(fstat(fd, &st) == 0 && ftruncate(fd, 3) == 0);
    CHECK(futimens(fd, (struct timespec[]){st.st_atim, st.st_mtim}) == 0);
}

static void write_file(int tree)
{
    auto_close int fd = openat(tree, "dir/file", O_WRONLY | O_CLOEXEC);

    CHECK(pwrite(fd, "C", 1, 0) == 1);
}

static void remove_file(int tree)
{
    CHECK(unlinkat(tree, "dir/file", 0) == 0);
}

static void rename_file(int tree)
{
    CHECK(renameat(tree, "dir/file", tree, "dir/elif") == 0);
}

static void move_file(int tree)
{
    CHECK(renameat(tree, "dir/file", tree, "other/file") == 0);
}

static void add_file(int tree)
{
    write_at(tree, "other/new", "");
}

static void change_mode(int tree)
{
    CHECK(fchmodat(tree, "dir/file", 0600, 0) == 0);
}

static void change_owner(int tree)
{
    CHECK(fchownat(tree, "dir/file", 1, 1, 0) == 0);
}

static void change_dir(int tree)
{
    CHECK(fchmodat(tree, "dir", 0700, 0) == 0);
}

static void swap_files(int tree)
{
    CHECK(renameat2(tree, "dir/file", tree, "dir/same", RENAME_EXCHANGE) == 0);
}

static void lose_stamp(int tree)
{
    CHECK(fremovexattr(tree, "trusted.quicksand.stamp") == 0);
}

static void break_stamp(int tree)
{
    CHECK(fsetxattr(tree, "trusted.quicksand.stamp", "1 2", 3, 0) == 0);
}

TEST(a_check_tells_all_kinds_of_damage)
{
    static const struct damage damages[] = {
        {"truncated", truncate_file},  {"written to", write_file},
        {"removed", remove_file},      {"renamed", rename_file},
        {"moved", move_file},          {"added", add_file},
        {"another mode", change_mode}, {"another owner", change_owner},
        {"a directory", change_dir},   {"swapped", swap_files},
        {"no stamp", lose_stamp},      {"half a stamp", break_stamp},
    };
    struct error err;

    setup("size=16m");
    CHECK(mkdirat(source_fd, "dir", 0755) == 0 && mkdirat(source_fd, "other", 0755) == 0);
    write_at(source_fd, "dir/file", "content");
    write_at(source_fd, "dir/same", "content");
    CHECK_INT(tree_check(trees, "tree1", &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    for (size_t i = 0; i < sizeof(damages) / sizeof(*damages); i++) {
        auto_close int tree = -1;

        must_copy("tree1");
        CHECK_INT(tree_check(trees, "tree1", &err), 0);
        tree = open_copy("tree1");
        damages[i].run(tree);
        if (tree_check(trees, "tree1", &err) == 0)
            test_fail(__FILE__, __LINE__, "%s: not seen", damages[i].what);
        CHECK_INT(err.code, ERROR_INTERNAL);
        /* One without a stamp may be the operator's. */
        CHECK_INT(tree_stamp_write(tree, &(struct tree_stamp){0}, &err), 0);
        CHECK_INT(tree_delete(trees, "tree1", &err), 0);
    }
    check_clean();
}

TEST(what_the_operator_installed_is_not_a_tree)
{
    struct tree_info info;
    struct error err;
    size_t count;
    char **names;

    setup("size=16m");
    CHECK(mkdirat(layers_fd, "base", 0755) == 0 && mkdirat(layers_fd, "treehouse", 0755) == 0);
    CHECK(symlinkat(base_dir, layers_fd, "treelink") == 0);
    CHECK_INT(tree_delete(trees, "base", &err), 0);
    CHECK_INT(tree_delete(trees, "treehouse", &err), 0);
    CHECK_INT(tree_delete(trees, "treelink", &err), 0);
    CHECK_INT(count_layers(false), 3);
    CHECK_INT(tree_stat(trees, "treehouse", &info, &err), -1);
    CHECK_INT(trees_list(trees, &names, &count, &err), 0);
    CHECK_INT(count, 0);
    CHECK_INT(copy("treehouse", &err), -1);
    CHECK_INT(err.code, ERROR_EXISTS);
    check_clean();
}

/* Whatever step finds the disk full: no layer, nothing left, and the next one works. */
TEST_TIMEOUT(a_full_disk_at_any_moment_leaves_nothing, 60)
{
    int failed = 0, done = 0;
    struct error err;

    setup("size=16m");
    CHECK(mkdirat(source_fd, "dir", 0755) == 0);
    for (int i = 0; i < 8; i++) {
        char name[32];

        (void)snprintf(name, sizeof(name), "dir/%d", i);
        write_at(source_fd, name, "some text");
        (void)snprintf(name, sizeof(name), "%d", i);
        CHECK(symlinkat("dir", source_fd, name) == 0);
    }
    for (int inodes = 24; done < 3; inodes++) {
        char options[64];

        (void)snprintf(options, sizeof(options), "size=16m,nr_inodes=%d", inodes);
        CHECK(mount("tree", base_dir, "tmpfs", MS_REMOUNT, options) == 0);
        if (copy("tree1", &err) == 0) {
            CHECK_INT(tree_check(trees, "tree1", &err), 0);
            CHECK_INT(tree_delete(trees, "tree1", &err), 0);
            done++;
        } else {
            CHECK_INT(err.code, ERROR_NO_SPACE);
            CHECK_INT(count_layers(false), 0);
            failed++;
        }
        check_clean();
    }
    CHECK(failed >= 10);
}

static void fill_source(int files)
{
    static char text[20000];

    memset(text, 't', sizeof(text) - 1);
    for (int i = 0; i < files; i++) {
        char name[32];

        (void)snprintf(name, sizeof(name), "f%d", i);
        write_at(source_fd, name, text);
        (void)snprintf(name, sizeof(name), "l%d", i);
        CHECK(i % 10 || linkat(source_fd, "f0", source_fd, name, 0) == 0);
    }
}

/* kill -9 at any moment: a layer is whole or it is not there. */
TEST_TIMEOUT(a_copy_that_is_killed_leaves_no_half_layer, 120)
{
    int whole = 0, none = 0;
    struct error err;

    setup("size=128m");
    fill_source(400);
    for (int i = 0; whole < 3; i++) {
        pid_t pid = fork();

        if (pid == 0)
            _exit(copy("tree1", &err) < 0);
        CHECK(pid > 0);
        (void)usleep((useconds_t)i * 500); /* another moment each time */
        (void)kill(pid, SIGKILL);
        CHECK(waitpid(pid, NULL, 0) == pid);
        trees_close(trees);
        open_trees();
        if (count_layers(false)) {
            CHECK_INT(tree_check(trees, "tree1", &err), 0);
            CHECK_INT(tree_delete(trees, "tree1", &err), 0);
            whole++;
        } else {
            none++;
        }
        check_clean();
    }
    (void)printf("     %d times nothing, %d times all of it\n", none, whole);
    CHECK(none > 0);
}

TEST(a_copy_ends_when_it_is_told_to)
{
    struct error err;

    setup("size=16m");
    write_at(source_fd, "file", "x");
    trees_stop(trees);
    CHECK_INT(copy("tree1", &err), -1);
    CHECK_INT(err.code, ERROR_UNAVAILABLE);
    CHECK_INT(count_layers(false), 0);
    trees_close(trees);
    open_trees();
    must_copy("tree1");
    check_clean();
}

TEST(a_tree_that_grows_beyond_its_limit_has_to_end)
{
    struct tree_info info;
    struct error err;
    int fd = -1;

    setup("size=64m");
    in_use = true;
    CHECK_INT(tree_begin(trees, "tree1", 8 << 20, &fd, &err), 0);
    write_bytes(fd, "some", 6 << 20);
    tend();
    CHECK_STR(str_of(overfull), "");
    /* Space that others took is not its. */
    write_bytes(source_fd, "other", 6 << 20);
    tend();
    CHECK_STR(str_of(overfull), "");
    clock_test_pass(2000000);
    write_bytes(fd, "more", 3 << 20);
    tend();
    CHECK_STR(str_of(overfull), "tree1");
    overfull[0] = '\0';
    tend(); /* told once */
    CHECK_STR(str_of(overfull), "");
    (void)unlinkat(fd, "more", 0);
    (void)close(fd);
    CHECK_INT(tree_seal(trees, "tree1", &info, &err), -1);
    CHECK_INT(err.code, ERROR_LIMIT);
    CHECK_INT(count_layers(false), 0);
    check_clean();
}

TEST(trees_leave_the_host_some_space)
{
    struct tree_info info;
    struct error err;
    int fd = -1;

    setup("size=32m");
    in_use = true;
    CHECK_INT(tree_begin(trees, "tree1", 0, &fd, &err), 0);
    write_bytes(fd, "some", (32 << 20) - (600 << 10));
    tend();
    CHECK_STR(str_of(overfull), "tree1");
    CHECK_INT(copy("tree2", &err), -1);
    CHECK_INT(err.code, ERROR_NO_SPACE);
    (void)close(fd);
    CHECK_INT(tree_begin(trees, "tree3", 0, &fd, &err), -1);
    CHECK_INT(err.code, ERROR_NO_SPACE);
    CHECK_INT(tree_seal(trees, "tree1", &info, &err), -1);
    check_clean();
    must_copy("tree2");
}

TEST(a_filled_tree_that_nobody_wants_is_removed)
{
    struct tree_info info;
    struct error err;
    int fd = -1;

    setup("size=16m");
    CHECK_INT(tree_begin(trees, "tree1", 0, &fd, &err), 0);
    (void)close(fd);
    CHECK_INT(tree_begin(trees, "tree1", 0, &fd, &err), -1);
    CHECK_INT(err.code, ERROR_EXISTS);
    in_use = true;
    tend();
    clock_test_pass(INT64_C(1000000) * 3600);
    tend();
    CHECK_INT(count_layers(true), 1);
    in_use = false;
    tend();
    CHECK_INT(count_layers(true), 1); /* its box has just ended */
    clock_test_pass(INT64_C(1000000) * 3600);
    check_clean();
    CHECK_INT(tree_seal(trees, "tree1", &info, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
}

TEST(removing_takes_its_time_and_holds_nobody_up)
{
    struct error err;

    setup("size=128m,nr_inodes=100000");
    for (int i = 0; i < 20000; i++) {
        char name[32];

        (void)snprintf(name, sizeof(name), "f%d", i);
        CHECK(symlinkat("x", source_fd, name) == 0);
    }
    must_copy("tree1");
    CHECK_INT(tree_delete(trees, "tree1", &err), 0);
    CHECK_INT(count_layers(false), 0);
    must_copy("tree1"); /* the name is free at once */
    CHECK_INT(tree_delete(trees, "tree1", &err), 0);
    check_clean();
}

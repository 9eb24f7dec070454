/* A pool whose image lies on a small file system that others fill. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/test.h"
#include "host/disk/disk_internal.h"

#define MIB (1024ull * 1024)

enum { WRITERS = 3, FILE_BYTES = 1 << 20 };

static char dir[64], data[96];
static struct disk_config config;
static struct error err;
static struct disk *disk;
static bool stop;

static void run(char *argv[])
{
    pid_t pid;
    int status;

    CHECK(posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) == 0);
    CHECK(waitpid(pid, &status, 0) == pid);
    if (status != 0)
        test_fail(__FILE__, __LINE__, "%s failed", argv[0]);
}

static void remove_all(void)
{
    struct error ignored;

    (void)disk_unmount(&config, &ignored);
    (void)umount2(data, MNT_DETACH);
    (void)path_remove_tree(AT_FDCWD, dir);
}

static void setup(off_t host_bytes)
{
    char image[96];
    int fd;

    test_needs_root();
    CHECK(unshare(CLONE_NEWNS) == 0);
    CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    (void)snprintf(dir, sizeof(dir), "/var/tmp/quicksand-back-XXXXXX");
    CHECK(mkdtemp(dir));
    CHECK(atexit(remove_all) == 0);
    (void)snprintf(data, sizeof(data), "%s/data", dir);
    (void)snprintf(image, sizeof(image), "%s/host.img", dir);
    fd = open(image, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && ftruncate(fd, host_bytes) == 0 && close(fd) == 0);
    CHECK(mkdir(data, 0700) == 0);
    run((char *[]){(char[]){"mkfs.ext4"}, (char[]){"-q"}, (char[]){"-m"}, (char[]){"0"}, image,
                   NULL});
    run((char *[]){(char[]){"mount"}, (char[]){"-o"}, (char[]){"loop"}, image, data, NULL});
    config = (struct disk_config){.data_dir = data};
    if (disk_open(&config, &disk, &err) < 0)
        test_fail(__FILE__, __LINE__, "disk_open: %s", err.message);
}

static void tend(void)
{
    if (disk_tend(disk, &err) < 0)
        test_fail(__FILE__, __LINE__, "disk_tend: %s", err.message);
}

static void *tend_on(void *arg)
{
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        tend();
        (void)usleep(DISK_TEND_MS * 1000);
    }
    return arg;
}

/* Others take all there is. */
static void fill_host(void)
{
    static char block[1 << 16];
    char path[128];
    struct statvfs host;
    auto_close int fd = -1;

    (void)snprintf(path, sizeof(path), "%s/filler", data);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && fstatvfs(fd, &host) == 0);
    (void)fallocate(fd, 0, 0, (off_t)((uint64_t)host.f_bavail * host.f_frsize));
    CHECK(lseek(fd, 0, SEEK_END) >= 0);
    memset(block, 'f', sizeof(block));
    for (size_t size = sizeof(block); size >= 4096; size /= 2)
        while (write(fd, block, size) > 0)
            continue;
    CHECK_INT(errno, ENOSPC);
}

static void empty_host(void)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/filler", data);
    CHECK(unlink(path) == 0);
}

struct writer {
    pthread_t thread;
    int number;
    unsigned acknowledged, refused;
    int bad; /* an errno other than ENOSPC, EDQUOT */
};

static void name_of(const struct writer *writer, unsigned i, char out[64])
{
    (void)snprintf(out, 64, "boxes/w/upper/%d-%u", writer->number, i);
}

/* Every block says whose it is. */
static void content(const struct writer *writer, unsigned i, uint32_t *out)
{
    for (size_t at = 0; at < FILE_BYTES / sizeof(*out); at++)
        out[at] = (uint32_t)(at * 2654435761u) ^ ((uint32_t)writer->number << 24) ^ i;
}

static int write_file(const struct writer *writer, unsigned i)
{
    static _Thread_local uint32_t block[FILE_BYTES / 4];
    char name[64];
    auto_close int fd = -1;
    ssize_t n;

    name_of(writer, i, name);
    content(writer, i, block);
    fd = openat(disk->pool_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    n = write(fd, block, FILE_BYTES);
    return n < 0 ? errno : n < FILE_BYTES ? ENOSPC : 0;
}

static void *write_on(void *arg)
{
    struct writer *writer = arg;

    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        int r = write_file(writer, writer->acknowledged);

        if (r == 0)
            __atomic_fetch_add(&writer->acknowledged, 1, __ATOMIC_RELAXED);
        else if (r == ENOSPC || r == EDQUOT)
            __atomic_fetch_add(&writer->refused, 1, __ATOMIC_RELAXED);
        else
            writer->bad = r;
        (void)usleep(r == 0 ? 5000 : 50000);
    }
    return NULL;
}

/* From the disk, not from memory. */
static void check_files(const struct writer *writer)
{
    static uint32_t want[FILE_BYTES / 4], got[FILE_BYTES / 4];

    for (unsigned i = 0; i < writer->acknowledged; i++) {
        char name[64];
        auto_close int fd = -1;

        name_of(writer, i, name);
        fd = openat(disk->pool_fd, name, O_RDONLY | O_CLOEXEC);
        CHECK(fd >= 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
        CHECK_INT(read(fd, got, sizeof(got)), (ssize_t)sizeof(got));
        content(writer, i, want);
        if (memcmp(got, want, sizeof(want)) != 0)
            test_fail(__FILE__, __LINE__, "file %u of writer %d is not what was written", i,
                      writer->number);
    }
}

static bool stopped(void)
{
    struct statvfs pool;

    CHECK(fstatvfs(disk->pool_fd, &pool) == 0);
    return (pool.f_flag & ST_RDONLY) != 0;
}

static unsigned all(const struct writer *writers, bool refused)
{
    unsigned sum = 0;

    for (int i = 0; i < WRITERS; i++)
        sum += __atomic_load_n(refused ? &writers[i].refused : &writers[i].acknowledged,
                               __ATOMIC_RELAXED);
    return sum;
}

static void wait_for_more(const struct writer *writers, bool refused, unsigned than)
{
    for (int i = 0; all(writers, refused) <= than; i++) {
        CHECK(i < 1500 * (int)test_patience());
        (void)usleep(20000);
    }
}

TEST_TIMEOUT(the_host_fills_while_writers_go_on_and_nothing_is_lost, 120)
{
    struct writer writers[WRITERS] = {0};
    struct disk_space space;
    pthread_t tender;
    int box;

    setup((off_t)(4096 * MIB));
    CHECK(disk_box_create(disk, "w", 0, &box, &err) == 0 && close(box) == 0);
    tend();
    CHECK(pthread_create(&tender, NULL, tend_on, NULL) == 0);
    for (int i = 0; i < WRITERS; i++) {
        writers[i].number = i;
        CHECK(pthread_create(&writers[i].thread, NULL, write_on, &writers[i]) == 0);
    }
    wait_for_more(writers, false, 100);
    fill_host();
    wait_for_more(writers, true, 5);
    CHECK(disk_space(disk, &space, &err) == 0);
    CHECK(space.held);
    CHECK(syncfs(disk->pool_fd) == 0);
    CHECK(!stopped());
    empty_host();
    wait_for_more(writers, false, all(writers, false) + 50);
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    for (int i = 0; i < WRITERS; i++)
        CHECK(pthread_join(writers[i].thread, NULL) == 0);
    CHECK(pthread_join(tender, NULL) == 0);
    CHECK(syncfs(disk->pool_fd) == 0);
    CHECK(disk_space(disk, &space, &err) == 0);
    CHECK(!space.held);
    for (int i = 0; i < WRITERS; i++) {
        CHECK_INT(writers[i].bad, 0);
        check_files(&writers[i]);
    }
    CHECK(!stopped());
    disk_close(disk);
}

static uint64_t allocated(void)
{
    struct stat st;

    CHECK(fstat(disk->image_fd, &st) == 0);
    return (uint64_t)st.st_blocks * 512;
}

/* btrfs removes empty chunks when it has nothing else to do, which on a busy machine is late. */
static void wait_for_less(uint64_t bytes)
{
    for (int i = 0; allocated() > bytes; i++) {
        if (i == 600)
            test_fail(__FILE__, __LINE__, "still %llu MiB",
                      (unsigned long long)(allocated() / MIB));
        CHECK(ioctl(disk->pool_fd, BTRFS_IOC_SYNC) == 0);
        (void)usleep(100000);
        disk->give_back_at_ms = 0;
        tend();
    }
}

static void write_files(struct writer *writer, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        CHECK_INT(write_file(writer, writer->acknowledged++), 0);
        if (i % 100 == 0)
            tend();
    }
    CHECK(syncfs(disk->pool_fd) == 0);
    tend();
}

/* The last of what was written stays, far behind: it is moved. */
TEST_TIMEOUT(what_is_deleted_goes_back_to_the_host, 120)
{
    struct writer early = {.number = 1}, late = {.number = 2};
    struct error ignored;
    int fd;

    setup((off_t)(6000 * MIB));
    CHECK(disk_box_create(disk, "e", 0, &fd, &err) == 0 && close(fd) == 0);
    CHECK(disk_box_create(disk, "w", 0, &fd, &err) == 0 && close(fd) == 0);
    fd = openat(disk->boxes_fd, "e/upper/f", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && fallocate(fd, 0, 0, (off_t)(1800 * MIB)) == 0 && close(fd) == 0);
    write_files(&late, 300);
    CHECK(disk->last_chunk > 1700 * MIB);
    CHECK(disk_box_delete(disk, "e", &err) == 0);
    wait_for_less(1300 * MIB); /* of which 256 are for metadata */
    check_files(&late);
    write_files(&early, 20);
    check_files(&early);
    CHECK(!stopped());
    disk_close(disk);
    CHECK(disk_unmount(&config, &ignored) == 0);
}

/* Megabytes that could be added, `wanted` at most. */
static uint64_t add(const char *file, uint64_t wanted)
{
    static char block[MIB];
    auto_close int fd =
        openat(disk->boxes_fd, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    uint64_t done = 0;

    memset(block, 'x', sizeof(block));
    while (fd >= 0 && done < wanted && write(fd, block, sizeof(block)) == (ssize_t)sizeof(block))
        done++;
    return done;
}

static void make_box(const char *id, uint64_t limit)
{
    int fd;

    if (disk_box_create(disk, id, limit, &fd, &err) < 0)
        test_fail(__FILE__, __LINE__, "disk_box_create: %s", err.message);
    CHECK(close(fd) == 0);
}

/* With a single call, of all that is free but some. */
static int take(const char *file, uint64_t all_but)
{
    auto_close int fd = openat(disk->boxes_fd, file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    struct disk_space space;

    CHECK(fd >= 0 && disk_space(disk, &space, &err) == 0 && space.pool_free > all_but);
    return fallocate(fd, 0, 0, (off_t)(space.pool_free - all_but)) < 0 ? errno : 0;
}

/* A pool of some 900 MiB: the mark is at a quarter of it, the reserve is half of that. */
static void setup_neighbours(pthread_t *tender)
{
    setup((off_t)(3000 * MIB));
    make_box("greedy", 8192 * MIB);
    make_box("neighbour", 4096 * MIB);
    tend();
    if (tender)
        CHECK(pthread_create(tender, NULL, tend_on, NULL) == 0);
}

static void end_tender(pthread_t tender)
{
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    CHECK(pthread_join(tender, NULL) == 0);
}

static void wait_for_room(const char *file, uint64_t mebibytes)
{
    for (int i = 0; (mebibytes -= add(file, mebibytes)) > 0; i++) {
        if (i == 600)
            test_fail(__FILE__, __LINE__, "%s: %llu MiB are missing", file,
                      (unsigned long long)mebibytes);
        CHECK(ioctl(disk->pool_fd, BTRFS_IOC_SYNC) == 0);
        (void)usleep(50000);
    }
}

TEST_TIMEOUT(a_greedy_box_leaves_its_neighbours_their_share, 120)
{
    pthread_t tender;
    uint64_t taken = 0, got = 1;
    bool raised;
    int fd;

    setup_neighbours(&tender);
    /* It tries again and again, and gets no more by that. */
    for (int i = 0; i < 20; i++) {
        got = add("greedy/upper/f", 8192);
        taken += got;
        (void)usleep(DISK_TEND_MS * 1000);
    }
    CHECK_INT(got, 0);
    CHECK(taken > 300);
    /* Having used its share it can still be paused, resumed and snapshotted. */
    if (disk_layer_prepare(disk, "greedy", &got, &err) < 0 ||
        disk_box_reopen(disk, "greedy", 8192 * MIB, &fd, &raised, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    CHECK(close(fd) == 0);
    CHECK_INT(add("greedy/upper/f", 1), 0);
    CHECK_INT(add("neighbour/upper/f", 20), 20);
    make_box("late", 4096 * MIB);
    CHECK_INT(take("late/upper/all", 20 * MIB), EDQUOT);
    CHECK_INT(add("late/upper/f", 10), 10);
    CHECK(syncfs(disk->pool_fd) == 0);
    CHECK(disk_box_delete(disk, "greedy", &err) == 0);
    wait_for_room("neighbour/upper/f", 300);
    end_tender(tender);
    disk_close(disk);
}

TEST(nobody_takes_all_with_a_single_call)
{
    setup_neighbours(NULL);
    CHECK_INT(take("greedy/upper/f", 20 * MIB), EDQUOT);
    CHECK_INT(take("greedy/upper/f", 400 * MIB), 0);
    CHECK_INT(add("neighbour/upper/f", 50), 50);
    disk_close(disk);
}

TEST_TIMEOUT(caps_of_a_predecessor_are_lifted, 60)
{
    setup_neighbours(NULL);
    CHECK_INT(take("greedy/upper/f", 200 * MIB), 0);
    tend();
    CHECK(add("neighbour/upper/f", 300) < 150);
    CHECK(disk_box_delete(disk, "greedy", &err) == 0);
    disk_close(disk);
    if (disk_open(&config, &disk, &err) < 0)
        test_fail(__FILE__, __LINE__, "disk_open: %s", err.message);
    for (int i = 0; i < 600 && disk->share.free < 400 * MIB; i++) {
        CHECK(ioctl(disk->pool_fd, BTRFS_IOC_SYNC) == 0);
        (void)usleep(50000);
        tend();
    }
    CHECK_INT(add("neighbour/upper/f", 100), 100);
    disk_close(disk);
}

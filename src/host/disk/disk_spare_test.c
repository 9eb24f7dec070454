/* Spare clones: made ahead for a layer that was used, taken once, and gone with their layer and with the warden. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/test.h"
#include "host/disk/disk_internal.h"

#define MIB (1024ull * 1024)

static char dir[64];
static struct disk_config config;
static struct disk *disk;

static void remove_dir(void)
{
    struct error ignored;

    (void)disk_unmount(&config, &ignored);
    (void)path_remove_tree(AT_FDCWD, dir);
}

static void reopen(void)
{
    struct error err;

    if (disk_open(&config, &disk, &err) < 0)
        test_fail(__FILE__, __LINE__, "disk_open: %s", err.message);
}

static bool is_there(const char *path)
{
    return faccessat(disk->pool_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void write_in_box(const char *id, const char *name)
{
    char path[128];
    auto_close int fd = -1;

    (void)snprintf(path, sizeof(path), "%s/upper/%s", id, name);
    fd = openat(disk->boxes_fd, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    CHECK(fd >= 0 && write(fd, "x", 1) == 1);
}

/* A pool with the box "box", of which layers are made. It has a file with two names: such layers are never copied
 * (disk_small.c). */
static void setup(void)
{
    int fd;

    test_needs_root();
    CHECK(unshare(CLONE_NEWNS) == 0);
    CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    (void)snprintf(dir, sizeof(dir), "/var/tmp/quicksand-spare-XXXXXX");
    CHECK(mkdtemp(dir));
    config = (struct disk_config){.data_dir = dir, .initial_bytes = 256 * MIB};
    CHECK(atexit(remove_dir) == 0);
    reopen();
    OK(disk_box_create(disk, "box", 0, &fd, &err));
    close_fd(&fd);
    write_in_box("box", "name");
    CHECK(linkat(disk->boxes_fd, "box/upper/name", disk->boxes_fd, "box/upper/other", 0) == 0);
}

/* It holds a file of its own name, and what the box had before. */
static void make_layer(const char *layer)
{
    uint64_t bytes;

    write_in_box("box", layer);
    OK(disk_layer_prepare(disk, "box", &bytes, &err));
    OK(disk_layer_create(disk, "box", layer, &err));
    OK(disk_layer_settle(disk, "box", &err));
}

static void clone_box(const char *id, const char *layer)
{
    int fd = -1;

    OK(disk_box_clone(disk, id, layer, 16 * MIB, &fd, &err));
    close_fd(&fd);
}

static size_t count_spares(void)
{
    auto_close int fd = openat(disk->spares_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fdopendir(take_fd(&fd));
    size_t count = 0;

    CHECK(list);
    for (const struct dirent *entry; (entry = readdir(list));)
        count += entry->d_name[0] != '.';
    (void)closedir(list);
    return count;
}

/* Whether there is a place for it in the list; *out_ready: and a clone in it. */
static bool listed(const char *layer, bool *out_ready)
{
    struct disk_spares *spares = &disk->spares;
    bool found = false;

    *out_ready = false;
    (void)pthread_mutex_lock(&spares->lock);
    for (size_t i = 0; i < spares->count; i++)
        if (strcmp(spares->list[i].layer, layer) == 0) {
            found = true;
            *out_ready = spares->list[i].ready;
        }
    (void)pthread_mutex_unlock(&spares->lock);
    return found;
}

static bool ready(const char *layer)
{
    bool yes;

    (void)listed(layer, &yes);
    return yes;
}

static bool forgotten(const char *layer)
{
    bool ignored;

    return !listed(layer, &ignored);
}

TEST_TIMEOUT(a_layer_that_was_used_has_a_clone_ahead, 60)
{
    struct stat spare, box;

    setup();
    make_layer("one");
    CHECK(!disk_spare_take(disk, "one", "early"));
    CHECK_INT(count_spares(), 0);
    clone_box("first", "one");
    WAIT_FOR(ready("one"));
    CHECK(fstatat(disk->spares_fd, "one", &spare, 0) == 0);
    CHECK(!is_there("boxes/early"));
    /* The next box has that very clone, and there is another one soon. */
    CHECK(fstatat(disk->spares_fd, "one/upper/one", &spare, 0) == 0);
    clone_box("second", "one");
    CHECK(fstatat(disk->boxes_fd, "second/upper/one", &box, 0) == 0);
    CHECK(spare.st_dev == box.st_dev && spare.st_ino == box.st_ino);
    CHECK(is_there("boxes/second/work"));
    WAIT_FOR(ready("one"));
    CHECK_INT(count_spares(), 1);
    /* What one of them writes, neither another nor the layer has. */
    write_in_box("second", "mine");
    clone_box("third", "one");
    CHECK(!is_there("boxes/third/upper/mine") && !is_there("layers/one/upper/mine"));
    disk_close(disk);
}

/* A box that takes one is held to its own limit, and what the layer holds does not count. */
TEST_TIMEOUT(a_spare_has_the_limit_of_its_box, 60)
{
    static char block[1 << 16];
    auto_close int fd = -1;
    ssize_t wrote = 0;
    uint64_t used;

    setup();
    make_layer("one");
    clone_box("first", "one");
    WAIT_FOR(ready("one"));
    clone_box("second", "one");
    OK(disk_box_used(disk, "second", &used, &err));
    CHECK(used < MIB);
    fd = openat(disk->boxes_fd, "second/upper/big", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    CHECK(fd >= 0);
    memset(block, 'x', sizeof(block));
    for (size_t i = 0; i < 32 * MIB / sizeof(block) && wrote >= 0; i++)
        wrote = write(fd, block, sizeof(block));
    CHECK(wrote < 0 || fsync(fd) < 0);
    disk_close(disk);
}

TEST_TIMEOUT(a_layer_that_cannot_be_cloned_leaves_nothing, 60)
{
    setup();
    disk_spare_want(disk, "absent");
    WAIT_FOR(forgotten("absent"));
    CHECK(!disk_spare_take(disk, "absent", "child"));
    CHECK_INT(count_spares(), 0);
    CHECK(!is_there("boxes/child"));
    disk_close(disk);
}

/* The clone stays behind where nobody looks for it; the next one that is wanted takes its place. */
TEST_TIMEOUT(a_spare_that_cannot_be_moved_is_made_anew, 60)
{
    setup();
    make_layer("one");
    disk_spare_want(disk, "one");
    WAIT_FOR(ready("one"));
    CHECK(!disk_spare_take(disk, "one", "box"));
    CHECK(forgotten("one") && is_there("spares/one"));
    CHECK(is_there("boxes/box/upper/one"));
    do {
        disk_spare_want(disk, "one");
        WAIT_FOR(ready("one") || forgotten("one"));
    } while (!ready("one"));
    CHECK(disk_spare_take(disk, "one", "child"));
    CHECK(is_there("boxes/child/upper/one"));
    disk_close(disk);
}

TEST_TIMEOUT(only_so_many_wait_and_the_oldest_goes, 120)
{
    enum { EXTRA = 3 };
    char layer[32];

    setup();
    for (int i = 0; i < DISK_SPARES_MAX + EXTRA; i++) {
        (void)snprintf(layer, sizeof(layer), "layer%d", i);
        make_layer(layer);
        disk_spare_want(disk, layer);
        WAIT_FOR(ready(layer));
    }
    CHECK_INT(disk->spares.count, DISK_SPARES_MAX);
    CHECK_INT(count_spares(), DISK_SPARES_MAX);
    for (int i = 0; i < DISK_SPARES_MAX + EXTRA; i++) {
        (void)snprintf(layer, sizeof(layer), "layer%d", i);
        CHECK(ready(layer) == (i >= EXTRA));
    }
    /* A layer that has one is not given a second. */
    disk_spare_want(disk, "layer5");
    CHECK_INT(disk->spares.count, DISK_SPARES_MAX);
    disk_close(disk);
}

/* Also when its clone is being made just then: that is waited for. */
TEST_TIMEOUT(a_layer_goes_with_its_spare, 60)
{
    setup();
    for (int i = 0; i < 20; i++) {
        make_layer("one");
        disk_spare_want(disk, "one");
        (void)usleep((useconds_t)i * 1000); /* before, while and after it is made */
        OK(disk_layer_delete(disk, "one", &err));
        CHECK(forgotten("one") && !is_there("spares/one") && !is_there("layers/one"));
    }
    disk_close(disk);
}

TEST_TIMEOUT(spares_go_with_the_warden, 60)
{
    int fd = -1;

    setup();
    make_layer("one");
    make_layer("two");
    disk_spare_want(disk, "one");
    WAIT_FOR(ready("one"));
    disk_spare_want(disk, "two"); /* it may be under way */
    disk_close(disk);
    reopen();
    CHECK_INT(count_spares(), 0);
    CHECK(is_there("layers/one") && is_there("layers/two"));
    /* One that was killed could not remove its own. */
    OK(disk_subvol_open(disk->layers_fd, "one", &fd, &err));
    OK(disk_subvol_snapshot(fd, disk->spares_fd, "one", false, &err));
    close_fd(&fd);
    disk_close(disk);
    reopen();
    CHECK_INT(count_spares(), 0);
    CHECK(!disk_spare_take(disk, "one", "child"));
    disk_close(disk);
}

/* The thread that makes them is not in a process that was forked off, and nothing there waits for it. */
TEST_TIMEOUT(a_forked_process_makes_none, 60)
{
    int status;
    pid_t pid;

    setup();
    make_layer("one");
    make_layer("two");
    disk_spare_want(disk, "one");
    WAIT_FOR(ready("one"));
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        disk_spare_want(disk, "two");
        (void)snprintf(disk->spares.making, sizeof(disk->spares.making), "two");
        disk_spare_drop(disk, "two");
        _exit(forgotten("two") && disk_spare_take(disk, "one", "child") ? 0 : 1);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    CHECK(is_there("boxes/child/upper/one"));
    disk_close(disk);
}

/* ---- many at once ---- */

enum { TAKERS = 4, ROUNDS = 25 };

static void *take_and_want(void *arg)
{
    int number = *(const int *)arg;

    for (int i = 0; i < ROUNDS; i++) {
        struct error why;
        char id[32];
        int fd = -1;

        (void)snprintf(id, sizeof(id), "child%dx%d", number, i);
        if (disk_box_clone(disk, id, i % 2 ? "one" : "two", 0, &fd, &why) < 0)
            test_fail(__FILE__, __LINE__, "disk_box_clone: %s", why.message);
        close_fd(&fd);
    }
    return NULL;
}

/* Each box has a disk of its own, whoever made it. */
TEST_TIMEOUT(many_take_and_want_at_once, 120)
{
    pthread_t threads[TAKERS];
    int numbers[TAKERS];

    setup();
    make_layer("one");
    make_layer("two");
    for (int i = 0; i < TAKERS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, take_and_want, &numbers[i]) == 0);
    }
    for (int i = 0; i < TAKERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < TAKERS * ROUNDS; i++) {
        char path[64];

        (void)snprintf(path, sizeof(path), "boxes/child%dx%d/upper/%s", i / ROUNDS, i % ROUNDS,
                       i % ROUNDS % 2 ? "one" : "two");
        CHECK(is_there(path));
    }
    OK(disk_layer_delete(disk, "one", &err));
    OK(disk_layer_delete(disk, "two", &err));
    CHECK_INT(count_spares(), 0);
    disk_close(disk);
}

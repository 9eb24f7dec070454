/* Boxes on the real kernel: needs root. Each test makes a world of its own (network and mount
 * namespace, data directory) and checks that nothing of it is left. */
#include "warden/warden_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/test.h"
#include "engine/engine_wire.h"

static char data_dir[] = "/var/tmp/qs-warden-XXXXXX";
static char layer_dir[64];
static struct warden warden;
static struct warden_config config;

static bool world_open;

static void kill_one(const char *id, void *arg)
{
    struct error ignored;

    (void)arg;
    (void)box_cgroup_kill(warden.boxes.cgroups, id, &ignored);
    (void)box_cgroup_remove(warden.boxes.cgroups, id, &ignored);
}

/* Also when a check failed halfway. */
static void leave_nothing(void)
{
    char pool[64];

    if (world_open) {
        box_cgroup_each(warden.boxes.cgroups, kill_one, NULL);
        warden_close_host(&warden, true);
    }
    (void)snprintf(pool, sizeof(pool), "%s/pool", data_dir);
    (void)umount2(pool, MNT_DETACH);
    (void)path_remove_tree(AT_FDCWD, data_dir);
}

static void open_world(void)
{
    struct error err;

    if (geteuid() != 0)
        test_skip("needs root");
    CHECK(unshare(CLONE_NEWNET | CLONE_NEWNS) == 0);
    CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mkdtemp(data_dir));
    (void)atexit(leave_nothing);
    (void)snprintf(layer_dir, sizeof(layer_dir), "%s/layer", data_dir);
    CHECK(mkdir(layer_dir, 0755) == 0);
    config = (struct warden_config){.data_dir = data_dir,
                                    .listen = "127.0.0.1:0",
                                    .loops = 1,
                                    .server_uid = 64737,
                                    .agent_path = PAUSE_AGENT,
                                    .base_layer = layer_dir};
    warden = (struct warden){.config = &config, .event_fd = -1, .server_pidfd = -1};
    if (warden_open_host(&warden, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    world_open = true;
}

static size_t count_entries(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    size_t count = 0;

    if (!dir)
        return 0;
    while ((entry = readdir(dir)))
        count += entry->d_name[0] != '.';
    (void)closedir(dir);
    return count;
}

static size_t open_descriptors(void)
{
    return count_entries("/proc/self/fd");
}

static void count_one(const char *id, void *arg)
{
    (void)id;
    ++*(size_t *)arg;
}

static size_t children(void)
{
    siginfo_t info = {0};

    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 ? 1 : 0;
}

/* No trace of any box: entry, process, cgroup, subvolume, file. */
static void check_nothing_left(void)
{
    char path[128];
    size_t cgroups = 0;

    CHECK_INT(boxes_count(&warden.boxes), 0);
    CHECK_INT(children(), 0);
    box_cgroup_each(warden.boxes.cgroups, count_one, &cgroups);
    CHECK_INT(cgroups, 0);
    (void)snprintf(path, sizeof(path), "%s/pool/boxes", data_dir);
    CHECK_INT(count_entries(path), 0);
    /* The gateway's bind mount is the only thing in run/. */
    (void)snprintf(path, sizeof(path), "%s/run", data_dir);
    CHECK_INT(count_entries(path), 1);
}

static void close_world(void)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "/sys/fs/cgroup/memory/quicksand-%s", warden.instance);
    world_open = false;
    warden_close_host(&warden, true);
    CHECK(access(path, F_OK) < 0);
}

static struct box_spec make_spec(void)
{
    struct box_spec spec = {
        .limits = {.mem_bytes = 64 << 20, .disk_bytes = 64 << 20, .cpu_count = 1, .pids_max = 64},
        .layer_count = 1,
        .layers = {"base"},
        .internet = true,
    };

    id_make(spec.id);
    return spec;
}

static void must_start(const struct box_spec *spec, struct box_info *out)
{
    struct error err;

    if (box_start(&warden.boxes, spec, out, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
}

static void must_kill(const char *id)
{
    struct error err;

    if (box_kill(&warden.boxes, id, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
}

TEST_TIMEOUT(box_starts_and_leaves_nothing, 60)
{
    struct box_spec spec;
    struct box_info info;
    size_t before;

    open_world();
    spec = make_spec();
    must_start(&spec, &info);
    must_kill(spec.id);
    before = open_descriptors();
    for (int i = 0; i < 5; i++) {
        spec = make_spec();
        must_start(&spec, &info);
        CHECK(info.running && info.pid > 0 && info.slot > 0);
        must_kill(spec.id);
        must_kill(spec.id); /* idempotent */
    }
    CHECK_INT(open_descriptors(), before);
    check_nothing_left();
    close_world();
}

/* Fails every step of start in turn: nothing may be left, and the next start must work. */
TEST_TIMEOUT(start_fails_cleanly_at_every_step, 120)
{
    struct box_info info;
    struct box_spec spec;
    struct error err;
    size_t before;
    int failed = 0;

    open_world();
    spec = make_spec();
    must_start(&spec, &info);
    must_kill(spec.id);
    before = open_descriptors();
    for (int n = 1;; n++) {
        int r;

        spec = make_spec();
        box_fault_at = n;
        r = box_start(&warden.boxes, &spec, &info, &err);
        if (r == 0)
            break;
        box_fault_at = 0;
        CHECK(strstr(err.message, "fault injected"));
        check_nothing_left();
        CHECK_INT(open_descriptors(), before);
        failed++;
    }
    CHECK(failed >= 11);
    box_fault_at = 0;
    must_kill(spec.id);
    check_nothing_left();
    close_world();
}

/* Fails every step of a removal in turn: it must say so, stay listed, and succeed when repeated. */
TEST_TIMEOUT(kill_can_be_repeated_after_any_failure, 120)
{
    struct box_info info;
    struct error err;
    size_t failed = 0;

    open_world();
    for (int n = 1;; n++) {
        struct box_spec spec = make_spec();
        int r;

        must_start(&spec, &info);
        box_fault_at = n;
        r = box_kill(&warden.boxes, spec.id, &err);
        if (r == 0)
            break;
        box_fault_at = 0;
        CHECK_INT(boxes_count(&warden.boxes), 1);
        must_kill(spec.id);
        check_nothing_left();
        failed++;
    }
    box_fault_at = 0;
    CHECK_INT(failed, 7);
    check_nothing_left();
    close_world();
}

/* A warden that is killed and started again finds its boxes by what is on the host. */
TEST_TIMEOUT(boxes_are_adopted_after_a_restart, 60)
{
    struct box_spec lives = {0}, dies = {0};
    struct box_info info, list[4];
    struct error err;
    int fd = -1;

    open_world();
    lives = make_spec();
    dies = make_spec();
    must_start(&lives, &info);
    must_start(&dies, &info);
    CHECK(kill(info.pid, SIGKILL) == 0);
    CHECK(waitpid(info.pid, NULL, 0) == info.pid);
    warden_close_host(&warden, false);
    warden = (struct warden){.config = &config, .event_fd = -1, .server_pidfd = -1};
    if (warden_open_host(&warden, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    CHECK_INT(boxes_list(&warden.boxes, 0, list, 4), 2);
    for (int i = 0; i < 2; i++)
        CHECK_INT(list[i].running, strcmp(list[i].id, lives.id) == 0);
    CHECK_INT(box_dial(&warden.boxes, lives.id, 1, false, &fd, &err), 0);
    CHECK(fd >= 0 && close(fd) == 0);
    CHECK_INT(box_dial(&warden.boxes, dies.id, 1, false, &fd, &err), -1);
    must_kill(dies.id);
    must_kill(lives.id);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
    check_nothing_left();
    close_world();
}

TEST_TIMEOUT(exits_are_reported_once, 60)
{
    struct engine_event event;
    struct box_spec spec;
    struct box_info info;

    open_world();
    spec = make_spec();
    must_start(&spec, &info);
    CHECK(kill(info.pid, SIGKILL) == 0);
    {
        struct pollfd poll_fd = {.fd = warden.boxes.exit_epoll_fd, .events = POLLIN};

        CHECK_INT(poll(&poll_fd, 1, 5000), 1);
    }
    CHECK(boxes_exited(&warden.boxes, info.slot, &event));
    CHECK_STR(str_of(event.id), spec.id);
    CHECK(!boxes_exited(&warden.boxes, info.slot, &event));
    must_kill(spec.id);
    check_nothing_left();
    close_world();
}

/* The other side of the line is the part that parses hostile bytes: nothing it sends may do harm. */
TEST_TIMEOUT(malformed_requests_are_refused, 60)
{
    struct error err;
    int pair[2];
    struct {
        uint32_t op;
        const char *id;
        uint32_t layers;
        const char *layer;
        uint64_t mem;
    } cases[] = {
        {ENGINE_OP_START, "../../../../etc/pass", 1, "base", 64 << 20},
        {ENGINE_OP_START, "i234567890123456789", 1, "base", 64 << 20},
        {ENGINE_OP_START, "iaaaaaaaaaaaaaaaaaaa", 0, "base", 64 << 20},
        {ENGINE_OP_START, "iaaaaaaaaaaaaaaaaaaa", 33, "base", 64 << 20},
        {ENGINE_OP_START, "iaaaaaaaaaaaaaaaaaaa", 1, "../x", 64 << 20},
        {ENGINE_OP_START, "iaaaaaaaaaaaaaaaaaaa", 1, "", 64 << 20},
        {ENGINE_OP_START, "iaaaaaaaaaaaaaaaaaaa", 1, "base", 0},
        {ENGINE_OP_START, "iaaaaaaaaaaaaaaaaaaa", 1, "missing", 64 << 20},
        {4711, "iaaaaaaaaaaaaaaaaaaa", 1, "base", 64 << 20},
    };

    open_world();
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    CHECK_INT(warden_serve_channel(&warden.boxes, pair[0], false, &err), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct engine_request request = {.op = cases[i].op, .serial = i};
        struct engine_reply reply;

        request.spec = make_spec();
        memset(request.spec.id, 0, ID_SIZE);
        memcpy(request.spec.id, cases[i].id, strnlen(cases[i].id, ID_LEN));
        request.spec.layer_count = cases[i].layers;
        memset(request.spec.layers[0], 0, LAYER_NAME_SIZE);
        memcpy(request.spec.layers[0], cases[i].layer, strlen(cases[i].layer));
        request.spec.limits.mem_bytes = cases[i].mem;
        CHECK_INT(fd_send(pair[1], &request, sizeof(request), NULL, 0), 0);
        CHECK_INT(fd_recv(pair[1], &reply, sizeof(reply), NULL, NULL, 0), sizeof(reply));
        CHECK_INT(reply.serial, i);
        CHECK_INT(reply.status, -1);
        CHECK(reply.err.message[0]);
    }
    CHECK_INT(fd_send(pair[1], "short", 5, NULL, 0), 0);
    {
        struct engine_reply reply;

        CHECK_INT(fd_recv(pair[1], &reply, sizeof(reply), NULL, NULL, 0), 0);
    }
    (void)close(pair[1]);
    check_nothing_left();
    close_world();
}

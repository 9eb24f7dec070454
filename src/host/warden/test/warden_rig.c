#include "host/warden/test/warden_rig.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/path.h"
#include "host/engine/engine_wire.h"

struct warden rig_warden;
char rig_data_dir[] = "/var/tmp/qs-warden-XXXXXX";
static char layer_dir[64];
static struct warden_config config;
static bool world_open;
static pid_t owner;

static void kill_one(const char *id, void *arg)
{
    struct error ignored;

    (void)arg;
    (void)box_cgroup_kill(rig_warden.boxes.cgroups, id, &ignored);
    (void)box_cgroup_remove(rig_warden.boxes.cgroups, id, &ignored);
}

/* Also when a check failed halfway. */
static void leave_nothing(void)
{
    char pool[64];

    if (getpid() != owner)
        return;
    if (world_open) {
        box_cgroup_each(rig_warden.boxes.cgroups, kill_one, NULL);
        (void)warden_serve_end(&rig_warden);
        warden_close_host(&rig_warden, true);
    }
    (void)snprintf(pool, sizeof(pool), "%s/pool", rig_data_dir);
    (void)umount2(pool, MNT_DETACH);
    (void)path_remove_tree(AT_FDCWD, rig_data_dir);
}

static void write_lower(const char *name)
{
    char path[128];
    auto_close int fd = -1;

    (void)snprintf(path, sizeof(path), "%s/lower/%s", layer_dir, name);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    CHECK(fd >= 0 && fd_write_full(fd, "lower", 5) == 0);
}

static void make_base_layer(void)
{
    char path[128];

    (void)snprintf(layer_dir, sizeof(layer_dir), "%s/layer", rig_data_dir);
    (void)snprintf(path, sizeof(path), "%s/lower/dir", layer_dir);
    CHECK(path_make_dirs(path, 0755) == 0);
    write_lower("file");
    write_lower("dir/x");
    write_lower("dir/y");
}

static void open_host(void)
{
    struct error err;

    rig_warden = (struct warden){.config = &config, .event_fd = -1, .server = WARDEN_CHILD_NONE};
    if (warden_open_host(&rig_warden, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    world_open = true;
}

void rig_open(void)
{
    test_needs_root();
    CHECK(unshare(CLONE_NEWNET | CLONE_NEWNS) == 0);
    CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mkdtemp(rig_data_dir));
    owner = getpid();
    (void)atexit(leave_nothing);
    make_base_layer();
    config = (struct warden_config){.data_dir = rig_data_dir,
                                    .loops = 1,
                                    .server_uid = 64737,
                                    .envd_path = TEST_ENVD,
                                    .base_layer = layer_dir};
    open_host();
}

void rig_restart(void)
{
    CHECK(warden_serve_end(&rig_warden));
    warden_close_host(&rig_warden, false);
    world_open = false;
    open_host();
}

void rig_close(void)
{
    static const char *const hierarchies[] = {"", "unified/", "memory/", "cpu/", "pids/"};

    world_open = false;
    CHECK(warden_serve_end(&rig_warden));
    warden_close_host(&rig_warden, true);
    for (size_t i = 0; i < sizeof(hierarchies) / sizeof(*hierarchies); i++) {
        char path[64];

        (void)snprintf(path, sizeof(path), "/sys/fs/cgroup/%squicksand-%s", hierarchies[i],
                       rig_warden.instance);
        CHECK(access(path, F_OK) < 0);
    }
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

size_t rig_count(const char *path)
{
    char full[256];

    (void)snprintf(full, sizeof(full), "%s/%s", rig_data_dir, path);
    return count_entries(full);
}

size_t rig_descriptors(void)
{
    box_close_wait();
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

void rig_check_nothing_left(void)
{
    size_t cgroups = 0;

    CHECK_INT(boxes_count(&rig_warden.boxes), 0);
    CHECK_INT(children(), 0);
    box_cgroup_each(rig_warden.boxes.cgroups, count_one, &cgroups);
    CHECK_INT(cgroups, 0);
    CHECK_INT(rig_count("pool/boxes"), 0);
    CHECK_INT(rig_count("pool/temporary"), 0);
    /* The gateway's bind mount is the only thing in run/. */
    CHECK_INT(rig_count("run"), 1);
}

struct box_spec rig_spec(void)
{
    struct box_spec spec = {
        .engine = ENGINE_NATIVE,
        .limits = {.mem_bytes = 64 << 20, .disk_bytes = 64 << 20, .cpu_count = 1, .pids_max = 64},
        .layer_count = 1,
        .layers = {"base"},
        .network = {.mode = NETWORK_OPEN},
    };

    id_make(spec.id);
    return spec;
}

void rig_start(const struct box_spec *spec, struct box_info *out)
{
    struct error err;

    if (box_start(&rig_warden.boxes, spec, out, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
}

const struct box *rig_box(const char *id)
{
    const struct box *box = map_get(&rig_warden.boxes.table, str_of(id));

    CHECK(box != NULL);
    return box;
}

void rig_kill(const char *id)
{
    struct error err;

    if (box_kill(&rig_warden.boxes, id, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
}

void rig_stop(const char *id)
{
    struct error err;

    if (box_stop(&rig_warden.boxes, id, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
}

void rig_snapshot(const char *id, const char *layer, struct layer_info *out)
{
    struct error err;

    if (box_snapshot(&rig_warden.boxes, id, layer, out, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
}

void rig_layer_delete(const char *layer)
{
    struct error err;

    if (warden_layer_delete(&rig_warden, layer, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
}

/* ---- every step in turn ---- */

/* Whether the operation has an n-th step; 0: none is to fail. */
static bool fail_at(const struct rig_sweep *sweep, int n, int *failed)
{
    struct box_spec spec = sweep->begin();
    struct error err = {0};
    bool reached;
    int r;

    box_fault_at = n;
    r = sweep->operate(&spec, &err);
    reached = box_fault_at == 0;
    box_fault_at = 0;
    if (r < 0 && !strstr(err.message, "fault injected"))
        test_fail(__FILE__, __LINE__, "step %d: %s", n, err.message);
    sweep->after(&spec, r < 0 ? &err : NULL);
    rig_check_nothing_left();
    *failed += r < 0;
    return reached;
}

int rig_fail_everywhere(const struct rig_sweep *sweep)
{
    int failed = 0, n = 1;
    size_t before;

    (void)fail_at(sweep, 0, &failed);
    CHECK_INT(failed, 0);
    before = rig_descriptors();
    while (fail_at(sweep, n, &failed)) {
        CHECK_INT(rig_descriptors(), before);
        n++;
    }
    return failed;
}

/* In a process that ends there; false when it has no such step. */
static bool crash_at(const struct rig_sweep *sweep, const struct box_spec *spec, int n)
{
    pid_t pid = fork();
    int status;

    CHECK(pid >= 0);
    if (pid == 0) {
        struct error err;

        box_fault_at = n;
        box_fault_crash = true;
        _exit(sweep->operate(spec, &err) < 0 ? 1 : 0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == BOX_FAULT_STATUS || WEXITSTATUS(status) == 0);
    return WEXITSTATUS(status) == BOX_FAULT_STATUS;
}

int rig_crash_everywhere(const struct rig_sweep *sweep)
{
    int steps = 0;

    for (bool crashed = true; crashed; steps += crashed) {
        struct box_spec spec = sweep->begin();

        crashed = crash_at(sweep, &spec, steps + 1);
        rig_restart();
        sweep->after(&spec, NULL);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            continue;
        rig_check_nothing_left();
        CHECK_INT(rig_count("pool/layers"), 0);
    }
    return steps;
}

static void receive(int fd, int timeout_ms, char *out, size_t size)
{
    size_t len = 0;

    while (len < size - 1) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        ssize_t n = poll(&poll_fd, 1, timeout_ms) > 0 ? read(fd, out + len, size - 1 - len) : -1;

        if (n <= 0)
            break;
        len += (size_t)n;
    }
    out[len] = '\0';
}

const char *rig_ask_for(const char *id, int timeout_ms, const char *fmt, ...)
{
    static _Thread_local char answer[8192];
    auto_close int fd = engine_socket_connect(rig_warden.run_dir, id);
    char line[1024];
    va_list args;
    int len;

    va_start(args, fmt);
    len = vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    answer[0] = '\0';
    if (fd >= 0 && write(fd, line, (size_t)len) == len)
        receive(fd, timeout_ms, answer, sizeof(answer));
    return answer;
}

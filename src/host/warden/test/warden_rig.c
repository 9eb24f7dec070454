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
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/path.h"

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

    rig_warden = (struct warden){.config = &config, .event_fd = -1, .server_pidfd = -1};
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
        .limits = {.mem_bytes = 64 << 20, .disk_bytes = 64 << 20, .cpu_count = 1, .pids_max = 64},
        .layer_count = 1,
        .layers = {"base"},
        .internet = true,
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
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char line[1024];
    va_list args;
    int len;

    va_start(args, fmt);
    len = vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    CHECK(engine_socket_path(rig_warden.run_dir, id, address.sun_path) == 0);
    answer[0] = '\0';
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
        write(fd, line, (size_t)len) == len)
        receive(fd, timeout_ms, answer, sizeof(answer));
    return answer;
}

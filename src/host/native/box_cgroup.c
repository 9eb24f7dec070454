/* cgroups of boxes, on pure v2 hosts and on hosts whose controllers are still in v1 hierarchies.
 *
 * The v2 directory always exists: it is what a box is killed and frozen by. Limits go to whichever
 * hierarchy has the controller. All directories are <hierarchy>/quicksand-<instance>/<id>. */
#include "host/native/box_cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "host/native/box_syscalls.h"

static const char *const v1_names[HIERARCHY_COUNT] = {
    [V1_MEMORY] = "memory", [V1_CPU] = "cpu", [V1_PIDS] = "pids"};

#define SOCKET_LIMIT "memory.kmem.tcp.limit_in_bytes"

void box_cgroup_path(const struct box_cgroups *cgroups, const char *id, char *out, size_t size)
{
    (void)snprintf(out, size, "%s/%s", cgroups->name, id);
}

int box_cgroup_version(const struct box_cgroups *cgroups)
{
    return cgroups->v2_limits ? 2 : 1;
}

static int open_dir(int at, const char *path)
{
    return openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static bool is_cgroup2(int fd)
{
    struct statfs fs;

    return fstatfs(fd, &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC;
}

/* Finds the v2 hierarchy: the whole of /sys/fs/cgroup, or its `unified` directory. */
static int open_v2(void)
{
    int fd = open_dir(AT_FDCWD, "/sys/fs/cgroup");

    if (fd >= 0 && is_cgroup2(fd))
        return fd;
    if (fd >= 0)
        (void)close(fd);
    fd = open_dir(AT_FDCWD, "/sys/fs/cgroup/unified");
    if (fd >= 0 && is_cgroup2(fd))
        return fd;
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

static bool v2_has(int fd, const char *controller)
{
    char line[256], *rest = line, *word;
    int list = openat(fd, "cgroup.controllers", O_RDONLY | O_CLOEXEC);
    ssize_t n = list < 0 ? -1 : fd_read_full(list, line, sizeof(line) - 1);

    if (list >= 0)
        (void)close(list);
    if (n < 0)
        return false;
    line[n] = '\0';
    while ((word = strsep(&rest, " \n")))
        if (strcmp(word, controller) == 0)
            return true;
    return false;
}

static int make_root(struct box_cgroups *cgroups, enum hierarchy h, struct error *err)
{
    if (mkdirat(cgroups->parents[h], cgroups->name, 0755) < 0 && errno != EEXIST)
        return error_set_errno(err, errno, "make cgroup '%s'", cgroups->name);
    cgroups->roots[h] = open_dir(cgroups->parents[h], cgroups->name);
    if (cgroups->roots[h] < 0)
        return error_set_errno(err, errno, "open cgroup '%s'", cgroups->name);
    return 0;
}

static int enable_v2_limits(struct box_cgroups *cgroups, struct error *err)
{
    static const char controllers[] = "+memory +cpu +pids";
    int r = fd_write_value_at(cgroups->parents[V2], "cgroup.subtree_control", controllers);

    /* The real root may hold processes, that of a namespace not. */
    if (r == -EBUSY)
        return error_set(err, ERROR_CONFLICT,
                         "enable cgroup controllers: the cgroup at /sys/fs/cgroup holds processes; "
                         "in a container, use the host's cgroup namespace");
    if (r < 0)
        return error_set_errno(err, -r, "enable cgroup controllers at the root");
    r = fd_write_value_at(cgroups->roots[V2], "cgroup.subtree_control", controllers);
    if (r < 0)
        return error_set_errno(err, -r, "enable cgroup controllers for '%s'", cgroups->name);
    cgroups->v2_limits = true;
    return 0;
}

static int open_v1(struct box_cgroups *cgroups, enum hierarchy h, struct error *err)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "/sys/fs/cgroup/%s", v1_names[h]);
    cgroups->parents[h] = open_dir(AT_FDCWD, path);
    if (cgroups->parents[h] < 0)
        return error_set_errno(err, errno, "no cgroup controller '%s' (neither v2 nor '%s')",
                               v1_names[h], path);
    return make_root(cgroups, h, err);
}

/* Counting starts with the first limit anywhere on the host, which patches the kernel's code: now, not when
 * the first box is made. */
static int count_socket_buffers(struct box_cgroups *cgroups, struct error *err)
{
    int r = fd_write_value_at(cgroups->roots[V1_MEMORY], SOCKET_LIMIT, "-1");

    return r < 0 ? error_set_errno(err, -r, "cgroup '%s': write %s", cgroups->name, SOCKET_LIMIT)
                 : 0;
}

static int open_all(struct box_cgroups *cgroups, struct error *err)
{
    cgroups->parents[V2] = open_v2();
    if (cgroups->parents[V2] < 0)
        return error_set(err, ERROR_UNAVAILABLE,
                         "no cgroup v2 hierarchy at /sys/fs/cgroup or /sys/fs/cgroup/unified");
    if (make_root(cgroups, V2, err) < 0)
        return -1;
    if (faccessat(cgroups->roots[V2], "cgroup.kill", F_OK, 0) < 0)
        return error_set(err, ERROR_UNAVAILABLE, "cgroup.kill is missing: Linux 5.19 is the least");
    if (v2_has(cgroups->parents[V2], "memory") && v2_has(cgroups->parents[V2], "cpu") &&
        v2_has(cgroups->parents[V2], "pids"))
        return enable_v2_limits(cgroups, err);
    for (int h = V1_MEMORY; h < HIERARCHY_COUNT; h++)
        if (open_v1(cgroups, h, err) < 0)
            return -1;
    return count_socket_buffers(cgroups, err);
}

static uint64_t read_number(const char *path)
{
    auto_buf struct buf text = {0};
    uint64_t value;

    buf_init(&text, 64);
    return fd_read_file_at(AT_FDCWD, path, &text) == 0 &&
                   str_to_u64(str_trim(buf_str(&text)), &value)
               ? value
               : UINT64_MAX;
}

/* All boxes together leave a quarter of the host's processes to others: without any it could not even be
 * looked after. */
static int limit_all(struct box_cgroups *cgroups, struct error *err)
{
    uint64_t pids = read_number("/proc/sys/kernel/pid_max");
    uint64_t threads = read_number("/proc/sys/kernel/threads-max");
    uint64_t host = pids < threads ? pids : threads;
    char text[24];
    int r;

    if (host == UINT64_MAX)
        return error_set(err, ERROR_INTERNAL, "cannot read the host's number of processes");
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)(host / 4 * 3));
    r = fd_write_value_at(cgroups->roots[cgroups->v2_limits ? V2 : V1_PIDS], "pids.max", text);
    return r < 0 ? error_set_errno(err, -r, "limit the processes of all sandboxes") : 0;
}

int box_cgroups_open(const char *instance, struct box_cgroups **out, struct error *err)
{
    struct box_cgroups *cgroups = xcalloc(1, sizeof(*cgroups));

    (void)snprintf(cgroups->name, sizeof(cgroups->name), "quicksand-%s", instance);
    for (int h = 0; h < HIERARCHY_COUNT; h++)
        cgroups->parents[h] = cgroups->roots[h] = -1;
    if (open_all(cgroups, err) < 0 || limit_all(cgroups, err) < 0) {
        box_cgroups_close(cgroups);
        return -1;
    }
    *out = cgroups;
    return 0;
}

void box_cgroups_close(struct box_cgroups *cgroups)
{
    for (int h = 0; h < HIERARCHY_COUNT; h++) {
        close_fd(&cgroups->roots[h]);
        close_fd(&cgroups->parents[h]);
    }
    free(cgroups);
}

void box_cgroups_destroy(struct box_cgroups *cgroups)
{
    for (int h = 0; h < HIERARCHY_COUNT; h++)
        if (cgroups->parents[h] >= 0)
            (void)unlinkat(cgroups->parents[h], cgroups->name, AT_REMOVEDIR);
}

static int write_knob(struct box_cgroups *cgroups, enum hierarchy h, const char *id,
                      const char *knob, const char *value, struct error *err)
{
    char path[128];
    int r;

    (void)snprintf(path, sizeof(path), "%s/%s", id, knob);
    r = fd_write_value_at(cgroups->roots[h], path, value);
    if (r < 0)
        return error_set_errno(err, -r, "cgroup '%s': write '%s' to %s", id, value, knob);
    return 0;
}

static int write_number(struct box_cgroups *cgroups, enum hierarchy h, const char *id,
                        const char *knob, uint64_t value, struct error *err)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    return write_knob(cgroups, h, id, knob, text, err);
}

enum {
    CPU_PERIOD_US = 100000,
    SOCKET_SHARE = 4,
    PROCS_MAX = 256 << 10,
    USUAL_WEIGHT = 100,
    YIELDING_WEIGHT = 10,
};

static int limit_v2(struct box_cgroups *cgroups, const char *id, const struct box_limits *limits,
                    struct error *err)
{
    char cpu[48];

    (void)snprintf(cpu, sizeof(cpu), "%llu %d",
                   (unsigned long long)limits->cpu_count * CPU_PERIOD_US, CPU_PERIOD_US);
    if (write_number(cgroups, V2, id, "memory.max", limits->mem_bytes, err) < 0 ||
        write_knob(cgroups, V2, id, "memory.swap.max", "0", err) < 0 ||
        write_knob(cgroups, V2, id, "cpu.max", cpu, err) < 0)
        return -1;
    return write_number(cgroups, V2, id, "pids.max", limits->pids_max, err);
}

static int limit_v1(struct box_cgroups *cgroups, const char *id, const struct box_limits *limits,
                    struct error *err)
{
    /* Buffers of sockets are no part of a box's memory in v1: they get a limit of their own. The period of a new cgroup is
     * CPU_PERIOD_US; to set it the kernel would look at all cgroups of the host once more. */
    if (write_number(cgroups, V1_MEMORY, id, "memory.limit_in_bytes", limits->mem_bytes, err) < 0 ||
        write_number(cgroups, V1_MEMORY, id, SOCKET_LIMIT, limits->mem_bytes / SOCKET_SHARE, err) <
            0 ||
        write_number(cgroups, V1_CPU, id, "cpu.cfs_quota_us",
                     (uint64_t)limits->cpu_count * CPU_PERIOD_US, err) < 0)
        return -1;
    return write_number(cgroups, V1_PIDS, id, "pids.max", limits->pids_max, err);
}

static int weigh(struct box_cgroups *cgroups, const char *id, bool yields, struct error *err)
{
    uint64_t weight = yields ? YIELDING_WEIGHT : USUAL_WEIGHT;

    return cgroups->v2_limits
               ? write_number(cgroups, V2, id, "cpu.weight", weight, err)
               : write_number(cgroups, V1_CPU, id, "cpu.shares", weight * 1024 / USUAL_WEIGHT, err);
}

static int limit(struct box_cgroups *cgroups, const char *id, const struct box_limits *limits,
                 struct error *err)
{
    return cgroups->v2_limits ? limit_v2(cgroups, id, limits, err)
                              : limit_v1(cgroups, id, limits, err);
}

int box_cgroup_limit(struct box_cgroups *cgroups, const char *id, const struct box_limits *limits,
                     struct error *err)
{
    return limit(cgroups, id, limits, err) < 0 ? -1 : weigh(cgroups, id, limits->yields, err);
}

int box_cgroup_create(struct box_cgroups *cgroups, const char *id, const struct box_limits *limits,
                      int *out_fd, struct error *err)
{
    auto_close int fd = -1;

    for (int h = 0; h < HIERARCHY_COUNT; h++)
        if (cgroups->roots[h] >= 0 && mkdirat(cgroups->roots[h], id, 0755) < 0)
            return error_set_errno(err, errno, "make cgroup '%s/%s'", cgroups->name, id);
    /* A new cgroup has the usual weight. */
    if (limit(cgroups, id, limits, err) < 0 ||
        (limits->yields && weigh(cgroups, id, true, err) < 0))
        return -1;
    fd = open_dir(cgroups->roots[V2], id);
    if (fd < 0)
        return error_set_errno(err, errno, "open cgroup '%s/%s'", cgroups->name, id);
    *out_fd = take_fd(&fd);
    return 0;
}

int box_cgroup_doors(struct box_cgroups *cgroups, const char *id, int out_fds[BOX_DOORS],
                     struct error *err)
{
    for (int h = V1_MEMORY; h < HIERARCHY_COUNT; h++) {
        char path[64];

        if (cgroups->roots[h] < 0)
            continue;
        (void)snprintf(path, sizeof(path), "%s/tasks", id);
        out_fds[h - V1_MEMORY] = openat(cgroups->roots[h], path, O_WRONLY | O_CLOEXEC);
        if (out_fds[h - V1_MEMORY] < 0)
            return error_set_errno(err, errno, "open cgroup '%s/%s'", cgroups->name, path);
    }
    return 0;
}

int box_cgroup_kill(struct box_cgroups *cgroups, const char *id, struct error *err)
{
    if (write_knob(cgroups, V2, id, "cgroup.kill", "1", err) < 0 && err->errnum != ENOENT)
        return -1;
    return 0;
}

static void each_of(struct box_cgroups *cgroups, const char *id, const char *list,
                    void (*fn)(pid_t pid, void *arg), void *arg)
{
    auto_buf struct buf text = {0};
    struct str rest;
    char path[64];
    uint64_t pid;

    buf_init(&text, PROCS_MAX);
    (void)snprintf(path, sizeof(path), "%s/%s", id, list);
    if (fd_read_file_at(cgroups->roots[V2], path, &text) < 0)
        return;
    rest = buf_str(&text);
    while (rest.p)
        if (str_to_u64(str_split(&rest, '\n'), &pid) && pid > 0 && pid <= INT32_MAX)
            fn((pid_t)pid, arg);
}

/* Who is not dying is refused by the kernel, so a number that was given to somebody else does no harm. */
static void release_memory(pid_t pid, void *unused)
{
    auto_close int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

    (void)unused;
    if (pidfd >= 0)
        (void)sys_process_mrelease(pidfd);
}

/* A killed thread first finishes the system call that it is in: a read of 2 GB copies them all, and hundreds
 * of such threads share the processor time of their box. Without the memory to copy to, the call ends at once
 * (not so for memory that is shared); and as none of them runs a program any more, they may have the time. */
void box_cgroup_hurry(struct box_cgroups *cgroups, const char *id)
{
    struct error ignored;

    if (cgroups->v2_limits)
        (void)write_knob(cgroups, V2, id, "cpu.max", "max", &ignored);
    else
        (void)write_knob(cgroups, V1_CPU, id, "cpu.cfs_quota_us", "-1", &ignored);
    each_of(cgroups, id, "cgroup.procs", release_memory, NULL);
}

void box_cgroup_each_task(struct box_cgroups *cgroups, const char *id,
                          void (*fn)(pid_t task, void *arg), void *arg)
{
    each_of(cgroups, id, "cgroup.threads", fn, arg);
}

/* A cgroup whose last process was just reaped can stay busy for a moment. */
static int remove_one(int root, const char *id)
{
    for (int tries = 0;; tries++) {
        struct timespec wait = {.tv_nsec = 1000000L << (tries < 6 ? tries : 6)};

        if (unlinkat(root, id, AT_REMOVEDIR) == 0 || errno == ENOENT)
            return 0;
        if (errno != EBUSY || tries == 40)
            return -errno;
        (void)nanosleep(&wait, NULL);
    }
}

int box_cgroup_remove(struct box_cgroups *cgroups, const char *id, struct error *err)
{
    int first = 0;

    for (int h = 0; h < HIERARCHY_COUNT; h++) {
        int r = cgroups->roots[h] >= 0 ? remove_one(cgroups->roots[h], id) : 0;

        if (r < 0 && first == 0)
            first = r;
    }
    return first < 0 ? error_set_errno(err, -first, "remove cgroup '%s'", id) : 0;
}

bool box_cgroup_holds(struct box_cgroups *cgroups, const char *id, pid_t pid)
{
    char path[64], want[80];
    auto_buf struct buf text = {0};

    buf_init(&text, 16384);
    (void)snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
    (void)snprintf(want, sizeof(want), "%s/%s", cgroups->name, id);
    return fd_read_file_at(AT_FDCWD, path, &text) == 0 && strstr(text.p ? text.p : "", want);
}

void box_cgroup_each(struct box_cgroups *cgroups, void (*fn)(const char *id, void *arg), void *arg)
{
    int fd = open_dir(cgroups->roots[V2], ".");
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (!dir) {
        close_fd(&fd);
        return;
    }
    while ((entry = readdir(dir)))
        if (id_valid(str_of(entry->d_name)))
            fn(entry->d_name, arg);
    (void)closedir(dir);
}

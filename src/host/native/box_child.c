/* The first process of a box, from clone to exec.
 *
 * It starts as a copy of one warden thread inside new user, pid, mount, network, uts and ipc
 * namespaces, and may only make system calls: other threads' locks are held for ever in this copy.
 *
 * Order matters:
 *  1. Wait until our ids are mapped. Enter the v1 cgroups, by ourselves: a thread that moves nobody
 *     but itself needs no lock on all processes of the host, for which others wait up to 10 ms.
 *  2. New cgroup and time namespaces (their roots are where we are now).
 *  3. Detached mounts of proc, sysfs, cgroup, devpts, tmpfs and the files that envd serves. The
 *     kernel allows a new proc only while an old one is visible, so this comes before leaving the host's
 *     tree.
 *  4. Wait for the root mount, and pivot_root into it; the host's tree is gone.
 *  5. Attach the detached mounts and the volumes. The targets lie in a file system that guests wrote to, so they are
 *     opened without following any symbolic link; we are inside already, there is nothing else to
 *     reach.
 *  6. Limits, capabilities, seccomp, exec of envd from a sealed memfd with an empty environment
 *     and exactly the descriptors 0 to 7. */
#include "host/native/box.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "base/fd.h"
#include "host/native/box_files.h"
#include "host/native/box_syscalls.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

static _Noreturn void die(const struct box_child *child, const char *step)
{
    struct box_child_report report = {.errnum = errno ? errno : EIO};

    (void)snprintf(report.step, sizeof(report.step), "%s", step);
    (void)fd_send(child->channel, &report, sizeof(report), NULL, 0);
    _exit(1);
}

#define MUST(expr, step)      \
    do {                      \
        if ((expr) < 0)       \
            die(child, step); \
    } while (0)

/* Detached mounts that wait for step 5. */
struct mounts {
    int root, dev;
    int proc, sys, pts, shm, run, mqueue;
    int cgroup; /* one v2 tree, or a tmpfs with these: */
    int cgroup_memory, cgroup_cpu, cgroup_unified;
    int files[BOX_FILES];
    int group; /* where the kernel shows the limits of its disk */
    int fuse;  /* the files' server side */
    uint32_t fuse_number;
};

struct option {
    const char *key, *value; /* value NULL: a flag */
};

static int new_mount(const struct box_child *child, const char *type, unsigned attrs,
                     const struct option *options, size_t count)
{
    int fs = sys_fsopen(type, FSOPEN_CLOEXEC);
    int mount_fd;

    MUST(fs, type);
    for (size_t i = 0; i < count; i++)
        MUST(sys_fsconfig(fs, options[i].value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG,
                          options[i].key, options[i].value, 0),
             options[i].key);
    MUST(sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0), type);
    mount_fd = sys_fsmount(fs, FSMOUNT_CLOEXEC, attrs);
    MUST(mount_fd, type);
    (void)close(fs);
    return mount_fd;
}

#define NEW_MOUNT(type, attrs, ...)                                     \
    new_mount(child, type, attrs, (const struct option[]){__VA_ARGS__}, \
              sizeof((const struct option[]){__VA_ARGS__}) / sizeof(struct option))

enum {
    PLAIN = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
    QUIET = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
};

/* Files of /proc that envd serves, so that programs see the box's memory, processors and load. The
 * kernel wants the device opened in the user namespace that mounts. The directory stays behind in the
 * host's tree when we leave that, on /sys: the root may be here meanwhile, and it needs /proc
 * (box_overlay.c) and must wait for nobody in it. */
static void make_files(const struct box_child *child, struct mounts *mounts)
{
    char fd_text[16];
    int dir;

    mounts->fuse = openat(child->device_fd, "fuse", O_RDWR | O_CLOEXEC);
    MUST(mounts->fuse, "open the fuse device");
    (void)snprintf(fd_text, sizeof(fd_text), "%d", mounts->fuse);
    dir = NEW_MOUNT("fuse", QUIET | MOUNT_ATTR_RDONLY, {"source", "sandbox"}, {"fd", fd_text},
                    {"rootmode", "40555"}, {"user_id", "0"}, {"group_id", "0"},
                    {"allow_other", NULL});
    MUST(box_fuse_number(dir, &mounts->fuse_number), "find a connection's number");
    MUST(sys_move_mount(dir, "", AT_FDCWD, "/sys", MOVE_MOUNT_F_EMPTY_PATH), "attach envd's files");
    MUST(box_files_find(mounts->fuse, dir, mounts->files), "find envd's files");
    (void)close(dir);
}

static void make_cgroup(const struct box_child *child, struct mounts *mounts)
{
    if (child->cgroup_version == 2) {
        mounts->cgroup = NEW_MOUNT("cgroup2", QUIET | MOUNT_ATTR_RDONLY, {"source", "cgroup"});
        return;
    }
    mounts->cgroup = NEW_MOUNT("tmpfs", QUIET, {"size", "4k"}, {"mode", "0755"});
    mounts->cgroup_memory =
        NEW_MOUNT("cgroup", QUIET | MOUNT_ATTR_RDONLY, {"source", "cgroup"}, {"memory", NULL});
    mounts->cgroup_cpu =
        NEW_MOUNT("cgroup", QUIET | MOUNT_ATTR_RDONLY, {"source", "cgroup"}, {"cpu", NULL});
    mounts->cgroup_unified = NEW_MOUNT("cgroup2", QUIET | MOUNT_ATTR_RDONLY, {"source", "cgroup"});
}

/* Of the 3,072 that Linux gives out at first, to all but the host's own. */
#define TERMINALS_MAX "128"

static void make_mounts(const struct box_child *child, struct mounts *mounts)
{
    char shm_size[32];

    /* Nothing of ours must reach the host's tree and the reverse. */
    MUST(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "make mounts private");
    (void)snprintf(shm_size, sizeof(shm_size), "%llu", (unsigned long long)(child->mem_bytes / 2));
    mounts->proc = NEW_MOUNT("proc", QUIET, {"source", "proc"});
    mounts->sys = NEW_MOUNT("sysfs", QUIET | MOUNT_ATTR_RDONLY, {"source", "sysfs"});
    mounts->pts = NEW_MOUNT("devpts", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, {"source", "devpts"},
                            {"newinstance", NULL}, {"ptmxmode", "0666"}, {"mode", "0620"},
                            {"gid", "5"}, {"max", TERMINALS_MAX});
    mounts->shm =
        NEW_MOUNT("tmpfs", PLAIN, {"source", "shm"}, {"size", shm_size}, {"mode", "1777"});
    mounts->run =
        NEW_MOUNT("tmpfs", PLAIN, {"source", "run"}, {"size", shm_size}, {"mode", "0755"});
    mounts->mqueue = NEW_MOUNT("mqueue", QUIET, {"source", "mqueue"});
    make_cgroup(child, mounts);
    make_files(child, mounts);
}

/* A place to mount on, reached without following a link; made when it is missing. */
static int open_target(const struct box_child *child, const char *path, bool directory)
{
    struct open_how how = {
        .flags = O_PATH | O_CLOEXEC | O_NOFOLLOW | (directory ? O_DIRECTORY : 0),
        .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    int fd = sys_openat2(AT_FDCWD, path, &how);

    if (fd < 0 && errno == ENOENT && directory && mkdir(path, 0755) == 0)
        fd = sys_openat2(AT_FDCWD, path, &how);
    MUST(fd, path);
    return fd;
}

static void attach(const struct box_child *child, int mount_fd, const char *path, bool directory)
{
    int target = open_target(child, path, directory);

    MUST(
        sys_move_mount(mount_fd, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH),
        path);
    (void)close(target);
    (void)close(mount_fd);
}

/* A directory to mount a volume on, made with all above it where they are missing. Component by
 * component, none of which may be a link. */
static int open_volume_target(const struct box_child *child, const char *path)
{
    struct open_how how = {
        .flags = O_PATH | O_CLOEXEC | O_NOFOLLOW | O_DIRECTORY,
        .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_BENEATH,
    };
    int dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

    MUST(dir, "open the root");
    while (*path == '/') {
        size_t len = strcspn(++path, "/");
        char name[VOLUME_PATH_SIZE];
        int next;

        if (len >= sizeof(name)) {
            errno = ENAMETOOLONG;
            die(child, "volume path");
        }
        memcpy(name, path, len);
        name[len] = '\0';
        next = sys_openat2(dir, name, &how);
        if (next < 0 && errno == ENOENT && mkdirat(dir, name, 0755) == 0)
            next = sys_openat2(dir, name, &how);
        MUST(next, name);
        (void)close(dir);
        dir = next;
        path += len;
    }
    return dir;
}

static void attach_volumes(const struct box_child *child)
{
    for (size_t i = 0; i < child->volume_count; i++) {
        int mount_fd = -1, target;
        size_t nfds = 1;
        char word;

        if (fd_recv(child->channel, &word, 1, &mount_fd, &nfds, 0) != 1 || nfds != 1)
            _exit(1); /* the warden gave up */
        target = open_volume_target(child, child->volumes[i].path);
        MUST(sys_move_mount(mount_fd, "", target, "",
                            MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH),
             "attach a volume");
        (void)close(target);
        (void)close(mount_fd);
    }
}

/* Parts of /proc and /sys that speak of the host, or act on it. What the box's root cannot open
 * anyway, because it belongs to the host's, needs no cover: each mount costs time. */
static const char *const read_only_paths[] = {"/proc/sys", "/proc/irq", "/proc/bus", "/proc/fs",
                                              "/proc/sysrq-trigger"};
static const char *const hidden_files[] = {
    "/proc/kcore",       "/proc/keys",          "/proc/key-users",   "/proc/timer_list",
    "/proc/sched_debug", "/proc/latency_stats", "/proc/timer_stats", "/proc/kallsyms",
    "/proc/modules",     "/proc/kmsg",          "/proc/kpagecount",  "/proc/kpageflags",
    "/proc/kpagecgroup", "/proc/vmallocinfo",   "/proc/slabinfo",    "/proc/iomem",
    "/proc/ioports",     "/proc/interrupts",    "/proc/config.gz",   "/proc/mtrr"};
static const char *const hidden_dirs[] = {
    "/proc/acpi",
    "/proc/scsi",
    "/proc/asound",
    "/sys/firmware",
    "/sys/fs/btrfs", /* what each box of the host has written */
    "/sys/devices/virtual/powercap",
    "/sys/kernel/security",
    "/sys/kernel/debug",
    "/sys/kernel/tracing"};

static bool reachable(const char *path)
{
    return access(path, R_OK) == 0 || access(path, W_OK) == 0 || access(path, X_OK) == 0;
}

/* Puts a read-only copy of `what` over `path`. */
static void cover(const struct box_child *child, const char *path, const char *what, bool directory)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};
    int tree = sys_open_tree(AT_FDCWD, what, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

    MUST(tree, what);
    MUST(sys_mount_setattr(tree, "", AT_EMPTY_PATH, &attr), what);
    attach(child, tree, path, directory);
}

/* While /dev/mqueue is still the empty directory of the device tree. */
static void seal_proc(const struct box_child *child)
{
    for (size_t i = 0; i < sizeof(read_only_paths) / sizeof(*read_only_paths); i++)
        if (reachable(read_only_paths[i]))
            cover(child, read_only_paths[i], read_only_paths[i], false);
    for (size_t i = 0; i < sizeof(hidden_files) / sizeof(*hidden_files); i++)
        if (reachable(hidden_files[i]))
            cover(child, hidden_files[i], "/dev/null", false);
    for (size_t i = 0; i < sizeof(hidden_dirs) / sizeof(*hidden_dirs); i++)
        if (reachable(hidden_dirs[i]))
            cover(child, hidden_dirs[i], "/dev/mqueue", true);
}

/* A file of the box's own goes over another: it lives on the box's /run, without a name there. */
static const char own_file[] = "/run/.own";

static int begin_own_file(const struct box_child *child)
{
    int fd = open(own_file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);

    MUST(fd, "make a file of its own");
    return fd;
}

static void cover_with_own_file(const struct box_child *child, int fd, const char *path)
{
    (void)close(fd);
    cover(child, path, own_file, false);
    MUST(unlink(own_file), "hide a file of its own");
}

/* Each start is a boot of its own: programs tell by this id whether what they left in memory or in
 * temporary files can still hold. */
static void renew_boot_id(const struct box_child *child)
{
    char text[64];
    int from = open("/proc/sys/kernel/random/uuid", O_RDONLY | O_CLOEXEC), to;
    ssize_t len;

    MUST(from, "make a boot id");
    len = read(from, text, sizeof(text));
    MUST((int)len, "make a boot id");
    (void)close(from);
    to = begin_own_file(child);
    MUST(fd_write_full(to, text, (size_t)len), "write the boot id");
    cover_with_own_file(child, to, "/proc/sys/kernel/random/boot_id");
}

/* The C library and others count processors by these files, not by what a process may run on. */
static void show_cpus(const struct box_child *child)
{
    static const char online[] = "/sys/devices/system/cpu/online", info[] = "/proc/cpuinfo";
    int fd;

    if (box_cpus_all(child))
        return;
    if (reachable(online)) {
        fd = begin_own_file(child);
        MUST(box_cpus_write_list(child, fd), "write the processors");
        cover_with_own_file(child, fd, online);
    }
    if (child->cpuinfo && reachable(info)) {
        fd = begin_own_file(child);
        MUST(box_cpus_write_info(child, fd), "write the processors");
        cover_with_own_file(child, fd, info);
    }
}

static void attach_cgroup(const struct box_child *child, struct mounts *mounts)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};
    int top;

    attach(child, mounts->cgroup, "/sys/fs/cgroup", true);
    if (child->cgroup_version == 2)
        return;
    attach(child, mounts->cgroup_memory, "/sys/fs/cgroup/memory", true);
    attach(child, mounts->cgroup_cpu, "/sys/fs/cgroup/cpu", true);
    attach(child, mounts->cgroup_unified, "/sys/fs/cgroup/unified", true);
    top = open_target(child, "/sys/fs/cgroup", true);
    MUST(sys_mount_setattr(top, "", AT_EMPTY_PATH, &attr), "seal /sys/fs/cgroup");
    (void)close(top);
}

static void enter_root(const struct box_child *child, struct mounts *mounts)
{
    /* Any directory will do as a place to stand on while leaving: /proc is everywhere. */
    MUST(sys_move_mount(mounts->root, "", AT_FDCWD, "/proc", MOVE_MOUNT_F_EMPTY_PATH),
         "attach the root");
    MUST(fchdir(mounts->root), "enter the root");
    MUST(syscall(SYS_pivot_root, ".", "."), "pivot_root");
    MUST(umount2(".", MNT_DETACH), "detach the host's tree");
    MUST(chdir("/"), "chdir /");
    (void)close(mounts->root);
}

static void attach_files(const struct box_child *child, const struct mounts *mounts)
{
    for (size_t i = 0; i < BOX_FILES; i++) {
        char path[32];

        (void)snprintf(path, sizeof(path), "/proc/%s", box_files_names[i]);
        attach(child, mounts->files[i], path, false);
    }
}

static void attach_mounts(const struct box_child *child, struct mounts *mounts)
{
    attach(child, mounts->proc, "/proc", true);
    attach(child, mounts->sys, "/sys", true);
    attach(child, mounts->dev, "/dev", true);
    attach(child, mounts->pts, "/dev/pts", true);
    attach(child, mounts->shm, "/dev/shm", true);
    attach(child, mounts->run, "/run", true);
    attach_cgroup(child, mounts);
    seal_proc(child);
    renew_boot_id(child);
    show_cpus(child);
    attach(child, mounts->mqueue, "/dev/mqueue", true);
    attach_files(child, mounts);
}

/* The image's file may be a link to somewhere that does not exist here; it is replaced. An image
 * without /etc has no use for it. */
static void write_resolv_conf(const struct box_child *child)
{
    size_t len = strlen(child->resolv_conf);
    int fd;

    if (len == 0)
        return;
    (void)unlink("/etc/resolv.conf");
    fd = open("/etc/resolv.conf", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 && errno == ENOENT)
        return;
    MUST(fd, "write /etc/resolv.conf");
    MUST(fd_write_full(fd, child->resolv_conf, len), "write /etc/resolv.conf");
    (void)close(fd);
}

/* The box's clocks start at zero: its uptime is its own, and the host's stays private. unshare() gives
 * the namespace to children only, and before Linux 6.2 exec does not change that: envd would be
 * left outside, and could not make threads. So it is entered as well. */
static void start_clock(const struct box_child *child)
{
    struct timespec mono, boot;
    char text[96];
    int fd, len;

    MUST(unshare(CLONE_NEWTIME), "time namespace");
    MUST(clock_gettime(CLOCK_MONOTONIC, &mono), "clock");
    MUST(clock_gettime(CLOCK_BOOTTIME, &boot), "clock");
    fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
    MUST(fd, "open timens_offsets");
    len = snprintf(text, sizeof(text), "monotonic %lld 0\nboottime %lld 0\n",
                   -(long long)mono.tv_sec, -(long long)boot.tv_sec);
    MUST(write(fd, text, (size_t)len), "set clock offsets");
    (void)close(fd);
    fd = open("/proc/self/ns/time_for_children", O_RDONLY | O_CLOEXEC);
    MUST(fd, "open the time namespace");
    MUST(setns(fd, CLONE_NEWTIME), "enter the time namespace");
    (void)close(fd);
}

/* `nproc` counts the processors a process may run on. The quota is what limits; this is what shows. */
static void choose_cpus(const struct box_child *child)
{
    cpu_set_t set;

    if (box_cpus_all(child))
        return;
    CPU_ZERO(&set);
    for (unsigned long cpu = 0; cpu < (unsigned long)child->host_cpus; cpu++)
        if (box_cpus_has(child, cpu))
            CPU_SET(cpu, &set);
    (void)sched_setaffinity(0, sizeof(set), &set);
}

/* What one user's programs may have is less than what the box may have: envd gives them the soft
 * limit and keeps what lies between the two for commands that come when a fork bomb has taken the rest.
 * Half as many as Linux would allow on a machine with that memory, or small processes alone fill it: then
 * each allocation of envd, too, waits in line behind theirs. */
static void limit_processes(const struct box_child *child)
{
    enum { BYTES_PER_PROCESS = 512 * 1024, LEAST = 256, RESERVE_PART = 16 };
    uint64_t by_memory = child->mem_bytes / BYTES_PER_PROCESS;
    struct rlimit limit = {0};

    MUST(getrlimit(RLIMIT_NPROC, &limit), "getrlimit");
    if (limit.rlim_max > child->pids_max)
        limit.rlim_max = child->pids_max;
    limit.rlim_cur = limit.rlim_max - limit.rlim_max / RESERVE_PART;
    if (by_memory < LEAST)
        by_memory = LEAST;
    if (limit.rlim_cur > by_memory)
        limit.rlim_cur = by_memory;
    MUST(setrlimit(RLIMIT_NPROC, &limit), "limit processes");
}

static void set_limits(const struct box_child *child)
{
    struct rlimit files = {0}, none = {0, 0};

    MUST(getrlimit(RLIMIT_NOFILE, &files), "getrlimit");
    if (files.rlim_max > 65536)
        files.rlim_max = 65536;
    files.rlim_cur = files.rlim_max;
    MUST(setrlimit(RLIMIT_NOFILE, &files), "limit files");
    MUST(setrlimit(RLIMIT_CORE, &none), "limit core files");
    limit_processes(child);
    choose_cpus(child);
}

/* Returns the descriptor over which statfs() of all that runs inside is answered. */
static int drop_privileges(const struct box_child *child)
{
    struct sock_fprog filter = {.len = (unsigned short)child->filter_len,
                                .filter = (struct sock_filter *)(uintptr_t)child->filter};
    int listener;

    for (int cap = 0; cap < 64; cap++)
        if (!(child->capabilities >> cap & 1) && prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 1)
            MUST(prctl(PR_CAPBSET_DROP, cap, 0, 0, 0), "drop a capability");
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (child->volume_count)
        MUST(box_seccomp_refuse_clones(), "seccomp for volumes");
    /* Needs CAP_SYS_ADMIN, which goes with the exec. No no_new_privs: sudo must work inside. */
    listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                            &filter);
    MUST(listener, "seccomp");
    return listener;
}

static void reset_signals(void)
{
    /* The C library keeps 32 and 33 for itself and would not touch them. All zero is SIG_DFL. */
    struct {
        unsigned long handler, flags, restorer, mask;
    } standard = {0};
    sigset_t none;

    for (int sig = 1; sig <= 64; sig++)
        (void)syscall(SYS_rt_sigaction, sig, &standard, NULL, 8);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* A sanitizer's report about envd has to come out; otherwise an envd has nothing to say. */
#ifdef __SANITIZE_ADDRESS__
enum { NULL_FDS = 2 };
#else
enum { NULL_FDS = 3 };
#endif

/* envd's descriptors, in their final places: 0-2 null, 3 its socket, 4 its files, 5 its own
 * oom_score_adj, which it cannot open itself once it is not dumpable, 6 the limits of its disk; 7 comes with the
 * system-call filter. Everything is first moved out of the way, so that no target overwrites a source. */
enum { LISTENER_FD = 7 };

static void arrange_fds(const struct box_child *child, const struct mounts *mounts, int *envd,
                        int *channel)
{
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    int listen_fd = fcntl(child->listen_fd, F_DUPFD_CLOEXEC, 100);
    int fuse_fd = fcntl(mounts->fuse, F_DUPFD_CLOEXEC, 100);
    int group_fd = fcntl(mounts->group, F_DUPFD_CLOEXEC, 100);
    int oom_fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    oom_fd = oom_fd < 0 ? -1 : fcntl(oom_fd, F_DUPFD_CLOEXEC, 100);
    *envd = fcntl(child->envd_fd, F_DUPFD_CLOEXEC, 100);
    *channel = fcntl(child->channel, F_DUPFD_CLOEXEC, 100);
    if (null_fd < 0 || listen_fd < 0 || fuse_fd < 0 || group_fd < 0 || oom_fd < 0 || *envd < 0 ||
        *channel < 0)
        die(child, "arrange descriptors");
    for (int fd = 0; fd < NULL_FDS; fd++)
        MUST(dup2(null_fd, fd), "dup2");
    MUST(dup2(listen_fd, 3), "dup2");
    MUST(dup2(fuse_fd, 4), "dup2");
    MUST(dup2(oom_fd, 5), "dup2");
    MUST(dup2(group_fd, 6), "dup2");
    MUST(syscall(SYS_close_range, LISTENER_FD, ~0U, 4 /* CLOSE_RANGE_CLOEXEC */), "close_range");
}

static _Noreturn void exec_envd(const struct box_child *child, const struct mounts *mounts)
{
    char mem[24];
    char listen_arg[] = "--listen-fd", listen_fd[] = "3", fuse_arg[] = "--fuse-fd", fuse_fd[] = "4",
         oom_arg[] = "--oom-fd", oom_fd[] = "5", group_arg[] = "--disk-fd", group_fd[] = "6",
         statfs_arg[] = "--statfs-fd", statfs_fd[] = "7", mem_arg[] = "--mem-bytes",
         port_arg[] = "--tcp-port", port[] = "49983", name[] = "envd";
    char *const argv[] = {name,   listen_arg, listen_fd, fuse_arg,   fuse_fd,   oom_arg,
                          oom_fd, group_arg,  group_fd,  statfs_arg, statfs_fd, mem_arg,
                          mem,    port_arg,   port,      NULL};
    char *const envp[] = {NULL};
    struct box_child late = *child;
    struct box_child_report ok = {.fuse = {mounts->fuse_number}};
    int envd, listener;

    (void)snprintf(mem, sizeof(mem), "%llu", (unsigned long long)child->mem_bytes);
    arrange_fds(child, mounts, &envd, &late.channel);
    listener = drop_privileges(&late);
    if (listener != LISTENER_FD)
        MUST(dup2(listener, LISTENER_FD), "dup2");
    else
        MUST(fcntl(listener, F_SETFD, 0), "keep the filter's descriptor");
    /* From here on the box lives on its own. */
    if (prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0) < 0)
        die(&late, "outlive the warden");
    (void)fd_send(late.channel, &ok, sizeof(ok), NULL, 0);
    (void)syscall(SYS_execveat, envd, "", argv, envp, AT_EMPTY_PATH);
    die(&late, "exec envd");
}

/* Everything but what is needed here. As long as a copy of the warden's end of the channel, or of its
 * lock on the data directory, were open in this process, it would wait for ever for a warden that was
 * killed, and keep the next one out. */
static void drop_descriptors(const struct box_child *child)
{
    int kept[] = {child->channel,  child->listen_fd, child->envd_fd, child->device_fd,
                  child->doors[0], child->doors[1],  child->doors[2]};
    const size_t count = sizeof(kept) / sizeof(*kept);
    int next = 3;

    for (size_t done = 0; done < count; done++) {
        int lowest = INT_MAX;

        for (size_t i = 0; i < count; i++)
            if (kept[i] >= next && kept[i] < lowest)
                lowest = kept[i];
        if (lowest == INT_MAX)
            break;
        if (lowest > next)
            (void)syscall(SYS_close_range, next, lowest - 1, 0);
        next = lowest + 1;
    }
    (void)syscall(SYS_close_range, next, ~0U, 0);
}

/* By the rights of who opened them. */
static void enter_cgroups(const struct box_child *child)
{
    for (size_t i = 0; i < BOX_DOORS; i++) {
        if (child->doors[i] < 0)
            continue;
        MUST(write(child->doors[i], "0", 1), "enter a cgroup");
        (void)close(child->doors[i]);
    }
}

static void wait_for_ids(const struct box_child *child)
{
    char word;

    if (fd_recv(child->channel, &word, 1, NULL, NULL, 0) != 1)
        _exit(1); /* the warden gave up */
}

static void wait_for_root(const struct box_child *child, struct mounts *mounts)
{
    struct box_child_go go;
    int fds[2];
    size_t nfds = 2;

    if (fd_recv(child->channel, &go, sizeof(go), fds, &nfds, 0) != (ssize_t)sizeof(go) || nfds != 2)
        _exit(1); /* the warden gave up */
    mounts->root = fds[0];
    mounts->dev = fds[1];
    mounts->group = openat(mounts->sys, go.group, O_PATH | O_DIRECTORY | O_CLOEXEC);
    MUST(mounts->group, "find the limits of its disk");
}

void box_child_run(const struct box_child *child)
{
    struct mounts mounts = {0};

    /* A warden that dies before it says go must not leave us waiting. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        _exit(1);
    drop_descriptors(child);
    wait_for_ids(child);
    enter_cgroups(child);
    MUST(syscall(SYS_setgroups, 0, NULL), "setgroups");
    MUST(syscall(SYS_setresgid, 0, 0, 0), "setresgid");
    MUST(syscall(SYS_setresuid, 0, 0, 0), "setresuid");
    /* Changing ids made our own /proc files the host root's, and forgot the signal. */
    MUST(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "dumpable");
    MUST(prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), "parent's end");
    (void)umask(022);
    MUST(setsid(), "setsid");
    MUST(unshare(CLONE_NEWCGROUP), "cgroup namespace");
    start_clock(child);
    MUST(sethostname("e2b.local", 9), "sethostname");
    make_mounts(child, &mounts);
    wait_for_root(child, &mounts);
    enter_root(child, &mounts);
    attach_mounts(child, &mounts);
    attach_volumes(child);
    write_resolv_conf(child);
    set_limits(child);
    reset_signals();
    exec_envd(child, &mounts);
}

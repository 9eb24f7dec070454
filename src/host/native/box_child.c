/* The first process of a box, from clone to exec.
 *
 * It starts as a copy of one warden thread inside new user, pid, mount, network, uts and ipc
 * namespaces, and may only make system calls: other threads' locks are held for ever in this copy.
 *
 * Order matters:
 *  1. Wait until our ids are mapped. Enter the v1 cgroups, by ourselves: a thread that moves nobody
 *     but itself needs no lock on all processes of the host, for which others wait up to 10 ms.
 *  2. New cgroup and time namespaces (their roots are where we are now).
 *  3. Detached mounts of proc, sysfs, devpts, tmpfs and the files that envd serves. The
 *     kernel allows a new proc only while an old one is visible, so this comes before leaving the tree that
 *     we begin in.
 *  4. Wait for the root mount, and enter it: on top of a tree that has nothing of the host (box_seed.c), or, where that is
 *     the host's, by pivot_root; then the host's tree is gone.
 *  5. Attach the detached mounts and the volumes. The targets lie in a file system that guests wrote to, so they are
 *     opened without following any symbolic link; we are inside already, there is nothing else to
 *     reach.
 *  6. Limits, capabilities, seccomp, exec of envd from a sealed memfd with an empty environment
 *     and exactly the descriptors 0 to 7.
 *
 * A blank box has a root of empty directories at first, and a descriptor more: box_claim.c gives it another root. */
#include "host/native/box.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

#include "base/fd.h"
#include "host/native/box_child.h"
#include "host/native/box_files.h"
#include "host/native/box_syscalls.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

void box_child_die(const struct box_child *child, const char *step)
{
    struct box_child_report report = {.errnum = errno ? errno : EIO};

    (void)snprintf(report.step, sizeof(report.step), "%s", step);
    (void)fd_send(child->channel, &report, sizeof(report), NULL, 0);
    _exit(1);
}

/* Detached mounts that wait for step 5. */
struct mounts {
    int root, dev;
    int proc, sys, pts, shm, run, mqueue;
    int cgroup; /* the directory with those of v1 */
    int cgroups[BOX_CGROUP_TREES];
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
 * tree that we leave, on /sys: the root may be here meanwhile, and it needs /proc
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
    MUST(box_files_find(&mounts->fuse, dir, mounts->files), "find envd's files");
    (void)close(dir);
}

/* One file system in memory for both. Like that of envd's files it stays behind, on /sys. */
static void make_memory(const struct box_child *child, struct mounts *mounts)
{
    char size[32];
    int dir;

    (void)snprintf(size, sizeof(size), "%llu", (unsigned long long)(child->mem_bytes / 2));
    dir = NEW_MOUNT("tmpfs", PLAIN, {"source", "tmpfs"}, {"size", size}, {"mode", "0755"});
    MUST(mkdirat(dir, "run", 0755), "make /run");
    MUST(mkdirat(dir, "shm", 0777), "make /dev/shm");
    MUST(fchmodat(dir, "shm", 01777, 0), "make /dev/shm");
    MUST(sys_move_mount(dir, "", AT_FDCWD, "/sys", MOVE_MOUNT_F_EMPTY_PATH), "attach tmpfs");
    mounts->run = sys_open_tree(dir, "run", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    MUST(mounts->run, "clone /run");
    mounts->shm = sys_open_tree(dir, "shm", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    MUST(mounts->shm, "clone /dev/shm");
    (void)close(dir);
}

/* Of the 3,072 that Linux gives out at first, to all but the host's own. */
#define TERMINALS_MAX "128"

static void make_mounts(const struct box_child *child, struct mounts *mounts)
{
    mounts->sys = NEW_MOUNT("sysfs", QUIET | MOUNT_ATTR_RDONLY, {"source", "sysfs"});
    mounts->pts = NEW_MOUNT("devpts", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, {"source", "devpts"},
                            {"newinstance", NULL}, {"ptmxmode", "0666"}, {"mode", "0620"},
                            {"gid", "5"}, {"max", TERMINALS_MAX});
    mounts->mqueue = NEW_MOUNT("mqueue", QUIET, {"source", "mqueue"});
    make_files(child, mounts);
    make_memory(child, mounts);
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

void box_child_attach(const struct box_child *child, int mount_fd, const char *path, bool directory)
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
            box_child_die(child, "volume path");
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

static void attach_cgroup(const struct box_child *child, struct mounts *mounts)
{
    static const char *const v1[BOX_CGROUP_TREES] = {"memory", "cpu", "unified"};

    if (child->cgroup_version == 2) {
        box_child_attach(child, mounts->cgroups[0], "/sys/fs/cgroup", true);
        return;
    }
    box_child_attach(child, mounts->cgroup, "/sys/fs/cgroup", true);
    for (size_t i = 0; i < BOX_CGROUP_TREES; i++) {
        char path[40];

        (void)snprintf(path, sizeof(path), "/sys/fs/cgroup/%s", v1[i]);
        box_child_attach(child, mounts->cgroups[i], path, true);
    }
}

static void enter_root(const struct box_child *child, struct mounts *mounts)
{
    if (child->seeded) {
        MUST(sys_move_mount(mounts->root, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH),
             "attach the root");
        MUST(fchdir(mounts->root), "enter the root");
        MUST(chroot("."), "chroot");
        (void)close(mounts->root);
        return;
    }
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
        box_child_attach(child, mounts->files[i], path, false);
    }
}

static void attach_mounts(const struct box_child *child, struct mounts *mounts)
{
    box_child_attach(child, mounts->proc, "/proc", true);
    box_child_attach(child, mounts->sys, "/sys", true);
    box_child_attach(child, mounts->dev, "/dev", true);
    box_child_attach(child, mounts->pts, "/dev/pts", true);
    box_child_attach(child, mounts->shm, "/dev/shm", true);
    box_child_attach(child, mounts->run, "/run", true);
    attach_cgroup(child, mounts);
    box_child_hide(child);
    box_child_attach(child, mounts->mqueue, "/dev/mqueue", true);
    attach_files(child, mounts);
}

/* The image's file may be a link to somewhere that does not exist here; it is replaced. An image
 * without /etc has no use for it. */
static void write_resolv_conf(const struct box_child *child)
{
    size_t len = strlen(child->resolv_conf);
    int fd;

    if (len == 0 || child->blank)
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
static void start_clock(const struct box_child *child, int proc_fd)
{
    struct timespec mono, boot;
    char text[96];
    int fd, len;

    MUST(unshare(CLONE_NEWTIME), "time namespace");
    MUST(clock_gettime(CLOCK_MONOTONIC, &mono), "clock");
    MUST(clock_gettime(CLOCK_BOOTTIME, &boot), "clock");
    fd = openat(proc_fd, "self/timens_offsets", O_WRONLY | O_CLOEXEC);
    MUST(fd, "open timens_offsets");
    len = snprintf(text, sizeof(text), "monotonic %lld 0\nboottime %lld 0\n",
                   -(long long)mono.tv_sec, -(long long)boot.tv_sec);
    MUST(write(fd, text, (size_t)len), "set clock offsets");
    (void)close(fd);
    fd = openat(proc_fd, "self/ns/time_for_children", O_RDONLY | O_CLOEXEC);
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
void box_processes_limit(uint64_t mem_bytes, uint64_t pids_max, struct rlimit *limit)
{
    enum { BYTES_PER_PROCESS = 512 * 1024, LEAST = 256, RESERVE_PART = 16 };
    uint64_t by_memory = mem_bytes / BYTES_PER_PROCESS;

    if (limit->rlim_max > pids_max)
        limit->rlim_max = pids_max;
    limit->rlim_cur = limit->rlim_max - limit->rlim_max / RESERVE_PART;
    if (by_memory < LEAST)
        by_memory = LEAST;
    if (limit->rlim_cur > by_memory)
        limit->rlim_cur = by_memory;
}

static void limit_processes(const struct box_child *child)
{
    struct rlimit limit = {0};

    MUST(getrlimit(RLIMIT_NPROC, &limit), "getrlimit");
    box_processes_limit(child->mem_bytes, child->pids_max, &limit);
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
    if (child->refuse_clones)
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
#ifdef WITH_ADDRESS_SANITIZER
enum { NULL_FDS = 2 };
#else
enum { NULL_FDS = 3 };
#endif

/* envd's descriptors, in their final places: 0-2 null, 3 its socket, 4 its files, 5 its own
 * oom_score_adj, which it cannot open itself once it is not dumpable, 6 the limits of its disk; 7 comes with the
 * system-call filter. In a blank box, 6 are the limits of all disks, and 8 is the channel over which it learns its own. Everything is first moved out of the way, so that no target overwrites a source. */
enum { LISTENER_FD = 7, CLAIM_FD = 8 };

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
        box_child_die(child, "arrange descriptors");
    for (int fd = 0; fd < NULL_FDS; fd++)
        MUST(dup2(null_fd, fd), "dup2");
    MUST(dup2(listen_fd, 3), "dup2");
    MUST(dup2(fuse_fd, 4), "dup2");
    MUST(dup2(oom_fd, 5), "dup2");
    MUST(dup2(group_fd, 6), "dup2");
    MUST(syscall(SYS_close_range, LISTENER_FD, ~0U, 4 /* CLOSE_RANGE_CLOEXEC */), "close_range");
    if (child->blank)
        MUST(dup2(*channel, CLAIM_FD), "dup2");
}

static _Noreturn void exec_envd(const struct box_child *child, const struct mounts *mounts)
{
    char mem[24];
    char listen_arg[] = "--listen-fd", listen_fd[] = "3", fuse_arg[] = "--fuse-fd", fuse_fd[] = "4",
         oom_arg[] = "--oom-fd", oom_fd[] = "5", group_arg[] = "--disk-fd", group_fd[] = "6",
         statfs_arg[] = "--statfs-fd", statfs_fd[] = "7", mem_arg[] = "--mem-bytes",
         port_arg[] = "--tcp-port", port[] = "49983", claim_arg[] = "--claim-fd", claim_fd[] = "8",
         name[] = "envd";
    char *const argv[] = {name,     listen_arg, listen_fd, fuse_arg,
                          fuse_fd,  oom_arg,    oom_fd,    group_arg,
                          group_fd, statfs_arg, statfs_fd, mem_arg,
                          mem,      port_arg,   port,      child->blank ? claim_arg : NULL,
                          claim_fd, NULL};
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
        box_child_die(&late, "outlive the warden");
    (void)fd_send(late.channel, &ok, sizeof(ok), NULL, 0);
    (void)syscall(SYS_execveat, envd, "", argv, envp, AT_EMPTY_PATH);
    box_child_die(&late, "exec envd");
}

/* Until here the warden's descriptors are ours too: a copy of all, two for each box, would take as long as the rest of a
 * start. What lies above those that are needed is never copied (box_keep_fd()). */
static void leave_descriptors(const int *kept, size_t count)
{
    int highest = 2;

    for (size_t i = 0; i < count; i++)
        highest = kept[i] > highest ? kept[i] : highest;
    if (syscall(SYS_close_range, highest + 1, ~0U, 2 /* CLOSE_RANGE_UNSHARE */) < 0)
        _exit(1);
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

    leave_descriptors(kept, count);
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
    int fds[3];
    size_t nfds = 3;

    if (fd_recv(child->channel, &go, sizeof(go), fds, &nfds, 0) != (ssize_t)sizeof(go) || nfds != 3)
        _exit(1); /* the warden gave up */
    mounts->root = fds[0];
    mounts->dev = fds[1];
    mounts->cgroup = fds[2];
    mounts->group = openat(mounts->sys, go.group, O_PATH | O_DIRECTORY | O_CLOEXEC);
    MUST(mounts->group, "find the limits of its disk");
}

static void wait_for_cgroups(const struct box_child *child, struct mounts *mounts)
{
    size_t nfds = BOX_CGROUP_TREES;
    char word;

    if (fd_recv(child->channel, &word, 1, mounts->cgroups, &nfds, 0) != 1 ||
        nfds != (child->cgroup_version == 2 ? 1 : BOX_CGROUP_TREES))
        _exit(1); /* the warden gave up */
}

/* Ports inside are reached by it; on a host that gives no network it is all there is. */
static void start_loopback(const struct box_child *child)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    MUST(fd, "open a socket");
    MUST(ioctl(fd, SIOCSIFFLAGS, &request), "start the loopback");
    (void)close(fd);
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
    /* Nothing of ours must reach the tree that we begin in and the reverse. */
    MUST(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "make mounts private");
    mounts.proc = NEW_MOUNT("proc", QUIET, {"source", "proc"});
    start_clock(child, mounts.proc);
    MUST(sethostname("e2b.local", 9), "sethostname");
    start_loopback(child);
    make_mounts(child, &mounts);
    wait_for_root(child, &mounts);
    wait_for_cgroups(child, &mounts);
    enter_root(child, &mounts);
    attach_mounts(child, &mounts);
    attach_volumes(child);
    write_resolv_conf(child);
    set_limits(child);
    reset_signals();
    exec_envd(child, &mounts);
}

/* doctor: what the kernel must be able to do. Things that can be tried are tried, in a child process
 * with a mount namespace of its own; nothing is left behind. */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "cli/doctor/cli_doctor.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

/* Does a file in /proc have the word, as a whole word of a line? */
static bool file_has_word(const char *path, const char *word)
{
    auto_buf struct buf text = {0};
    struct str rest;

    buf_init(&text, 256 * 1024);
    if (fd_read_file_at(AT_FDCWD, path, &text) < 0)
        return false;
    rest = buf_str(&text);
    while (rest.len) {
        struct str line = str_split(&rest, '\n');

        while (line.len) {
            struct str left = str_split(&line, '\t');

            while (left.len)
                if (str_is(str_split(&left, ' '), word))
                    return true;
        }
    }
    return false;
}

static bool file_number(const char *path, long long *out)
{
    auto_buf struct buf text = {0};
    int64_t number;

    buf_init(&text, 256);
    if (fd_read_file_at(AT_FDCWD, path, &text) < 0 ||
        !str_to_i64(str_trim(buf_str(&text)), &number))
        return false;
    *out = number;
    return true;
}

static int try_namespaces(void *arg)
{
    (void)arg;
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS |
                CLONE_NEWIPC | CLONE_NEWCGROUP | CLONE_NEWTIME) < 0)
        return errno;
    return 0;
}

void doctor_namespaces(const struct doctor *doctor, struct doctor_result *out)
{
    long long most = -1;
    int rc;

    if (file_number("/proc/sys/user/max_user_namespaces", &most) && most < 1000) {
        doctor_bad(out, most < 2 ? DOCTOR_FAIL : DOCTOR_WARN,
                   "sysctl -w user.max_user_namespaces=100000",
                   "at most %lld user namespaces, one per sandbox", most);
        return;
    }
    if (doctor_needs_root(doctor, out))
        return;
    rc = doctor_try(try_namespaces, doctor);
    if (rc)
        doctor_bad(out, DOCTOR_FAIL,
                   "inside a container: run it privileged; else use a kernel with all namespaces",
                   "cannot be made: %s", strerror(rc));
    else
        doctor_ok(out, "user, pid, mount, net, uts, ipc, cgroup, time; at most %lld", most);
}

/* A user namespace whose ids start at 100000, as a descriptor; -1 with errno. */
static int make_userns(void)
{
    char path[64], byte = 0;
    int fds[2], fd = -1;
    pid_t pid;

    if (pipe(fds) < 0)
        return -1;
    pid = _Fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWUSER) == 0)
            byte = 1;
        (void)!write(fds[1], &byte, 1);
        (void)pause();
        _exit(0);
    }
    if (pid > 0 && read(fds[0], &byte, 1) == 1 && byte) {
        (void)snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
        if (fd_write_value_at(AT_FDCWD, path, "0 100000 65536") == 0) {
            (void)snprintf(path, sizeof(path), "/proc/%d/gid_map", (int)pid);
            (void)fd_write_value_at(AT_FDCWD, path, "0 100000 65536");
            (void)snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
            fd = open(path, O_RDONLY | O_CLOEXEC);
        }
    }
    if (pid > 0) {
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
    }
    (void)close(fds[0]);
    (void)close(fds[1]);
    return fd;
}

/* Everything happens below a tmpfs that only this process sees; the layer is a folder of the root
 * file system, mounted with other owners. */
static int try_overlay(void *arg)
{
    auto_close int tree = -1, userns = -1;
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP};

    (void)arg;
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return errno;
    userns = make_userns();
    if (userns < 0)
        return errno ? errno : EPERM;
    tree = (int)syscall(SYS_open_tree, AT_FDCWD, "/usr", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (tree < 0)
        return errno;
    attr.userns_fd = (unsigned)userns;
    if (syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
        return errno;
    if (mount("doctor", "/tmp", "tmpfs", 0, "size=1m") < 0 || mkdir("/tmp/lower", 0755) < 0 ||
        mkdir("/tmp/empty", 0755) < 0 || mkdir("/tmp/merged", 0755) < 0)
        return errno;
    if (syscall(SYS_move_mount, tree, "", AT_FDCWD, "/tmp/lower", MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return errno;
    if (mount("doctor", "/tmp/merged", "overlay", 0, "lowerdir=/tmp/empty:/tmp/lower") < 0)
        return errno;
    return 0;
}

void doctor_overlay(const struct doctor *doctor, struct doctor_result *out)
{
    int rc;

    if (doctor_needs_root(doctor, out))
        return;
    rc = doctor_try(try_overlay, doctor);
    if (rc == 0)
        doctor_ok(out, "works with idmapped layers");
    else if (!file_has_word("/proc/filesystems", "overlay"))
        doctor_bad(out, DOCTOR_FAIL, "modprobe overlay", "not in the kernel");
    else
        doctor_bad(out, DOCTOR_FAIL,
                   "use Linux 5.19 or newer; inside a container: run it privileged",
                   "an idmapped layer cannot be used: %s", strerror(rc));
}

/* Where a cgroup hierarchy is mounted: the v2 one, or the v1 one that has the controller. */
static bool find_cgroup(const char *controller, char out[256])
{
    auto_buf struct buf text = {0};
    struct str rest;

    buf_init(&text, 1024 * 1024);
    if (fd_read_file_at(AT_FDCWD, "/proc/self/mountinfo", &text) < 0)
        return false;
    rest = buf_str(&text);
    while (rest.len) {
        struct str line = str_split(&rest, '\n'), fields = line, options, point = STR_NONE;
        ptrdiff_t dash = str_find_str(line, STR(" - "));
        bool found;

        if (dash < 0)
            continue;
        for (int i = 0; i < 5; i++)
            point = str_split(&fields, ' ');
        options = str_skip(line, (size_t)dash + 3);
        if (!controller) {
            found = str_starts(options, STR("cgroup2 "));
        } else {
            found = false;
            if (!str_starts(options, STR("cgroup ")))
                continue;
            (void)str_split(&options, ' ');
            (void)str_split(&options, ' ');
            while (options.len && !found)
                found = str_is(str_split(&options, ','), controller);
        }
        if (found)
            return str_copy(point, out, 256);
    }
    return false;
}

/* Makes a cgroup, looks for the files that freeze and kill, removes it. */
static int probe_cgroup(const char *mount_point, const char **out_missing)
{
    static const char *const files[] = {"cgroup.freeze", "cgroup.kill", "cgroup.procs"};
    auto_free char *path = xasprintf("%s/quicksand-doctor-%d", mount_point, (int)getpid());
    auto_close int fd = -1;

    *out_missing = NULL;
    if (mkdir(path, 0755) < 0)
        return errno;
    fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (faccessat(fd, files[i], W_OK, 0) < 0)
            *out_missing = files[i];
    return rmdir(path) < 0 ? errno : 0;
}

void doctor_cgroup_v2(const struct doctor *doctor, struct doctor_result *out)
{
    char point[256];
    const char *missing;
    int rc;

    if (!find_cgroup(NULL, point)) {
        doctor_bad(out, DOCTOR_FAIL,
                   "boot with systemd.unified_cgroup_hierarchy=1, or mount -t cgroup2 none "
                   "/sys/fs/cgroup/unified",
                   "no cgroup v2 hierarchy is mounted");
        return;
    }
    if (doctor_needs_root(doctor, out))
        return;
    rc = probe_cgroup(point, &missing);
    if (rc)
        doctor_bad(out, DOCTOR_FAIL, "inside a container: run it privileged",
                   "no cgroup can be made in '%s': %s", point, strerror(rc));
    else if (missing)
        doctor_bad(out, DOCTOR_FAIL, "use Linux 5.19 or newer", "'%s' has no %s", point, missing);
    else
        doctor_ok(out, "'%s', with freeze and kill", point);
}

void doctor_controllers(const struct doctor *doctor, struct doctor_result *out)
{
    static const char *const names[] = {"memory", "cpu", "pids"};
    char point[256] = "", found[128] = "", missing[128] = "";
    auto_free char *list = NULL;

    (void)doctor;
    if (find_cgroup(NULL, point))
        list = xasprintf("%s/cgroup.controllers", point);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        bool v2 = list && file_has_word(list, names[i]);
        bool v1 = !v2 && find_cgroup(names[i], point);
        char *to = v1 || v2 ? found : missing;
        size_t len = strlen(to);

        (void)snprintf(to + len, 128 - len, "%s%s%s", len ? ", " : "", names[i],
                       v2   ? " (v2)"
                       : v1 ? " (v1)"
                            : "");
    }
    if (missing[0])
        doctor_bad(out, DOCTOR_FAIL,
                   "boot with cgroup_enable=memory systemd.unified_cgroup_hierarchy=1",
                   "missing: %s; there: %s", missing, found[0] ? found : "none");
    else
        doctor_ok(out, "%s", found);
}

/* Asking for a file system's type loads its module, as the server's own mount does. */
static int try_btrfs(void *arg)
{
    auto_close int fd = (int)syscall(SYS_fsopen, "btrfs", FSOPEN_CLOEXEC);

    (void)arg;
    return fd < 0 ? errno : 0;
}

void doctor_btrfs(const struct doctor *doctor, struct doctor_result *out)
{
    if (file_has_word("/proc/filesystems", "btrfs") ||
        (doctor->root && doctor_try(try_btrfs, doctor) == 0))
        doctor_ok(out, "in the kernel");
    else if (doctor_needs_root(doctor, out))
        return;
    else
        doctor_bad(out, DOCTOR_FAIL, "modprobe btrfs",
                   "not in the kernel; sandboxes' disks live on a btrfs pool");
}

void doctor_loop(const struct doctor *doctor, struct doctor_result *out)
{
    auto_close int fd = -1;

    if (doctor_needs_root(doctor, out))
        return;
    fd = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (fd >= 0)
        doctor_ok(out, "/dev/loop-control");
    else
        doctor_bad(out, DOCTOR_FAIL, "modprobe loop",
                   "/dev/loop-control: %s (not needed when the data directory is on btrfs)",
                   strerror(errno));
}

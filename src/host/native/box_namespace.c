/* Namespaces of other processes, as the warden meets them.
 *
 * Visiting a mount namespace needs a root and a working directory that no other thread shares: a
 * thread that visits for the first time gets its own, for good. Entering moves both to the root of
 * that namespace, so both are put back after the return. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "host/native/box.h"
#include "host/native/box_syscalls.h"

int box_namespace_open(pid_t pid, const char *kind, struct error *err)
{
    char path[40];
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, kind);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? error_set_errno(err, errno, "open the %s namespace", kind) : fd;
}

/* The kernel counts what a user namespace uses (inotify, pending signals, message queues) for the effective user
 * that made it, beside others of that user. So it is made by the box's own. The real user stays root, and with it what
 * this thread may do. */
pid_t box_namespace_clone(struct clone_args *args, uid_t base, struct error *err)
{
    struct __user_cap_data_struct caps[2];
    pid_t pid = -1;
    int saved;

    if (sys_capget(caps) < 0 || syscall(SYS_setresuid, -1, base, -1) < 0)
        return error_set_errno(err, errno, "become the box's user");
    if (sys_capset(caps) == 0)
        pid = sys_clone3(args);
    if (pid == 0)
        return 0;
    saved = errno;
    if (syscall(SYS_setresuid, -1, 0, -1) < 0 || sys_capset(caps) < 0) {
        /* A thread without its rights would fail at everything after this. */
        log_error("warden", "cannot become root again: errno %d", errno);
        abort();
    }
    return pid < 0 ? error_set_errno(err, saved, "clone3 with new namespaces") : pid;
}

static int write_map(pid_t pid, const char *file, uid_t base, struct error *err)
{
    char path[40], line[48];
    int r;

    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    (void)snprintf(line, sizeof(line), "0 %u %d\n", base, BOX_IDS_PER_SLOT);
    r = fd_write_value_at(AT_FDCWD, path, line);
    return r < 0 ? error_set_errno(err, -r, "write %s", file) : 0;
}

int box_namespace_map(pid_t pid, uid_t base, struct error *err)
{
    if (write_map(pid, "uid_map", base, err) < 0)
        return -1;
    return write_map(pid, "gid_map", base, err);
}

int box_namespace_visit(int mntns_fd, struct box_visit *out, struct error *err)
{
    auto_close int home = open("/proc/thread-self/ns/mnt", O_RDONLY | O_CLOEXEC);
    auto_close int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    auto_close int cwd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (home < 0 || root < 0 || cwd < 0)
        return error_set_errno(err, errno, "remember the own mount namespace");
    if (unshare(CLONE_FS) < 0)
        return error_set_errno(err, errno, "get an own working directory");
    if (setns(mntns_fd, CLONE_NEWNS) < 0)
        return error_set_errno(err, errno, "enter the box's mount namespace");
    *out = (struct box_visit){
        .home_fd = take_fd(&home), .root_fd = take_fd(&root), .cwd_fd = take_fd(&cwd)};
    return 0;
}

void box_namespace_leave(struct box_visit *visit)
{
    if (setns(visit->home_fd, CLONE_NEWNS) < 0 || fchdir(visit->root_fd) < 0 || chroot(".") < 0 ||
        fchdir(visit->cwd_fd) < 0) {
        /* A thread that stays in there would take a sandbox's files for the host's. */
        log_error("warden", "cannot return to the own mount namespace: errno %d", errno);
        abort();
    }
    close_fd(&visit->home_fd);
    close_fd(&visit->root_fd);
    close_fd(&visit->cwd_fd);
}

/* Leaving fsuid 0 drops the file capabilities from the effective set; they are put back. Ids and capabilities are
 * per thread. */
int box_ids_enter(uid_t base, struct error *err)
{
    struct __user_cap_data_struct caps[2];

    if (sys_capget(caps) < 0)
        return error_set_errno(err, errno, "read our capabilities");
    (void)syscall(SYS_setfsgid, base);
    (void)syscall(SYS_setfsuid, base);
    if (sys_capset(caps) == 0)
        return 0;
    (void)error_set_errno(err, errno, "keep our capabilities");
    box_ids_leave();
    return -1;
}

/* Back at fsuid 0 the effective set has the file capabilities that are permitted. */
void box_ids_leave(void)
{
    (void)syscall(SYS_setfsuid, 0);
    (void)syscall(SYS_setfsgid, 0);
}

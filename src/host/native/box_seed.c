/* The mount namespace that boxes begin in.
 *
 * Who is cloned with a mount namespace of its own gets a copy of its maker's. Of the host's it had to leave everything again:
 * pivot_root() looks at each thread of the host, which with thousands of boxes takes longer than all else of a start,
 * and for the unmount the kernel waits. So boxes are made from a namespace that has nothing of the host: the empty
 * directories of a blank root, a /proc of processes that there are not, and a /sys of a network that is gone. These two have
 * to be there, since a user namespace may mount its own only where it sees one.
 *
 * A box's root then goes on top of all that and its processes have their root in it, as that of a claimed box does
 * (box_inside.c). The namespace is made once, by a process that ends when it stands; a descriptor keeps it.
 *
 * Only for kernels that have blank boxes: others stack layers in the box's copy of the host's tree (box_overlay.c). */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "host/native/box.h"
#include "host/native/box_syscalls.h"

static int new_mount(const char *type, unsigned attrs)
{
    int fs = sys_fsopen(type, FSOPEN_CLOEXEC), mount_fd = -1;

    if (fs >= 0 && sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
        mount_fd = sys_fsmount(fs, FSMOUNT_CLOEXEC,
                               attrs | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    return mount_fd;
}

static bool attach(int mount_fd, const char *path)
{
    return sys_move_mount(mount_fd, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) == 0;
}

static bool leave_host(int root_fd)
{
    return attach(root_fd, "/proc") && fchdir(root_fd) == 0 &&
           syscall(SYS_pivot_root, ".", ".") == 0 && umount2(".", MNT_DETACH) == 0 &&
           chdir("/") == 0;
}

/* In the process that makes it: system calls only. */
static _Noreturn void make(int root_fd, int report_fd)
{
    int proc = -1, sys = -1, errnum = 0;

    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        (proc = new_mount("proc", 0)) < 0 || (sys = new_mount("sysfs", MOUNT_ATTR_RDONLY)) < 0 ||
        !leave_host(root_fd) || !attach(proc, "/proc") || !attach(sys, "/sys"))
        errnum = errno ? errno : EIO;
    /* Who hears nothing gives up. */
    (void)fd_write_full(report_fd, &errnum, sizeof(errnum));
    for (;;)
        (void)pause();
}

static int hear(int report_fd, struct error *err)
{
    int errnum = EIO;

    if (read(report_fd, &errnum, sizeof(errnum)) != sizeof(errnum) || errnum)
        return error_set_errno(err, errnum, "make the mount namespace that boxes begin in");
    return 0;
}

int box_seed_open(const struct boxes *all, int *out_fd, struct error *err)
{
    struct clone_args args = {.flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET,
                              .exit_signal = SIGCHLD};
    auto_close int root = -1, ours = -1, theirs = -1;
    int pair[2], fd;
    pid_t pid;

    if (box_mount_blank(all, &root, err) < 0)
        return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set_errno(err, errno, "socketpair");
    ours = pair[0];
    theirs = pair[1];
    pid = sys_clone3(&args);
    if (pid == 0)
        make(root, theirs);
    if (pid < 0)
        return error_set_errno(err, errno, "clone3 with new namespaces");
    close_fd(&theirs);
    fd = hear(ours, err) < 0 ? -1 : box_namespace_open(pid, "mnt", err);
    (void)kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    *out_fd = fd;
    return fd < 0 ? -1 : 0;
}

bool box_seeded(const struct boxes *all)
{
    return all->seed_fd >= 0 && !all->attach_layers;
}

pid_t box_seed_clone(const struct boxes *all, struct clone_args *args, uid_t base,
                     struct error *err)
{
    struct box_visit visit;
    pid_t pid;

    if (!box_seeded(all))
        return box_namespace_clone(args, base, err);
    if (box_namespace_visit(all->seed_fd, &visit, err) < 0)
        return -1;
    pid = box_namespace_clone(args, base, err);
    if (pid != 0)
        box_namespace_leave(&visit);
    return pid;
}

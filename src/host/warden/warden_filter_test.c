/* The system-call filter by itself. Inside a sandbox most of what it refuses is refused a second time for want
 * of capabilities, so that its absence would not show: here it is loaded by a process that has them all. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/test.h"
#include "host/native/box.h"
#include "host/native/box_syscalls.h"

/* Calls that do no harm: their arguments are wrong, and looked at before or after the rights. */
static const struct call {
    const char *name;
    long number, args[5];
    int want;
} calls[] = {
    {"clone3", SYS_clone3, {0}, ENOSYS},
    {"move_mount", SYS_move_mount, {-1, (long)"", -1, (long)"", 0}, EPERM},
    {"mount_setattr", SYS_mount_setattr, {-1, (long)"", 0, 0, 0}, EPERM},
    {"open_tree", SYS_open_tree, {-1, (long)"", 0}, EPERM},
    {"fsopen", SYS_fsopen, {(long)"none such", 0}, EPERM},
    {"fsmount", SYS_fsmount, {-1, 0, 0}, EPERM},
    {"fspick", SYS_fspick, {-1, (long)"", 0}, EPERM},
    {"mount", SYS_mount, {(long)"", (long)"", 0, 0, 0}, EPERM},
    {"umount2", SYS_umount2, {(long)"", 0}, EPERM},
    {"pivot_root", SYS_pivot_root, {(long)"", (long)""}, EPERM},
    {"setns", SYS_setns, {-1, 0}, EPERM},
    {"unshare", SYS_unshare, {CLONE_NEWUTS}, EPERM},
    {"open_by_handle_at", SYS_open_by_handle_at, {-1, 0, 0}, EPERM},
    /* Nobody listens here. */
    {"statfs", SYS_statfs, {(long)"/", 0}, ENOSYS},
    {"fstatfs", SYS_fstatfs, {-1, 0}, ENOSYS},
    {"process_madvise", SYS_process_madvise, {-1, 0, 0, 0, 0}, EPERM},
    {"delete_module", SYS_delete_module, {(long)"none such", 0}, EPERM},
    {"bpf", SYS_bpf, {-1, 0, 0}, EPERM},
    {"perf_event_open", SYS_perf_event_open, {0, 0, 0, 0, 0}, EPERM},
    {"keyctl", SYS_keyctl, {-1, 0, 0, 0, 0}, EPERM},
    {"add_key", SYS_add_key, {0, 0, 0, 0, 0}, EPERM},
    {"request_key", SYS_request_key, {0, 0, 0, 0}, EPERM},
    {"iopl", SYS_iopl, {4}, EPERM},
    {"ioperm", SYS_ioperm, {-1, 1, 1}, EPERM},
    {"settimeofday", SYS_settimeofday, {1, 0}, EPERM},
    {"clock_settime", SYS_clock_settime, {1000, 0}, EPERM},
    {"adjtimex", SYS_adjtimex, {1}, EPERM},
    {"swapon", SYS_swapon, {(long)"/none/such", 0}, EPERM},
    {"acct", SYS_acct, {(long)"/none/such"}, EPERM},
    {"reboot", SYS_reboot, {0, 0, 0, 0}, EPERM},
    {"userfaultfd", SYS_userfaultfd, {-1}, EPERM},
    {"fanotify_init", SYS_fanotify_init, {-1, 0}, EPERM},
    {"io_uring_setup", SYS_io_uring_setup, {1, 0}, EPERM},
    {"syslog", SYS_syslog, {-1, 0, 0}, EPERM},
    {"sethostname", SYS_sethostname, {0, -1}, EPERM},
    {"io_setup", SYS_io_setup, {0, 0}, ENOSYS},
    {"a packet socket", SYS_socket, {AF_PACKET, SOCK_RAW, 0}, EAFNOSUPPORT},
    {"a socket of nftables",
     SYS_socket,
     {AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER},
     EPROTONOSUPPORT},
    {"an ioctl of btrfs", SYS_ioctl, {-1, 0x9401, 0}, ENOTTY},
};
enum { CALLS = sizeof(calls) / sizeof(*calls) };

static void try_all(int *out)
{
    for (size_t i = 0; i < CALLS; i++) {
        const long *a = calls[i].args;

        errno = 0;
        out[i] = syscall(calls[i].number, a[0], a[1], a[2], a[3], a[4]) < 0 ? errno : 0;
    }
}

static void load_filter(void)
{
    static struct sock_filter code[BOX_FILTER_MAX];
    struct sock_fprog program = {.filter = code};
    auto_close int fd = -1;
    struct error err;
    ssize_t n;

    if (box_seccomp_compile(&fd, &err) < 0 || (n = pread(fd, code, sizeof(code), 0)) <= 0)
        _exit(1);
    program.len = (unsigned short)((size_t)n / sizeof(*code));
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
        _exit(1);
}

static void try_in_child(bool filtered, int *out)
{
    pid_t pid = fork();
    int status = -1;

    if (pid == 0) {
        if (filtered)
            load_filter();
        try_all(out);
        _exit(0);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

TEST(the_filter_refuses_by_itself)
{
    int *results = mmap(NULL, 2 * CALLS * sizeof(int), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    test_needs_root();
    CHECK(results != MAP_FAILED);
    try_in_child(false, results);
    try_in_child(true, results + CALLS);
    for (size_t i = 0; i < CALLS; i++)
        if (results[i] == calls[i].want || results[CALLS + i] != calls[i].want)
            test_fail(__FILE__, __LINE__, "%s: errno %d without the filter, %d with it, %d wanted",
                      calls[i].name, results[i], results[CALLS + i], calls[i].want);
    (void)munmap(results, 2 * CALLS * sizeof(int));
}

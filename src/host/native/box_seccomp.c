/* What a sandbox may ask of the kernel.
 *
 * An allow list: system calls not named here fail with ENOSYS, which programs take as "this kernel
 * does not have it" and cope with; that includes calls added to Linux after this was written. Calls
 * that exist everywhere but are refused here fail with EPERM, so that the message is honest.
 * Refused on purpose: everything that changes mounts, namespaces, modules, clocks or the machine,
 * bpf, perf, keyrings, io_uring, userfaultfd and handles to files by number: the parts of the kernel
 * that escapes come through. User namespaces inside are refused for the same reason. Not allowed either is
 * io_setup and its kin: the host has one small number of such contexts for everybody.
 *
 * Not answered by the kernel are statfs and fstatfs, which would tell of the pool: envd does that
 * (envd/view/statfs_answer.h). A box's first process gets the descriptor for it when it loads the filter.
 *
 * The filter is compiled once; boxes load the same instructions. */
#include "host/native/box.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/statfs_mark.h"

static const char *const allowed[] = {
    "accept",
    "accept4",
    "access",
    "alarm",
    "arch_prctl",
    "bind",
    "brk",
    "cachestat",
    "capget",
    "capset",
    "chdir",
    "chmod",
    "chown",
    "chroot",
    "clock_getres",
    "clock_gettime",
    "clock_nanosleep",
    "close",
    "close_range",
    "connect",
    "copy_file_range",
    "creat",
    "dup",
    "dup2",
    "dup3",
    "epoll_create",
    "epoll_create1",
    "epoll_ctl",
    "epoll_ctl_old",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "epoll_wait_old",
    "eventfd",
    "eventfd2",
    "execve",
    "execveat",
    "exit",
    "exit_group",
    "faccessat",
    "faccessat2",
    "fadvise64",
    "fallocate",
    "fchdir",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "fchown",
    "fchownat",
    "fcntl",
    "fdatasync",
    "fgetxattr",
    "flistxattr",
    "flock",
    "fork",
    "fremovexattr",
    "fsetxattr",
    "fstat",
    "fsync",
    "ftruncate",
    "futex",
    "futex_requeue",
    "futex_wait",
    "futex_waitv",
    "futex_wake",
    "futimesat",
    "get_mempolicy",
    "get_robust_list",
    "get_thread_area",
    "getcpu",
    "getcwd",
    "getdents",
    "getdents64",
    "getegid",
    "geteuid",
    "getgid",
    "getgroups",
    "getitimer",
    "getpeername",
    "getpgid",
    "getpgrp",
    "getpid",
    "getppid",
    "getpriority",
    "getrandom",
    "getresgid",
    "getresuid",
    "getrlimit",
    "getrusage",
    "getsid",
    "getsockname",
    "getsockopt",
    "gettid",
    "gettimeofday",
    "getuid",
    "getxattr",
    "inotify_add_watch",
    "inotify_init",
    "inotify_init1",
    "inotify_rm_watch",
    "ioprio_get",
    "ioprio_set",
    "kill",
    "landlock_add_rule",
    "landlock_create_ruleset",
    "landlock_restrict_self",
    "lchown",
    "lgetxattr",
    "link",
    "linkat",
    "listen",
    "listxattr",
    "llistxattr",
    "lremovexattr",
    "lseek",
    "lsetxattr",
    "lstat",
    "madvise",
    "map_shadow_stack",
    "mbind",
    "membarrier",
    "memfd_create",
    "memfd_secret",
    "mincore",
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "mlock",
    "mlock2",
    "mlockall",
    "mmap",
    "modify_ldt",
    "mprotect",
    "mq_getsetattr",
    "mq_notify",
    "mq_open",
    "mq_timedreceive",
    "mq_timedsend",
    "mq_unlink",
    "mremap",
    "mseal",
    "msgctl",
    "msgget",
    "msgrcv",
    "msgsnd",
    "msync",
    "munlock",
    "munlockall",
    "munmap",
    "name_to_handle_at",
    "nanosleep",
    "newfstatat",
    "open",
    "openat",
    "openat2",
    "pause",
    "personality",
    "pidfd_getfd",
    "pidfd_open",
    "pidfd_send_signal",
    "pipe",
    "pipe2",
    "pkey_alloc",
    "pkey_free",
    "pkey_mprotect",
    "poll",
    "ppoll",
    "prctl",
    "pread64",
    "preadv",
    "preadv2",
    "prlimit64",
    "process_mrelease",
    "process_vm_readv",
    "process_vm_writev",
    "pselect6",
    "ptrace",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "read",
    "readahead",
    "readlink",
    "readlinkat",
    "readv",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "remap_file_pages",
    "removexattr",
    "rename",
    "renameat",
    "renameat2",
    "restart_syscall",
    "rmdir",
    "rseq",
    "rt_sigaction",
    "rt_sigpending",
    "rt_sigprocmask",
    "rt_sigqueueinfo",
    "rt_sigreturn",
    "rt_sigsuspend",
    "rt_sigtimedwait",
    "rt_tgsigqueueinfo",
    "sched_get_priority_max",
    "sched_get_priority_min",
    "sched_getaffinity",
    "sched_getattr",
    "sched_getparam",
    "sched_getscheduler",
    "sched_rr_get_interval",
    "sched_setaffinity",
    "sched_setattr",
    "sched_setparam",
    "sched_setscheduler",
    "sched_yield",
    "seccomp",
    "select",
    "semctl",
    "semget",
    "semop",
    "semtimedop",
    "sendfile",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "set_mempolicy",
    "set_robust_list",
    "set_thread_area",
    "set_tid_address",
    "setfsgid",
    "setfsuid",
    "setgid",
    "setgroups",
    "setitimer",
    "setpgid",
    "setpriority",
    "setregid",
    "setresgid",
    "setresuid",
    "setreuid",
    "setrlimit",
    "setsid",
    "setsockopt",
    "setuid",
    "setxattr",
    "shmat",
    "shmctl",
    "shmdt",
    "shmget",
    "shutdown",
    "sigaltstack",
    "signalfd",
    "signalfd4",
    "socketpair",
    "splice",
    "stat",
    "statx",
    "symlink",
    "symlinkat",
    "sync",
    "sync_file_range",
    "syncfs",
    "sysinfo",
    "tee",
    "tgkill",
    "time",
    "timer_create",
    "timer_delete",
    "timer_getoverrun",
    "timer_gettime",
    "timer_settime",
    "timerfd_create",
    "timerfd_gettime",
    "timerfd_settime",
    "times",
    "tkill",
    "truncate",
    "umask",
    "uname",
    "unlink",
    "unlinkat",
    "utime",
    "utimensat",
    "utimes",
    "vfork",
    "vmsplice",
    "wait4",
    "waitid",
    "write",
    "writev",
};

static const char *const refused[] = {
    "_sysctl",
    "acct",
    "add_key",
    "adjtimex",
    "bpf",
    "clock_adjtime",
    "clock_settime",
    "create_module",
    "delete_module",
    "fanotify_init",
    "fanotify_mark",
    "finit_module",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "init_module",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "ioperm",
    "iopl",
    "kcmp",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "lookup_dcookie",
    "mount",
    "mount_setattr",
    "move_mount",
    "nfsservctl",
    "open_by_handle_at",
    "open_tree",
    "perf_event_open",
    "pivot_root",
    "process_madvise",
    "query_module",
    "quotactl",
    "quotactl_fd",
    "reboot",
    "request_key",
    "setdomainname",
    "sethostname",
    "setns",
    "settimeofday",
    "stime",
    "swapoff",
    "swapon",
    "syslog",
    "umount",
    "umount2",
    "userfaultfd",
    "uselib",
    "ustat",
    "vhangup",
};

#define NAMESPACE_FLAGS                                                                        \
    (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC | \
     CLONE_NEWCGROUP)
#define NAMESPACE_FLAG_TIME 0x80u /* CLONE_NEWTIME; in clone() the same bits are the exit signal */

/* Names this libseccomp or architecture does not know are calls this kernel cannot be asked for. */
static int add_named(scmp_filter_ctx filter, uint32_t action, const char *const *names,
                     size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int number = seccomp_syscall_resolve_name(names[i]);
        int r = number == __NR_SCMP_ERROR ? 0 : seccomp_rule_add(filter, action, number, 0);

        if (r < 0 && r != -EDOM)
            return r;
    }
    return 0;
}

/* clone() and unshare() without any namespace flag; clone3() hides its flags from us, so programs
 * are told that it does not exist and use clone(). */
static int add_process_rules(scmp_filter_ctx filter)
{
    int clone_nr = seccomp_syscall_resolve_name("clone");
    int unshare_nr = seccomp_syscall_resolve_name("unshare");
    int r;

    r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, clone_nr, 1,
                         SCMP_A0(SCMP_CMP_MASKED_EQ, NAMESPACE_FLAGS, 0));
    if (r < 0)
        return r;
    r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, unshare_nr, 1,
                         SCMP_A0(SCMP_CMP_MASKED_EQ, NAMESPACE_FLAGS | NAMESPACE_FLAG_TIME, 0));
    for (int i = 0; r == 0 && i < 7; i++) {
        static const uint64_t flags[] = {CLONE_NEWUSER, CLONE_NEWNS,  CLONE_NEWPID,   CLONE_NEWNET,
                                         CLONE_NEWUTS,  CLONE_NEWIPC, CLONE_NEWCGROUP};

        r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), clone_nr, 1,
                             SCMP_A0(SCMP_CMP_MASKED_EQ, flags[i], flags[i]));
        if (r == 0)
            r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), unshare_nr, 1,
                                 SCMP_A0(SCMP_CMP_MASKED_EQ, flags[i], flags[i]));
    }
    return r;
}

/* Families and netlink protocols that programs use; the others are little-tested kernel code. They
 * fail as on a kernel built without them. Audit is there because sudo and PAM insist on asking it. */
enum { FAMILY_UNIX = 1, FAMILY_INET = 2, FAMILY_INET6 = 10, FAMILY_NETLINK = 16 };
enum { NETLINK_OF_ROUTES = 0, NETLINK_OF_AUDIT = 9, NETLINK_OF_DEVICES = 15 };

static int add_socket_family(scmp_filter_ctx filter, int number, unsigned family)
{
    bool allow = family == FAMILY_UNIX || family == FAMILY_INET || family == FAMILY_INET6;

    return seccomp_rule_add(filter, allow ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EAFNOSUPPORT), number,
                            1, SCMP_A0(SCMP_CMP_EQ, family));
}

static int add_netlink_protocol(scmp_filter_ctx filter, int number, unsigned protocol)
{
    bool allow = protocol == NETLINK_OF_ROUTES || protocol == NETLINK_OF_AUDIT ||
                 protocol == NETLINK_OF_DEVICES;

    return seccomp_rule_add(filter, allow ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EPROTONOSUPPORT),
                            number, 2, SCMP_A0(SCMP_CMP_EQ, FAMILY_NETLINK),
                            SCMP_A2(SCMP_CMP_EQ, protocol));
}

static int add_socket_rules(scmp_filter_ctx filter)
{
    int number = seccomp_syscall_resolve_name("socket");
    int r = 0;

    for (unsigned family = 0; r == 0 && family < FAMILY_NETLINK; family++)
        r = add_socket_family(filter, number, family);
    for (unsigned protocol = 0; r == 0 && protocol < 32; protocol++)
        r = add_netlink_protocol(filter, number, protocol);
    if (r == 0)
        r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EAFNOSUPPORT), number, 1,
                             SCMP_A0(SCMP_CMP_GT, FAMILY_NETLINK));
    return r;
}

/* ioctl(), but for those of btrfs: on a volume, anybody could make subvolumes (which have no quota)
 * or flush the host's disk. The three that every file system shares (copy by reference, deduplicate)
 * are allowed where there is no volume (box_seccomp_refuse_clones()). The number's second byte is the kind, the first one the operation. */
enum { IOCTL_BTRFS = 0x94, IOCTL_CLONE = 9, IOCTL_CLONE_RANGE = 13, IOCTL_DEDUPE = 54 };

static int add_ioctl_rule(scmp_filter_ctx filter, uint32_t action, unsigned mask, unsigned value)
{
    return seccomp_rule_add(filter, action, seccomp_syscall_resolve_name("ioctl"), 1,
                            SCMP_A1(SCMP_CMP_MASKED_EQ, mask, value));
}

static int add_ioctl_rules(scmp_filter_ctx filter)
{
    static const unsigned shared[] = {IOCTL_CLONE, IOCTL_CLONE_RANGE, IOCTL_DEDUPE};
    /* All operations but these three, as mask and value. */
    static const unsigned refused_ops[][2] = {
        {0xf8, 0},  {0xff, 8},  {0xfe, 10}, {0xff, 12}, {0xfe, 14}, {0xf0, 16},  {0xf0, 32},
        {0xfc, 48}, {0xfe, 52}, {0xff, 55}, {0xf8, 56}, {0xc0, 64}, {0x80, 128},
    };
    int r = 0;

    /* Any bit of the kind is different. */
    for (unsigned bit = 1; r == 0 && bit < 256; bit <<= 1)
        r = add_ioctl_rule(filter, SCMP_ACT_ALLOW, bit << 8, (~(unsigned)IOCTL_BTRFS & bit) << 8);
    for (size_t i = 0; r == 0 && i < sizeof(shared) / sizeof(*shared); i++)
        r = add_ioctl_rule(filter, SCMP_ACT_ALLOW, 0xffff, IOCTL_BTRFS << 8 | shared[i]);
    for (size_t i = 0; r == 0 && i < sizeof(refused_ops) / sizeof(*refused_ops); i++)
        r = add_ioctl_rule(filter, SCMP_ACT_ERRNO(ENOTTY), 0xff00 | refused_ops[i][0],
                           IOCTL_BTRFS << 8 | refused_ops[i][1]);
    return r;
}

static int add_statfs_rules(scmp_filter_ctx filter)
{
    static const char *const names[] = {"statfs", "fstatfs"};
    int r = 0;

    for (size_t i = 0; r == 0 && i < sizeof(names) / sizeof(*names); i++) {
        int number = seccomp_syscall_resolve_name(names[i]);

        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 1, SCMP_A5(SCMP_CMP_EQ, STATFS_MARK));
        if (r == 0)
            r = seccomp_rule_add(filter, SCMP_ACT_NOTIFY, number, 1,
                                 SCMP_A5(SCMP_CMP_NE, STATFS_MARK));
    }
    return r;
}

static int build(scmp_filter_ctx filter)
{
    int r;

    r = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
    if (r == 0)
        r = seccomp_attr_set(filter, SCMP_FLTATR_CTL_NNP, 0);
    /* A binary tree of comparisons instead of a list of 300. */
    if (r == 0)
        r = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    if (r == 0)
        r = add_named(filter, SCMP_ACT_ALLOW, allowed, sizeof(allowed) / sizeof(*allowed));
    if (r == 0)
        r = add_named(filter, SCMP_ACT_ERRNO(EPERM), refused, sizeof(refused) / sizeof(*refused));
    if (r == 0)
        r = add_process_rules(filter);
    if (r == 0)
        r = add_socket_rules(filter);
    if (r == 0)
        r = add_ioctl_rules(filter);
    if (r == 0)
        r = add_statfs_rules(filter);
    return r;
}

int box_seccomp_compile(int *out_fd, struct error *err)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
    auto_close int fd = memfd_create("seccomp", MFD_CLOEXEC);
    int r;

    if (!filter || fd < 0) {
        if (filter)
            seccomp_release(filter);
        return error_set(err, ERROR_INTERNAL, "cannot set up a seccomp filter");
    }
    r = build(filter);
    if (r == 0)
        r = seccomp_export_bpf(filter, fd);
    seccomp_release(filter);
    if (r < 0)
        return error_set_errno(err, -r, "compile the seccomp filter");
    *out_fd = take_fd(&fd);
    return 0;
}

/* Where there are volumes: no copies by reference. What two volumes share is charged to the first alone,
 * and to nobody once that is gone, so the second could grow without end. A box with one volume could do it
 * too, with a file that another box hands it through a socket there. Programs copy byte by byte then. */
int box_seccomp_refuse_clones(void)
{
#define OF_CALL(member) ((uint32_t)offsetof(struct seccomp_data, member))
#define ANSWER(errnum)  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (errnum))
    /* The operations are those of FICLONE, FICLONERANGE and FIDEDUPERANGE. */
    static const struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, OF_CALL(nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_copy_file_range, 8, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, OF_CALL(args[1])),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xffff),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x9409, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x940d, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x9436, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        ANSWER(EOPNOTSUPP),
        ANSWER(EXDEV),
    };
#undef OF_CALL
#undef ANSWER
    struct sock_fprog filter = {.len = sizeof(code) / sizeof(*code),
                                .filter = (struct sock_filter *)(uintptr_t)code};

    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter);
}

/* Guests may load filters of their own, as envds that fence in their commands do. The kernel compiles them into
 * memory that no cgroup counts and that all unprivileged filters of the host share, those of the next sandboxes too
 * (net.core.bpf_jit_limit). What bounds them is the number of instructions that all filters of one process have
 * together, some 32,000: so most of that is used up by filters that allow everything at their first instruction.
 * They belong to the thread that starts boxes, which inherit and share them. */
enum { FILLER_MAX = 4096 }; /* the longest filter; the kernel counts it twice */

int box_seccomp_fill(struct error *err)
{
    static const unsigned short fillers[] = {FILLER_MAX, FILLER_MAX, FILLER_MAX, 1000};
    static const struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_filter *code = xcalloc(FILLER_MAX, sizeof(*code));
    struct sock_fprog program = {.filter = code};
    int r = 0;

    for (size_t i = 0; i < FILLER_MAX; i++)
        code[i] = allow;
    for (size_t i = 0; r == 0 && i < sizeof(fillers) / sizeof(*fillers); i++) {
        program.len = fillers[i];
        r = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW,
                         &program);
    }
    if (r < 0)
        (void)error_set_errno(err, errno, "bound the filters of guests");
    free(code);
    return r;
}

#define CAP(name) (UINT64_C(1) << (name))

uint64_t box_capabilities(void)
{
    return CAP(CAP_CHOWN) | CAP(CAP_DAC_OVERRIDE) | CAP(CAP_DAC_READ_SEARCH) | CAP(CAP_FOWNER) |
           CAP(CAP_FSETID) | CAP(CAP_KILL) | CAP(CAP_SETGID) | CAP(CAP_SETUID) | CAP(CAP_SETPCAP) |
           CAP(CAP_NET_BIND_SERVICE) | CAP(CAP_NET_RAW) | CAP(CAP_IPC_LOCK) | CAP(CAP_IPC_OWNER) |
           CAP(CAP_SYS_CHROOT) | CAP(CAP_SYS_PTRACE) | CAP(CAP_MKNOD) | CAP(CAP_AUDIT_WRITE) |
           CAP(CAP_SETFCAP);
}

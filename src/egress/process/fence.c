/* The filter of system calls: what the process needs once it runs, and nothing else. */
#include <errno.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "egress/process/egress_internal.h"

static const int allowed[] = {
    /* connections */
    SCMP_SYS(accept4),
    SCMP_SYS(bind),
    SCMP_SYS(close),
    SCMP_SYS(connect),
    SCMP_SYS(getpeername),
    SCMP_SYS(getsockname),
    SCMP_SYS(getsockopt),
    SCMP_SYS(pipe2),
    SCMP_SYS(read),
    SCMP_SYS(readv),
    SCMP_SYS(recvfrom),
    SCMP_SYS(recvmsg),
    SCMP_SYS(sendmsg),
    SCMP_SYS(sendto),
    SCMP_SYS(setsockopt),
    SCMP_SYS(shutdown),
    SCMP_SYS(splice),
    SCMP_SYS(write),
    SCMP_SYS(writev),
    /* waiting */
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(epoll_create1),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(epoll_pwait),
    SCMP_SYS(epoll_wait),
    SCMP_SYS(fcntl),
    SCMP_SYS(futex),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(ioctl),
    SCMP_SYS(nanosleep),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(sched_yield),
    /* memory, signals, the end */
    SCMP_SYS(brk),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(getpid),
    SCMP_SYS(getrandom),
    SCMP_SYS(gettid),
    SCMP_SYS(madvise),
    SCMP_SYS(mremap),
    SCMP_SYS(munmap),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(tgkill),
};

static int add_rules(scmp_filter_ctx filter)
{
    int r = 0;

    for (size_t i = 0; i < sizeof(allowed) / sizeof(*allowed) && r == 0; i++)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0);
    if (r == 0)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1,
                             SCMP_A0(SCMP_CMP_EQ, AF_INET));
    /* Memory, but none that can be executed. */
    if (r == 0)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
                             SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    if (r == 0)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1,
                             SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    return r;
}

int fence_up(struct error *err)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    int r;

    if (!filter)
        return error_set(err, ERROR_INTERNAL, "cannot set up a seccomp filter");
    r = add_rules(filter);
    if (r == 0)
        r = seccomp_load(filter);
    seccomp_release(filter);
    return r < 0 ? error_set_errno(err, -r, "load the seccomp filter") : 0;
}

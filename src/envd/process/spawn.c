/* How it works: clone(CLONE_VM | CLONE_VFORK) runs child() on a stack of its own while envd
 * waits. The child must not touch anything envd relies on: it makes system calls directly
 * (libc's setuid and friends keep state) and reports a failure by writing to the caller's variable,
 * which works because memory is shared.
 *
 * All signals are blocked around the clone, so that no handler of envd can run in the child;
 * the child sets the dispositions envd changed back before it unblocks them.
 *
 * Programs are to be ended for want of memory before envd is. oom_score_adj must be written before the
 * user changes: afterwards /proc/self belongs to root. In a sandbox it always belongs to the host's root, because the
 * envd is not dumpable: there envd, which had its own file opened for it, takes the value that the child
 * is to inherit for the moment of the clone. */
#include "envd/process/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "envd/process/usage.h"

enum {
    STACK_SIZE = 64 * 1024,
    KERNEL_SIGSET_SIZE = 8,
    CROWD_NICE = -15,
};

#define PROGRAM_OOM_SCORE "100"

static const int changed_signals[] = {SIGPIPE, SIGTERM, SIGINT, SIGHUP, SIGCHLD};

/* What rt_sigaction(2) takes; all zero is SIG_DFL. */
struct kernel_sigaction {
    unsigned long handler, flags, restorer, mask;
};

struct child {
    const struct spawn *spawn;
    bool crowded;
    volatile struct spawn_failure *failure;
};

static struct rlimit guest_nofile;
static bool nofile_raised;
static int own_oom_fd = -1;
static char own_oom_score[8] = "0";
/* Of processes: while there is room, and when a fork bomb or the like has taken what a user may have. */
static struct rlimit guest_nproc, crowd_nproc;
static bool has_reserve;

static long set_user(const struct user *user)
{
    /* Without root there is one user, and it stays. */
    if (syscall(SYS_geteuid) != 0)
        return 0;
    if (syscall(SYS_setgroups, user->group_count, user->groups) != 0 ||
        syscall(SYS_setresgid, user->gid, user->gid, user->gid) != 0)
        return -1;
    return syscall(SYS_setresuid, user->uid, user->uid, user->uid);
}

static void raise_oom_score(void)
{
    long fd;

    if (own_oom_fd >= 0)
        return;
    fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return;
    (void)syscall(SYS_write, fd, PROGRAM_OOM_SCORE, sizeof(PROGRAM_OOM_SCORE) - 1);
    (void)syscall(SYS_close, fd);
}

static void reset_signals(void)
{
    struct kernel_sigaction standard = {0};
    unsigned long none = 0;

    for (size_t i = 0; i < sizeof(changed_signals) / sizeof(changed_signals[0]); i++)
        (void)syscall(SYS_rt_sigaction, changed_signals[i], &standard, NULL, KERNEL_SIGSET_SIZE);
    (void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, KERNEL_SIGSET_SIZE);
}

static void set_mark(uint64_t mark)
{
    struct rlimit limit = {mark, mark};

    if (mark)
        (void)syscall(SYS_prlimit64, 0, RLIMIT_LOCKS, &limit, NULL);
}

/* envd goes before all others (the warden sees to it), programs do not. One that is started into a
 * crowd comes between, or it would wait for seconds at each step. */
static void take_place(bool crowded)
{
    const struct rlimit *limit = crowded ? &crowd_nproc : &guest_nproc;

    if (!has_reserve)
        return;
    (void)syscall(SYS_prlimit64, 0, RLIMIT_NPROC, limit, NULL);
    (void)syscall(SYS_setpriority, PRIO_PROCESS, 0, crowded ? CROWD_NICE : 0);
    (void)syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &(struct sched_param){0});
}

static long set_up(const struct spawn *spawn, bool crowded)
{
    if (syscall(SYS_setsid) < 0)
        return -1;
    raise_oom_score();
    if (spawn->tty && syscall(SYS_ioctl, spawn->stdio[0], TIOCSCTTY, 0) != 0)
        return -1;
    for (int i = 0; i < 3; i++)
        if (syscall(SYS_dup3, spawn->stdio[i], i, 0) < 0)
            return -1;
    if (nofile_raised)
        (void)syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &guest_nofile, NULL);
    set_mark(spawn->mark);
    take_place(crowded);
    (void)syscall(SYS_umask, 022);
    return set_user(spawn->user);
}

/* As execvp(3) does: a later candidate may still be found, but a refusal is remembered. */
static int try_candidates(const struct spawn *spawn)
{
    int errnum = ENOENT;

    for (char *const *path = spawn->candidates; *path; path++) {
        (void)syscall(SYS_execve, *path, spawn->argv, spawn->envp);
        if (errno != ENOENT && errno != ENOTDIR)
            errnum = errno;
        if (errno != ENOENT && errno != ENOTDIR && errno != EACCES)
            break;
    }
    return errnum;
}

__attribute__((no_sanitize("address", "undefined"))) static int child(void *arg)
{
    struct child *child = arg;

    child->failure->step = SPAWN_SETUP;
    if (set_up(child->spawn, child->crowded) == 0) {
        child->failure->step = SPAWN_CWD;
        if (syscall(SYS_chdir, child->spawn->cwd) == 0) {
            reset_signals();
            child->failure->step = SPAWN_EXEC;
            errno = try_candidates(child->spawn);
        }
    }
    child->failure->errnum = errno;
    (void)syscall(SYS_exit_group, 127);
    return 127;
}

/* The stack stays mapped: at most two of its pages are ever touched. */
static char *stack_top(void)
{
    static char *stack;

    if (!stack) {
        void *p = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);

        if (p == MAP_FAILED)
            return NULL;
        stack = p;
    }
    return stack + STACK_SIZE;
}

static void set_own_oom_score(const char *score)
{
    if (own_oom_fd >= 0)
        (void)!pwrite(own_oom_fd, score, strlen(score), 0);
}

static pid_t spawn_once(const struct spawn *spawn, bool crowded, struct spawn_failure *failure)
{
    struct child start = {.spawn = spawn, .crowded = crowded, .failure = failure};
    char *stack = stack_top();
    sigset_t all, before;
    pid_t pid;

    *failure = (struct spawn_failure){.step = SPAWN_SETUP};
    if (!stack) {
        failure->errnum = ENOMEM;
        return -1;
    }
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, &before);
    set_own_oom_score(PROGRAM_OOM_SCORE);
    pid = clone(child, stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &start);
    if (pid < 0)
        failure->errnum = errno;
    set_own_oom_score(own_oom_score);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    /* A child that failed is reaped like any other orphan. */
    return pid < 0 || failure->errnum != 0 ? -1 : pid;
}

void spawn_set_oom_fd(int fd)
{
    struct buf text = {0};

    buf_init(&text, 64);
    if (fd >= 0 && fd_read_file_at(AT_FDCWD, "/proc/self/oom_score_adj", &text) == 0 &&
        str_copy(str_trim(buf_str(&text)), own_oom_score, sizeof(own_oom_score)))
        own_oom_fd = fd;
    else if (fd >= 0)
        log_warn("envd", "cannot read oom_score_adj, ignoring");
    buf_done(&text);
}

/* The limit may be a user's alone, or be left free for a moment just now: so it counts who is there. Half
 * of what there may be, for a crowd that grows takes the rest before a command of now has forked. */
static bool is_crowded(void)
{
    size_t enough = guest_nproc.rlim_cur / 2;

    return has_reserve && usage_tasks(USAGE_ROOT, enough) >= enough;
}

pid_t spawn(const struct spawn *spawn, struct spawn_failure *failure)
{
    pid_t pid;

    if (!is_crowded())
        return spawn_once(spawn, false, failure);
    (void)setrlimit(RLIMIT_NPROC, &crowd_nproc);
    pid = spawn_once(spawn, true, failure);
    (void)setrlimit(RLIMIT_NPROC, &(struct rlimit){guest_nproc.rlim_cur, crowd_nproc.rlim_max});
    return pid;
}

void spawn_read_processes(void)
{
    struct rlimit limit;

    if (getpid() != 1 || getrlimit(RLIMIT_NPROC, &limit) != 0 || limit.rlim_cur >= limit.rlim_max)
        return;
    guest_nproc = (struct rlimit){limit.rlim_cur, limit.rlim_cur};
    crowd_nproc = (struct rlimit){limit.rlim_max, limit.rlim_max};
    has_reserve = true;
}

void spawn_read_limits(void)
{
    struct rlimit limit;

    spawn_read_processes();
    if (getrlimit(RLIMIT_NOFILE, &guest_nofile) != 0)
        return;
    limit = guest_nofile;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0)
        nofile_raised = true;
    else
        log_warn("envd", "cannot raise the limit of open files, ignoring");
}

/* How it works: whoever calls waits in the kernel until the thread has answered; a signal, or a freeze of the
 * sandbox, ends that wait, and the call begins anew. The thread does nothing else, so that whatever it has to
 * wait for (a page of the caller's memory may come from a file that envd's loop serves) gets done.
 *
 * Nothing is decided here but which numbers a program sees. What is read of the caller may change while we
 * look; what must not happen is that another process gets written to. So the caller's directory in /proc and
 * its memory are opened first. When the call still waits then, they are the caller's, whatever becomes of it.
 *
 * A path is looked up from the caller's root and directory, and with its rights: else it would learn what lies
 * in directories that it may not search. */
#include "envd/view/statfs_answer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/statfs_mark.h"
#include "base/thread.h"
#include "envd/files/guest_stat.h"
#include "envd/view/disk_use.h"

/* Linux 6.6: whoever is woken runs at once, on the same processor. */
#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, uint64_t)
#endif
enum { NOTIFY_SYNC_WAKE_UP = 1 };

enum { STATUS_MAX = 16 * 1024 };

static int notify_fd = -1;
static struct guest_stat root;

/* musl's ioctl() takes no number with the highest bit set. */
static int notify(unsigned long request, const void *arg)
{
    return (int)syscall(SYS_ioctl, notify_fd, request, arg);
}

struct caller {
    const struct seccomp_notif *call;
    int proc_fd, mem_fd; /* its directory in /proc, its memory */
};

/* ---- rights ---- */

static bool parse_ids(struct str text, char separator, uint32_t *out, size_t max, size_t *out_count)
{
    *out_count = 0;
    while (text.p) {
        struct str word = str_split(&text, separator);
        uint64_t id;

        if (word.len == 0)
            continue;
        if (*out_count == max || !str_to_u64(word, &id) || id >= UINT32_MAX)
            return false;
        out[(*out_count)++] = (uint32_t)id;
    }
    return true;
}

/* Real, effective, saved, and the one for files. */
static bool parse_file_id(struct str text, uint32_t *out)
{
    uint32_t ids[4];
    size_t count;

    if (!parse_ids(text, '\t', ids, 4, &count) || count != 4)
        return false;
    *out = ids[3];
    return true;
}

static bool parse_capabilities(struct str text, bool *out_searches_all)
{
    char digits[20], *end;
    uint64_t set;

    if (!str_copy(str_trim(text), digits, sizeof(digits)))
        return false;
    set = strtoull(digits, &end, 16);
    *out_searches_all = set & (1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH);
    return end != digits && *end == '\0';
}

bool statfs_rights_parse(struct str status, struct statfs_rights *out)
{
    unsigned found = 0;

    while (status.p) {
        struct str value = str_split(&status, '\n');
        struct str key = str_split(&value, ':');

        if (str_is(key, "Uid"))
            found += parse_file_id(value, &out->uid);
        else if (str_is(key, "Gid"))
            found += parse_file_id(value, &out->gid);
        else if (str_is(key, "Groups"))
            found +=
                parse_ids(str_trim(value), ' ', out->groups, STATFS_GROUPS_MAX, &out->group_count);
        else if (str_is(key, "CapEff"))
            found += parse_capabilities(value, &out->searches_all);
    }
    return found == 4;
}

static bool read_rights(const struct caller *caller, struct statfs_rights *out)
{
    auto_buf struct buf text = {0};

    buf_init(&text, STATUS_MAX);
    return fd_read_file_at(caller->proc_fd, "status", &text) == 0 &&
           statfs_rights_parse(buf_str(&text), out);
}

/* These are a thread's own in the kernel; the C library's functions would change all threads. Another user for
 * files than root loses root's capabilities for files, and gets them back with it. */
static bool set_file_ids(uint32_t uid, uint32_t gid, const uint32_t *groups, size_t count)
{
    if (syscall(SYS_setgroups, count, groups) != 0)
        return false;
    (void)syscall(SYS_setfsgid, gid);
    (void)syscall(SYS_setfsuid, uid);
    /* They tell the value before, and take no invalid one. */
    return syscall(SYS_setfsgid, -1) == gid && syscall(SYS_setfsuid, -1) == uid;
}

/* ---- what is asked about ---- */

static bool on_root(int fd)
{
    struct guest_stat st;

    return guest_stat_fd(fd, &st) == 0 && st.mount && st.mount == root.mount;
}

static bool is_root(int fd)
{
    struct guest_stat st;

    return guest_stat_fd(fd, &st) == 0 && st.mount == root.mount && st.ino == root.ino;
}

static int look_up(int start_fd, const char *path)
{
    /* Links of /proc that lead to whoever looks are left to the caller. */
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS};

    if (path[0] == '/')
        how.resolve |= RESOLVE_IN_ROOT;
    return (int)syscall(SYS_openat2, start_fd, path, &how, sizeof(how));
}

/* With the caller's rights. */
static int look_up_as(const struct caller *caller, int start_fd, const char *path)
{
    struct statfs_rights rights;
    int fd = -1;

    if (!read_rights(caller, &rights))
        return -1;
    if (rights.searches_all)
        return look_up(start_fd, path);
    if (rights.uid == 0)
        return -1; /* root without its capabilities */
    if (set_file_ids(rights.uid, rights.gid, rights.groups, rights.group_count))
        fd = look_up(start_fd, path);
    /* Fails for want of memory only. */
    while (!set_file_ids(0, 0, NULL, 0))
        (void)usleep(1000);
    return fd;
}

/* Many programs ask whether there is SELinux at each start: that is to be quick. */
static bool is_elsewhere(const char *path)
{
    return strncmp(path, "/sys/", 5) == 0 || strncmp(path, "/proc/", 6) == 0;
}

static bool read_path(const struct caller *caller, char out[PATH_MAX])
{
    ssize_t n = pread(caller->mem_fd, out, PATH_MAX, (off_t)caller->call->data.args[0]);

    return n > 0 && memchr(out, '\0', (size_t)n) && !is_elsewhere(out);
}

static int open_path(const struct caller *caller)
{
    auto_close int root_fd = -1, start_fd = -1, fd = -1;
    char path[PATH_MAX];

    if (!read_path(caller, path))
        return -1;
    root_fd = openat(caller->proc_fd, "root", O_PATH | O_CLOEXEC);
    if (root_fd < 0)
        return -1;
    /* A relative path may lead above where it starts, but not above a root other than ours. */
    if (path[0] != '/') {
        start_fd = openat(caller->proc_fd, "cwd", O_PATH | O_CLOEXEC);
        if (start_fd < 0 || !is_root(root_fd))
            return -1;
    }
    /* First with our own rights: most of what is asked about is elsewhere, and needs no more. A link in /tmp may be
     * refused to us and not to the caller (fs.protected_symlinks). */
    fd = look_up(start_fd >= 0 ? start_fd : root_fd, path);
    if (fd < 0 ? errno != EACCES : !on_root(fd))
        return -1;
    return look_up_as(caller, start_fd >= 0 ? start_fd : root_fd, path);
}

static int open_descriptor(const struct caller *caller)
{
    char path[32];

    (void)snprintf(path, sizeof(path), "fd/%u", (unsigned)caller->call->data.args[0]);
    return openat(caller->proc_fd, path, O_PATH | O_CLOEXEC);
}

/* ---- the answer ---- */

static bool fill_in(int fd, struct statfs *out)
{
    struct disk_use use;
    uint64_t block;

    if (syscall(SYS_fstatfs, fd, out, 0, 0, 0, STATFS_MARK) != 0)
        return false;
    block = (uint64_t)out->f_bsize;
    if (block == 0 || !disk_use_read(out->f_bavail * block, &use))
        return false;
    out->f_blocks = use.size / block;
    out->f_bfree = out->f_blocks - use.used / block;
    out->f_bavail = use.available / block;
    return true;
}

static bool still_waits(const struct caller *caller)
{
    return notify(SECCOMP_IOCTL_NOTIF_ID_VALID, &caller->call->id) == 0;
}

/* False: the kernel is to do it. */
static bool answer(const struct seccomp_notif *call)
{
    auto_close int proc_fd = -1, mem_fd = -1, fd = -1;
    struct caller caller = {.call = call};
    struct statfs numbers;
    char path[32];

    _Static_assert(sizeof(numbers) == 120, "the kernel's");
    (void)snprintf(path, sizeof(path), "/proc/%u", call->pid);
    caller.proc_fd = proc_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (proc_fd < 0)
        return false;
    caller.mem_fd = mem_fd = openat(proc_fd, "mem", O_RDWR | O_CLOEXEC);
    if (mem_fd < 0 || !still_waits(&caller))
        return false;
    fd = call->data.nr == SYS_fstatfs ? open_descriptor(&caller) : open_path(&caller);
    return fd >= 0 && on_root(fd) && fill_in(fd, &numbers) &&
           pwrite(mem_fd, &numbers, sizeof(numbers), (off_t)call->data.args[1]) == sizeof(numbers);
}

static void answer_all(void *unused)
{
    (void)unused;
    for (;;) {
        struct seccomp_notif call = {0};
        struct seccomp_notif_resp reply = {0};

        if (notify(SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) {
            /* ENOENT: whoever asked was interrupted. */
            if (errno == EINTR || errno == ENOENT)
                continue;
            break;
        }
        reply.id = call.id;
        if (!answer(&call))
            reply.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        (void)notify(SECCOMP_IOCTL_NOTIF_SEND, &reply);
    }
    log_error("envd", "cannot answer statfs any more: errno %d", errno);
    close_fd(&notify_fd);
}

/* Nobody asks at that time. */
int statfs_answer_renew(void)
{
    return notify_fd >= 0 ? guest_stat("/", true, &root) : 0;
}

int statfs_answer_start(int notify_fd_consume)
{
    struct error err;
    int r;

    notify_fd = notify_fd_consume;
    r = guest_stat("/", true, &root);
    (void)syscall(SYS_ioctl, notify_fd, SECCOMP_IOCTL_NOTIF_SET_FLAGS, NOTIFY_SYNC_WAKE_UP);
    if (r == 0 && thread_start_detached("statfs", THREAD_STACK_DEFAULT, answer_all, NULL, &err) < 0)
        r = -err.errnum;
    if (r != 0)
        close_fd(&notify_fd);
    return r;
}

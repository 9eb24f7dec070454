/* Files of a box's /proc that its envd serves: one FUSE file system for all of them.
 *
 * It is a directory. Its files are cloned as mounts of their own, which go over those of /proc; the directory itself is out
 * of reach before anything else runs inside. To clone a file the kernel looks it up, and asks the process that serves the
 * file system. That is not envd yet, so a second process answers until all are found.
 *
 * A process that waits for an answer cannot be killed; only the answer, or the end of the connection, ends its wait. The
 * kernel ends a connection when its last descriptor is closed. So the process that waits must not hold one: the second
 * process has the only descriptor meanwhile and sends it back when it is done. If it is killed, the lookup fails.
 *
 * Called between clone and exec. The second process shares the first one's memory, thread-local data included, so it makes
 * system calls only, none of them a cancellation point. */
#include "host/native/box_files.h"

#include <errno.h>
#include <linux/fuse.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "host/native/box_syscalls.h"

enum {
    OUR_MINOR = 31,
    REQUEST_MAX = 8192, /* the least the kernel accepts as a reading buffer */
    STACK_SIZE = 32 * 1024,
    FOR_EVER_S = 1 << 30,
    FIRST_NODE = FUSE_ROOT_ID + 1,
};

/* glibc's name of clone() that ThreadSanitizer leaves alone: what it puts in front of clone() passes the arguments on the
 * caller's stack, which is used for other things when the second process begins. */
int __clone(int (*fn)(void *), void *stack_top, int flags, void *arg, ...);

const char *const box_files_names[BOX_FILES] = {"meminfo", "stat", "loadavg"};

void (*box_files_before_reply)(void);

static _Alignas(16) char stack[STACK_SIZE];
static _Alignas(8) char request[REQUEST_MAX + 1];

static void reply(int fuse_fd, int error, const void *body, size_t len)
{
    struct {
        struct fuse_out_header head;
        char body[sizeof(struct fuse_entry_out)];
    } message = {.head = {.len = (uint32_t)(sizeof(message.head) + len), .error = error}};

    message.head.unique = ((struct fuse_in_header *)(void *)request)->unique;
    if (len)
        memcpy(message.body, body, len);
    if (syscall(SYS_write, fuse_fd, &message, sizeof(message.head) + len) < 0)
        _exit(1);
}

static void reply_init(int fuse_fd)
{
    const struct fuse_init_out out = {
        .major = FUSE_KERNEL_VERSION, .minor = OUR_MINOR, .max_write = 4096, .time_gran = 1};

    _Static_assert(sizeof(out) <= sizeof(struct fuse_entry_out), "room for every answer");
    reply(fuse_fd, 0, &out, sizeof(out));
}

/* True when there is such a file. */
static bool reply_lookup(int fuse_fd, const char *name)
{
    struct fuse_entry_out out = {.entry_valid = FOR_EVER_S, .attr_valid = FOR_EVER_S};

    for (unsigned i = 0; i < BOX_FILES; i++) {
        if (strcmp(name, box_files_names[i]) != 0)
            continue;
        out.nodeid = out.attr.ino = FIRST_NODE + i;
        out.attr.mode = S_IFREG | 0444;
        out.attr.nlink = 1;
        out.attr.blksize = 4096;
        reply(fuse_fd, 0, &out, sizeof(out));
        return true;
    }
    reply(fuse_fd, -ENOENT, NULL, 0);
    return false;
}

/* What the second process has: the only descriptor of the connection, and where it sends it. */
struct server {
    int fuse_fd, channel;
};

static void give_back(const struct server *server)
{
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {.head = {.cmsg_len = CMSG_LEN(sizeof(int)),
                          .cmsg_level = SOL_SOCKET,
                          .cmsg_type = SCM_RIGHTS}};
    char word = 'f';
    struct iovec part = {.iov_base = &word, .iov_len = 1};
    const struct msghdr message = {.msg_iov = &part,
                                   .msg_iovlen = 1,
                                   .msg_control = &control,
                                   .msg_controllen = sizeof(control)};

    memcpy(CMSG_DATA(&control.head), &server->fuse_fd, sizeof(int));
    if (syscall(SYS_sendmsg, server->channel, &message, MSG_NOSIGNAL) != 1)
        _exit(1);
}

static int answer(void *arg)
{
    const struct fuse_in_header *head = (const struct fuse_in_header *)(const void *)request;
    const struct server *server = arg;

    for (int found = 0; found < BOX_FILES;) {
        long n = syscall(SYS_read, server->fuse_fd, request, REQUEST_MAX);

        if (n < (long)sizeof(*head))
            _exit(1);
        request[n] = '\0';
        if (box_files_before_reply)
            box_files_before_reply();
        if (head->opcode == FUSE_INIT)
            reply_init(server->fuse_fd);
        else if (head->opcode == FUSE_LOOKUP)
            found += reply_lookup(server->fuse_fd, request + sizeof(*head));
        else
            reply(server->fuse_fd, -ENOSYS, NULL, 0);
    }
    give_back(server);
    return 0;
}

static int take_back(int channel, int *out_fuse_fd)
{
    size_t count = 1;
    char word;

    if (fd_recv(channel, &word, 1, out_fuse_fd, &count, 0) == 1 && count == 1)
        return 0;
    errno = ECONNABORTED;
    return -1;
}

int box_files_find(int *fuse_fd, int mount_fd, int out_fds[BOX_FILES])
{
    /* Not on this stack, which is left before the other has ended when a lookup fails. */
    static struct server server;
    int pair[2], r;
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    server = (struct server){.fuse_fd = *fuse_fd, .channel = pair[1]};
    pid = __clone(answer, stack + sizeof(stack), CLONE_VM, &server);
    if (pid < 0)
        return -1;
    (void)close(pair[1]);
    (void)close(*fuse_fd);
    for (size_t i = 0; i < BOX_FILES; i++) {
        out_fds[i] =
            sys_open_tree(mount_fd, box_files_names[i], OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
        if (out_fds[i] < 0)
            return -1;
    }
    r = take_back(pair[0], fuse_fd);
    (void)close(pair[0]);
    (void)syscall(SYS_wait4, pid, NULL, __WALL, NULL);
    return r;
}

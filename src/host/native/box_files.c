/* Files of a box's /proc that its envd serves: one FUSE file system for all of them.
 *
 * It is a directory. Its files are cloned as mounts of their own, which go over those of /proc; the
 * directory itself is out of reach before anybody else runs inside. To clone a file the kernel has to
 * look it up, and asks who serves the file system. That is not envd yet, so a second thread of the
 * box's first process answers until all are found, and ends.
 *
 * Called between clone and exec. The thread shares the other's thread-local data, so it makes system
 * calls only, none of them a cancellation point; a failure that it cannot answer with ends them both. */
#include "host/native/box_files.h"

#include <errno.h>
#include <linux/fuse.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "host/native/box_syscalls.h"

enum {
    OUR_MINOR = 31,
    REQUEST_MAX = 8192, /* the least the kernel accepts as a reading buffer */
    STACK_SIZE = 32 * 1024,
    FOR_EVER_S = 1 << 30,
    FIRST_NODE = FUSE_ROOT_ID + 1,
};

const char *const box_files_names[BOX_FILES] = {"meminfo", "stat", "loadavg"};

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

static int answer(void *arg)
{
    const struct fuse_in_header *head = (const struct fuse_in_header *)(const void *)request;
    int fuse_fd = *(const int *)arg;

    for (int found = 0; found < BOX_FILES;) {
        long n = syscall(SYS_read, fuse_fd, request, REQUEST_MAX);

        if (n < (long)sizeof(*head))
            _exit(1);
        request[n] = '\0';
        if (head->opcode == FUSE_INIT)
            reply_init(fuse_fd);
        else if (head->opcode == FUSE_LOOKUP)
            found += reply_lookup(fuse_fd, request + sizeof(*head));
        else
            reply(fuse_fd, -ENOSYS, NULL, 0);
    }
    return 0;
}

int box_files_find(int fuse_fd, int mount_fd, int out_fds[BOX_FILES])
{
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    /* Not on this stack, which is left before the thread has ended. */
    static int fd;

    fd = fuse_fd;
    if (clone(answer, stack + sizeof(stack), flags, &fd) < 0)
        return -1;
    for (size_t i = 0; i < BOX_FILES; i++) {
        out_fds[i] =
            sys_open_tree(mount_fd, box_files_names[i], OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
        if (out_fds[i] < 0)
            return -1;
    }
    return 0;
}

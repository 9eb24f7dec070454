/* The FUSE connections of a box: files of its /proc that its envd serves.
 *
 * Who reads such a file waits in the kernel for envd's answer, and from the moment that envd has
 * taken the request nothing ends that wait but the answer, or the end of the connection; SIGKILL does not.
 * Somebody inside who gets at envd's end could so make processes that nothing ends. Therefore the
 * connections are aborted before the processes are killed, whatever holds them open.
 *
 * The kernel lists all connections of the host in a file system of its own, by the mount's device number.
 * Ours is mounted nowhere. A number that was given to somebody else meanwhile is told by the owner. */
#include "host/native/box_fuse.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "host/native/box_syscalls.h"

enum { TABLE_MAX = 256 << 10 };

int box_fuse_open(int *out_fd, struct error *err)
{
    auto_close int fs = sys_fsopen("fusectl", FSOPEN_CLOEXEC);
    int fd;

    if (fs < 0 || sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return error_set_errno(err, errno, "FUSE on this host");
    fd = sys_fsmount(fs, FSMOUNT_CLOEXEC, 0);
    if (fd < 0)
        return error_set_errno(err, errno, "mount the list of FUSE connections");
    *out_fd = fd;
    return 0;
}

/* Without asking the file system itself: nobody answers yet. */
int box_fuse_number(int mount_fd, uint32_t *out)
{
    struct statx st;

    if (statx(mount_fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &st) < 0)
        return -1;
    *out = st.stx_dev_minor; /* the major number is 0 */
    return 0;
}

/* "36 35 0:52 / /proc/meminfo ro - fuse source options"; blanks in names are written otherwise. */
static bool read_line(struct str line, uint32_t *out)
{
    struct str field = STR_NONE;
    uint64_t minor;

    for (int i = 0; i < 3; i++)
        field = str_split(&line, ' ');
    if (!str_is(str_split(&field, ':'), "0") || !str_to_u64(field, &minor) || minor > UINT32_MAX)
        return false;
    while (line.p && !str_is(str_split(&line, ' '), "-"))
        ;
    if (!str_is(str_split(&line, ' '), "fuse"))
        return false;
    *out = (uint32_t)minor;
    return true;
}

static void read_mounts(pid_t task, struct buf *out)
{
    char path[40];

    buf_init(out, TABLE_MAX);
    (void)snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)task);
    if (fd_read_file_at(AT_FDCWD, path, out) < 0)
        buf_clear(out);
}

static bool next_number(struct str *rest, uint32_t *out)
{
    while (rest->p)
        if (read_line(str_split(rest, '\n'), out))
            return true;
    return false;
}

void box_fuse_find(pid_t pid, uint32_t out[BOX_FUSE_MAX])
{
    auto_buf struct buf text = {0};
    struct str rest;

    memset(out, 0, BOX_FUSE_MAX * sizeof(*out));
    read_mounts(pid, &text);
    rest = buf_str(&text);
    for (size_t i = 0; i < BOX_FUSE_MAX && next_number(&rest, &out[i]); i++)
        ;
}

int box_fuse_abort(int control_fd, uint32_t number, uid_t owner, struct error *err)
{
    char path[32];
    auto_close int fd = -1;
    struct stat st;

    if (number == 0)
        return 0;
    (void)snprintf(path, sizeof(path), "%u/abort", number);
    fd = openat(control_fd, path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set_errno(err, errno, "open FUSE connection %u", number);
    if (st.st_uid != owner)
        return 0;
    return write(fd, "1", 1) < 0 ? error_set_errno(err, errno, "abort FUSE connection %u", number)
                                 : 0;
}

int box_fuse_abort_seen(int control_fd, pid_t task, uid_t owner, struct error *err)
{
    auto_buf struct buf text = {0};
    struct str rest;
    uint32_t number;
    int r = 0;

    read_mounts(task, &text);
    rest = buf_str(&text);
    while (r == 0 && next_number(&rest, &number))
        r = box_fuse_abort(control_fd, number, owner, err);
    return r;
}

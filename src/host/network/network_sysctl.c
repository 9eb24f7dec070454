/* Settings of the kernel under /proc/sys/net, of the namespace this thread is in.
 *
 * Each namespace that was looked at there leaves a name behind as long as it lives, and the kernel finds a name by looking at all that
 * are called the same: with thousands of sandboxes that was an eighth of all that is done for a start. So it is a /proc of our own, which has
 * no such names, and after some uses another one. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "host/network/network_internal.h"

enum { USES_MAX = 64 };

static int new_proc(void)
{
    auto_close int fs = fsopen("proc", FSOPEN_CLOEXEC);

    if (fs < 0 || fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -1;
    return fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
}

/* A descriptor of it for the caller; where there can be none, of the host's. */
static int open_proc(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int proc = -1;
    static unsigned uses;
    int fd;

    (void)pthread_mutex_lock(&lock);
    if (proc < 0 || uses == USES_MAX) {
        close_fd(&proc);
        proc = new_proc();
        uses = 0;
    }
    uses++;
    fd = proc < 0 ? open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC)
                  : fcntl(proc, F_DUPFD_CLOEXEC, 0);
    (void)pthread_mutex_unlock(&lock);
    return fd;
}

int network_sysctl(const char *path, const char *value, bool optional, struct error *err)
{
    auto_close int proc = open_proc();
    auto_buf struct buf now = {0};
    char whole[160];
    int r;

    if (proc < 0)
        return error_set_errno(err, errno, "open /proc");
    (void)snprintf(whole, sizeof(whole), "sys/net/%s", path);
    buf_init(&now, 64);
    r = fd_read_file_at(proc, whole, &now);
    if (r == -ENOENT && optional)
        return 0;
    /* Where /proc/sys is read-only, a value that is right already is good enough. */
    if (r == 0 && str_is(str_trim(buf_str(&now)), value))
        return 0;
    r = fd_write_value_at(proc, whole, value);
    return r < 0 ? error_set_errno(err, -r, "write '%s' to '/proc/%s'", value, whole) : 0;
}

/* Settings of the kernel under /proc/sys/net, of the namespace this thread is in. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/str.h"
#include "host/network/network_internal.h"

int network_sysctl(const char *path, const char *value, bool optional, struct error *err)
{
    auto_buf struct buf now = {0};
    char whole[160];
    int r;

    (void)snprintf(whole, sizeof(whole), "/proc/sys/net/%s", path);
    buf_init(&now, 64);
    r = fd_read_file_at(AT_FDCWD, whole, &now);
    if (r == -ENOENT && optional)
        return 0;
    /* Where /proc/sys is read-only, a value that is right already is good enough. */
    if (r == 0 && str_is(str_trim(buf_str(&now)), value))
        return 0;
    r = fd_write_value_at(AT_FDCWD, whole, value);
    return r < 0 ? error_set_errno(err, -r, "write '%s' to '%s'", value, whole) : 0;
}

/* A file of its own: the C library's struct tcp_info ends before what is wanted, and its header excludes the kernel's. */
#include "egress/process/carried.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

bool carried_by(int fd, struct carried *out)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof(info);

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) < 0)
        return false;
    *out = (struct carried){info.tcpi_bytes_acked, info.tcpi_bytes_received};
    return true;
}

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "host/engine/engine_wire.h"

int engine_socket_path(const char *run_dir, const char *id, char out[ENGINE_SOCKET_PATH_SIZE])
{
    int len = snprintf(out, ENGINE_SOCKET_PATH_SIZE, "%s/%s.sock", run_dir, id);

    return len > 0 && len < ENGINE_SOCKET_PATH_SIZE ? 0 : -ENAMETOOLONG;
}

int engine_socket_connect(const char *run_dir, const char *id)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    auto_close int fd = -1;

    if (engine_socket_path(run_dir, id, address.sun_path) < 0)
        return -ENAMETOOLONG;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return -errno;
    return take_fd(&fd);
}

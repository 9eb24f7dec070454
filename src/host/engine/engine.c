#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "host/engine/engine_wire.h"

static size_t network_size(const struct box_network *network)
{
    uint64_t ranges = (uint64_t)network->allow_count + network->deny_count;

    if (ranges > BOX_RANGES_MAX)
        ranges = BOX_RANGES_MAX;
    return offsetof(struct box_network, ranges) + ranges * sizeof(network->ranges[0]);
}

size_t engine_request_size(const struct engine_request *request)
{
#define END(member) (offsetof(struct engine_request, member) + sizeof(request->member))
    switch (request->op) {
    case ENGINE_OP_START:
    case ENGINE_OP_CLAIM:
        return offsetof(struct engine_request, spec.network) + network_size(&request->spec.network);
    case ENGINE_OP_NETWORK:
        return offsetof(struct engine_request, network.network) +
               network_size(&request->network.network);
    case ENGINE_OP_LIMIT:
        return END(limit);
    case ENGINE_OP_FREEZE:
        return END(freeze);
    case ENGINE_OP_SNAPSHOT:
        return END(snapshot);
    case ENGINE_OP_LIST:
        return END(list);
    case ENGINE_OP_LAYER_LIST:
        return END(layer_list);
    case ENGINE_OP_LAYER_DELETE:
    case ENGINE_OP_LAYER_SEAL:
    case ENGINE_OP_LAYER_CHECK:
    case ENGINE_OP_VOLUME_DELETE:
    case ENGINE_OP_VOLUME_USAGE:
        return END(named);
    case ENGINE_OP_LAYER_PUBLISH:
        return END(layer_publish);
    case ENGINE_OP_VOLUME_CREATE:
        return END(volume_create);
    case ENGINE_OP_SPACE:
        return offsetof(struct engine_request, spec);
    default: /* KILL, STOP, USAGE; one that is unknown is refused by the warden */
        return END(box);
    }
#undef END
}

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

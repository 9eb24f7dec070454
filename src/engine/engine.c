#include "engine/engine.h"

#include <errno.h>
#include <stdio.h>

int engine_socket_path(const char *run_dir, const char *id, char out[ENGINE_SOCKET_PATH_SIZE])
{
    int len = snprintf(out, ENGINE_SOCKET_PATH_SIZE, "%s/%s.sock", run_dir, id);

    return len > 0 && len < ENGINE_SOCKET_PATH_SIZE ? 0 : -ENAMETOOLONG;
}

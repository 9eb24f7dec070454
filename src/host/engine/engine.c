#include "host/engine/engine.h"

#include <errno.h>
#include <stdio.h>

#define SOCKET_END ".sock"

int engine_socket_path(const char *run_dir, const char *id, char out[ENGINE_SOCKET_PATH_SIZE])
{
    int len = snprintf(out, ENGINE_SOCKET_PATH_SIZE, "%s/%s" SOCKET_END, run_dir, id);

    return len > 0 && len < ENGINE_SOCKET_PATH_SIZE ? 0 : -ENAMETOOLONG;
}

struct str engine_socket_id(const char *run_dir, const char *path)
{
    struct str id = str_of(path);

    if (!str_starts(id, str_of(run_dir)) || !str_ends(id, STR(SOCKET_END)))
        return STR_NONE;
    id = str_skip(id, strlen(run_dir));
    id.len -= id.len < strlen(SOCKET_END) ? id.len : strlen(SOCKET_END);
    return str_starts(id, STR("/")) ? str_skip(id, 1) : STR_NONE;
}

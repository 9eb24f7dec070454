/* Any bytes: servers of the gateway, or refused. Names become paths and words of a shell: of those that were taken none says more. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "extra/mcp/gateway/gateway.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct server_config *config)
{
    if (strpbrk(config->name, " \t\n'\"`$;&|<>()\\*?") || strstr(config->name, ".."))
        abort();
    if (strncmp(config->cwd, "/opt/mcp", sizeof("/opt/mcp") - 1) != 0 || !config->run[0])
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct server_config all[GATEWAY_SERVERS_MAX] = {0};
    struct error err = {0};
    size_t count = 0;
    int r = config_read(str_n(data, size), all, &count, &err);

    if (count > GATEWAY_SERVERS_MAX)
        abort();
    for (size_t i = 0; i < count; i++) {
        if (r == 0)
            check(&all[i]);
        config_done(&all[i]);
    }
    return 0;
}

/* Host, id and port, separated by line ends. */
#include <stdlib.h>

#include "edge/proxy/proxy_guard.h"
#include "edge/proxy/proxy_host.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str rest = str_n(data, size);
    struct str host = str_split(&rest, '\n'), id = str_split(&rest, '\n');
    struct str port = str_split(&rest, '\n');
    struct proxy_target target = {0};
    const char *error = NULL;
    enum proxy_host result = proxy_host_parse(host, id, port, &target, &error);

    if ((result == PROXY_HOST_BAD) != (error != NULL))
        abort();
    if (result == PROXY_HOST_OK) {
        if (!target.port || !target.id[0])
            abort();
        for (const char *p = target.id; *p; p++) {
            if (!((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9')))
                abort();
        }
    }
    (void)proxy_guard_is_control(host);
    return 0;
}

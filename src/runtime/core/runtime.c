#include "runtime/core/runtime.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/id.h"
#include "runtime/core/runtime_parts.h"

void runtime_id(const char *prefix, char out[RUNTIME_ID_SIZE])
{
    static const char alphabet[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    unsigned char bytes[64];
    char text[21];
    size_t made = 0;

    while (made < 20) {
        random_bytes(bytes, sizeof(bytes));
        /* 252 = 7 * 36: what is above would make some characters more likely. */
        for (size_t i = 0; i < sizeof(bytes) && made < 20; i++)
            if (bytes[i] < 252)
                text[made++] = alphabet[bytes[i] % 36];
    }
    text[made] = '\0';
    (void)snprintf(out, RUNTIME_ID_SIZE, "%s%s", prefix, text);
}

struct fetch *runtime_fetch(const struct runtime *runtime)
{
    return runtime->config.fetch;
}

bool runtime_is_operator(const struct runtime *runtime, struct str team_id)
{
    const char *team = runtime->config.operator_team;

    return !team || str_is(team_id, team);
}

bool runtime_public_only(const struct runtime *runtime, struct str team_id)
{
    return !runtime->config.settings->private_urls && !runtime_is_operator(runtime, team_id);
}

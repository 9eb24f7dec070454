/* The output of a sandbox about its changes: whatever it is, the parts lie within it. */
#include "runtime/session/changes.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_within(struct str part, const uint8_t *data, size_t size)
{
    const uint8_t *p = (const uint8_t *)part.p;

    if (part.len && (p < data || p + part.len > data + size))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_arena struct arena arena = {0};
    struct session_changes changes;

    if (!session_changes_parse(str_n(data, size), &arena, &changes))
        return 0;
    if (changes.count > CHANGES_FILES_MAX)
        abort();
    for (size_t i = 0; i < changes.count; i++) {
        check_within(changes.items[i].path, data, size);
        check_within(changes.items[i].diff, data, size);
    }
    return 0;
}

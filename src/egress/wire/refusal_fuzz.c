/* Messages of the kernel's packet log, whose packets guests make. */
#include <stdlib.h>
#include <string.h>

#include "egress/wire/refusal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str rest = str_n(data, size);
    struct refusal refusal;

    while (refusal_next(&rest, &refusal))
        if (!refusal.protocol || strnlen(refusal.why, sizeof(refusal.why)) == sizeof(refusal.why))
            abort();
    return 0;
}

#include "base/size.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

const char *size_text(uint64_t bytes, char out[SIZE_TEXT])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    enum { UNITS = sizeof(units) / sizeof(*units) };
    uint64_t tenths;
    double value = (double)bytes;
    size_t i = 0;

    /* What would be rounded to 1024 is 1 of the next unit. */
    while (value >= (i ? 1023.95 : 1024) && i + 1 < UNITS) {
        value /= 1024;
        i++;
    }
    tenths = (uint64_t)(value * 10 + 0.5);
    if (i == 0 || tenths % 10 == 0)
        (void)snprintf(out, SIZE_TEXT, "%" PRIu64 " %s", i ? tenths / 10 : bytes, units[i]);
    else
        (void)snprintf(out, SIZE_TEXT, "%" PRIu64 ".%" PRIu64 " %s", tenths / 10, tenths % 10,
                       units[i]);
    return out;
}

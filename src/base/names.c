#include "base/names.h"

#include <assert.h>
#include <stdio.h>

const char *name_of(const struct names *names, unsigned value)
{
    assert(value < names->count);
    return names->text[value];
}

bool name_find(const struct names *names, struct str text, unsigned *out)
{
    for (unsigned i = 0; i < names->count; i++)
        if (str_is(text, names->text[i])) {
            *out = i;
            return true;
        }
    return false;
}

void names_list(const struct names *names, char *out, size_t size)
{
    size_t n = 0;

    out[0] = '\0';
    for (unsigned i = 0; i < names->count && n < size; i++) {
        const char *between = i == 0 ? "" : i + 1 == names->count ? " or " : ", ";

        n += (size_t)snprintf(out + n, size - n, "%s%s", between, names->text[i]);
    }
}

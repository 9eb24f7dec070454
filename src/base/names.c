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
        if (names->text[i] && str_is(text, names->text[i])) {
            *out = i;
            return true;
        }
    return false;
}

void names_list(const struct names *names, char *out, size_t size)
{
    const char *between = "";
    unsigned last = 0;
    size_t n = 0;

    out[0] = '\0';
    for (unsigned i = 0; i < names->count; i++)
        if (names->text[i])
            last = i;
    for (unsigned i = 0; i <= last && n < size; i++) {
        if (!names->text[i])
            continue;
        n += (size_t)snprintf(out + n, size - n, "%s%s", i && i == last ? " or " : between,
                              names->text[i]);
        between = ", ";
    }
}

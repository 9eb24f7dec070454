/* What the values of an enum are called where they are text: in the database, in JSON, in messages. One table per
 * enum; the values themselves are compared everywhere else. */
#pragma once

#include <stdbool.h>

#include "base/str.h"

struct names {
    const char *what;        /* "state of a job" */
    const char *const *text; /* NULL = the value has no name here */
    unsigned count;
};
#define NAMES(what, table)                                  \
    {                                                       \
        (what), (table), sizeof(table) / sizeof((table)[0]) \
    }

const char *name_of(const struct names *names, unsigned value);
bool name_find(const struct names *names, struct str text, unsigned *out);
/* "ask, edit or bypass": for messages. */
void names_list(const struct names *names, char *out, size_t size);

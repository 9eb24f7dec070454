/* Names of hosts as they come from guests: in questions to the resolver, in TLS hellos, in Host headers. One text
 * for one name: lower case, no dot at the end, letters, digits, '-' and '_' in labels. Whatever else DNS lets a label
 * hold (dots among it) is no name here, so that two spellings cannot be told apart by one part and not by another. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

enum { HOST_NAME_LENGTH = 253, HOST_LABEL_MAX = 63 };

struct host_name {
    char text[HOST_NAME_LENGTH + 1];
    size_t len;
};

/* False when it is none. A dot at the end is left out. */
bool host_name_set(struct host_name *name, struct str text);
/* Appends one label, with a dot before it unless it is the first. */
bool host_name_add_label(struct host_name *name, struct str label);
static inline struct str host_name_str(const struct host_name *name)
{
    return str_n(name->text, name->len);
}

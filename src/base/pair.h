/* A name and a value: a header, a label, an environment variable, a member of metadata. Borrowed. */
#pragma once

#include "base/str.h"

struct pair {
    struct str name, value;
};

/* How templates and snapshots are called: "name", "name:tag", "team/name:tag". Letters are made
 * small; the tag is "default" when none is given. */
#pragma once

#include <stdbool.h>

#include "base/arena.h"
#include "base/str.h"

enum { STORE_NAME_MAX = 128 };

struct store_name {
    struct str team; /* STR_NONE when not given */
    struct str name, tag;
    bool tag_given;
};

/* False when it cannot be a name: [a-z0-9-_]+, tags also with dots. */
bool store_name_parse(struct str text, struct arena *arena, struct store_name *out);
bool store_name_valid(struct str name);

/* Patterns of file names: those of COPY, and those of .dockerignore. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"

/* '*' and '?' never match '/'; [a-z], [^a-z] and '\' as in a shell. deep: "**" matches any number of directories. */
bool pattern_match(struct str pattern, struct str path, bool deep);
/* Is there anything in it that is not just a name? */
bool pattern_is_plain(struct str pattern);

enum { IGNORE_MAX = 1024 * 1024, IGNORE_PATTERNS_MAX = 10000 };

struct ignore_pattern {
    struct str text;
    bool except; /* "!": what it matches is wanted after all */
};

struct ignore {
    struct ignore_pattern *patterns;
    size_t count;
    bool has_exceptions;
};

/* The text of a .dockerignore. file: what it is called in messages. */
int ignore_parse(struct str text, const char *file, struct arena *arena, struct ignore *out,
                 struct error *err);
/* Is the path (relative, without "." or "..") left out? The last pattern that matches it or a directory above it
 * decides. */
bool ignore_matches(const struct ignore *ignore, struct str path);

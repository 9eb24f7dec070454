/* What the files about templates and their builds share. */
#pragma once

#include "edge/api_e2b/api_internal.h"

/* The build of what was never built; clients only show it. */
#define API_NO_BUILD "00000000-0000-0000-0000-000000000000"

enum { API_TAGS_MAX = 32 };

/* "tags": an array of strings, absent or null. */
int api_builds_tags(const json_t *array, struct arena *arena, struct str **out, size_t *out_count,
                    struct error *err);
/* New reference. */
json_t *api_builds_strings(const struct str *items, size_t count);

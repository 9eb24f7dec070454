/* Patterns like '{{.id}} {{.metadata.owner}}', filled from JSON objects. "\t" and "\n" are what they are in C;
 * {{json .}} is all of it, {{json .limits}} a part. */
#pragma once

#include <jansson.h>

#include "base/error.h"

int cli_pattern_check(const char *pattern, struct error *err);
/* malloc()ed; what is not there is "-". Nothing in it that a terminal would obey but the pattern's own tabs and lines. */
char *cli_pattern_fill(const char *pattern, const json_t *row);
